"""OpenAI chat reader: the common message format, in several kinds of files.

    one message per line                              one conversation per file
    one object with `messages` per line, or per file  one conversation per object
    one list of messages per file                     one conversation
    one list of such objects, or of such lists        one conversation per element

`tool_calls` may be a list or its JSON text, `arguments` a text or an object. Calls and results without
ids are matched by order. A conversation without an id is identified by the path of its file, so the file
may grow, and counts as new when it is moved.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_object,
    as_objects,
    drop_none,
    get_text,
    parse_timestamp,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import decode_json, read_json_lines
from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields
from rekindle.transcripts.jsonio.scanner import ContainerEnd, JsonPath
from rekindle.transcripts.jsonio.stream import iter_document_values, iter_elements
from rekindle.types import (
    JSON,
    ROLES,
    Content,
    Message,
    Session,
    Tokens,
    ToolCall,
    make_foreign_message,
)

from .session_builder import MASKED_IDS, SessionBuilder, decode_text, make_path_id, to_arguments

SOURCE = "openai-chat"

_ROLE = re.compile(rb'"role"\s*:\s*"(\w+)"')
_META_FIELDS = ("is_error", "exit_code", "duration", "status", "error")
# The only fields of nearly every message.
_BASIC_FIELDS = frozenset(
    ("role", "content", "tool_calls", "function_call", "tool_call_id", "name")
)
# Bounds memory for calls that never get a result.
_MAX_PENDING_CALLS = 256


def can_read(head: FileHead) -> bool:
    for line in head.objects:
        if _is_message(line) or any(_is_message(raw) for raw in as_objects(line.get("messages"))):
            return True
    first = find_first_element(head.data, {"messages"})
    if _is_conversation(first):
        first = find_first_element(first, {"messages"})
    return _starts_with_message(first, is_cut=head.is_cut)


def _is_conversation(first: bytes) -> bool:
    """Return whether the first element of a list is a conversation, not a message."""
    return first.startswith(b"[") or isinstance(parse_partial_fields(first).get("messages"), list)


def _starts_with_message(first: bytes, *, is_cut: bool) -> bool:
    try:
        return _is_message(as_object(decode_json(first)))
    except ValueError:
        # Longer than the head: the role may be before or after the text, so look for both.
        match = _ROLE.search(first) if is_cut else None
        return match is not None and match[1].decode() in ROLES and b'"content"' in first


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    head = FileHead.read(path)
    # A message may be longer than the head, which then is a single line.
    is_long_line = b"\n" not in head.data.strip() and any(
        _is_message(line) for line in head.objects
    )
    if is_long_line or head.has_document_per_line:
        return _read_lines(path)
    if head.data.startswith(b"[") and _is_conversation(find_first_element(head.data, {"messages"})):
        return _read_list(path)
    return _read_documents(path)


def _is_message(value: JsonObject) -> bool:
    return value.get("role") in ROLES and ("content" in value or "tool_calls" in value)


def _read_lines(path: Path) -> Iterator[TranscriptEvent]:
    resolved_path = str(path.resolve())
    file_conversation = OpenAIChatConversation(make_path_id("chat", resolved_path, ""))
    for entry in read_json_lines(path):
        if isinstance(entry, UnreadableEntry):
            yield entry
            continue
        number, line = entry
        if isinstance(line.get("messages"), list):
            conversation = OpenAIChatConversation(
                make_path_id("chat", resolved_path, f"line {number}")
            )
            conversation.update_session(line)
            for index, raw in enumerate(cast("list[object]", line["messages"]), 1):
                yield from conversation.read_entry(raw, f"item:{index}", path, number)
            yield from conversation.finish()
        elif "role" in line:
            yield from file_conversation.read_entry(line, f"line:{number}", path, number)
        else:
            file_conversation.update_session(line)
    yield from file_conversation.finish()


def _read_documents(path: Path) -> Iterator[TranscriptEvent]:
    # Session fields may follow the messages and are applied as they come; the id is needed first
    # and comes from the keys before the messages, or from the path.
    conversation = OpenAIChatConversation("")
    resolved_path = str(path.resolve())
    document = -1
    for element in iter_elements(path, {"messages"}):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        if element.document != document:
            yield from conversation.finish()
            document = element.document
            conversation = OpenAIChatConversation(
                make_path_id("chat", resolved_path, f"document {document}" if document else "")
            )
        if element.position is not None:
            yield from conversation.read_entry(
                element.value, f"item:{element.position + 1}", path, element.line
            )
        elif element.key is not None:
            conversation.update_session({element.key: element.value})
    yield from conversation.finish()


def _read_list(path: Path) -> Iterator[TranscriptEvent]:
    conversation = OpenAIChatConversation("")
    resolved_path = str(path.resolve())
    element = None
    for step in iter_document_values(path, _should_descend):
        if isinstance(step, UnreadableEntry):
            yield step
            continue
        if step.path[:1] != element:
            yield from conversation.finish()
            element = step.path[:1]
            conversation = OpenAIChatConversation(
                make_path_id("chat", resolved_path, f"element {element[0] if element else ''}")
            )
        if isinstance(step, ContainerEnd):
            continue
        if isinstance(step.path[-1], int):
            yield from conversation.read_entry(
                step.value, f"item:{step.path[-1] + 1}", path, step.line
            )
        else:
            conversation.update_session({step.path[-1]: step.value})
    yield from conversation.finish()


def _should_descend(json_path: JsonPath) -> bool:
    return len(json_path) == 1 or (len(json_path) == 2 and json_path[1] == "messages")


class OpenAIChatConversation(SessionBuilder):
    """One conversation being read."""

    def __init__(self, id: str, source: str = SOURCE) -> None:
        super().__init__(Session(id=id, source=source))
        self.pending_calls: deque[ToolCall] = deque(maxlen=_MAX_PENDING_CALLS)

    def update_session(self, metadata: JsonObject) -> None:
        """Update the session from fields next to the messages."""
        known = self.session
        self.set_fields(
            id=get_text(metadata, "session_id", "conversation_id", "thread_id", "id") or known.id,
            title=get_text(metadata, "title") or known.title,
            model=get_text(metadata, "model") or known.model,
            cwd=get_text(metadata, "cwd") or known.cwd,
            tokens=known.tokens.add(_parse_tokens(metadata)),
        )
        self.fill_fields(
            parent=get_text(metadata, "parent_session_id"),
            started=_parse_timestamp(metadata, "created_at", "created", "timestamp"),
        )

    def read_entry(
        self, value: object, fallback_id: str, path: Path, line: int
    ) -> Sequence[TranscriptEvent]:
        """Read one raw message and return its events; anything else is reported as unreadable."""
        event = self.parse_message(value, fallback_id, path, line)
        return (event,) if isinstance(event, UnreadableEntry) else self.append_message(event)

    def parse_message(
        self, value: object, fallback_id: str, path: Path, line: int
    ) -> Message | UnreadableEntry:
        """Parse one raw message, without the session's start event."""
        raw = as_object(value)
        role = get_text(raw, "role")
        if role is None or len(role) > 64:
            return UnreadableEntry(
                str(path), line, f"{fallback_id}: expected a message with a role"
            )
        role = "tool" if role == "function" else role
        name, call_id = get_text(raw, "name", "tool_name"), get_text(raw, "tool_call_id")
        if role == "tool" and (call := self._match_call(call_id)):
            name, call_id = name or call.name, call.id
        calls: tuple[ToolCall, ...] = ()
        if raw.get("tool_calls") or raw.get("function_call"):
            calls = _parse_tool_calls(raw, fallback_id)
            self.pending_calls.extend(calls)
        basic_fields = (role, _parse_content(raw.get("content")), calls, call_id, name)
        if raw.keys() <= _BASIC_FIELDS and role in ROLES:
            return Message(*basic_fields, platform_message_id=fallback_id)
        message = make_foreign_message(
            *basic_fields,
            reasoning=get_text(raw, "reasoning_content", "reasoning", "thinking"),
            finish_reason=get_text(raw, "finish_reason"),
            platform_message_id=self._make_message_id(raw, fallback_id),
            meta=_parse_result_meta(raw),
            timestamp=_parse_timestamp(raw, "timestamp", "created_at"),
        )
        self._update_from_message(raw, message.timestamp)
        return message

    def _update_from_message(self, raw: JsonObject, time: float | None) -> None:
        """Update the session from a message; most have nothing new."""
        self.fill_fields(started=time, model=get_text(raw, "model"))
        if "usage" in raw:
            self.add_usage(_parse_tokens(raw), time=time, model=get_text(raw, "model"))

    def _make_message_id(self, raw: JsonObject, fallback_id: str) -> str:
        id = get_text(raw, "id", "message_id", "uuid")
        # Some writers give all messages of a request the same id.
        return id if id and id not in MASKED_IDS and self.is_new(id) else fallback_id

    def _match_call(self, id: str | None) -> ToolCall | None:
        for call in self.pending_calls:
            if id is None or call.id == id:
                self.pending_calls.remove(call)
                return call
        return None


