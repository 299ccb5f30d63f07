"""Gemini CLI reader, for the files that it writes under `~/.gemini/tmp/<project>/`.

    chats/session-….json    one chat record `{sessionId, projectHash, messages}`
    chats/session-….jsonl   the same as lines: its head, its messages, `$set` and `$rewindTo`
    checkpoint-….json       the history as sent to the API: a list of `{role, parts}`, bare or under
                            `history`

In a chat record a call holds its own result. A line with the id of an earlier message replaces it,
usually the one right before it, so one message is held back until another begins; what a later copy
adds to a message that was already emitted becomes an answer of its own. The history has no ids or
times: ids are derived from the file's path and positions. The summary of a compressed history
(`<state_snapshot>`) is recorded in the `meta` of the message after it, and messages that the CLI injects
to set up a conversation are skipped.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent, UnreadableEntry
from rekindle.transcripts.jsonio.jsonl import read_line_events
from rekindle.transcripts.jsonio.partial import find_first_element, parse_partial_fields
from rekindle.transcripts.jsonio.stream import iter_elements
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace_fields

from .session_builder import (
    SessionBuilder,
    add_meta,
    join_thoughts,
    make_inline_image,
    make_path_id,
    make_tool_call,
)

SOURCE = "gemini"

_LISTS = {"messages", "history"}
_TYPES = ("user", "gemini", "info", "warning", "error")
_ROLES = ("user", "model", "function", "tool")
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})\s*$", re.MULTILINE)
_SHELL_TOOLS = {"run_shell_command", "shell"}
_SNAPSHOT = "<state_snapshot>"
_SETUP_PREFIXES = ("This is the Gemini CLI.", "<session_context>")
# What hooks add to a prompt, and where the setup names the folder of the session.
_HOOK_CONTEXT = re.compile(r"<hook_context>[^<]*</hook_context>\s*")
_WORKSPACE = re.compile(r"Workspace Directories:\*\*\n  - ([^\n]+)")
# The model's injected replies to the setup messages.
_SETUP_REPLIES = ("Got it. Thanks for the context!", "Got it. Thanks for the additional context!")
_FINAL_STATUSES = ("success", "error", "cancelled")


def can_read(head: FileHead) -> bool:
    if any(_is_chat_line(line) for line in head.objects):
        return True
    first = parse_partial_fields(find_first_element(head.data, _LISTS))
    return first.get("role") in _ROLES and isinstance(first.get("parts"), list)


def _is_chat_line(line: JsonObject) -> bool:
    """Return whether this is a line of a chat record, or the record itself."""
    if isinstance(line.get("sessionId"), str) and isinstance(line.get("projectHash"), str):
        return True
    if isinstance(line.get("$rewindTo"), str) or isinstance(line.get("$set"), dict):
        return True
    return line.get("type") in _TYPES and "content" in line and isinstance(line.get("id"), str)


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    # A head that holds its messages is a whole record, which is streamed as a document.
    head = FileHead.read(path)
    first = head.first_line_objects
    if head.has_document_per_line and (
        any(_is_chat_line(line) and "messages" not in line for line in first)
        or not (head.line_objects or any("messages" in line for line in first))
    ):
        return _read_lines(path)
    return _read_documents(path)


def _read_lines(path: Path) -> Iterator[TranscriptEvent]:
    chat = _GeminiChat(path)
    yield from read_line_events(path, chat.read_line)
    yield from chat.finish()


def _read_documents(path: Path) -> Iterator[TranscriptEvent]:
    chat: _GeminiChat | _GeminiHistory = _GeminiChat(path)
    document = -1
    for element in iter_elements(path, _LISTS):
        if isinstance(element, UnreadableEntry):
            yield element
            continue
        if element.document != document:
            yield from chat.finish()
            document = element.document
            chat = _GeminiChat(path, document)
        if element.position is None:
            chat.update_session({element.key or "": element.value})
            continue
        raw, fallback_id = as_object(element.value), f"item:{element.position + 1}"
        if element.position == 0 and not chat.has_id and isinstance(raw.get("parts"), list):
            chat = _GeminiHistory(path, document)
        if not raw:
            yield UnreadableEntry(str(path), element.line, f"{fallback_id}: expected a message")
        yield from chat.read_entry(raw, fallback_id)
    yield from chat.finish()


class _GeminiConversation(SessionBuilder):
    """One conversation being read."""

    def __init__(self, path: Path, document: int = 0) -> None:
        self.path = path
        id = make_path_id(SOURCE, path, f"document {document}" if document else "")
        super().__init__(Session(id=id, source=SOURCE))
        self.has_id = False
        self.is_setting_up = False

    def update_session(self, metadata: JsonObject) -> None:
        """Update the session from fields next to the messages."""
        id = get_text(metadata, "sessionId")
        self.has_id = self.has_id or id is not None
        folders = metadata.get("directories")
        first = cast("list[object]", folders)[0] if isinstance(folders, list) and folders else None
        parent = self.path.parent.name if metadata.get("kind") == "subagent" else None
        self.set_fields(
            id=id or self.session.id, title=get_text(metadata, "summary") or self.session.title
        )
        self.fill_fields(
            # A sub-agent's record is in a folder named after its parent.
            parent=parent if parent != "chats" else None,
            sub_agent="agent" if metadata.get("kind") == "subagent" else None,
            cwd=first if isinstance(first, str) else None,
            started=parse_timestamp(metadata.get("startTime")),
        )

    def append_message(self, message: Message) -> Sequence[TranscriptEvent]:
        if not self.is_started:
            self.fill_fields(started=message.timestamp)
        return super().append_message(message)

    def parse_prompt(
        self, parts: list[JsonObject], id: str, time: float | None
    ) -> Iterator[Message]:
        """Yield the prompt on the user's side of a turn, without results and injected text."""
        prompt_parts = _drop_hook_context(
            [part for part in parts if "functionResponse" not in part]
        )
        prompt = to_content(_parse_parts(prompt_parts))
        message = Message(role="user", content=prompt, platform_message_id=id, timestamp=time)
        if message.text.startswith(_SNAPSHOT):
            self.pending_meta["compacted"] = {"summary": message.text}
            self.is_setting_up = True
        elif message.text.startswith(_SETUP_PREFIXES):
            self.is_setting_up = True
            if folder := _WORKSPACE.search(message.text):
                self.fill_fields(cwd=folder[1].strip())
        elif prompt and self.is_new(id):
            self.is_setting_up = False
            yield add_meta(message, self.pop_pending_meta())

    def parse_result(
        self, call: ToolCall, result_parts: list[JsonObject], status: str | None
    ) -> Message:
        answers = [part for part in map(_get_response, result_parts) if part]
        matching = [part for part in answers if part.get("id") == call.id] or answers[:1]
        answer = matching[0] if matching else {}
        siblings = (
            [part for part in result_parts if not _get_response(part)] if len(answers) < 2 else []
        )
        images = _parse_parts([*as_objects(answer.get("parts")), *siblings])
        output = _parse_output(as_object(answer.get("response")))
        return Message(
            role="tool",
            content=to_content([*([] if output is None else [make_text_part(output)]), *images]),
            tool_call_id=call.id,
            name=call.name or None,
            platform_message_id=call.id,
            meta=drop_none(
                {**_parse_result_meta(call.name, answer, status), **self.pop_pending_meta()}
            ),
        )


