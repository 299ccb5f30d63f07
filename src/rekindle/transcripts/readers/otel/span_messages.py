"""What a span says in messages, in each of the conventions that exist.

    GenAI            `gen_ai.input.messages`, `gen_ai.output.messages`: JSON, messages with `parts`
    GenAI, older     events `gen_ai.user.message`, `gen_ai.tool.message`, `gen_ai.choice`, …
    OpenInference    `llm.input_messages.0.message.content`, `llm.output_messages.…`
    OpenLLMetry      `gen_ai.prompt.0.content`, `gen_ai.completion.0.…`

The messages have the roles that the convention gives them, and no ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from rekindle.json_fields import Record, content, count, record, records, text, text_part
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.types import JSON, Content, Message, Tokens, ToolCall

from .spans import Noted, Span

_FLAT = {
    "in": re.compile(r"(?:llm\.input_messages|gen_ai\.prompt)\.(\d{1,6})\.(?:message\.)?(.+)"),
    "out": re.compile(
        r"(?:llm\.output_messages|gen_ai\.completion)\.(\d{1,6})\.(?:message\.)?(.+)"
    ),
}
_FLAT_CALL = re.compile(r"tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(\w+)")
_FLAT_PART = re.compile(r"contents\.(\d{1,6})\.message_content\.(.+)")
_DETAILS = "gen_ai.client.inference.operation.details"
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
    "tool-response": "tool",
}
# Parts of a content that are known by their type.
_BLOCKS = {
    "text", "input_text", "output_text", "image", "image_url", "input_image", "tool_use",
    "tool_result", "thinking", "reasoning",
}  # fmt: skip
# Names of the counts in the order of `Tokens`; what came from a cache is part of the input here.
_COUNTS = (
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
# Events of the older convention, by the role of their message.
_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def inputs(span: Span) -> list[Message]:
    """The messages that the model was given."""
    return [*_told(span, "gen_ai.input.messages", "in")] or [*_noted_inputs(span.events)]


def outputs(span: Span) -> list[Message]:
    """The messages that the model gave: mostly one."""
    return [*_told(span, "gen_ai.output.messages", "out")] or [*_noted_outputs(span.events)]


def tokens(attributes: Record) -> Tokens:
    """What the model call cost."""
    given, output, read, written, reasoning = (_sum(attributes, names) for names in _COUNTS)
    return Tokens(max(0, given - read - written), output, read, written, reasoning)


def written(value: Any) -> str | None:
    """A value as the text that it was, or that says it."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def arguments(value: Any) -> str | Record:
    """The arguments of a call: text as it was written, or an object."""
    return cast(Record, value) if isinstance(value, dict) else written(value) or ""


