"""The rules that each model provider imposes on messages, and a check of them.

`openai` stands for every endpoint that speaks its protocol. Many of those feed the messages to a chat
template that only supports alternating users and assistants, or parse the arguments of past calls;
so its rules here are slightly stricter than OpenAI's own, and messages that follow them are accepted
everywhere.

Providers answer violations with HTTP 400:

- OpenAI: results directly after the message with their calls, ids of at most 64 characters, at most
  128 calls in a message.
- Anthropic: a result directly after its call, the user first and last, unique ids of
  `[a-zA-Z0-9_-]`, no blank text.
- Gemini: the same order; a call carries the signature of the thought that led to it. Gemini 3 demands
  it in the current turn; here every message with calls needs it, so that a message keeps its bytes
  when its turn is over.
- Mistral: ids of nine letters and digits, an assistant between a result and the next user, the user
  or a result last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from rekindle.message_formats import EXTRA_CONTENT
from rekindle.types import JSON, Content, Message, ToolCall

Provider: TypeAlias = Literal["openai", "anthropic", "gemini", "mistral"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)

_TEXT = frozenset({"text"})
_TEXT_AND_IMAGES = frozenset({"text", "image_url"})


class ProviderRules(NamedTuple):
    """The rules of one provider. `parts` maps each role to the content types it may have."""

    id: re.Pattern[str]
    tool: re.Pattern[str]
    parts: Mapping[str, frozenset[str]]
    author: re.Pattern[str] | None = None  # allowed `name` of a message; None: not supported
    needs_unique_ids: bool = False  # across the conversation, not just within a message
    allows_late_system: bool = False  # system messages after the first user message
    allows_user_after_result: bool = True
    allows_assistant_last: bool = False
    needs_signature: bool = False
    max_calls: int = 128


PROVIDER_RULES: Mapping[Provider, ProviderRules] = {
    "openai": ProviderRules(
        id=re.compile(r"[!-~]{1,64}"),
        tool=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        parts={
            "system": _TEXT,
            "developer": _TEXT,
            "user": _TEXT_AND_IMAGES | {"input_audio", "file"},
            "assistant": _TEXT | {"refusal"},
            "tool": _TEXT,
        },
        author=re.compile(r"[^\s<|\\/>]{1,64}"),
        allows_late_system=True,
        allows_assistant_last=True,
    ),
    "anthropic": ProviderRules(
        id=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        tool=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
        parts={"system": _TEXT, "user": _TEXT_AND_IMAGES, "assistant": _TEXT, "tool": _TEXT},
        needs_unique_ids=True,
    ),
    "gemini": ProviderRules(
        id=re.compile(r"[!-~]{1,64}"),
        tool=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
        parts={
            "system": _TEXT,
            "user": _TEXT_AND_IMAGES | {"input_audio"},
            "assistant": _TEXT,
            "tool": _TEXT,
        },
        needs_unique_ids=True,
        needs_signature=True,
    ),
    "mistral": ProviderRules(
        id=re.compile(r"[a-zA-Z0-9]{9}"),
        tool=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        parts={
            "system": _TEXT,
            "user": _TEXT_AND_IMAGES | {"input_audio", "document_url"},
            "assistant": _TEXT,
            "tool": _TEXT,
        },
        needs_unique_ids=True,
        allows_user_after_result=False,
    ),
}

_PROVIDER_PATTERNS: tuple[tuple[Provider, re.Pattern[str]], ...] = (
    ("anthropic", re.compile(r"anthropic|claude")),
    ("gemini", re.compile(r"googleapis|gemini")),
    ("mistral", re.compile(r"istral|mixtral|pixtral|voxtral|devstral|codestral")),
)


def detect_provider(base_url: str, model: str) -> Provider:
    """Return whose rules apply; the model name decides before the address, as routers forward."""
    for name in (model.lower(), base_url.lower()):
        for provider, pattern in _PROVIDER_PATTERNS:
            if pattern.search(name):
                return provider
    return "openai"


def find_violations(provider: Provider, messages: Sequence[Message]) -> list[str]:
    """Return every violation of the provider's rules with its location; empty if valid."""
    rules = PROVIDER_RULES[provider]
    found = [
        f"messages[{index}]{problem}"
        for index, message in enumerate(messages)
        for problem in _check_message(rules, message)
    ]
    return [*found, *_check_order(rules, messages), *_check_results(rules, messages)]


def is_system(message: Message) -> bool:
    return message.role in ("system", "developer")


