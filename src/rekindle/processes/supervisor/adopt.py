"""Recover the processes of an earlier program after a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from rekindle.errors import BackendUnreachable, RekindleError
from rekindle.processes.backends.base import Backend, Exited, Vanished
from rekindle.processes.state.journal import Journal, ProcessRecord
from rekindle.processes.state.ring_buffer import RingBuffer
from rekindle.processes.types import LIVE, ProcessLimits

from .entry import ProcessEntry
from .lifecycle import Lifecycle

logger = logging.getLogger(__name__)

_FIRST_RETRY_DELAY, _MAX_RETRY_DELAY = 1.0, 60.0


class ProcessRecovery:
    """Adopts the processes of the journal into a registry."""

    def __init__(
        self,
        journal: Journal,
        lifecycle: Lifecycle,
        get_backend: Callable[[str], Backend],
        entries: dict[str, ProcessEntry],
        limits: ProcessLimits,
    ) -> None:
        self._journal = journal
        self._lifecycle = lifecycle
        self._get_backend = get_backend
        self._entries = entries
        self._limits = limits

    async def adopt(self, records: Iterable[ProcessRecord]) -> None:
        """Adopt the processes; return when each state is correct or its backend is unreachable."""
        live: list[ProcessEntry] = []
        for record in records:
            entry = ProcessEntry(record, self._open_ring(record))
            self._entries[record.id] = entry
            if record.state == "waiting":
                # Its environment was in the memory of the program that waited: none is stored.
                reason = f"not started: what waited for {record.after} was ended; start it again"
                self._lifecycle.restore_watches(entry)
                await self._lifecycle.record_exit(entry, "lost", None, reason)
            elif record.state in LIVE:
                live.append(entry)
            else:
                # The clock may have been changed: never keep it longer than a full retention time.
                age = max(0.0, time.time() - (record.ended or 0.0))
                entry.forget_at = time.monotonic() + max(0.0, self._limits.finished - age)
                entry.done.set()
        await asyncio.gather(*(self._find_process(entry) for entry in live))

    def _open_ring(self, record: ProcessRecord) -> RingBuffer:
        path = self._journal.get_ring_path(record.id)
        try:
            return RingBuffer.open(path, writing=True)
        except (OSError, ValueError) as error:
            logger.warning("process %s: output lost: %s", record.id, error)
            path.unlink(missing_ok=True)
            return RingBuffer.create(path, self._limits.ring)

    async def _find_process(self, entry: ProcessEntry) -> None:
        try:
            await self._query_backend(entry)
        except BackendUnreachable as error:
            entry.record = entry.record.replace(reason=str(error))
            entry.following = asyncio.create_task(self._retry_find(entry))
        except RekindleError as error:  # the backend no longer exists
            await self._lifecycle.record_exit(entry, "lost", None, str(error))

    async def _retry_find(self, entry: ProcessEntry) -> None:
        delay = _FIRST_RETRY_DELAY
        while True:
            await asyncio.sleep(delay)
            try:
                return await self._query_backend(entry)
            except BackendUnreachable:
                delay = min(2 * delay, _MAX_RETRY_DELAY)

    async def _query_backend(self, entry: ProcessEntry) -> None:
        record = entry.record
        backend = self._get_backend(record.backend)
        found = await backend.find(self._journal.build_spec(record), record.ref, entry.ring.total)
        match found:
            case Exited(code, output):
                entry.ring.append(output)
                self._lifecycle.restore_watches(entry)
                await self._lifecycle.record_exit(
                    entry, "exited" if code is not None else "lost", code
                )
            case Vanished(reason):
                self._lifecycle.restore_watches(entry)
                state = "failed" if record.state == "starting" else "lost"
                await self._lifecycle.record_exit(entry, state, None, reason)
            case _:
                if record.state == "starting" or record.reason:
                    self._lifecycle.record_start(entry, found)
                else:
                    self._lifecycle.follow(entry, found)
                if record.killing:
                    self._lifecycle.resume_kill(entry)