def _sum(attributes: Record, names: Iterable[str]) -> int:
    """The first of these counts; some files write them as text."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 17:
            value = int(value)
        if found := count(value):
            return found
    return 0


def _told(span: Span, name: str, side: str) -> Iterator[Message]:
    details = [event.about for event in span.events if event.name == _DETAILS]
    for attributes in (span.attributes, *details):
        if name in attributes:
            for said in records(_parsed(attributes[name])):
                yield from _messages(said)
            return
    for said in _unflattened(span.attributes, _FLAT[side]):
        yield from _messages(said)


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return decode(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def _unflattened(attributes: Record, pattern: re.Pattern[str]) -> list[Record]:
    """Messages whose fields are attributes of their own, in order."""
    found: dict[int, Record] = {}
    for key, value in attributes.items():
        if match := pattern.fullmatch(key):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [_gathered(found[index]) for index in sorted(found)]


def _gathered(fields: Record) -> Record:
    calls: dict[int, Record] = {}
    parts: dict[int, Record] = {}
    for key, value in fields.items():
        if match := _FLAT_CALL.fullmatch(key):
            calls.setdefault(int(match[1]), {})[match[2]] = value
        elif match := _FLAT_PART.fullmatch(key):
            parts.setdefault(int(match[1]), {})[match[2]] = value
    said = dict(fields)
    if calls:
        said["tool_calls"] = [calls[index] for index in sorted(calls)]
    if parts and not text(fields, "content"):
        said["content"] = [_flat_part(parts[index]) for index in sorted(parts)]
    return said


def _flat_part(part: Record) -> Record:
    if url := text(part, "image.image.url"):
        return {"type": "image_url", "image_url": {"url": url}}
    return text_part(text(part, "text") or "")


def _noted_inputs(events: Iterable[Noted]) -> Iterator[Message]:
    for event in events:
        role = _EVENTS.get(event.name)
        if role is not None:
            said = _body(event)
            yield from _messages({"role": role, **said, **record(_parsed(said.get("message")))})


def _noted_outputs(events: Iterable[Noted]) -> Iterator[Message]:
    for event in events:
        if event.name == "gen_ai.choice":
            said = _body(event)
            inner = record(_parsed(said.get("message")))
            if not inner:
                inner = {"content": said["message"]} if "message" in said else said
            finish = {"finish_reason": said.get("finish_reason")}
            yield from _messages({**finish, **inner, "role": "assistant"})


def _body(event: Noted) -> Record:
    """What an event says: its attributes, or the JSON that one of them holds."""
    inner = _parsed(event.about.get("gen_ai.event.content"))
    return {**event.about, **record(inner)}


def _messages(said: Record) -> Iterator[Message]:
    """One message as it was told; each result in it is one of its own."""
    role = (text(said, "role") or "").lower()
    role = _ROLES.get(role, role)
    if not role or len(role) > 64:
        return
    parts = records(said.get("parts")) or _blocks(said.get("content"), role)
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    for part in results:
        told = part.get("response", part.get("result", part.get("content")))
        yield Message("tool", written(told), tool_call_id=text(part, "id"), name=text(part, "name"))
    if results and len(results) == len(parts):
        return
    yield Message(
        role=role,
        content=_parts_content(parts) if parts else written(said.get("content")),
        tool_calls=(*_part_calls(parts), *_calls(said)),
        tool_call_id=text(said, "tool_call_id", "id") if role == "tool" else None,
        name=text(said, "name") if role == "tool" else None,
        reasoning=_thoughts(parts) or text(said, "reasoning", "reasoning_content"),
        finish_reason=text(said, "finish_reason"),
    )


def _parts_content(parts: list[Record]) -> Content:
    told: list[dict[str, JSON]] = []
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            told.append(text_part(written(part.get("content", part.get("text"))) or ""))
        elif kind not in ("tool_call", "tool_call_response", "reasoning", "thinking"):
            told.append(part)
    return content(told)


def _blocks(value: Any, role: str) -> list[Record]:
    """A content in the shape of some maker of models, as parts; it may be written as JSON."""
    if isinstance(value, str) and value.startswith("[{") and role != "tool":
        value = _parsed(value)
    blocks = records(value)
    if not all(block.get("type") in _BLOCKS for block in blocks):
        return []
    return [_block(block) for block in blocks]


def _block(block: Record) -> Record:
    kind = block.get("type")
    if kind == "tool_use":
        return {**block, "type": "tool_call", "arguments": block.get("input")}
    if kind == "tool_result":
        id = text(block, "tool_use_id")
        return {"type": "tool_call_response", "id": id, "response": block.get("content")}
    if kind in ("text", "input_text", "output_text"):
        return {"type": "text", "content": block.get("text")}
    return block


def _thoughts(parts: list[Record]) -> str | None:
    thoughts = (
        written(part.get("content", part.get("text"))) or ""
        for part in parts
        if part.get("type") in ("reasoning", "thinking")
    )
    return "\n\n".join(thought for thought in thoughts if thought) or None


def _part_calls(parts: list[Record]) -> Iterator[ToolCall]:
    for part in parts:
        if part.get("type") == "tool_call":
            yield ToolCall(
                text(part, "id") or "", text(part, "name") or "", arguments(part.get("arguments"))
            )


def _calls(said: Record) -> Iterator[ToolCall]:
    for call in records(_parsed(said.get("tool_calls"))):
        function = record(call.get("function")) or call
        given = function.get("arguments", function.get("input"))
        yield ToolCall(text(call, "id") or "", text(function, "name") or "", arguments(given))
