"""Convert messages to and from the JSON of the Chat Completions protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rekindle.json_fields import JsonObject, as_object, as_objects, get_text
from rekindle.message_formats import EXTRA_CONTENT
from rekindle.types import JSON, Content, Message, ToolCall, make_foreign_message

from .providers import Provider, get_signature


def to_chat_message(
    message: Message, provider: Provider = "openai", reasoning_field: str = ""
) -> JsonObject:
    """Return the message as it is sent.

    An assistant's reasoning goes into the field `reasoning_field`, for endpoints that want it back.
    """
    fields = message.to_openai()
    if provider == "gemini":
        for call, call_fields in zip(message.tool_calls, fields.get("tool_calls", ()), strict=True):
            if extra := get_signature(message, call):
                call_fields[EXTRA_CONTENT] = extra
    if reasoning_field and message.reasoning and message.role == "assistant":
        fields[reasoning_field] = message.reasoning
    return fields


def from_chat_message(value: object) -> Message:
    """Parse a message as an endpoint receives it, without repairing anything, so it can be checked."""
    fields = as_object(value)
    content: object = fields.get("content")
    calls = as_objects(fields.get("tool_calls"))
    extra = {
        str(call.get("id")): call[EXTRA_CONTENT]
        for call in calls
        if call.get(EXTRA_CONTENT) is not None
    }
    return make_foreign_message(
        role=str(fields.get("role")),
        content=cast(Content, content) if isinstance(content, (str, list)) else None,
        tool_calls=[_from_chat_call(call) for call in calls],
        tool_call_id=get_text(fields, "tool_call_id"),
        name=get_text(fields, "name"),
        reasoning=get_text(fields, "reasoning_content", "reasoning"),
        meta={EXTRA_CONTENT: extra} if extra else None,
    )


def _from_chat_call(call: JsonObject) -> ToolCall:
    function = as_object(call.get("function"))
    arguments: object = function.get("arguments")
    if not isinstance(arguments, (str, Mapping)):
        arguments = ""
    return ToolCall(
        str(call.get("id") or ""),
        str(function.get("name") or ""),
        cast("str | Mapping[str, JSON]", arguments),
    )
