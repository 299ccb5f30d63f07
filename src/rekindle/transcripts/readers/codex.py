"""Codex CLI: one `{timestamp, type, payload}` per line, in `sessions/…/rollout-….jsonl`.

What was said stands twice in a rollout, as `response_item` and as `event_msg`; the first is what
the model saw, so the first is read, and events only for what they alone know (exit codes, tokens,
a name). An answer is the run of items up to a result, a prompt or a token count. A fork begins
with its own `session_meta` and then repeats the history of its parent, and is read like that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from rekindle.json_fields import (
    Record,
    content,
    count,
    number,
    present,
    record,
    records,
    seconds,
    text,
    text_part,
)
from rekindle.transcripts.detect import Head
from rekindle.transcripts.events import Damage, Event, Learned, Opened
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .session_builder import Turn

SOURCE = "codex"

_ENVELOPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
# What the harness puts into the user's mouth before the user speaks.
_INJECTED = (
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
_HEADER = 600
# Tools whose results carry a header whenever they ran; without one the harness refused the call.
_HEADED = {"exec_command", "write_stdin", "apply_patch"}
# Ends of calls that wait for their result; a call that never gets one must not pile up.
_WAITING = 64


def sniff(head: Head) -> bool:
    return any(
        line.get("type") in _ENVELOPES and isinstance(line.get("payload"), dict)
        for line in head.records
    )


def read(path: Path) -> Iterator[Event]:
    rollout = _Rollout(path)
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
        elif said := rollout.take(*entry):
            yield from said
    yield from rollout.finish()


class _Rollout:
    """One rollout as far as it is read."""

    def __init__(self, path: Path) -> None:
        self.session = Session(id=path.stem, source=SOURCE)
        self.named = False
        self.opened = False
        self.total: Record = {}  # tokens, as they were told last
        self.turn: Turn | None = None
        self.names: dict[str, str] = {}
        self.ends: dict[str, dict[str, JSON]] = {}
        self.marks: dict[str, JSON] = {}

    def take(self, number: int, line: Record) -> Sequence[Event]:
        # Lists, not generators: most lines say nothing yet, and to start a generator takes longer.
        kind, payload = line.get("type"), record(line.get("payload"))
        said: Sequence[Message] = ()
        if kind == "response_item":
            said = self._item(payload, f"line:{number}", seconds(line.get("timestamp")))
        elif kind == "event_msg":
            said = self._hear(payload)
        elif kind == "turn_context":
            self._learn(model=text(payload, "model"), cwd=text(payload, "cwd"))
        elif kind == "session_meta":
            self._introduce(payload, seconds(line.get("timestamp")))
        elif kind == "compacted":
            said = self._close()
            self.marks["compacted"] = present({"summary": text(payload, "message")}) or {}
        return self._say(said) if said else ()

    def finish(self) -> Iterator[Event]:
        yield from self._say(self._close())
        if self.opened:
            yield Learned(replace(self.session, tokens=_tokens(self.total)))

    def _say(self, messages: Sequence[Message]) -> Sequence[Event]:
        if not messages or self.opened:
            return messages
        self.opened = True
        return [Opened(self.session), *messages]

    def _introduce(self, meta: Record, time: float | None) -> None:
        if self.named:
            return
        self.named = True
        spawned = record(record(record(meta.get("source")).get("subagent")).get("thread_spawn"))
        self.session = replace(
            self.session,
            # After the first message the session goes by its file: it cannot change its name.
            id=self.session.id if self.opened else text(meta, "id") or self.session.id,
            parent=text(meta, "forked_from_id", "parent_thread_id")
            or text(spawned, "parent_thread_id"),
            cwd=text(meta, "cwd"),
            git_branch=text(record(meta.get("git")), "branch"),
            started=seconds(meta.get("timestamp")) or time or 0.0,
        )

    def _learn(self, *, model: str | None = None, cwd: str | None = None) -> None:
        known = self.session
        if not (known.model and known.cwd):
            self.session = replace(known, model=known.model or model, cwd=known.cwd or cwd)

    def _hear(self, event: Record) -> Sequence[Message]:
        kind = event.get("type")
        if kind == "token_count":
            total = record(record(event.get("info")).get("total_token_usage"))
            self.total = total or self.total
            return self._close()
        if kind == "thread_name_updated":
            title = text(event, "thread_name") or self.session.title
            self.session = replace(self.session, title=title)
        elif (call := text(event, "call_id")) and (facts := _end(event)):
            self.ends[call] = facts
            if len(self.ends) > _WAITING:
                del self.ends[next(iter(self.ends))]
        return ()

    def _item(self, item: Record, place: str, time: float | None) -> Sequence[Message]:
        kind = item.get("type")
        if kind == "message":
            if item.get("role") == "user":
                return self._prompt(item, place, time)
            if item.get("role") == "assistant":
                turn = self._turn(place, time)
                for part in _parts(item.get("content")):
                    turn.add_part(part)
                turn.facts["phase"] = text(item, "phase")
        elif kind == "reasoning":
            turn = self._turn(place, time)
            for thought in (*records(item.get("summary")), *records(item.get("content"))):
                if value := text(thought, "text"):
                    turn.add_thought(value)
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            call = _call(item, place)
            self._turn(place, time).add_call(call)
            self.names[call.id] = call.name
        elif kind == "web_search_call":
            searches = self._turn(place, time).facts.setdefault("web_searches", [])
            cast("list[JSON]", searches).append(record(item.get("action")))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            return [*self._close(), self._result(item, place, time)]
        return ()

    def _turn(self, place: str, time: float | None) -> Turn:
        if self.turn is None:
            self.turn = Turn(place, time)
            self.turn.facts.update(self._take_marks())
        return self.turn

    def _close(self) -> Sequence[Message]:
        # Thoughts alone are not an answer yet: the answer comes after them.
        if self.turn is None or not self.turn.speaks:
            return ()
        turn, self.turn = self.turn, None
        return (turn.message(),)

    def _prompt(self, item: Record, place: str, time: float | None) -> Sequence[Message]:
        said = content(_parts(item.get("content")))
        message = Message(role="user", content=said, platform_message_id=place, timestamp=time)
        if message.text.startswith(_ABORTED):
            self.marks["aborted"] = True
        elif said and not message.text.startswith(_INJECTED):
            closed = self._close()
            return [*closed, replace(message, meta=present(self._take_marks()))]
        return ()

    def _result(self, item: Record, place: str, time: float | None) -> Message:
        call = text(item, "call_id") or ""
        output = item.get("output")
        parts = _parts(output)
        name = self.names.pop(call, None)
        facts = {**_told(output, parts), **self.ends.pop(call, {})}
        if not facts and name in _HEADED:
            facts["refused"] = True
        return Message(
            role="tool",
            content=content(parts),
            tool_call_id=call or None,
            name=name,
            platform_message_id=call or place,
            meta=present({**facts, **self._take_marks()}),
            timestamp=time,
        )

    def _take_marks(self) -> dict[str, JSON]:
        marks, self.marks = self.marks, {}
        return marks


def _parts(said: object) -> list[dict[str, JSON]]:
    if isinstance(said, str):
        return [text_part(said)] if said else []
    parts: list[dict[str, JSON]] = []
    for part in records(said) or records([said]):
        value = text(part, "text", "content")
        if part.get("type") == "input_image" and (url := text(part, "image_url")):
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append(part if value is None else text_part(value))
    return parts


def _call(item: Record, place: str) -> ToolCall:
    given = item.get("arguments", item.get("input", item.get("action")))
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    name = text(item, "name") or ("local_shell" if item.get("type") == "local_shell_call" else "")
    if space := text(item, "namespace"):
        name = f"{space}{name}" if space.endswith("_") else f"{space}.{name}"
    return ToolCall(text(item, "call_id", "id") or place, name, arguments)


def _told(output: object, parts: list[dict[str, JSON]]) -> dict[str, JSON]:
    """What the harness wrote above the output: exit code, time taken, still running."""
    first = next((value for part in parts if (value := text(part, "text"))), "")
    head = first[:_HEADER]
    facts: dict[str, JSON] = {}
    if first.startswith('{"output":'):
        try:
            about = record(record(decode(first.encode("utf-8", "replace"))).get("metadata"))
        except ValueError:
            about = {}
        facts["exit_code"] = _whole(about.get("exit_code"))
        facts["duration"] = number(about.get("duration_seconds"))
    elif isinstance(output, list) and head.startswith("Script "):
        facts["is_error"] = head.startswith("Script failed")
    elif isinstance(output, dict) and isinstance(record(cast(object, output)).get("success"), bool):
        facts["success"] = record(cast(object, output))["success"]
    # The command's own output begins after this line and may well speak of exit codes itself.
    head = _OUTPUT.split(head, maxsplit=1)[0]
    if match := _EXIT_CODE.search(head):
        facts["exit_code"] = int(match[1])
    if match := _WALL_TIME.search(head):
        facts["duration"] = float(match[1])
    if _RUNNING.search(head):
        facts["running"] = True
    return facts


def _end(event: Record) -> dict[str, JSON]:
    """What an event says about how a call ended."""
    facts: dict[str, JSON] = {}
    kind = event.get("type")
    if kind == "exec_command_end":
        facts["exit_code"] = _whole(event.get("exit_code"))
    elif kind in ("patch_apply_end", "dynamic_tool_call_response"):
        facts["success"] = success if isinstance(success := event.get("success"), bool) else None
    elif kind == "mcp_tool_call_end":
        result = record(event.get("result"))
        answer = record(result.get("Ok"))
        facts["is_error"] = "Err" in result or answer.get("isError", answer.get("is_error")) is True
    else:
        return {}
    taken = record(event.get("duration"))
    if taken:
        facts["duration"] = count(taken.get("secs")) + count(taken.get("nanos")) / 1e9
    return {name: fact for name, fact in facts.items() if fact is not None}


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return value
    return None


def _tokens(total: Record) -> Tokens:
    cached = count(total.get("cached_input_tokens"))
    return Tokens(
        # Here the input includes what came from the cache; everywhere else in Rekindle it does not.
        input=max(0, count(total.get("input_tokens")) - cached),
        output=count(total.get("output_tokens")),
        cache_read=cached,
        reasoning=count(total.get("reasoning_output_tokens")),
    )