class _GeminiChat(_GeminiConversation):
    """A chat record: messages have ids and times, calls hold their results."""

    def __init__(self, path: Path, document: int = 0) -> None:
        super().__init__(path, document)
        self.held_raw: tuple[str, JsonObject] | None = None

    def read_line(self, number: int, line: JsonObject) -> Iterator[TranscriptEvent]:
        """Read one line of a record that is written as lines."""
        if isinstance(line.get("$rewindTo"), str):
            # Earlier messages stay, the next one is marked.
            yield from self.close_message()
            self.pending_meta["rewound"] = True
        elif "type" in line or "id" in line:
            yield from self.read_entry(line, f"line:{number}")
        else:
            metadata = as_object(line.get("$set")) or line
            self.update_session(metadata)
            # The whole history, rewritten: what it shortens was already emitted in full.
            if rewritten := as_objects(metadata.get("messages")):
                yield from self.close_message()
            for index, raw in enumerate(rewritten):
                yield from self.read_entry(raw, f"line:{number}:{index}")

    def read_entry(self, raw: JsonObject, fallback_id: str) -> Iterator[TranscriptEvent]:
        """Hold one raw message back until another one begins."""
        id = get_text(raw, "id") or fallback_id
        if self.held_raw is not None and self.held_raw[0] != id:
            yield from self.close_message()
        self.held_raw = (id, raw)

    def finish(self) -> Iterator[TranscriptEvent]:
        yield from self.close_message()
        yield from super().finish()

    def close_message(self) -> Iterator[TranscriptEvent]:
        """Emit the message that is held back."""
        if self.held_raw is not None:
            (id, raw), self.held_raw = self.held_raw, None
            for message in self._parse_messages(id, raw):
                yield from self.append_message(message)

    def _parse_messages(self, id: str, raw: JsonObject) -> Iterator[Message]:
        kind, time = raw.get("type"), parse_timestamp(raw.get("timestamp"))
        parts = _normalize_parts(raw.get("content"))
        if kind == "gemini":
            yield from self._parse_answer(id, raw, parts, time)
        elif kind == "user":
            for part in parts:
                # Copies made from the history have results on the user's side.
                call = get_text(_get_response(part), "id")
                if call and self.is_new(f"result {call}"):
                    name = get_text(_get_response(part), "name") or ""
                    yield replace_fields(
                        self.parse_result(ToolCall(call, name), [part], None), timestamp=time
                    )
            yield from self.parse_prompt(parts, id, time)
        elif kind == "error":
            self.pending_meta["api_error"] = True

    def _parse_answer(
        self, id: str, raw: JsonObject, parts: list[JsonObject], time: float | None
    ) -> Iterator[Message]:
        raw_calls = as_objects(raw.get("toolCalls"))
        calls = {call.id: call for call in _parse_tool_calls(parts, id)}
        for index, item in enumerate(raw_calls):
            call = _parse_tool_call(item, f"{id}:call:{index}")
            calls[call.id] = call
        new = [call for call in calls.values() if self.is_new(f"call {call.id}")]
        message = self._parse_message(id, raw, parts, new, time)
        if self.is_new(id):
            self.fill_fields(model=get_text(raw, "model"))
            tokens = _parse_tokens(as_object(raw.get("tokens")))
            self.add_usage(tokens, time=time, model=get_text(raw, "model"))
            if not (message.content or new or message.reasoning):
                return
            yield add_meta(message, self.pop_pending_meta())
        elif new:
            yield replace_fields(message, content=None, platform_message_id=f"{id}+{new[0].id}")
        for index, item in enumerate(raw_calls):
            call = _parse_tool_call(item, f"{id}:call:{index}")
            result_parts, status = _normalize_parts(item.get("result")), get_text(item, "status")
            if f"result {call.id}" in self.seen or not (result_parts or status in _FINAL_STATUSES):
                continue
            self.seen.add(f"result {call.id}")
            result = self.parse_result(call, result_parts, status)
            timestamp = parse_timestamp(item.get("timestamp")) or time
            result = add_meta(result, {"agent": get_text(item, "agentId")})
            yield replace_fields(result, timestamp=timestamp)

    def _parse_message(
        self,
        id: str,
        raw: JsonObject,
        parts: list[JsonObject],
        calls: list[ToolCall],
        time: float | None,
    ) -> Message:
        thoughts = [_parse_thought(item) for item in as_objects(raw.get("thoughts"))]
        thoughts += [part["text"] for part in parts if _is_thought(part)]
        model = get_text(raw, "model")
        first = self.session.model
        return Message(
            role="assistant",
            content=to_content(_parse_parts(parts)),
            tool_calls=calls,
            reasoning=join_thoughts(thoughts),
            platform_message_id=id,
            meta=drop_none({"model": model if first and model != first else None}),
            timestamp=time,
        )


