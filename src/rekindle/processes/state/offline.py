"""Processes as they stand on disk, when no supervisor runs and none is needed to tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rekindle.errors import NotFound
from rekindle.processes.supervisor.entry import told
from rekindle.processes.types import LIVE, Event, Limits, Log, Polled, Process

from .events import EventLog
from .journal import Journal, Record
from .output_reader import Reading
from .ring_buffer import Ring


class Shelf:
    """Reads the journal and the rings; changes nothing but where a reader is."""

    def __init__(self, folder: Path, limits: Limits, redact: Callable[[str], str]) -> None:
        self._journal = Journal(folder)
        self._limits = limits
        self._redact = redact

    def unsettled(self) -> bool:
        """Whether something was running when the last supervisor went."""
        return any(record.state in LIVE for record in self._journal.all())

    def list(self, owner: str | None, live: bool) -> list[Process]:
        return [
            self._told(record)
            for record in self._journal.all()
            if owner in (None, record.owner)
            and (record.state in LIVE or not live)
            and not self._over(record)
        ]

    def process(self, id: str, owner: str | None) -> Process:
        return self._told(self._record(id, owner))

    def poll(self, id: str, owner: str | None, reader: str, plain: bool, asked: int = 0) -> Polled:
        record = self._record(id, owner)
        ring, writable = self._ring(record)
        try:
            reading = Reading(record, ring, self._redact)
            return reading.poll(reader, plain=plain, remember=writable, asked=asked)
        finally:
            ring.close()

    def log(
        self,
        id: str,
        owner: str | None,
        lines: tuple[int | None, int | None, int | None],
        since: int | None,
        plain: bool,
    ) -> Log:
        record = self._record(id, owner)
        ring, _ = self._ring(record)
        try:
            return Reading(record, ring, self._redact).log(*lines, since, plain=plain)
        finally:
            ring.close()

    def bytes(self, id: str, owner: str | None, since: int) -> tuple[bytes, int, int]:
        """Output behind byte `since`: the bytes, where they end, and how many were dropped."""
        ring, _ = self._ring(self._record(id, owner))
        try:
            span = ring.read(since)
            return span.data, span.end, span.dropped
        finally:
            ring.close()

    def events(self, owner: str | None, limit: int, notes: Sequence[str]) -> list[Event]:
        return EventLog(self._journal.folder / "events").pending(owner, limit, notes)

    def _record(self, id: str, owner: str | None) -> Record:
        record = self._journal.load(id)
        if record is None or owner not in (None, record.owner) or self._over(record):
            raise NotFound(f"there is no process {id!r:.40}")
        return record

    def _over(self, record: Record) -> bool:
        return record.ended is not None and record.ended + self._limits.finished < time.time()

    def _ring(self, record: Record) -> tuple[Ring, bool]:
        path = self._journal.ring_of(record.id)
        try:
            return Ring.open(path, writing=True), True
        except PermissionError:
            return Ring.open(path), False
        except OSError:
            try:
                return Ring.open(path), False
            except (OSError, ValueError):
                raise NotFound(f"the output of process {record.id} is gone") from None

    def _told(self, record: Record) -> Process:
        return told(record, record.total, self._limits.ring, self._redact)
