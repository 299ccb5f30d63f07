"""Read process state from disk when no supervisor is running."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rekindle.errors import NotFound
from rekindle.processes.supervisor.entry import record_to_process
from rekindle.processes.types import (
    LIVE,
    LogResult,
    PollResult,
    Process,
    ProcessEvent,
    ProcessLimits,
)

from .events import EventLog
from .journal import Journal, ProcessRecord
from .output_reader import OutputReader
from .ring_buffer import RingBuffer


class OfflineReader:
    """Reads the journal and the ring buffers; changes nothing but reader positions."""

    def __init__(self, folder: Path, limits: ProcessLimits, redact: Callable[[str], str]) -> None:
        self._journal = Journal(folder)
        self._limits = limits
        self._redact = redact

    def has_live_records(self) -> bool:
        """Return whether processes were running when the last supervisor stopped."""
        return any(record.state in LIVE for record in self._journal.load_all())

    def list(self, owner: str | None, live: bool) -> list[Process]:
        return [
            self._to_process(record)
            for record in self._journal.load_all()
            if owner in (None, record.owner)
            and (record.state in LIVE or not live)
            and not self._is_expired(record)
        ]

    def get_process(self, id: str, owner: str | None) -> Process:
        return self._to_process(self._load_record(id, owner))

    def poll(
        self, id: str, owner: str | None, reader: str, plain: bool, request_id: int = 0
    ) -> PollResult:
        record = self._load_record(id, owner)
        ring, writable = self._open_ring(record)
        try:
            output_reader = OutputReader(record, ring, self._redact)
            return output_reader.poll(reader, plain=plain, remember=writable, request_id=request_id)
        finally:
            ring.close()

    def read_log(
        self,
        id: str,
        owner: str | None,
        lines: tuple[int | None, int | None, int | None],
        since: int | None,
        plain: bool,
    ) -> LogResult:
        record = self._load_record(id, owner)
        ring, _ = self._open_ring(record)
        try:
            return OutputReader(record, ring, self._redact).read_log(*lines, since, plain=plain)
        finally:
            ring.close()

    def read_bytes(self, id: str, owner: str | None, since: int) -> tuple[bytes, int, int]:
        """Return the output after byte `since`: the bytes, their end, and the number dropped."""
        ring, _ = self._open_ring(self._load_record(id, owner))
        try:
            piece = ring.read(since)
            return piece.data, piece.end, piece.dropped
        finally:
            ring.close()

    def fetch_events(
        self, owner: str | None, limit: int, notes: Sequence[str]
    ) -> list[ProcessEvent]:
        return EventLog(self._journal.folder / "events").list_pending(owner, limit, notes)

    def _load_record(self, id: str, owner: str | None) -> ProcessRecord:
        record = self._journal.load(id)
        if record is None or owner not in (None, record.owner) or self._is_expired(record):
            raise NotFound(f"process not found: {id!r:.40}")
        return record

    def _is_expired(self, record: ProcessRecord) -> bool:
        return record.ended is not None and record.ended + self._limits.finished < time.time()

    def _open_ring(self, record: ProcessRecord) -> tuple[RingBuffer, bool]:
        path = self._journal.get_ring_path(record.id)
        try:
            return RingBuffer.open(path, writing=True), True
        except PermissionError:
            return RingBuffer.open(path), False
        except OSError:
            try:
                return RingBuffer.open(path), False
            except (OSError, ValueError):
                raise NotFound(f"output of process {record.id} not found") from None

    def _to_process(self, record: ProcessRecord) -> Process:
        return record_to_process(record, record.total, self._limits.ring, self._redact)
