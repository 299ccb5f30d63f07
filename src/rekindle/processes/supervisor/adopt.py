"""After a restart: what became of the processes that an earlier program started."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from rekindle.errors import PlaceUnreachable, RekindleError
from rekindle.processes.backends.base import Ended, Lost, Place
from rekindle.processes.state.journal import Journal, Record
from rekindle.processes.state.ring_buffer import Ring
from rekindle.processes.types import LIVE, Limits

from .entry import Entry
from .lifecycle import Life

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Adoption:
    """Takes the processes of the journal into a registry."""

    def __init__(
        self,
        journal: Journal,
        life: Life,
        place: Callable[[str], Place],
        entries: dict[str, Entry],
        limits: Limits,
    ) -> None:
        self._journal = journal
        self._life = life
        self._place = place
        self._entries = entries
        self._limits = limits

    async def adopt(self, records: Iterable[Record]) -> None:
        """Returns when the state of each is true, or its place cannot be asked yet."""
        live: list[Entry] = []
        for record in records:
            entry = Entry(record, self._ring(record))
            self._entries[record.id] = entry
            if record.state in LIVE:
                live.append(entry)
            else:
                # The clock may have been set since: not longer than if it had ended just now.
                age = max(0.0, time.time() - (record.ended or 0.0))
                entry.forget_at = time.monotonic() + max(0.0, self._limits.finished - age)
                entry.done.set()
        await asyncio.gather(*(self._find(entry) for entry in live))

    def _ring(self, record: Record) -> Ring:
        path = self._journal.ring_of(record.id)
        try:
            return Ring.open(path, writing=True)
        except (OSError, ValueError) as error:
            logger.warning("process %s: its output is lost: %s", record.id, error)
            path.unlink(missing_ok=True)
            return Ring.create(path, self._limits.ring)

    async def _find(self, entry: Entry) -> None:
        try:
            await self._ask(entry)
        except PlaceUnreachable as error:
            entry.record = entry.record.changed(why=str(error))
            entry.following = asyncio.create_task(self._find_later(entry))
        except RekindleError as error:  # the place is not to be had at all any more
            await self._life.end(entry, "lost", None, str(error))

    async def _find_later(self, entry: Entry) -> None:
        pause = _FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._ask(entry)
            except PlaceUnreachable:
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _ask(self, entry: Entry) -> None:
        record = entry.record
        place = self._place(record.place)
        found = await place.find(self._journal.spec(record), record.ref, entry.ring.total)
        match found:
            case Ended(code, output):
                entry.ring.append(output)
                self._life.restore_watches(entry)
                await self._life.end(entry, "exited" if code is not None else "lost", code)
            case Lost(why):
                self._life.restore_watches(entry)
                state = "failed" if record.state == "starting" else "lost"
                await self._life.end(entry, state, None, why)
            case _:
                if record.state == "starting" or record.why:
                    self._life.begin(entry, found)
                else:
                    self._life.follow(entry, found)
                if record.killing:
                    self._life.kill_soon(entry)
