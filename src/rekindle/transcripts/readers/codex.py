"""Codex CLI reader: one `{timestamp, type, payload}` per line, in `sessions/…/rollout-….jsonl`.

A rollout has every message twice, as `response_item` and as `event_msg`. The former is what the model
saw, so it is read; events are used only for details that they alone have (exit codes, tokens, a title).
An answer is the run of items up to a result, a prompt or a token count. A fork begins with its own
`session_meta` and then repeats its parent's history, and is read as such.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from rekindle.json_fields import (
    JsonObject,
    as_count,
    as_number,
    as_object,
    as_objects,
    drop_none,
    get_text,
    make_text_part,
    parse_timestamp,
    to_content,
)
from rekindle.projects import normalize_remote
from rekindle.transcripts.detect import FileHead
from rekindle.transcripts.events import TranscriptEvent
from rekindle.transcripts.jsonio.jsonl import make_typed_decoder, read_line_events
from rekindle.types import JSON, Message, Session, ToolCall, replace_fields

from .session_builder import (
    AnswerBuilder,
    SessionBuilder,
    decode_text,
    make_image_part,
    make_tool_call,
    parse_exit_code,
    parse_tokens,
)

SOURCE = "codex"

_ENVELOPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
# Messages that the harness injects in the user's name.
_INJECTED_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "# AGENTS.md instructions",
)
_ABORTED = "<turn_aborted>"
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,9})\s*$", re.MULTILINE)
_WALL_TIME = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds", re.MULTILINE)
_OUTPUT = re.compile(r"^(?:Output|Total output lines):", re.MULTILINE)
_RUNNING = re.compile(r"^Process running with session ID", re.MULTILINE)
_HEADER_LENGTH = 600
# Tools whose results have a header if they ran; without one, the harness refused the call.
_TOOLS_WITH_HEADER = {"exec_command", "write_stdin", "apply_patch"}
_TOKEN_NAMES = (
    *("input_tokens", "output_tokens", "cached_input_tokens", "", "reasoning_output_tokens"),
)
# The history of a parent is written at once, with the time of writing.
_COPY_SECONDS = 1.0
# Bounds memory for calls that never get a result.
_MAX_PENDING_RESULTS = 64


class _CodexItem(TypedDict, total=False):
    """The fields that are read from the `item` of an event."""

    id: Any
    type: Any
    exit_code: Any


class _CodexPayload(TypedDict, total=False):
    """The fields that are read from a payload; events repeat whole outputs in others."""

    type: Any
    # A header or a turn.
    id: Any
    forked_from_id: Any
    parent_thread_id: Any
    thread_source: Any
    source: Any
    git: Any
    cwd: Any
    model_provider: Any
    timestamp: Any
    turn_id: Any
    model: Any
    message: Any
    # An item.
    role: Any
    content: Any
    phase: Any
    summary: Any
    name: Any
    namespace: Any
    arguments: Any
    input: Any
    action: Any
    call_id: Any
    output: Any
    # An event.
    info: Any
    thread_name: Any
    item: _CodexItem
    exit_code: Any
    success: Any
    result: Any
    duration: Any


class _CodexLine(TypedDict, total=False):
    type: Any
    timestamp: Any
    payload: _CodexPayload


_decode_line = make_typed_decoder(_CodexLine)


def can_read(head: FileHead) -> bool:
    return any(
        line.get("type") in _ENVELOPES and isinstance(line.get("payload"), dict)
        for line in head.objects
    )


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    rollout = _CodexRollout(path)
    yield from read_line_events(path, rollout.read_entry, _decode_line)
    yield from rollout.finish()


class _CodexRollout(SessionBuilder):
    """One rollout being read."""

    def __init__(self, path: Path) -> None:
        super().__init__(Session(id=path.stem, source=SOURCE))
        self.has_header = False
        self.answer: AnswerBuilder | None = None
        self.result_meta: dict[str, dict[str, JSON]] = {}
        self.turn_model: str | None = None
        self.is_copying = False  # the history of the parent
        self.copy_end = 0.0  # of a copy without ids of turns

    def read_entry(self, number: int, line: JsonObject) -> Sequence[TranscriptEvent]:
        """Read one line and return the events that it completes."""
        kind, payload = line.get("type"), as_object(line.get("payload"))
        messages: Sequence[Message] = ()
        if kind == "response_item":
            messages = self._read_item(
                payload, f"line:{number}", parse_timestamp(line.get("timestamp"))
            )
        elif kind == "event_msg":
            messages = self._read_event(payload, line.get("timestamp"))
        elif kind == "turn_context":
            self._track_turn(payload)
            self.turn_model = get_text(payload, "model") or self.turn_model
            self.fill_fields(model=self.turn_model, cwd=get_text(payload, "cwd"))
        elif kind == "session_meta":
            self._read_header(payload, parse_timestamp(line.get("timestamp")))
        elif kind == "compacted":
            messages = self._close_answer()
            self.pending_meta["compacted"] = (
                drop_none({"summary": get_text(payload, "message")}) or {}
            )
        return self.append_messages(messages) if messages else ()

    def finish(self) -> Iterator[TranscriptEvent]:
        """Yield the open answer and the session with everything learned from the file."""
        yield from self.append_messages(self._close_answer())
        yield from super().finish()

    def _read_header(self, meta: JsonObject, time: float | None) -> None:
        if self.has_header:
            return
        self.has_header = True
        kind = as_object(meta.get("source")).get("subagent")
        spawned = as_object(as_object(kind).get("thread_spawn"))
        git = as_object(meta.get("git"))
        self.is_copying = get_text(meta, "forked_from_id") is not None
        self.copy_end = (time or 0.0) + _COPY_SECONDS
        self.set_fields(
            id=get_text(meta, "id") or self.session.id,
            parent=get_text(meta, "forked_from_id", "parent_thread_id")
            or get_text(spawned, "parent_thread_id"),
            sub_agent=_find_agent_kind(meta, kind, spawned),
            cwd=get_text(meta, "cwd"),
            git_branch=get_text(git, "branch"),
            repository=normalize_remote(get_text(git, "repository_url") or ""),
            model_config=drop_none({"provider": get_text(meta, "model_provider")}),
            started=parse_timestamp(meta.get("timestamp")) or time or 0.0,
        )

    def _track_turn(self, fields: JsonObject) -> None:
        """Notice the first turn of a fork's own: ids of turns and sessions begin with their time."""
        turn = get_text(fields, "turn_id")
        if self.is_copying and turn is not None:
            self.copy_end = math.inf
            self.is_copying = turn <= self.session.id

    def _read_event(self, event: JsonObject, timestamp: object) -> Sequence[Message]:
        kind = event.get("type")
        if kind == "token_count":
            info = as_object(event.get("info"))
            if total := as_object(info.get("total_token_usage")):
                time = parse_timestamp(timestamp)
                self.set_usage(
                    parse_tokens(total, *_TOKEN_NAMES, is_cache_in_input=True),
                    time=time,
                    model=self.turn_model,
                    prompt=as_count(as_object(info.get("last_token_usage")).get("input_tokens")),
                    is_copied=self.is_copying and (time or 0.0) <= self.copy_end,
                )
            return self._close_answer()
        if kind == "task_started":
            self._track_turn(event)
        elif kind == "thread_name_updated":
            self.set_fields(title=get_text(event, "thread_name") or self.session.title)
        elif kind == "item_completed":
            item = as_object(event.get("item"))
            self._keep_result_meta(get_text(item, "id"), _parse_command_item(item))
        else:
            self._keep_result_meta(get_text(event, "call_id"), _parse_end_event(event))
        return ()

    def _keep_result_meta(self, call: str | None, meta: dict[str, JSON]) -> None:
        if call and meta:
            self.result_meta[call] = meta
            if len(self.result_meta) > _MAX_PENDING_RESULTS:
                del self.result_meta[next(iter(self.result_meta))]

    def _read_item(
        self, item: JsonObject, fallback_id: str, time: float | None
    ) -> Sequence[Message]:
        kind = item.get("type")
        if kind == "message":
            if item.get("role") == "user":
                return self._read_prompt(item, fallback_id, time)
            if item.get("role") == "assistant":
                answer = self._get_answer(fallback_id, time)
                for part in _parse_parts(item.get("content")):
                    answer.add_part(part)
                answer.meta["phase"] = get_text(item, "phase")
        elif kind == "reasoning":
            answer = self._get_answer(fallback_id, time)
            for thought in (*as_objects(item.get("summary")), *as_objects(item.get("content"))):
                answer.add_reasoning(get_text(thought, "text"))
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            call = _parse_tool_call(item, fallback_id)
            self._get_answer(fallback_id, time).add_call(call)
            self.tool_names[call.id] = call.name
        elif kind == "web_search_call":
            searches = self._get_answer(fallback_id, time).meta.setdefault("web_searches", [])
            cast("list[JSON]", searches).append(as_object(item.get("action")))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            return [*self._close_answer(), self._parse_result(item, fallback_id, time)]
        return ()

    def _get_answer(self, fallback_id: str, time: float | None) -> AnswerBuilder:
        if self.answer is None:
            self.answer = self.open_answer(fallback_id, time)
        return self.answer

    def _close_answer(self) -> Sequence[Message]:
        # Reasoning alone is not an answer yet: the answer follows it.
        if self.answer is None or not self.answer.has_output:
            return ()
        answer, self.answer = self.answer, None
        return (answer.build(),)

    def _read_prompt(
        self, item: JsonObject, fallback_id: str, time: float | None
    ) -> Sequence[Message]:
        prompt = to_content(_parse_parts(item.get("content")))
        message = Message(
            role="user", content=prompt, platform_message_id=fallback_id, timestamp=time
        )
        if message.text.startswith(_ABORTED):
            self.pending_meta["aborted"] = True
        elif prompt and not message.text.startswith(_INJECTED_PREFIXES):
            closed = self._close_answer()
            return [*closed, replace_fields(message, meta=drop_none(self.pop_pending_meta()))]
        return ()

    def _parse_result(self, item: JsonObject, fallback_id: str, time: float | None) -> Message:
        call = get_text(item, "call_id") or ""
        output = item.get("output")
        parts = _parse_parts(output)
        name = self.tool_names.pop(call, None)
        meta = {**_parse_output_meta(output, parts), **self.result_meta.pop(call, {})}
        if not meta and name in _TOOLS_WITH_HEADER:
            meta["refused"] = True
        return Message(
            role="tool",
            content=to_content(parts),
            tool_call_id=call or None,
            name=name,
            platform_message_id=call or fallback_id,
            meta=drop_none({**meta, **self.pop_pending_meta()}),
            timestamp=time,
        )


