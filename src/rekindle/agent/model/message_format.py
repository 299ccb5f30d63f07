"""One message, made fit to be sent: its role, its content, its name, its calls.

What a provider cannot carry in its own shape is carried as text with a mark in brackets. Each
function gives back the very value it got when there is nothing to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from rekindle.routing.sanitize import clean, quoted
from rekindle.types import JSON, Content, Message, ToolCall, replace

from .providers import Rules, is_blank, is_object, is_part, is_sayable, is_speaker

EMPTY = "(empty message)"
NO_OUTPUT = "(no output)"
NAMELESS = "unknown_tool"

_GAP = "\n\n"
_HALF = re.compile("[\ud800-\udfff]")


def carried(message: Message, rules: Rules) -> Message | None:
    """The message as the provider takes it; None for one that says nothing."""
    role = _role(message.role, rules)
    kinds = rules.parts[role or "user"]
    content = _content(message.content, kinds)
    calls = message.tool_calls
    if role is None:  # a role of a foreign format: who speaks is told in the text
        content = prefixed(content, f"[{clean(message.role) or 'unknown'}]")
    if calls and role != "assistant":
        content = joined([content, _GAP.join(map(_told, calls))])
        calls = ()
    elif calls:
        calls = _calls(calls, rules)
    name = message.name
    if name is not None and role != "tool" and not is_speaker(rules, name):
        if role in ("user", None):
            content = speaking(replace(message, content=content)).content
        name = None
    if content is None and not calls:
        if role in ("assistant", "system", "developer"):
            return None
        content = NO_OUTPUT if role == "tool" else EMPTY
    if (
        role == message.role
        and content is message.content
        and calls is message.tool_calls
        and name is message.name
    ):
        return message
    return replace(message, role=role or "user", content=content, tool_calls=calls, name=name)


def speaking(message: Message) -> Message:
    """The message with the name of who speaks in its text."""
    if not clean(message.name):
        return message if message.name is None else replace(message, name=None)
    text = prefixed(message.content, f"[from {quoted(message.name)}]")
    return replace(message, content=text, name=None)


def prefixed(content: Content, mark: str) -> Content:
    """The content behind a mark on a line of its own."""
    if content is None or isinstance(content, str):
        return f"{mark}\n{content or ''}".rstrip("\n")
    return [_text_part(mark), *content]


def joined(contents: Sequence[Content]) -> Content:
    """Several contents as one; plain text as long as there is nothing else."""
    given = [content for content in contents if content]
    if len(given) < 2:
        return given[0] if given else None
    texts = [content for content in given if isinstance(content, str)]
    if len(texts) == len(given):
        return _GAP.join(texts)
    parts: list[Mapping[str, JSON]] = []
    for content in given:
        parts.extend([_text_part(content)] if isinstance(content, str) else content)
    return parts


def _role(role: str, rules: Rules) -> str | None:
    if role in rules.parts:
        return role
    return {"developer": "system", "function": "tool"}.get(role)


def _content(content: Content, kinds: frozenset[str]) -> Content:
    if is_blank(content):
        return None
    if content is None or isinstance(content, str):
        return None if content is None else _sayable(content)
    if all(is_part(part, kinds) for part in content):
        return content
    parts = [part if is_part(part, kinds) else _as_text(part) for part in content]
    return [part for part in parts if part] or None


def _as_text(part: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """A part that cannot be sent as it is: its text, or a word about it. None for blank text."""
    for field in ("text", "refusal"):
        text: object = part.get(field)
        if isinstance(text, str):
            return _text_part(_sayable(text)) if text.strip() else None
    kind = clean(str(part.get("type") or "")) or "unknown"
    return _text_part(f"[{kind}: cannot be shown here]")


def _calls(calls: tuple[ToolCall, ...], rules: Rules) -> tuple[ToolCall, ...]:
    sent = tuple(_call(call, rules) for call in calls)
    same = all(one is other for one, other in zip(sent, calls, strict=True))
    return calls if same else sent


def _call(call: ToolCall, rules: Rules) -> ToolCall:
    name, arguments = call.name, call.arguments
    if not rules.tool.fullmatch(name):
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or NAMELESS
        if not rules.tool.fullmatch(name):  # one that has to begin with a letter
            name = f"_{name}"[:64]
    if not is_object(arguments):
        arguments = _readable(arguments)
    if name is call.name and arguments is call.arguments:
        return call
    return ToolCall(call.id, name, arguments)


def _readable(arguments: str | Mapping[str, JSON]) -> str:
    """Arguments that are no JSON object, inside one: the model sees what it had written."""
    text = arguments if isinstance(arguments, str) else repr(arguments)
    if not text.strip():
        return "{}"
    return msgspec.json.encode({"unreadable": _sayable(text)}).decode()


def _told(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else repr(call.arguments)
    return f"[called {clean(call.name) or NAMELESS}] {_sayable(arguments)}".rstrip()


def _sayable(text: str) -> str:
    return text if is_sayable(text) else _HALF.sub("\ufffd", text)


def _text_part(text: str) -> dict[str, JSON]:
    return {"type": "text", "text": text}
