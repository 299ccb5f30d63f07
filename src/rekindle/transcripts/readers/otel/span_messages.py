"""Parser for the messages in a span, for each existing convention.

    GenAI            `gen_ai.input.messages`, `gen_ai.output.messages`: JSON, messages with `parts`
    GenAI, older     events `gen_ai.user.message`, `gen_ai.tool.message`, `gen_ai.choice`, …
    OpenInference    `llm.input_messages.0.message.content`, `llm.output_messages.…`
    OpenLLMetry      `gen_ai.prompt.0.content`, `gen_ai.completion.0.…`

The messages have the convention's roles and no ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_object,
    as_objects,
    get_text,
    make_text_part,
    to_content,
)
from rekindle.transcripts.jsonio.jsonl import decode_json
from rekindle.transcripts.readers.session_builder import (
    join_thoughts,
    make_image_part,
    to_arguments,
)
from rekindle.types import JSON, Content, Message, Tokens, ToolCall, make_foreign_message

from .spans import OtelSpan, SpanEvent

_FLAT_MESSAGE = {
    "in": re.compile(r"(?:llm\.input_messages|gen_ai\.prompt)\.(\d{1,6})\.(?:message\.)?(.+)"),
    "out": re.compile(
        r"(?:llm\.output_messages|gen_ai\.completion)\.(\d{1,6})\.(?:message\.)?(.+)"
    ),
}
_FLAT_CALL = re.compile(r"tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(\w+)")
_FLAT_PART = re.compile(r"contents\.(\d{1,6})\.message_content\.(.+)")
_DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
    "tool-response": "tool",
}
# Types of provider-specific content parts.
_BLOCK_TYPES = {
    "text", "input_text", "output_text", "image", "image_url", "input_image", "tool_use",
    "tool_result", "thinking", "reasoning",
}  # fmt: skip
# Attribute names in the order of `Tokens`; the input includes cached tokens here.
_TOKEN_KEYS = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    (
        "gen_ai.usage.reasoning.output_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
)
# Roles of messages in the older convention, by event name.
_ROLE_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def parse_inputs(span: OtelSpan) -> list[Message]:
    """Return the messages that the model was given."""
    return [*_parse_attribute_messages(span, "gen_ai.input.messages", "in")] or [
        *_parse_input_events(span.events)
    ]


def parse_outputs(span: OtelSpan) -> list[Message]:
    """Return the messages that the model returned, usually one."""
    return [*_parse_attribute_messages(span, "gen_ai.output.messages", "out")] or [
        *_parse_output_events(span.events)
    ]


def parse_tokens(attributes: JsonObject) -> Tokens:
    """Return the token usage of the model call."""
    prompt, output, cache_read, cache_write, reasoning = (
        _parse_count(attributes, names) for names in _TOKEN_KEYS
    )
    return Tokens(
        max(0, prompt - cache_read - cache_write), output, cache_read, cache_write, reasoning
    )


def to_text(value: Any) -> str | None:
    """Return a value as text: unchanged if it is text, else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _parse_count(attributes: JsonObject, names: Iterable[str]) -> int:
    """Return the first of these counts; some files write them as text."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 17:
            value = int(value)
        if found := as_count(value):
            return found
    return 0


def _parse_attribute_messages(span: OtelSpan, name: str, side: str) -> Iterator[Message]:
    details = [event.attributes for event in span.events if event.name == _DETAILS_EVENT]
    for attributes in (span.attributes, *details):
        if name in attributes:
            for raw in as_objects(_decode_text(attributes[name])):
                yield from parse_messages(raw)
            return
    for raw in _unflatten_messages(span.attributes, _FLAT_MESSAGE[side]):
        yield from parse_messages(raw)


def _decode_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def _unflatten_messages(attributes: JsonObject, pattern: re.Pattern[str]) -> list[JsonObject]:
    """Return messages whose fields are separate attributes, in order."""
    found: dict[int, JsonObject] = {}
    for key, value in attributes.items():
        if match := pattern.fullmatch(key):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [_unflatten_message(found[index]) for index in sorted(found)]


def _unflatten_message(fields: JsonObject) -> JsonObject:
    calls: dict[int, JsonObject] = {}
    parts: dict[int, JsonObject] = {}
    for key, value in fields.items():
        if match := _FLAT_CALL.fullmatch(key):
            calls.setdefault(int(match[1]), {})[match[2]] = value
        elif match := _FLAT_PART.fullmatch(key):
            parts.setdefault(int(match[1]), {})[match[2]] = value
    raw = dict(fields)
    if calls:
        raw["tool_calls"] = [calls[index] for index in sorted(calls)]
    if parts and not get_text(fields, "content"):
        raw["content"] = [_unflatten_part(parts[index]) for index in sorted(parts)]
    return raw


def _unflatten_part(part: JsonObject) -> JsonObject:
    if url := get_text(part, "image.image.url"):
        return make_image_part(url)
    return make_text_part(get_text(part, "text") or "")


def _parse_input_events(events: Iterable[SpanEvent]) -> Iterator[Message]:
    for event in events:
        role = _ROLE_EVENTS.get(event.name)
        if role is not None:
            raw = _parse_event_body(event)
            yield from parse_messages(
                {"role": role, **raw, **as_object(_decode_text(raw.get("message")))}
            )


def _parse_output_events(events: Iterable[SpanEvent]) -> Iterator[Message]:
    for event in events:
        if event.name == "gen_ai.choice":
            raw = _parse_event_body(event)
            inner = as_object(_decode_text(raw.get("message")))
            if not inner:
                inner = {"content": raw["message"]} if "message" in raw else raw
            finish = {"finish_reason": raw.get("finish_reason")}
            yield from parse_messages({**finish, **inner, "role": "assistant"})


def _parse_event_body(event: SpanEvent) -> JsonObject:
    """Return an event's attributes, merged with the JSON that one of them may hold."""
    inner = _decode_text(event.attributes.get("gen_ai.event.content"))
    return {**event.attributes, **as_object(inner)}


