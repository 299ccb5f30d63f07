"""The life of a process in the registry: it begins, is watched, ends, and is forgotten."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rekindle.errors import (
    InputClosed,
    InvalidInput,
    JournalUnwritable,
    PlaceUnreachable,
    ProcessError,
)
from rekindle.processes.backends.base import Running
from rekindle.processes.state.events import EventLog
from rekindle.processes.state.journal import Journal
from rekindle.processes.types import Event, EventKind, Limits, State, Watch

from .entry import Entry, told
from .watch import Watcher

logger = logging.getLogger(__name__)

_KILLED = 137  # as the shell says it: 128 + SIGKILL
_SWEEP = 15.0
_LAST_OUTPUT = 5.0  # seconds that the rest of the output may take after the end
_PATIENCE = 10.0


class Life:
    """What happens to the processes of a registry."""

    def __init__(
        self,
        journal: Journal,
        limits: Limits,
        entries: dict[str, Entry],
        log: EventLog,
        redact: Callable[[str], str],
    ) -> None:
        self.log = log
        self._journal = journal
        self._limits = limits
        self._entries = entries
        self._redact = redact
        self._told = asyncio.Event()  # there is a new event
        self._tasks: set[asyncio.Task[None]] = set()

    # -- it begins

    def begin(self, entry: Entry, running: Running) -> None:
        """It runs: write that down, take its output in, and wait for its end."""
        entry.running = running
        entry.record = entry.record.changed(
            state="running", ref=dict(running.ref), pid=running.pid, why=""
        )
        self._journal.save(entry.record)
        self.follow(entry, running)

    def follow(self, entry: Entry, running: Running) -> None:
        entry.running = running
        entry.ring.asks = False
        self.restore_watches(entry)
        entry.copying = asyncio.create_task(self._copy(entry, running))
        entry.following = asyncio.create_task(self._follow(entry, running))

    def restore_watches(self, entry: Entry) -> None:
        """Set the watches of its record to work."""
        entry.watchers = [self._watcher(entry, watch) for watch in entry.record.watches]

    async def _copy(self, entry: Entry, running: Running) -> None:
        try:
            await running.copy(entry.ring)
        except ProcessError as error:
            logger.warning("process %s: its output cannot be read: %s", entry.record.id, error)

    async def _follow(self, entry: Entry, running: Running) -> None:
        try:
            code = await running.wait()
        except ProcessError as error:
            await self.end(entry, "lost", None, str(error))
            return
        if entry.copying:
            # Here all that it wrote is in the ring when `wait` returns, and children that live on
            # may hold the output open for ever. Elsewhere the rest is on its way.
            here = entry.record.place == "local"
            await asyncio.wait([entry.copying], timeout=0 if here else _LAST_OUTPUT)
        if code is None and not entry.record.killing:
            why = "the shim that notes the exit code was killed; the code is not known"
            await self.end(entry, "lost", None, why)
        else:
            await self.end(entry, "exited", code)

    # -- it ends

    async def end(self, entry: Entry, state: State, code: int | None, why: str = "") -> None:
        """It has ended: say so to everyone who waits, and write it down for good."""
        if not entry.live:
            return
        if entry.record.killing:
            state, code, why = "killed", code if code is not None else _KILLED, ""
        entry.ring.asks = True  # until the record is written; after that the disk can tell
        entry.record = entry.record.changed(
            state=state, code=code, why=why, ended=time.time(), total=entry.ring.total
        )
        watchers, entry.watchers = entry.watchers, []
        for watcher in watchers:
            watcher.ended()
        entry.forget_at = time.monotonic() + self._limits.finished
        entry.wake()
        try:
            await asyncio.to_thread(self._journal.save, entry.record, durable=True)
            entry.ring.asks = False
        except JournalUnwritable as error:
            # The exit code stands in the shim's file; a later program learns it there.
            logger.warning("process %s: %s", entry.record.id, error)
        entry.done.set()
        await self._make_room(entry.record.owner)

    async def kill(self, entry: Entry) -> None:
        """End the tree; whoever asks while it is being ended waits for the same end."""
        if entry.killing is None or entry.killing.done():
            entry.killing = asyncio.create_task(self._kill(entry))
        await asyncio.shield(entry.killing)

    async def _kill(self, entry: Entry) -> None:
        if not entry.live:
            if entry.running:
                await entry.running.kill()
            return
        running = self.reachable(entry)
        if not entry.record.killing:
            entry.record = entry.record.changed(killing=True)
            with suppress(JournalUnwritable):  # a full disk must not keep it alive
                self._journal.save(entry.record)
        await running.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await entry.done.wait()

    def kill_soon(self, entry: Entry) -> None:
        """A kill that an earlier program began is brought to its end."""
        task = asyncio.create_task(self._kill_quietly(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _kill_quietly(self, entry: Entry) -> None:
        try:
            await self.kill(entry)
        except ProcessError as error:
            logger.warning("process %s cannot be ended: %s", entry.record.id, error)

    def reachable(self, entry: Entry) -> Running:
        """Its handle; InputClosed if it has ended, PlaceUnreachable if it cannot be asked."""
        if not entry.live:
            raise InputClosed(f"process {entry.record.id} has ended ({entry.record.state})")
        if entry.running is None:
            why = entry.record.why or "it is being looked for"
            raise PlaceUnreachable(f"process {entry.record.id} on {entry.record.place}: {why}")
        return entry.running

    # -- it is forgotten

    async def sweep(self) -> None:
        """Forget processes some time after their end, for ever."""
        while True:
            await asyncio.sleep(min(_SWEEP, max(0.05, self._limits.finished / 4)))
            await self._forget_old()

    async def _forget_old(self) -> None:
        now = time.monotonic()
        for id in list(self._entries):  # not the entries: the last would hold all before it open
            entry = self._entries.get(id)
            if entry and entry.forget_at <= now and not is_open(entry):
                await self.forget(entry)

    async def _make_room(self, owner: str) -> None:
        ended = [
            e
            for e in self._entries.values()
            if e.record.owner == owner and e.done.is_set() and not is_open(e)
        ]
        ended.sort(key=lambda e: e.record.ended or 0.0)
        for entry in ended[: max(0, len(ended) - self._limits.finished_per_owner)]:
            await self.forget(entry)

    async def forget(self, entry: Entry) -> None:
        self._entries.pop(entry.record.id, None)
        self.log.forget(entry.record.id)
        await self._stop(entry)
        if entry.running:
            with suppress(ProcessError):
                await entry.running.forget()
        entry.let_go()
        await asyncio.to_thread(self._journal.remove, entry.record.id)

    async def _stop(self, entry: Entry) -> None:
        me = asyncio.current_task()
        tasks = [t for t in (entry.copying, entry.following) if t and not t.done() and t is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def release(self) -> None:
        """Let go of everything; the processes go on."""
        for task in self._tasks:
            task.cancel()
        for entry in self._entries.values():
            for watcher in entry.watchers:
                watcher.stop()
            await self._stop(entry)
            if entry.running:
                entry.running.release()
            entry.let_go()

    # -- it is watched

    def watch(self, entry: Entry, watch: Watch) -> Watch:
        if not entry.live:
            raise InvalidInput(f"process {entry.record.id} has ended; there is nothing to watch")
        known = entry.record.watches
        if len(known) >= self._limits.watches:
            raise InvalidInput(f"process {entry.record.id} has {len(known)} watches already")
        watch = watch._replace(number=1 + max((one.number for one in known), default=0))
        entry.record = entry.record.changed(watches=(*known, watch))
        self._journal.save(entry.record)
        # From here on: what was written before is nothing new. (The start's own watches see all.)
        entry.ring.seen(f"watch {watch.number}", entry.ring.total)
        entry.watchers.append(self._watcher(entry, watch))
        return watch

    def unwatch(self, entry: Entry, number: int) -> None:
        for watcher in [one for one in entry.watchers if one.watch.number == number]:
            watcher.stop()
            entry.watchers.remove(watcher)
        kept = tuple(one for one in entry.record.watches if one.number != number)
        if kept != entry.record.watches:
            entry.record = entry.record.changed(watches=kept)
            self._journal.save(entry.record)

    def _watcher(self, entry: Entry, watch: Watch) -> Watcher:
        def emit(watch: Watch, kind: EventKind, said: str, suppressed: int) -> None:
            self._emit(entry, watch, kind, said, suppressed)

        return Watcher(watch, entry.ring, self._limits.gap, emit)

    def _emit(
        self, entry: Entry, watch: Watch, kind: EventKind, said: str, suppressed: int
    ) -> None:
        process = told(entry.record, entry.ring.total, entry.ring.capacity, self._redact)
        event = Event(0, process, kind, watch.number, said, time.time(), suppressed, watch.note)
        if self.log.add(event, self._limits.pending):
            self._told.set()
        if (watch.once or kind == "stopped") and entry.live:
            with suppress(JournalUnwritable):
                self.unwatch(entry, watch.number)

    async def events(
        self, owner: str | None, wait: float, limit: int, notes: Sequence[str]
    ) -> list[Event]:
        end = time.monotonic() + wait
        while True:
            self._told.clear()
            found = self.log.pending(owner, limit, notes)
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._told.wait()


def is_open(entry: Entry) -> bool:
    """Whether children that outlived it still hold its output open."""
    return entry.copying is not None and not entry.copying.done()
