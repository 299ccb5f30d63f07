"""pi: one entry per line, in `~/.pi/agent/sessions/<folder>/<time>_<session>.jsonl`.

Old files are a list of entries; in new ones every entry has an `id` and a `parentId`, and the
user may go back to an earlier entry and go on from there, in the same file. Both are read in the
order of writing, and the first message of a new branch says where it went on from: what was tried
on the other branch has happened too. pi rewrites an old file when it opens it and gives the
entries ids only then, so messages go by the time that they carry, which stays.

A command that the user ran (`bashExecution`) is a prompt, in the words in which pi tells it to
the model. What extensions inject is no message.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from decimal import Decimal
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
from rekindle.transcripts.jsonio.jsonl import records as lines_of
from rekindle.types import JSON, Message, Session, Tokens, ToolCall, replace

from .ids import MASKED

SOURCE = "pi"

_ROLES = ("user", "assistant", "toolResult", "bashExecution")
_EXIT_CODE = re.compile(r"Command exited with code (-?\d{1,9})\s*\Z")
_WAITING = 1024


def sniff(head: Head) -> bool:
    return any(_is_entry(line) for line in head.records)


def _is_entry(line: Record) -> bool:
    kind, said = line.get("type"), line.get("message")
    if kind == "session":
        return isinstance(line.get("id"), str) and isinstance(line.get("cwd"), str)
    if kind != "message" or not isinstance(said, dict) or "timestamp" not in line:
        return False
    # Of a line that is cut only the kind of its last field is known.
    return not said or record(cast(object, said)).get("role") in _ROLES


def read(path: Path) -> Iterator[Event]:
    session = _Session(path)
    for entry in lines_of(path):
        if isinstance(entry, Damage):
            yield entry
        elif said := session.take(*entry):
            yield from said
    yield from session.finish()


class _Session:
    """One session as far as it is read."""

    def __init__(self, path: Path) -> None:
        self.session = Session(id=_named(path.stem) or SOURCE, source=SOURCE)
        self.introduced = False
        self.opened = False
        self.leaf: str | None = None
        # Calls with masked ids: only the order tells which result is whose.
        self.masked: deque[str] = deque(maxlen=_WAITING)
        self.seen: set[str] = set()
        self.marks: dict[str, JSON] = {}

    def take(self, number: int, line: Record) -> Sequence[Event]:
        kind = line.get("type")
        if kind == "session":
            self._introduce(line)
            return ()
        self._follow(line)
        if kind in ("compaction", "branch_summary"):
            self._count(record(line.get("usage")))
        if kind == "compaction":
            self.marks["compacted"] = {
                "summary": text(line, "summary"),
                "tokens_before": count(line.get("tokensBefore")),
            }
        elif kind == "branch_summary":
            branched = record(self.marks.get("branched"))
            self.marks["branched"] = {**branched, "summary": text(line, "summary")}
        elif kind == "session_info":
            self.session = replace(self.session, title=text(line, "name") or self.session.title)
        elif kind == "message":
            said = record(line.get("message"))
            time = seconds(said.get("timestamp")) or seconds(line.get("timestamp"))
            message = self._message(said, self._id(said, line, number), time)
            if message is not None:
                return self._say(message)
        return ()

    def _say(self, message: Message) -> Sequence[Event]:
        if self.opened:
            return (message,)
        self.opened = True
        return (Opened(self.session), message)

    def finish(self) -> Iterator[Event]:
        if self.opened:
            yield Learned(self.session)

    def _introduce(self, header: Record) -> None:
        if self.introduced:
            return
        self.introduced = True
        known = self.session
        origin = text(header, "parentSession", "branchedFrom")
        self.session = replace(
            known,
            # After the first message the session goes by its file: it cannot change its name.
            id=known.id if self.opened else text(header, "id") or known.id,
            # The origin is told as the path of its file, on whatever machine that was.
            parent=_named(re.split(r"[/\\]", origin)[-1].removesuffix(".jsonl"))
            if origin
            else None,
            model=known.model or text(header, "modelId"),
            cwd=text(header, "cwd"),
            started=seconds(header.get("timestamp")) or known.started,
        )

    def _follow(self, line: Record) -> None:
        """Notice when an entry does not continue the one before it."""
        id, parent = text(line, "id"), text(line, "parentId")
        if id is None:
            return
        if self.leaf is not None and parent != self.leaf:
            self.marks["branched"] = {"from": parent}
        self.leaf = id

    def _id(self, said: Record, line: Record, place: int) -> str:
        call = text(said, "toolCallId") or ""
        moment = count(said.get("timestamp"))
        names = (
            "" if call in MASKED else call,
            f"{text(said, 'role')}:{moment}" if moment else "",
            text(line, "id") or "",
        )
        id = next((name for name in names if name and name not in self.seen), f"line:{place}")
        self.seen.add(id)
        return id

    def _message(self, said: Record, id: str, time: float | None) -> Message | None:
        role = said.get("role")
        if role == "assistant":
            return self._answer(said, id, time)
        if role == "toolResult":
            facts, parts = _facts(said), _parts(said.get("content"))
        elif role == "bashExecution":
            facts, parts = _ran(said)
        elif role == "user":
            facts, parts = {}, _parts(said.get("content"))
        else:
            return None
        result = role == "toolResult"
        if not parts and not result:
            return None
        call = text(said, "toolCallId") or ""
        if result and call in MASKED:
            call = self.masked.popleft() if self.masked else id
        return Message(
            role="tool" if result else "user",
            content=content(parts),
            tool_call_id=call if result else None,
            name=text(said, "toolName") if result else None,
            platform_message_id=id,
            meta=present({**facts, **self._take_marks()}),
            timestamp=time,
        )

    def _answer(self, said: Record, id: str, time: float | None) -> Message:
        blocks = records(said.get("content"))
        thoughts = [value for block in blocks if (value := text(block, "thinking"))]
        calls = [
            _call(block, f"{id}:{index}")
            for index, block in enumerate(blocks)
            if block.get("type") == "toolCall"
        ]
        self.masked.extend(call.id for call in calls if call.id.startswith(f"{id}:"))
        finish = text(said, "stopReason")
        facts: dict[str, JSON] = {"error": text(said, "errorMessage"), **self._take_marks()}
        if finish == "error":
            facts["api_error"] = True
        elif finish == "aborted":
            self.marks["aborted"] = True
        facts["model"] = self._learn(said)
        return Message(
            role="assistant",
            content=content(_parts(said.get("content"))),
            tool_calls=calls,
            reasoning="\n\n".join(thoughts) or None,
            finish_reason=finish,
            platform_message_id=id,
            meta=present(facts),
            timestamp=time,
        )

    def _learn(self, said: Record) -> str | None:
        """Count what the answer cost; gives its model where it is not the session's first."""
        model = text(said, "model")
        self._count(record(said.get("usage")), model)
        return model if model != self.session.model else None

    def _count(self, usage: Record, model: str | None = None) -> None:
        known = self.session
        self.session = replace(
            known,
            model=known.model or model,
            tokens=known.tokens.plus(_tokens(usage)),
            cost=known.cost + _cost(usage),
        )

    def _take_marks(self) -> dict[str, JSON]:
        marks, self.marks = self.marks, {}
        return marks


