"""Read process state from disk when no supervisor is running."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rekindle.errors import NotFound
from rekindle.processes import operations
from rekindle.processes.supervisor.entry import record_to_process
from rekindle.processes.types import (
    LIVE,
    LogResult,
    OutputChunk,
    PollResult,
    Process,
    ProcessEvent,
    ProcessLimits,
    WaitResult,
)

from .events import EventLog
from .journal import Journal, ProcessRecord
from .output_reader import OutputReader
from .ring_buffer import RingBuffer

R = TypeVar("R")


class OfflineReader:
    """Reads the journal and the ring buffers; changes nothing but reader positions."""

    def __init__(self, folder: Path, limits: ProcessLimits, redact: Callable[[str], str]) -> None:
        self._journal = Journal(folder)
        self._limits = limits
        self._redact = redact

    def has_live_records(self) -> bool:
        """Return whether processes were running when the last supervisor stopped."""
        return any(record.state in LIVE for record in self._journal.load_all())

    def execute(self, request: operations.Operation[R]) -> R:
        """Execute a request that the state on disk can answer."""
        return operations.find_handler(self, request)(request)

    def handle_list(self, request: operations.ListProcesses) -> list[Process]:
        return [
            self._to_process(record)
            for record in self._journal.load_all()
            if request.may_see(record.owner)
            and (record.state in LIVE or not request.live)
            and not self._is_expired(record)
        ]

    def handle_kill(self, request: operations.KillProcess) -> Process:
        return self._to_process(self._load_record(request))

    def handle_count_live(self, request: operations.CountLive | operations.KillAll) -> int:
        return 0

    handle_kill_all = handle_count_live

    def handle_poll(self, request: operations.PollOutput) -> PollResult:
        with self._open_output(request) as (output, writable):
            return output.poll(request, remember=writable)

    def handle_wait(self, request: operations.WaitForExit) -> WaitResult:
        with self._open_output(request) as (output, writable):
            return output.wait(request, self._limits.wait, remember=writable)

    def handle_read_log(self, request: operations.ReadLog) -> LogResult:
        with self._open_output(request) as (output, _):
            return output.read_log(request)

    def handle_attach(self, request: operations.AttachOutput) -> OutputChunk:
        with self._open_output(request) as (output, _):
            return output.read_chunk(request)

    def handle_fetch_events(self, request: operations.FetchEvents) -> list[ProcessEvent]:
        log = EventLog(self._journal.folder / "events")
        return log.list_pending(request.owner, request.limit, request.notes)

    def _load_record(self, request: operations.ProcessOperation[Any]) -> ProcessRecord:
        record = self._journal.load(request.id)
        if record is None or not request.may_see(record.owner) or self._is_expired(record):
            raise NotFound(f"process not found: {request.id!r:.40}")
        return record

    @contextmanager
    def _open_output(
        self, request: operations.ProcessOperation[Any]
    ) -> Generator[tuple[OutputReader, bool], None, None]:
        """Open the output of a process; the flag says whether positions can be stored."""
        record = self._load_record(request)
        ring, writable = self._open_ring(record)
        try:
            yield OutputReader(record, ring, self._redact), writable
        finally:
            ring.close()

    def _is_expired(self, record: ProcessRecord) -> bool:
        return record.ended is not None and record.ended + self._limits.finished < time.time()

    def _open_ring(self, record: ProcessRecord) -> tuple[RingBuffer, bool]:
        path = self._journal.get_ring_path(record.id)
        for writing in (True, False):
            with suppress(OSError, ValueError):
                return RingBuffer.open(path, writing=writing), writing
        raise NotFound(f"output of process {record.id} not found")

    def _to_process(self, record: ProcessRecord) -> Process:
        return record_to_process(record, record.total, self._limits.ring, self._redact)
