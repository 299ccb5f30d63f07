"""Reader for spans that Rekindle itself exported, which restores their messages exactly.

Such a span has `rekindle.format`. Each of its messages has the field `rekindle`: its position, id, time
and `meta`, and the fields that the convention cannot express.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from rekindle.errors import InvalidInput
from rekindle.json_fields import JsonObject, as_number, as_object, as_objects, get_text
from rekindle.transcripts.jsonio.jsonl import decode_json
from rekindle.types import (
    JSON,
    Message,
    ToolCall,
    make_foreign_message,
    replace_fields,
    validate_message,
)

from .span_messages import parse_messages
from .spans import OtelSpan

_FORMATS = (1,)
_TEXT_FIELDS = ("tool_call_id", "name", "reasoning", "finish_reason")
_SESSION_FIELDS = ("title", "parent", "sub_agent", "cwd", "git_branch", "repository")
_MAX_POSITION = 1 << 53


def is_own_span(span: OtelSpan) -> bool:
    """Return whether Rekindle exported this span, in a format that is known here."""
    return span.attributes.get("rekindle.format") in _FORMATS


def read_own_session(span: OtelSpan) -> JsonObject:
    """Return the fields of the session that a turn's span has."""
    fields: JsonObject = {
        name: get_text(span.attributes, f"rekindle.session.{name}") for name in _SESSION_FIELDS
    }
    return {**fields, "started": as_number(span.attributes.get("rekindle.session.started"))}


def read_own_messages(span: OtelSpan) -> Iterator[tuple[int, Message]]:
    """Yield the messages of a span with their positions; some were in earlier spans too."""
    attributes = span.attributes
    for name in ("gen_ai.input.messages", "rekindle.messages", "gen_ai.output.messages"):
        for raw in as_objects(_decode_text(attributes.get(name))):
            if name == "rekindle.messages" and "parts" not in raw:
                raw = {**raw, "parts": [_build_result_part(attributes)]}
            yield from _restore_message(raw)


def _build_result_part(attributes: JsonObject) -> JsonObject:
    return {
        "type": "tool_call_response",
        "id": attributes.get("gen_ai.tool.call.id"),
        "response": attributes.get("gen_ai.tool.call.result"),
    }


def _decode_text(value: object) -> Any:
    try:
        return (
            decode_json(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else None
        )
    except ValueError:
        return None


def _restore_message(raw: JsonObject) -> Iterator[tuple[int, Message]]:
    extra = as_object(raw.get("rekindle"))
    position = extra.get("position")
    if type(position) is not int or not 0 <= position < _MAX_POSITION:
        return
    parsed = next(parse_messages(raw), None)
    message = _apply_extra(parsed or Message("user"), extra)
    if message is not None:
        yield position, message


def _apply_extra(parsed: Message, extra: JsonObject) -> Message | None:
    """Return the message with the fields that the convention could not express."""
    changes: dict[str, JSON] = {name: extra[name] for name in _TEXT_FIELDS if name in extra}
    if "content" in extra:
        changes["content"] = extra["content"]
    if "tool_calls" in extra:
        changes["tool_calls"] = tuple(_parse_calls(extra["tool_calls"]))
    message = replace_fields(
        parsed,
        **changes,
        platform_message_id=get_text(extra, "id"),
        meta=extra.get("meta"),
        timestamp=as_number(extra.get("time")),
    )
    role = get_text(extra, "role")
    try:
        if role is not None:
            message = make_foreign_message(role[:64], *message[1:])
        return validate_message(message)
    except InvalidInput:
        return None


def _parse_calls(value: object) -> Iterator[ToolCall]:
    for call in cast("list[Any]", value) if isinstance(value, list) else ():
        if isinstance(call, list) and len(cast("list[Any]", call)) == 3:
            id, name, arguments = cast("list[Any]", call)
            yield ToolCall(id, name, arguments)