def is_encodable(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8; a lone surrogate cannot."""
    if text.isascii():  # fast path
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_blank(content: Content) -> bool:
    return not content or (isinstance(content, str) and content.isspace())


def is_json_object(arguments: str | Mapping[str, JSON]) -> bool:
    """Return whether the arguments are a JSON object, or the text of one."""
    try:
        if not isinstance(arguments, str):
            msgspec.json.encode(arguments)
            return True
        return isinstance(msgspec.json.decode(arguments.encode()), dict)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return False


def is_supported_part(part: Mapping[str, JSON], kinds: frozenset[str]) -> bool:
    """Return whether the part is well-formed and of one of these types."""
    kind: object = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        return False
    value: object = part.get(kind)
    if kind == "image_url" and isinstance(value, Mapping):
        value = cast(Mapping[str, object], value).get("url")
    if kind in ("text", "refusal", "image_url"):
        return isinstance(value, str) and bool(value.strip()) and is_encodable(value)
    try:
        msgspec.json.encode(part)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return False
    return value is not None


def is_valid_author(rules: ProviderRules, name: str) -> bool:
    """Return whether a message may have this `name`."""
    return bool(rules.author and rules.author.fullmatch(name) and is_encodable(name))


def get_signature(message: Message, call: ToolCall) -> object:
    """Return the extra content that the provider requires back with this call."""
    extra = (message.meta or {}).get(EXTRA_CONTENT)
    return cast(Mapping[str, object], extra).get(call.id) if isinstance(extra, Mapping) else None


def _check_message(rules: ProviderRules, message: Message) -> Iterator[str]:
    kinds = rules.parts.get(message.role)
    if kinds is None:
        yield f".role: {message.role!r:.80} is not one of {', '.join(rules.parts)}"
        return
    yield from _check_content(kinds, message)
    if message.name is not None and message.role != "tool":
        if rules.author is None:
            yield ".name: not supported"
        elif not is_valid_author(rules, message.name):
            yield f".name: {message.name!r:.80} does not match {rules.author.pattern}"
    if message.tool_calls and message.role != "assistant":
        yield ".tool_calls: only an assistant can make calls"
    elif message.tool_calls:
        yield from _check_calls(rules, message)


def _check_content(kinds: frozenset[str], message: Message) -> Iterator[str]:
    content = message.content
    if content is None and message.tool_calls:
        return
    if is_blank(content):
        yield ".content: blank"
    elif isinstance(content, str):
        if not is_encodable(content):
            yield ".content: contains a lone surrogate"
    else:
        for index, part in enumerate(content or ()):
            if not is_supported_part(part, kinds):
                yield f".content[{index}]: a {message.role} cannot send {part!r:.80}"


def _check_calls(rules: ProviderRules, message: Message) -> Iterator[str]:
    if len(message.tool_calls) > rules.max_calls:
        yield f".tool_calls: {len(message.tool_calls)}, at most {rules.max_calls} are allowed"
    for index, call in enumerate(message.tool_calls):
        field = f".tool_calls[{index}]"
        if not rules.id.fullmatch(call.id):
            yield f"{field}.id: {call.id!r:.80} does not match {rules.id.pattern}"
        if not rules.tool.fullmatch(call.name):
            yield f"{field}.name: {call.name!r:.80} does not match {rules.tool.pattern}"
        if not is_json_object(call.arguments):
            yield f"{field}.arguments: not a JSON object: {call.arguments!r:.80}"
    if rules.needs_signature and not get_signature(message, message.tool_calls[0]):
        yield ".tool_calls[0]: has no thought signature"


def _check_order(rules: ProviderRules, messages: Sequence[Message]) -> Iterator[str]:
    previous: str | None = None  # the previous role, ignoring system messages
    for index, message in enumerate(messages):
        field, role = f"messages[{index}]", message.role
        if is_system(message):
            if previous and not rules.allows_late_system:
                yield f"{field}: a system message after the conversation has begun"
            continue
        if previous is None and role != "user":
            yield f"{field}: the user must come first, not {role}"
        if (
            role == previous
            and role in ("user", "assistant")
            and not is_system(messages[index - 1])
        ):
            yield f"{field}: two consecutive {role} messages"
        if role == "user" and previous == "tool" and not rules.allows_user_after_result:
            yield f"{field}: the user directly after a result"
        previous = role
    if previous is None:
        yield "messages: no user message"
    if previous == "assistant" and not rules.allows_assistant_last:
        yield f"messages[{len(messages) - 1}]: the assistant must not come last"


def _check_results(rules: ProviderRules, messages: Sequence[Message]) -> Iterator[str]:
    used: set[str] = set()
    pending: dict[str, int] = {}  # id of each call without a result → index of its message
    for index, message in enumerate(messages):
        field = f"messages[{index}]"
        if message.role == "tool":
            if pending.pop(message.tool_call_id or "", None) is None:
                yield f"{field}: result for {message.tool_call_id!r:.80}, which has no pending call"
            continue
        for id, origin in pending.items():
            yield f"messages[{origin}]: call {id!r:.80} has no result directly after it"
        ids = [call.id for call in message.tool_calls]
        if len(set(ids)) < len(ids) or (rules.needs_unique_ids and used.intersection(ids)):
            yield f"{field}: duplicate call id"
        used.update(ids)
        pending = dict.fromkeys(ids, index)
    for id, origin in pending.items():
        yield f"messages[{origin}]: call {id!r:.80} has no result"