class _GeminiHistory(_GeminiConversation):
    """A history as sent to the API. Calls and results without ids are matched by order."""

    def __init__(self, path: Path, document: int = 0) -> None:
        super().__init__(path, document)
        self.pending_calls: deque[ToolCall] = deque()

    def read_entry(self, raw: JsonObject, fallback_id: str) -> Iterator[TranscriptEvent]:
        """Read one element of the history."""
        for message in self._parse_messages(raw, fallback_id):
            yield from self.append_message(message)

    def _parse_messages(self, raw: JsonObject, fallback_id: str) -> Iterator[Message]:
        role, parts = raw.get("role"), _normalize_parts(raw.get("parts"))
        if role == "model":
            yield from self._parse_answer(parts, fallback_id)
        elif role in _ROLES:
            for index, part in enumerate(parts):
                if answer := _get_response(part):
                    call = self._match_call(answer, f"{fallback_id}:{index}")
                    yield replace_fields(
                        self.parse_result(call, [part], None), platform_message_id=call.id
                    )
            yield from self.parse_prompt(parts, fallback_id, None)

    def _parse_answer(self, parts: list[JsonObject], fallback_id: str) -> Iterator[Message]:
        calls = list(_parse_tool_calls(parts, fallback_id))
        self.pending_calls.extend(calls)
        thoughts = [part["text"] for part in parts if _is_thought(part)]
        message = Message(
            role="assistant",
            content=to_content(_parse_parts(parts)),
            tool_calls=calls,
            reasoning=join_thoughts(thoughts),
            platform_message_id=fallback_id,
        )
        if self.is_setting_up and not calls and message.text.startswith(_SETUP_REPLIES):
            return
        self.is_setting_up = False
        if message.content or calls or thoughts:
            yield add_meta(message, self.pop_pending_meta())

    def _match_call(self, answer: JsonObject, fallback_id: str) -> ToolCall:
        id, name = get_text(answer, "id"), get_text(answer, "name")
        for call in self.pending_calls:
            if call.id == id or (id is None and call.name == name):
                self.pending_calls.remove(call)
                return call
        return ToolCall(id or fallback_id, name or "")


