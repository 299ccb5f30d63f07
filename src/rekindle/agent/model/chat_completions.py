"""Messages as JSON of the Chat Completions protocol, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from rekindle.json_fields import Record, record, records, text
from rekindle.types import JSON, Content, Message, ToolCall

from .providers import EXTRA, Provider, signature


def chat_message(
    message: Message, provider: Provider = "openai", reasoning_field: str = ""
) -> Record:
    """The message as it is sent.

    The reasoning of an assistant goes back in the field of that name, for endpoints that want it.
    """
    sent: Record = {"role": message.role, "content": message.content}
    if message.role == "tool":
        sent["tool_call_id"] = message.tool_call_id or ""
        return sent
    if message.name is not None:
        sent["name"] = message.name
    if message.tool_calls:
        sent["tool_calls"] = [_chat_call(message, call, provider) for call in message.tool_calls]
    if reasoning_field and message.reasoning and message.role == "assistant":
        sent[reasoning_field] = message.reasoning
    return sent


def _chat_call(message: Message, call: ToolCall, provider: Provider) -> Record:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    sent: Record = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
    if provider == "gemini" and (extra := signature(message, call)):
        sent[EXTRA] = extra
    return sent


def message_of(sent: object) -> Message:
    """A message as an endpoint receives it: nothing is mended, so that it can be checked."""
    fields = record(sent)
    content: object = fields.get("content")
    calls = records(fields.get("tool_calls"))
    extra = {str(call.get("id")): call[EXTRA] for call in calls if call.get(EXTRA) is not None}
    return Message(
        role=str(fields.get("role")),
        content=cast(Content, content) if isinstance(content, (str, list)) else None,
        tool_calls=[_call_of(call) for call in calls],
        tool_call_id=text(fields, "tool_call_id"),
        name=text(fields, "name"),
        reasoning=text(fields, "reasoning_content", "reasoning"),
        meta={EXTRA: extra} if extra else None,
    )


def _call_of(call: Record) -> ToolCall:
    function = record(call.get("function"))
    arguments: object = function.get("arguments")
    if not isinstance(arguments, (str, Mapping)):
        arguments = ""
    return ToolCall(
        str(call.get("id") or ""),
        str(function.get("name") or ""),
        cast("str | Mapping[str, JSON]", arguments),
    )
