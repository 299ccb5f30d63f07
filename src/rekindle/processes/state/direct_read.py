"""A look at a process of this machine beside the supervisor that keeps it, without asking it.

Output and record lie in files that the supervisor keeps true at every moment, so a client that is
connected may read them itself: no other program has to be woken, however busy the machine is.
Where the files are not enough, the answer is None, and the supervisor is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rekindle.processes.types import Polled

from .journal import Journal, Record
from .output_reader import Reading
from .ring_buffer import Ring, Span

_MOST = 64  # rings that stay mapped
_TRIES = 5


class Overtaken(Exception):
    """The process writes faster than its output can be copied."""


class Glance:
    """Looks into the folder of a supervisor that runs."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self._journal = Journal(folder)
        self._redact = redact
        self._known: dict[str, _Known] = {}

    def poll(self, id: str, owner: str | None, reader: str, plain: bool) -> Polled | None:
        """State and new output; None if the supervisor must be asked.

        It alone makes room for a reader that is new, so that two never take the same.
        """
        known = self._look(id)
        if known is None or owner not in (None, known.record.owner):
            return None
        ring = known.ring
        if ring.asks or known.record.place != "local" or not ring.knows(reader):
            return None
        try:
            return Reading(known.record, ring, self._redact).poll(reader, plain=plain)
        except Overtaken:
            return None

    def _look(self, id: str) -> _Known | None:
        known = self._known.get(id)
        try:
            found = os.stat(self._journal.record_of(id))
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            if known is None or known.version != version:
                record = self._journal.load(id)
                if record is None:
                    raise FileNotFoundError
                ring = known.ring if known else _Beside.open(self._journal.ring_of(id), beside=True)
                known = _Known(version, record, ring)
        except (OSError, ValueError):
            self._forget(id)
            return None
        self._known.pop(id, None)
        self._known[id] = known  # the last one is the one looked at last
        if len(self._known) > _MOST:
            self._forget(next(iter(self._known)))
        return known

    def _forget(self, id: str) -> None:
        if known := self._known.pop(id, None):
            known.ring.close()

    def close(self) -> None:
        for id in list(self._known):
            self._forget(id)


class _Beside(Ring):
    """A ring that another program writes to, now."""

    def read(self, since: int = 0, limit: int | None = None) -> Span:
        for _ in range(_TRIES):
            self.refresh()
            span = super().read(since, limit)
            self.refresh()
            if span.start >= self.dropped:  # what could be seen before can still be seen
                return span
        raise Overtaken


class _Known(NamedTuple):
    version: tuple[int, int, int]  # of the record
    record: Record
    ring: _Beside