def _normalize_parts(raw_content: object) -> list[JsonObject]:
    """Return content of any shape (text, one part, or a list) as a list of parts."""
    if isinstance(raw_content, str):
        return [{"text": raw_content}] if raw_content else []
    if isinstance(raw_content, list):
        return [
            part for item in cast("list[object]", raw_content) for part in _normalize_part(item)
        ]
    return _normalize_part(raw_content)


def _normalize_part(item: object) -> list[JsonObject]:
    return [{"text": item}] if isinstance(item, str) and item else as_objects([item])


def _drop_hook_context(parts: list[JsonObject]) -> list[JsonObject]:
    """Return the parts of a prompt without the text that hooks added before or after it."""
    kept: list[JsonObject] = []
    for part in parts:
        value = part.get("text")
        if isinstance(value, str) and (found := _HOOK_CONTEXT.match(value)):
            part = {**part, "text": value[found.end() :]}
        if part.get("text") != "":
            kept.append(part)
    return kept


def _is_thought(part: JsonObject) -> bool:
    return part.get("thought") is True and isinstance(part.get("text"), str)


def _parse_parts(parts: list[JsonObject]) -> list[dict[str, JSON]]:
    """Return the visible parts: no reasoning, calls or results."""
    found: list[dict[str, JSON]] = []
    for part in parts:
        inline = as_object(part.get("inlineData"))
        kind, data = get_text(inline, "mimeType") or "", get_text(inline, "data")
        if _is_thought(part):
            continue
        if value := get_text(part, "text"):
            found.append(make_text_part(value))
        elif data and kind.startswith("image/"):
            found.append(make_inline_image(kind, data))
        elif inline or isinstance(part.get("fileData"), dict):
            found.append({"type": "file", **part})
    return found


def _get_response(part: JsonObject) -> JsonObject:
    return as_object(part.get("functionResponse"))


def _parse_tool_calls(parts: list[JsonObject], fallback_id: str) -> Iterator[ToolCall]:
    for index, part in enumerate(parts):
        if raw_call := as_object(part.get("functionCall")):
            yield _parse_tool_call(raw_call, f"{fallback_id}:{index}")


def _parse_tool_call(raw_call: JsonObject, fallback_id: str) -> ToolCall:
    id = get_text(raw_call, "id") or fallback_id
    return make_tool_call(id, get_text(raw_call, "name"), raw_call.get("args"))


def _parse_output(response: JsonObject) -> str | None:
    """Return the text of a response. Gemini CLI's tools answer with `output` or `error`."""
    for name in ("output", "error"):
        if isinstance(value := response.get(name), str):
            return value
    return json.dumps(response, ensure_ascii=False) if response else None


def _parse_result_meta(name: str, answer: JsonObject, status: str | None) -> dict[str, JSON]:
    response = as_object(answer.get("response"))
    failed: bool | None = None
    if status in _FINAL_STATUSES:
        failed = status != "success"
    elif status is None and ("error" in response or "output" in response):
        failed = bool(response.get("error"))
    meta: dict[str, JSON] = {"is_error": failed}
    if status == "cancelled":
        meta["refused"] = True
    output = response.get("output")
    if name in _SHELL_TOOLS and isinstance(output, str) and (codes := _EXIT_CODE.findall(output)):
        # The command may print such a line too; the shell's own comes last.
        meta["exit_code"] = int(codes[-1])
    return meta


def _parse_thought(item: JsonObject) -> str:
    lines = (get_text(item, "subject"), get_text(item, "description"))
    return "\n".join(part for part in lines if part)


def _parse_tokens(usage: JsonObject) -> Tokens:
    cached, thoughts = as_count(usage.get("cached")), as_count(usage.get("thoughts"))
    return Tokens(
        # Gemini includes cached tokens in the input and excludes reasoning from the output.
        input=max(0, as_count(usage.get("input")) - cached) + as_count(usage.get("tool")),
        output=as_count(usage.get("output")) + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
