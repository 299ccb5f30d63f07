"""Convert a single message to the provider's format: its role, content, name and calls.

Content that the provider cannot represent is sent as text with a marker in brackets. Each function
returns the very value it was given if nothing has to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from rekindle.routing.sanitize import clean_text, quote_text
from rekindle.types import JSON, Content, Message, ToolCall, replace_fields

from .providers import (
    ProviderRules,
    is_blank,
    is_encodable,
    is_json_object,
    is_supported_part,
    is_valid_author,
)

EMPTY_MESSAGE = "(empty message)"
NO_OUTPUT = "(no output)"
UNKNOWN_TOOL = "unknown_tool"

_GAP = "\n\n"
_SURROGATE = re.compile("[\ud800-\udfff]")


def to_provider_message(message: Message, rules: ProviderRules) -> Message | None:
    """Return the message as the provider accepts it, None if it is empty."""
    role = _map_role(message.role, rules)
    kinds = rules.parts[role or "user"]
    content = _convert_content(message.content, kinds)
    calls = message.tool_calls
    if role is None:  # a role of another format: name it in the text
        content = prefix_content(content, f"[{clean_text(message.role) or 'unknown'}]")
    if calls and role != "assistant":
        content = join_contents([content, _GAP.join(map(_describe_call, calls))])
        calls = ()
    elif calls:
        calls = _convert_calls(calls, rules)
    name = message.name
    if name is not None and role != "tool" and not is_valid_author(rules, name):
        if role in ("user", None):
            content = move_name_to_text(replace_fields(message, content=content)).content
        name = None
    if content is None and not calls:
        if role in ("assistant", "system", "developer"):
            return None
        content = NO_OUTPUT if role == "tool" else EMPTY_MESSAGE
    if (
        role == message.role
        and content is message.content
        and calls is message.tool_calls
        and name is message.name
    ):
        return message
    return replace_fields(
        message, role=role or "user", content=content, tool_calls=calls, name=name
    )


def move_name_to_text(message: Message) -> Message:
    """Move the author's name from the `name` field into the text."""
    if not clean_text(message.name):
        return message if message.name is None else replace_fields(message, name=None)
    text = prefix_content(message.content, f"[from {quote_text(message.name)}]")
    return replace_fields(message, content=text, name=None)


def prefix_content(content: Content, marker: str) -> Content:
    """Put a marker on a separate line before the content."""
    if content is None or isinstance(content, str):
        return f"{marker}\n{content or ''}".rstrip("\n")
    return [_make_text_part(marker), *content]


def join_contents(contents: Sequence[Content]) -> Content:
    """Join contents into one; the result is plain text if all of them are."""
    given = [content for content in contents if content]
    if len(given) < 2:
        return given[0] if given else None
    texts = [content for content in given if isinstance(content, str)]
    if len(texts) == len(given):
        return _GAP.join(texts)
    parts: list[Mapping[str, JSON]] = []
    for content in given:
        parts.extend([_make_text_part(content)] if isinstance(content, str) else content)
    return parts


def _map_role(role: str, rules: ProviderRules) -> str | None:
    if role in rules.parts:
        return role
    return {"developer": "system", "function": "tool"}.get(role)


def _convert_content(content: Content, kinds: frozenset[str]) -> Content:
    if is_blank(content):
        return None
    if content is None or isinstance(content, str):
        return None if content is None else _replace_surrogates(content)
    if all(is_supported_part(part, kinds) for part in content):
        return content
    parts = [part if is_supported_part(part, kinds) else _part_to_text(part) for part in content]
    return [part for part in parts if part] or None


def _part_to_text(part: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """Return an unsupported part as text, or a placeholder for it; None if its text is blank."""
    for field in ("text", "refusal"):
        text: object = part.get(field)
        if isinstance(text, str):
            return _make_text_part(_replace_surrogates(text)) if text.strip() else None
    kind = clean_text(str(part.get("type") or "")) or "unknown"
    return _make_text_part(f"[{kind}: not supported here]")


def _convert_calls(calls: tuple[ToolCall, ...], rules: ProviderRules) -> tuple[ToolCall, ...]:
    converted = tuple(_convert_call(call, rules) for call in calls)
    same = all(one is other for one, other in zip(converted, calls, strict=True))
    return calls if same else converted


def _convert_call(call: ToolCall, rules: ProviderRules) -> ToolCall:
    name, arguments = call.name, call.arguments
    if not rules.tool.fullmatch(name):
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or UNKNOWN_TOOL
        if not rules.tool.fullmatch(name):  # some providers require a leading letter or underscore
            name = f"_{name}"[:64]
    if not is_json_object(arguments):
        arguments = _wrap_arguments(arguments)
    if name is call.name and arguments is call.arguments:
        return call
    return ToolCall(call.id, name, arguments)


def _wrap_arguments(arguments: str | Mapping[str, JSON]) -> str:
    """Wrap arguments that are not a JSON object in one, so that the model sees what it wrote."""
    text = arguments if isinstance(arguments, str) else repr(arguments)
    if not text.strip():
        return "{}"
    return msgspec.json.encode({"unreadable": _replace_surrogates(text)}).decode()


def _describe_call(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else repr(call.arguments)
    return f"[called {clean_text(call.name) or UNKNOWN_TOOL}] {_replace_surrogates(arguments)}".rstrip()


def _replace_surrogates(text: str) -> str:
    return text if is_encodable(text) else _SURROGATE.sub("\ufffd", text)


def _make_text_part(text: str) -> dict[str, JSON]:
    return {"type": "text", "text": text}
