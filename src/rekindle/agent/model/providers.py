"""What each model provider demands of the messages it is sent, and a check of it.

`openai` stands for every endpoint that speaks its protocol. Many of those put the messages through
a chat template that only knows users and assistants who take turns, or parse the arguments of past
calls; so its rules here are a little stricter than those of OpenAI itself, and what they allow is
taken everywhere.

The rules of one provider, as it answers to them with HTTP 400:

- OpenAI: every call answered right behind its message, ids of at most 64 characters, at most 128
  calls in a message.
- Anthropic: a result directly behind its call, the user first and last, ids of `[a-zA-Z0-9_-]` that
  are used once, no blank text.
- Gemini: the same order; a call carries the signature of the thought that led to it. Gemini 3 asks
  for that in the current turn; here it is asked of every message with calls, so that a message does
  not change its bytes when its turn is over.
- Mistral: ids of nine letters and digits, an assistant between a result and the next user, the user
  or a result last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from rekindle.types import JSON, Content, Message, ToolCall

Provider: TypeAlias = Literal["openai", "anthropic", "gemini", "mistral"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)

# In `Message.meta`: what a provider wants back with a call, by the call's id.
EXTRA = "extra_content"

_TEXT = frozenset({"text"})
_SEEN = frozenset({"text", "image_url"})


class Rules(NamedTuple):
    """What one provider demands. `parts` names the kinds of content a role may have."""

    id: re.Pattern[str]
    tool: re.Pattern[str]
    parts: Mapping[str, frozenset[str]]
    speaker: re.Pattern[str] | None = None  # `name` of a message; None: it has none
    unique_ids: bool = False  # in the whole conversation, not just in one message
    late_system: bool = False  # system messages after the conversation has begun
    user_after_result: bool = True
    assistant_last: bool = False
    signed: bool = False
    most_calls: int = 128


RULES: Mapping[Provider, Rules] = {
    "openai": Rules(
        id=re.compile(r"[!-~]{1,64}"),
        tool=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        parts={
            "system": _TEXT,
            "developer": _TEXT,
            "user": _SEEN | {"input_audio", "file"},
            "assistant": _TEXT | {"refusal"},
            "tool": _TEXT,
        },
        speaker=re.compile(r"[^\s<|\\/>]{1,64}"),
        late_system=True,
        assistant_last=True,
    ),
    "anthropic": Rules(
        id=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        tool=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
        parts={"system": _TEXT, "user": _SEEN, "assistant": _TEXT, "tool": _TEXT},
        unique_ids=True,
    ),
    "gemini": Rules(
        id=re.compile(r"[!-~]{1,64}"),
        tool=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
        parts={
            "system": _TEXT,
            "user": _SEEN | {"input_audio"},
            "assistant": _TEXT,
            "tool": _TEXT,
        },
        unique_ids=True,
        signed=True,
    ),
    "mistral": Rules(
        id=re.compile(r"[a-zA-Z0-9]{9}"),
        tool=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        parts={
            "system": _TEXT,
            "user": _SEEN | {"input_audio", "document_url"},
            "assistant": _TEXT,
            "tool": _TEXT,
        },
        unique_ids=True,
        user_after_result=False,
    ),
}

_KNOWN: tuple[tuple[Provider, re.Pattern[str]], ...] = (
    ("anthropic", re.compile(r"anthropic|claude")),
    ("gemini", re.compile(r"googleapis|gemini")),
    ("mistral", re.compile(r"istral|mixtral|pixtral|voxtral|devstral|codestral")),
)


def provider_of(base_url: str, model: str) -> Provider:
    """Whose rules hold at this address for this model; a router passes on to the model's maker."""
    for place in (model.lower(), base_url.lower()):
        for provider, known in _KNOWN:
            if known.search(place):
                return provider
    return "openai"


def violations(provider: Provider, messages: Sequence[Message]) -> list[str]:
    """Each rule that the provider would answer to with an error, with the place; empty when valid."""
    rules = RULES[provider]
    found = [
        f"messages[{index}]{fault}"
        for index, message in enumerate(messages)
        for fault in _message_faults(rules, message)
    ]
    return [*found, *_order_faults(rules, messages), *_answer_faults(rules, messages)]


def is_system(message: Message) -> bool:
    return message.role in ("system", "developer")


def is_sayable(text: str) -> bool:
    """Can it be sent? Half a character (a lone surrogate) cannot."""
    if text.isascii():  # known without looking
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_blank(content: Content) -> bool:
    return not content or (isinstance(content, str) and content.isspace())


def is_object(arguments: str | Mapping[str, JSON]) -> bool:
    """Are these arguments a JSON object, or the text of one?"""
    try:
        if not isinstance(arguments, str):
            msgspec.json.encode(arguments)
            return True
        return isinstance(msgspec.json.decode(arguments.encode()), dict)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return False


