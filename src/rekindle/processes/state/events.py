"""Reports that nobody has acknowledged yet, in a file of lines.

An event is written down before it is given out, and given out until it is acknowledged: a crash in
between repeats it under the same number, by which the receiver knows it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle.processes.types import Event

log = logging.getLogger(__name__)

_LARGE = 256 * 1024


class _Line(msgspec.Struct, omit_defaults=True):
    event: Event | None = None
    done: tuple[int, ...] = ()
    next: int = 0
    ends: tuple[tuple[str, int], ...] = ()
    gone: str = ""  # a process that was forgotten


class EventLog:
    """The events of one home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: dict[int, Event] = {}
        self._ends: set[tuple[str, int]] = set()  # ends that were reported, also if acknowledged
        self._next = 1
        self._size = 0
        self._read()

    def _read(self) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        self._size = sum(map(len, lines))
        for line in lines:
            try:
                self._apply(msgspec.json.decode(line, type=_Line))
            except msgspec.MsgspecError:
                continue  # the end of a line that a crash cut off

    def _apply(self, line: _Line) -> None:
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

    def add(self, event: Event, most: int) -> Event | None:
        """Keep a new event; None if this end was reported before."""
        if event.kind == "end" and (event.process.id, event.watch) in self._ends:
            return None
        event = event._replace(number=self._next)
        self._note(_Line(event=event))
        self._make_room(event.process.owner, most)
        return event

    def _make_room(self, owner: str, most: int) -> None:
        mine = [one for one in self._pending.values() if one.process.owner == owner]
        if len(mine) > most:
            # Ends go last: each is said once, other reports come again.
            by_worth = sorted(mine, key=lambda one: one.kind == "end")
            self._note(_Line(done=tuple(one.number for one in by_worth[: len(mine) - most])))

    def pending(self, owner: str | None, limit: int, notes: Sequence[str] = ()) -> list[Event]:
        begins = tuple(notes) or ("",)
        found = (
            one
            for one in self._pending.values()
            if owner in (None, one.process.owner) and one.note.startswith(begins)
        )
        return [one for _, one in zip(range(limit), found, strict=False)]

    def done(self, numbers: Iterable[int], owner: str | None) -> None:
        """These need not be given out again."""
        known = tuple(
            number
            for number in numbers
            if (one := self._pending.get(number)) and owner in (None, one.process.owner)
        )
        if known:
            self._note(_Line(done=known))

    def forget(self, id: str) -> None:
        """The process is no longer known; reports about it stay until they are acknowledged."""
        if any(key[0] == id for key in self._ends):
            self._note(_Line(gone=id))

    def _note(self, line: _Line) -> None:
        self._apply(line)
        try:
            self._append(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            # They are given out all the same; only a crash would lose or repeat them now.
            log.warning("%s cannot be written: %s", self._path, error)

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        self._size += len(data)
        if self._size > _LARGE:
            self._compact()

    def _compact(self) -> None:
        lines = [_Line(next=self._next, ends=tuple(self._ends))]
        lines += [_Line(event=one) for one in self._pending.values()]
        new = self._path.with_suffix(".new")
        try:
            new.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            os.chmod(new, 0o600)
            os.rename(new, self._path)
            self._size = 0
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)
