"""Unacknowledged events, in a file of JSON lines.

An event is written before it is delivered, and delivered until it is acknowledged. After a crash in
between it is delivered again with the same number, so that the receiver can deduplicate.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle.files import write_new_file
from rekindle.processes.types import ProcessEvent

log = logging.getLogger(__name__)

_COMPACT_SIZE = 256 * 1024


class _EventLogLine(msgspec.Struct, omit_defaults=True):
    event: ProcessEvent | None = None
    done: tuple[int, ...] = ()
    next: int = 0
    ends: tuple[tuple[str, int], ...] = ()
    gone: str = ""  # a process that was removed


class EventLog:
    """The events of one home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: dict[int, ProcessEvent] = {}
        self._ends: set[tuple[str, int]] = set()  # exits already reported
        self._next = 1
        self._size = 0
        self._load()

    def _load(self) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        self._size = sum(map(len, lines))
        for line in lines:
            try:
                self._apply(msgspec.json.decode(line, type=_EventLogLine))
            except msgspec.MsgspecError:
                continue  # a line truncated by a crash

    def _apply(self, line: _EventLogLine) -> None:
        if line.event:
            self._pending[line.event.number] = line.event
            self._next = max(self._next, line.event.number + 1)
            if line.event.kind == "end":
                self._ends.add((line.event.process.id, line.event.watch))
        self._ends.update(line.ends)
        for number in line.done:
            self._pending.pop(number, None)
        if line.gone:
            self._ends = {key for key in self._ends if key[0] != line.gone}
        self._next = max(self._next, line.next)

    def add(self, event: ProcessEvent, max_pending: int) -> ProcessEvent | None:
        """Store a new event and return it; return None if this exit was already reported."""
        if event.kind == "end" and (event.process.id, event.watch) in self._ends:
            return None
        event = event._replace(number=self._next)
        self._record(_EventLogLine(event=event))
        self._trim_pending(event.process.owner, max_pending)
        return event

    def _trim_pending(self, owner: str, max_pending: int) -> None:
        mine = [one for one in self._pending.values() if one.process.owner == owner]
        if len(mine) > max_pending:
            # Drop exits last: each is reported once, other reports recur.
            by_priority = sorted(mine, key=lambda one: one.kind == "end")
            self._record(
                _EventLogLine(
                    done=tuple(one.number for one in by_priority[: len(mine) - max_pending])
                )
            )

    def list_pending(
        self, owner: str | None, limit: int, notes: Sequence[str] = ()
    ) -> list[ProcessEvent]:
        """List the owner's pending events whose note starts with one of `notes`, oldest first."""
        prefixes = tuple(notes) or ("",)
        found = (
            one
            for one in self._pending.values()
            if owner in (None, one.process.owner) and one.note.startswith(prefixes)
        )
        return [one for _, one in zip(range(limit), found, strict=False)]

    def acknowledge(self, numbers: Iterable[int], owner: str | None) -> None:
        """Mark events as delivered."""
        known = tuple(
            number
            for number in numbers
            if (one := self._pending.get(number)) and owner in (None, one.process.owner)
        )
        if known:
            self._record(_EventLogLine(done=known))

    def forget_process(self, id: str) -> None:
        """Forget a process; its pending events stay until they are acknowledged."""
        if any(key[0] == id for key in self._ends):
            self._record(_EventLogLine(gone=id))

    def _record(self, line: _EventLogLine) -> None:
        self._apply(line)
        try:
            self._append(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            # Deliver anyway; only a crash could lose or repeat the events now.
            log.warning("%s cannot be written: %s", self._path, error)

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        self._size += len(data)
        if self._size > _COMPACT_SIZE:
            self._compact()

    def _compact(self) -> None:
        lines = [_EventLogLine(next=self._next, ends=tuple(self._ends))]
        lines += [_EventLogLine(event=one) for one in self._pending.values()]
        try:
            data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
            write_new_file(self._path, data, durable=False)
            self._size = 0
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)