def is_part(part: Mapping[str, JSON], kinds: frozenset[str]) -> bool:
    """May this part of a content be sent by a role that has these kinds?"""
    kind: object = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        return False
    held: object = part.get(kind)
    if kind == "image_url" and isinstance(held, Mapping):
        held = cast(Mapping[str, object], held).get("url")
    if kind in ("text", "refusal", "image_url"):
        return isinstance(held, str) and bool(held.strip()) and is_sayable(held)
    try:
        msgspec.json.encode(part)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return False
    return held is not None


def is_speaker(rules: Rules, name: str) -> bool:
    """May a message carry this name?"""
    return bool(rules.speaker and rules.speaker.fullmatch(name) and is_sayable(name))


def signature(message: Message, call: ToolCall) -> object:
    """What the provider wants back with this call."""
    extra = (message.meta or {}).get(EXTRA)
    return cast(Mapping[str, object], extra).get(call.id) if isinstance(extra, Mapping) else None


def _message_faults(rules: Rules, message: Message) -> Iterator[str]:
    kinds = rules.parts.get(message.role)
    if kinds is None:
        yield f".role: {message.role!r:.80} is not one of {', '.join(rules.parts)}"
        return
    yield from _content_faults(kinds, message)
    if message.name is not None and message.role != "tool":
        if rules.speaker is None:
            yield ".name: not taken"
        elif not is_speaker(rules, message.name):
            yield f".name: {message.name!r:.80} does not match {rules.speaker.pattern}"
    if message.tool_calls and message.role != "assistant":
        yield ".tool_calls: only an assistant makes calls"
    elif message.tool_calls:
        yield from _call_faults(rules, message)


def _content_faults(kinds: frozenset[str], message: Message) -> Iterator[str]:
    content = message.content
    if content is None and message.tool_calls:
        return
    if is_blank(content):
        yield ".content: blank"
    elif isinstance(content, str):
        if not is_sayable(content):
            yield ".content: holds half a character"
    else:
        for index, part in enumerate(content or ()):
            if not is_part(part, kinds):
                yield f".content[{index}]: a {message.role} cannot send {part!r:.80}"


def _call_faults(rules: Rules, message: Message) -> Iterator[str]:
    if len(message.tool_calls) > rules.most_calls:
        yield f".tool_calls: {len(message.tool_calls)}, at most {rules.most_calls} are taken"
    for index, call in enumerate(message.tool_calls):
        place = f".tool_calls[{index}]"
        if not rules.id.fullmatch(call.id):
            yield f"{place}.id: {call.id!r:.80} does not match {rules.id.pattern}"
        if not rules.tool.fullmatch(call.name):
            yield f"{place}.name: {call.name!r:.80} does not match {rules.tool.pattern}"
        if not is_object(call.arguments):
            yield f"{place}.arguments: not a JSON object: {call.arguments!r:.80}"
    if rules.signed and not signature(message, message.tool_calls[0]):
        yield ".tool_calls[0]: has no thought signature"


def _order_faults(rules: Rules, messages: Sequence[Message]) -> Iterator[str]:
    before: str | None = None  # the role before, not counting system messages
    for index, message in enumerate(messages):
        place, role = f"messages[{index}]", message.role
        if is_system(message):
            if before and not rules.late_system:
                yield f"{place}: a system message after the conversation has begun"
            continue
        if before is None and role != "user":
            yield f"{place}: the user comes first, not {role}"
        if role == before and role in ("user", "assistant") and not is_system(messages[index - 1]):
            yield f"{place}: two messages of the {role} in a row"
        if role == "user" and before == "tool" and not rules.user_after_result:
            yield f"{place}: the user directly after a result"
        before = role
    if before is None:
        yield "messages: nothing from the user"
    if before == "assistant" and not rules.assistant_last:
        yield f"messages[{len(messages) - 1}]: the assistant comes last"


def _answer_faults(rules: Rules, messages: Sequence[Message]) -> Iterator[str]:
    used: set[str] = set()
    waiting: dict[str, int] = {}  # ids of calls without a result, and where they were made
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message.role == "tool":
            if waiting.pop(message.tool_call_id or "", None) is None:
                yield f"{place}: answers {message.tool_call_id!r:.80}, which no call waits for"
            continue
        for id, made in waiting.items():
            yield f"messages[{made}]: call {id!r:.80} is not answered right behind it"
        ids = [call.id for call in message.tool_calls]
        if len(set(ids)) < len(ids) or (rules.unique_ids and used.intersection(ids)):
            yield f"{place}: the id of a call is used twice"
        used.update(ids)
        waiting = dict.fromkeys(ids, index)
    for id, made in waiting.items():
        yield f"messages[{made}]: call {id!r:.80} is not answered"