def _parse_parts(raw_content: object) -> list[dict[str, JSON]]:
    if isinstance(raw_content, str):
        return [make_text_part(raw_content)] if raw_content else []
    parts: list[dict[str, JSON]] = []
    for part in as_objects(raw_content) or as_objects([raw_content]):
        value = get_text(part, "text", "content")
        if part.get("type") == "input_image" and (url := get_text(part, "image_url")):
            parts.append(make_image_part(url))
        else:
            parts.append(part if value is None else make_text_part(value))
    return parts


def _find_agent_kind(meta: JsonObject, kind: object, spawned: JsonObject) -> str | None:
    """Return what a thread was started as by another one, or None if a user started it."""
    if isinstance(kind, str) and kind:
        return kind
    if kind is None and get_text(meta, "thread_source") != "subagent":
        return None
    return get_text(spawned, "agent_role") or get_text(as_object(kind), "other") or "agent"


def _parse_tool_call(item: JsonObject, fallback_id: str) -> ToolCall:
    given = item.get("arguments", item.get("input", item.get("action")))
    name = get_text(item, "name") or (
        "local_shell" if item.get("type") == "local_shell_call" else ""
    )
    if namespace := get_text(item, "namespace"):
        name = f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}.{name}"
    return make_tool_call(get_text(item, "call_id", "id") or fallback_id, name, given)


