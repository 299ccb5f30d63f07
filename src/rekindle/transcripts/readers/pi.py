"""pi reader: one entry per line, in `~/.pi/agent/sessions/<folder>/<time>_<session>.jsonl`.

Old files are a list of entries; in new ones every entry has an `id` and a `parentId`, and the user may
return to an earlier entry and continue from there in the same file. Both are read in the order of
writing, and the first message of a new branch records where it branched off; messages of the other
branch are kept. pi rewrites an old file when it opens it and assigns ids only then, so messages are
identified by their timestamp, which does not change.

A command that the user ran (`bashExecution`) is a prompt, in pi's own wording. Messages injected by
extensions are skipped.
"""

from __future__ import annotations

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
from rekindle.transcripts.events import TranscriptEvent
from rekindle.transcripts.jsonio.jsonl import read_line_events
from rekindle.types import JSON, Message, Session, ToolCall

from .session_builder import (
    MASKED_IDS,
    SessionBuilder,
    join_thoughts,
    make_inline_image,
    make_tool_call,
    parse_cost,
    parse_exit_code,
    parse_tokens,
)

SOURCE = "pi"

_ROLES = ("user", "assistant", "toolResult", "bashExecution")
_EXIT_CODE = re.compile(r"Command exited with code (-?\d{1,9})\s*\Z")
_TOKEN_NAMES = ("input", "output", "cacheRead", "cacheWrite")
_MAX_PENDING_CALLS = 1024


def can_read(head: FileHead) -> bool:
    return any(_is_entry(line) for line in head.objects)


def _is_entry(line: JsonObject) -> bool:
    kind, raw = line.get("type"), line.get("message")
    if kind == "session":
        return isinstance(line.get("id"), str) and isinstance(line.get("cwd"), str)
    if kind != "message" or not isinstance(raw, dict) or "timestamp" not in line:
        return False
    # In a truncated line, only the type of the last field is known.
    return not raw or as_object(cast(object, raw)).get("role") in _ROLES


def read_events(path: Path) -> Iterator[TranscriptEvent]:
    session = _PiSession(path)
    yield from read_line_events(path, session.read_entry)
    yield from session.finish()


class _PiSession(SessionBuilder):
    """One session being read."""

    def __init__(self, path: Path) -> None:
        super().__init__(Session(id=_parse_session_id(path.stem) or SOURCE, source=SOURCE))
        self.has_header = False
        self.last_entry_id: str | None = None
        # Calls with masked ids are matched to results by order.
        self.masked_calls: deque[str] = deque(maxlen=_MAX_PENDING_CALLS)

    def read_entry(self, number: int, line: JsonObject) -> Sequence[TranscriptEvent]:
        """Read one line and return the events that it completes."""
        kind = line.get("type")
        if kind == "session":
            self._read_header(line)
            return ()
        self._track_branch(line)
        if kind in ("compaction", "branch_summary"):
            self._add_usage(line, parse_timestamp(line.get("timestamp")), None)
        if kind == "compaction":
            self.pending_meta["compacted"] = {
                "summary": get_text(line, "summary"),
                "tokens_before": as_count(line.get("tokensBefore")),
            }
        elif kind == "branch_summary":
            branched = as_object(self.pending_meta.get("branched"))
            self.pending_meta["branched"] = {**branched, "summary": get_text(line, "summary")}
        elif kind == "session_info":
            self.set_fields(title=get_text(line, "name") or self.session.title)
        elif kind == "message":
            raw = as_object(line.get("message"))
            time = parse_timestamp(raw.get("timestamp")) or parse_timestamp(line.get("timestamp"))
            message = self._parse_message(raw, self._make_message_id(raw, line, number), time)
            if message is not None:
                return self.append_message(message)
        return ()

    def _read_header(self, header: JsonObject) -> None:
        if self.has_header:
            return
        self.has_header = True
        known = self.session
        origin = get_text(header, "parentSession", "branchedFrom")
        self.set_fields(
            id=get_text(header, "id") or known.id,
            # The origin is a file path, possibly of another machine.
            parent=_parse_session_id(re.split(r"[/\\]", origin)[-1].removesuffix(".jsonl"))
            if origin
            else None,
            model=known.model or get_text(header, "modelId"),
            cwd=get_text(header, "cwd"),
            started=parse_timestamp(header.get("timestamp")) or known.started,
        )

    def _track_branch(self, line: JsonObject) -> None:
        """Record a branch if an entry does not continue the one before it."""
        id, parent = get_text(line, "id"), get_text(line, "parentId")
        if id is None:
            return
        if self.last_entry_id is not None and parent != self.last_entry_id:
            self.pending_meta["branched"] = {"from": parent}
        self.last_entry_id = id

    def _make_message_id(self, raw: JsonObject, line: JsonObject, line_number: int) -> str:
        call = get_text(raw, "toolCallId") or ""
        milliseconds = as_count(raw.get("timestamp"))
        candidates = (
            "" if call in MASKED_IDS else call,
            f"{get_text(raw, 'role')}:{milliseconds}" if milliseconds else "",
            get_text(line, "id") or "",
        )
        id = next(
            (name for name in candidates if name and name not in self.seen), f"line:{line_number}"
        )
        self.seen.add(id)
        return id

    def _parse_message(self, raw: JsonObject, id: str, time: float | None) -> Message | None:
        role = raw.get("role")
        if role == "assistant":
            return self._parse_answer(raw, id, time)
        if role == "toolResult":
            meta, parts = _parse_result_meta(raw), _parse_parts(raw.get("content"))
        elif role == "bashExecution":
            meta, parts = _parse_user_command(raw)
        elif role == "user":
            meta, parts = {}, _parse_parts(raw.get("content"))
        else:
            return None
        is_result = role == "toolResult"
        if not parts and not is_result:
            return None
        call = get_text(raw, "toolCallId") or ""
        if is_result and call in MASKED_IDS:
            call = self.masked_calls.popleft() if self.masked_calls else id
        return Message(
            role="tool" if is_result else "user",
            content=to_content(parts),
            tool_call_id=call if is_result else None,
            name=get_text(raw, "toolName") if is_result else None,
            platform_message_id=id,
            meta=drop_none({**meta, **self.pop_pending_meta()}),
            timestamp=time,
        )

    def _parse_answer(self, raw: JsonObject, id: str, time: float | None) -> Message:
        blocks = as_objects(raw.get("content"))
        calls = [
            _parse_tool_call(block, f"{id}:{index}")
            for index, block in enumerate(blocks)
            if block.get("type") == "toolCall"
        ]
        self.masked_calls.extend(call.id for call in calls if call.id.startswith(f"{id}:"))
        finish = get_text(raw, "stopReason")
        meta: dict[str, JSON] = {"error": get_text(raw, "errorMessage"), **self.pop_pending_meta()}
        if finish == "error":
            meta["api_error"] = True
        elif finish == "aborted":
            self.pending_meta["aborted"] = True
        self.fill_fields(
            model=(model := get_text(raw, "model")),
            model_config=drop_none({"provider": get_text(raw, "provider")}),
        )
        self._add_usage(raw, time, model)
        meta["model"] = model if model != self.session.model else None
        return Message(
            role="assistant",
            content=to_content(_parse_parts(raw.get("content"))),
            tool_calls=calls,
            reasoning=join_thoughts(get_text(block, "thinking") for block in blocks),
            finish_reason=finish,
            platform_message_id=id,
            meta=drop_none(meta),
            timestamp=time,
        )

    def _add_usage(self, fields: JsonObject, time: float | None, model: str | None) -> None:
        usage = as_object(fields.get("usage"))
        cost = as_object(usage.get("cost")).get("total")
        # A fork begins with entries of its parent, which are older than its header.
        is_copied = self.session.parent is not None and (time or 0.0) < self.session.started
        self.add_usage(
            parse_tokens(usage, *_TOKEN_NAMES),
            parse_cost(cost),
            time=time,
            model=model,
            is_copied=is_copied,
        )


