"""Poll a local process by reading the supervisor's files, without asking the supervisor.

The supervisor keeps output and record files up to date at every moment, so a connected client can
read them itself: no other program has to wake up, however busy the machine is. Where the files are
not enough, the result is None and the supervisor must be asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rekindle.processes.operations import PollOutput
from rekindle.processes.types import PollResult

from .journal import Journal, ProcessRecord
from .output_reader import OutputReader
from .ring_buffer import ByteRange, RingBuffer

_MAX_MAPPED = 64  # ring buffers kept mapped
_MAX_ATTEMPTS = 5


class BufferOverrun(Exception):
    """The process writes faster than its output can be copied."""


class DirectReader:
    """Reads the folder of a running supervisor."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self._journal = Journal(folder)
        self._redact = redact
        self._cache: dict[str, _CachedProcess] = {}

    def poll(self, request: PollOutput) -> PollResult | None:
        """Return the state and new output; return None if the supervisor must be asked.

        Only the supervisor allocates a slot for a new reader, so that two readers never share one.
        """
        cached = self._load(request.id)
        if cached is None or not request.may_see(cached.record.owner):
            return None
        record, ring = cached.record, cached.ring
        if ring.is_record_stale or record.backend != "local" or not ring.has_reader(request.reader):
            return None
        try:
            return OutputReader(record, ring, self._redact).poll(request)
        except BufferOverrun:
            return None

    def _load(self, id: str) -> _CachedProcess | None:
        cached = self._cache.get(id)
        try:
            status = os.stat(self._journal.get_record_path(id))
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if cached is None or cached.version != version:
                record = self._journal.load(id)
                if record is None:
                    raise FileNotFoundError
                ring = (
                    cached.ring
                    if cached
                    else _SharedRingBuffer.open(self._journal.get_ring_path(id), shared=True)
                )
                cached = _CachedProcess(version, record, ring)
        except (OSError, ValueError):
            self._evict(id)
            return None
        self._cache.pop(id, None)
        self._cache[id] = cached  # keep in order of use
        if len(self._cache) > _MAX_MAPPED:
            self._evict(next(iter(self._cache)))
        return cached

    def _evict(self, id: str) -> None:
        if cached := self._cache.pop(id, None):
            cached.ring.close()

    def close(self) -> None:
        for id in list(self._cache):
            self._evict(id)


class _SharedRingBuffer(RingBuffer):
    """A ring buffer that another program is writing to."""

    def read(self, since: int = 0, limit: int | None = None) -> ByteRange:
        for _ in range(_MAX_ATTEMPTS):
            self.refresh()
            piece = super().read(since, limit)
            self.refresh()
            if piece.start >= self.dropped:  # not overwritten while copying
                return piece
        raise BufferOverrun


class _CachedProcess(NamedTuple):
    version: tuple[int, int, int]  # of the record
    record: ProcessRecord
    ring: _SharedRingBuffer