def _parse_output_meta(output: object, parts: list[dict[str, JSON]]) -> dict[str, JSON]:
    """Parse the harness's header above the output: exit code, duration, still running."""
    first = next(filter(None, [get_text(part, "text") for part in parts]), "")
    head = first[:_HEADER_LENGTH]
    meta: dict[str, JSON] = {}
    if first.startswith('{"output":'):
        metadata = as_object(as_object(decode_text(first)).get("metadata"))
        meta["exit_code"] = parse_exit_code(metadata.get("exit_code"))
        meta["duration"] = as_number(metadata.get("duration_seconds"))
    elif isinstance(output, list) and head.startswith("Script "):
        meta["is_error"] = head.startswith("Script failed")
    elif isinstance(output, dict) and isinstance(
        as_object(cast(object, output)).get("success"), bool
    ):
        meta["success"] = as_object(cast(object, output))["success"]
    # The command's own output begins after this line and may mention exit codes itself.
    if "utput" in head:  # cheaper than the patterns, and often none is there
        head = _OUTPUT.split(head, maxsplit=1)[0]
    if " code" in head and (match := _EXIT_CODE.search(head)):
        meta["exit_code"] = int(match[1])
    if "Wall time: " in head and (match := _WALL_TIME.search(head)):
        meta["duration"] = float(match[1])
    if "Process running" in head and _RUNNING.search(head):
        meta["running"] = True
    return meta


def _parse_end_event(event: JsonObject) -> dict[str, JSON]:
    """Parse an event's details about how a call ended."""
    meta: dict[str, JSON] = {}
    kind = event.get("type")
    if kind == "exec_command_end":
        meta["exit_code"] = parse_exit_code(event.get("exit_code"))
    elif kind in ("patch_apply_end", "dynamic_tool_call_response"):
        meta["success"] = success if isinstance(success := event.get("success"), bool) else None
    elif kind == "mcp_tool_call_end":
        result = as_object(event.get("result"))
        answer = as_object(result.get("Ok"))
        meta["is_error"] = "Err" in result or answer.get("isError", answer.get("is_error")) is True
    else:
        return {}
    duration = as_object(event.get("duration"))
    if duration:
        meta["duration"] = as_count(duration.get("secs")) + as_count(duration.get("nanos")) / 1e9
    return {name: fact for name, fact in meta.items() if fact is not None}


def _parse_command_item(item: JsonObject) -> dict[str, JSON]:
    """Parse how a command ended, as newer versions record it."""
    if item.get("type") != "CommandExecution":
        return {}
    code = parse_exit_code(item.get("exit_code"))
    return {} if code is None else {"exit_code": code}