def _parse_session_id(stem: str) -> str:
    """Return the id in a session's file name, which begins with its creation time."""
    return stem.split("_", 1)[-1]


def _parse_parts(raw_content: object) -> list[dict[str, JSON]]:
    if isinstance(raw_content, str):
        return [make_text_part(raw_content)] if raw_content else []
    parts: list[dict[str, JSON]] = []
    for block in as_objects(raw_content):
        kind, data = block.get("type"), get_text(block, "data")
        if kind == "text" and isinstance(block.get("text"), str):
            parts.append(make_text_part(block["text"]))
        elif kind == "image" and data:
            parts.append(make_inline_image(get_text(block, "mimeType"), data))
        elif kind not in ("text", "thinking", "toolCall"):
            parts.append(block)
    return parts


def _parse_tool_call(block: JsonObject, fallback_id: str) -> ToolCall:
    id = get_text(block, "id") or ""
    id = fallback_id if id in MASKED_IDS else id
    return make_tool_call(id, get_text(block, "name"), block.get("arguments"))


def _parse_result_meta(raw: JsonObject) -> dict[str, JSON]:
    failed = raw.get("isError")
    meta: dict[str, JSON] = {"is_error": failed if isinstance(failed, bool) else None}
    last = (_parse_parts(raw.get("content")) or [{}])[-1]
    if failed is True and (match := _EXIT_CODE.search(get_text(last, "text") or "")):
        meta["exit_code"] = int(match[1])
    return meta


def _parse_user_command(raw: JsonObject) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """Return the metadata and the prompt text of a command that the user ran."""
    command, output = get_text(raw, "command") or "", get_text(raw, "output")
    code, cancelled = parse_exit_code(raw.get("exitCode")), raw.get("cancelled") is True
    prompt = f"Ran `{command}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if cancelled:
        prompt += "\n\n(command cancelled)"
    elif code:
        prompt += f"\n\nCommand exited with code {code}"
    if raw.get("truncated") is True and (output_path := get_text(raw, "fullOutputPath")):
        prompt += f"\n\n[Output truncated. Full output: {output_path}]"
    meta: dict[str, JSON] = {
        "command": command,
        "exit_code": code,
        "interrupted": cancelled or None,
        "hidden": raw.get("excludeFromContext") is True or None,
    }
    return meta, [make_text_part(prompt)]