def parse_messages(raw: JsonObject) -> Iterator[Message]:
    """Yield a raw message; each result in it becomes a separate message."""
    role = (get_text(raw, "role") or "").lower()
    role = _ROLES.get(role, role)
    if not role or len(role) > 64:
        return
    parts = as_objects(raw.get("parts")) or _parse_blocks(raw.get("content"), role)
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    for part in results:
        response = part.get("response", part.get("result", part.get("content")))
        yield Message(
            "tool",
            to_text(response),
            tool_call_id=get_text(part, "id"),
            name=get_text(part, "name"),
        )
    if results and len(results) == len(parts):
        return
    yield make_foreign_message(
        role=role,
        content=_parse_content(parts) if parts else to_text(raw.get("content")),
        tool_calls=(*_parse_part_calls(parts), *_parse_tool_calls(raw)),
        tool_call_id=get_text(raw, "tool_call_id", "id") if role == "tool" else None,
        name=get_text(raw, "name") if role == "tool" else None,
        reasoning=_parse_reasoning(parts) or get_text(raw, "reasoning", "reasoning_content"),
        finish_reason=get_text(raw, "finish_reason"),
    )


def _parse_content(parts: list[JsonObject]) -> Content:
    content_parts: list[dict[str, JSON]] = []
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            content_parts.append(
                make_text_part(to_text(part.get("content", part.get("text"))) or "")
            )
        elif part.get("modality") == "image" and (url := _find_image_url(part)):
            content_parts.append(make_image_part(url))
        elif kind not in ("tool_call", "tool_call_response", "reasoning", "thinking"):
            content_parts.append(part)
    return to_content(content_parts)


def _find_image_url(part: JsonObject) -> str | None:
    """Return the address of an image in the convention's parts for data and for addresses."""
    if part.get("type") == "blob" and (data := get_text(part, "content")):
        return f"data:{get_text(part, 'mime_type') or 'image/png'};base64,{data}"
    return get_text(part, "uri") if part.get("type") == "uri" else None


def _parse_blocks(value: Any, role: str) -> list[JsonObject]:
    """Return content in a provider's format, possibly as JSON text, as parts."""
    if isinstance(value, str) and value.startswith("[{") and role != "tool":
        value = _decode_text(value)
    blocks = as_objects(value)
    if not all(block.get("type") in _BLOCK_TYPES for block in blocks):
        return []
    return [_parse_block(block) for block in blocks]


def _parse_block(block: JsonObject) -> JsonObject:
    kind = block.get("type")
    if kind == "tool_use":
        return {**block, "type": "tool_call", "arguments": block.get("input")}
    if kind == "tool_result":
        id = get_text(block, "tool_use_id")
        return {"type": "tool_call_response", "id": id, "response": block.get("content")}
    if kind in ("text", "input_text", "output_text"):
        return {"type": "text", "content": block.get("text")}
    return block


def _parse_reasoning(parts: list[JsonObject]) -> str | None:
    return join_thoughts(
        to_text(part.get("content", part.get("text")))
        for part in parts
        if part.get("type") in ("reasoning", "thinking")
    )


def _parse_part_calls(parts: list[JsonObject]) -> Iterator[ToolCall]:
    for part in parts:
        if part.get("type") == "tool_call":
            yield ToolCall(
                get_text(part, "id") or "",
                get_text(part, "name") or "",
                to_arguments(part.get("arguments")),
            )


def _parse_tool_calls(raw: JsonObject) -> Iterator[ToolCall]:
    for call in as_objects(_decode_text(raw.get("tool_calls"))):
        function = as_object(call.get("function")) or call
        given = function.get("arguments", function.get("input"))
        yield ToolCall(
            get_text(call, "id") or "", get_text(function, "name") or "", to_arguments(given)
        )