def _named(stem: str) -> str:
    """The id in the name of a session's file, which begins with the time it was made."""
    return stem.split("_", 1)[-1]


def _parts(said: object) -> list[dict[str, JSON]]:
    if isinstance(said, str):
        return [text_part(said)] if said else []
    parts: list[dict[str, JSON]] = []
    for block in records(said):
        kind, data = block.get("type"), text(block, "data")
        if kind == "text" and isinstance(block.get("text"), str):
            parts.append(text_part(block["text"]))
        elif kind == "image" and data:
            url = f"data:{text(block, 'mimeType') or 'image/png'};base64,{data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif kind not in ("text", "thinking", "toolCall"):
            parts.append(block)
    return parts


def _call(block: Record, place: str) -> ToolCall:
    given = block.get("arguments")
    arguments = cast("str | Record", given) if isinstance(given, (str, dict)) else ""
    id = text(block, "id") or ""
    return ToolCall(place if id in MASKED else id, text(block, "name") or "", arguments)


def _facts(said: Record) -> dict[str, JSON]:
    failed = said.get("isError")
    facts: dict[str, JSON] = {"is_error": failed if isinstance(failed, bool) else None}
    last = (_parts(said.get("content")) or [{}])[-1]
    if failed is True and (match := _EXIT_CODE.search(text(last, "text") or "")):
        facts["exit_code"] = int(match[1])
    return facts


def _ran(said: Record) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """A command that the user ran: what is known of it, and how the model is told."""
    command, output = text(said, "command") or "", text(said, "output")
    code, cancelled = said.get("exitCode"), said.get("cancelled") is True
    whole = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31
    told = f"Ran `{command}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if cancelled:
        told += "\n\n(command cancelled)"
    elif whole and code:
        told += f"\n\nCommand exited with code {code}"
    if said.get("truncated") is True and (kept := text(said, "fullOutputPath")):
        told += f"\n\n[Output truncated. Full output: {kept}]"
    facts: dict[str, JSON] = {
        "command": command,
        "exit_code": code if whole else None,
        "interrupted": cancelled or None,
        "hidden": said.get("excludeFromContext") is True or None,
    }
    return facts, [text_part(told)]


def _tokens(usage: Record) -> Tokens:
    return Tokens(
        input=count(usage.get("input")),
        output=count(usage.get("output")),
        cache_read=count(usage.get("cacheRead")),
        cache_write=count(usage.get("cacheWrite")),
    )


def _cost(usage: Record) -> Decimal:
    total = number(record(usage.get("cost")).get("total"))
    return Decimal(str(total)) if total and 0 < total < 1e9 else Decimal(0)
