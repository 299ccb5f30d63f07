"""A client that makes a small model call tools, and accepts calls in unusual formats.

On its own, this model talks about calls instead of making them, and gives up at the first error. So
until a call succeeds, its answer is forced to begin like a call. This applies to every arm equally; the
model still chooses the tool and the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from rekindle import Message
from rekindle.agent.model.client import Model, StreamEnded, StreamEvent
from rekindle.types import ToolCall, replace_fields

CALL_START = '{"name": "'  # the beginning that chat.jinja forces on an answer


class SmallModel(Model):
    """A model client that forces and parses calls."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> AsyncGenerator[StreamEvent]:
        held = not is_success(messages[-1])
        async with aclosing(super().stream(messages, tools)) as events:
            async for event in events:
                if isinstance(event, StreamEnded) and not event.response.message.tool_calls:
                    message = parse_call(event.response.message, held, len(messages))
                    event = StreamEnded(event.response._replace(message=message))
                yield event

    def _build_request(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        template = {"must_call": not is_success(messages[-1])}
        request = super()._build_request(messages, tools)
        return {**request, "chat_template_kwargs": template}


def is_success(last: Message) -> bool:
    """Return whether a message is the result of a call that did not fail."""
    meta = last.meta or {}
    return last.role == "tool" and not meta.get("is_error") and not meta.get("exit_code")


def parse_call(message: Message, held: bool, number: int) -> Message:
    """Return the message with the call that its text contains, or as it is."""
    text = (CALL_START if held else "") + message.text.strip()
    found = re.match(r"(?:```(?:json)?\s*)?(\{.*)", text, re.DOTALL)
    if not found:
        return message
    try:
        read, _ = json.JSONDecoder(strict=False).raw_decode(found[1])
    except json.JSONDecodeError:
        return message
    value = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if not isinstance(value.get("name"), str):
        return message
    given = value.get("arguments")
    arguments = cast("dict[str, Any]", given if isinstance(given, dict) else {})
    call = ToolCall(f"call{number:05}", value["name"], arguments)
    return replace_fields(message, content=None, tool_calls=(call,), finish_reason="tool_calls")