def _parse_content(value: Any) -> Content:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return [
            cast(JsonObject, part)
            if isinstance(part, dict)
            else {"type": "text", "text": str(part)}
            for part in parts
        ]
    return json.dumps(value)


def _parse_tool_calls(raw: JsonObject, fallback_id: str) -> tuple[ToolCall, ...]:
    calls = as_objects(decode_text(raw.get("tool_calls")))
    if legacy := as_object(raw.get("function_call")):
        calls = [*calls, legacy]
    return tuple(
        _parse_tool_call(call, f"{fallback_id}:{index}") for index, call in enumerate(calls)
    )


def _parse_tool_call(call: JsonObject, fallback_id: str) -> ToolCall:
    function = as_object(call.get("function")) or call
    arguments = to_arguments(function.get("arguments", function.get("input")))
    id = get_text(call, "id", "call_id", "tool_call_id") or fallback_id
    return ToolCall(id, get_text(function, "name") or "", arguments)


def _parse_result_meta(raw: JsonObject) -> dict[str, JSON] | None:
    if raw.keys().isdisjoint(_META_FIELDS):
        return None
    return drop_none({name: raw[name] for name in _META_FIELDS if name in raw})


def _parse_timestamp(fields: JsonObject, *names: str) -> float | None:
    for name in names:
        if name in fields and (time := parse_timestamp(fields[name])):
            return time
    return None


def _parse_tokens(metadata: JsonObject) -> Tokens:
    usage = as_object(metadata.get("usage"))
    if not usage:
        return Tokens()
    cached = as_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    details = as_object(usage.get("completion_tokens_details"))
    prompt = as_count(usage.get("prompt_tokens", usage.get("input_tokens")))
    return Tokens(
        input=max(0, prompt - cached),
        output=as_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cache_read=cached,
        reasoning=as_count(details.get("reasoning_tokens")),
    )
