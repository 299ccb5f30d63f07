"""The lifecycle of a process in the registry: start, watches, exit, removal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rekindle.errors import (
    BackendUnreachable,
    InputClosed,
    InvalidInput,
    JournalUnwritable,
    ProcessError,
    RekindleError,
)
from rekindle.processes.backends.base import RunningProcess
from rekindle.processes.operations import FetchEvents
from rekindle.processes.state.events import EventLog
from rekindle.processes.state.journal import Journal
from rekindle.processes.types import EventKind, ProcessEvent, ProcessLimits, ProcessState, Watch

from .entry import ProcessEntry, record_to_process
from .watch import Watcher

logger = logging.getLogger(__name__)

_KILLED_EXIT_CODE = 137  # shell convention: 128 + SIGKILL
_SWEEP_SECONDS = 15.0
_DRAIN_SECONDS = 5.0  # seconds to wait for remaining output after the exit
_KILL_TIMEOUT = 10.0


class Lifecycle:
    """Manages the lifecycle of the registry's processes."""

    def __init__(
        self,
        journal: Journal,
        limits: ProcessLimits,
        entries: dict[str, ProcessEntry],
        log: EventLog,
        redact: Callable[[str], str],
    ) -> None:
        self.log = log
        self._journal = journal
        self._limits = limits
        self._entries = entries
        self._redact = redact
        self._event_added = asyncio.Event()  # set when an event is added
        self._tasks: set[asyncio.Task[None]] = set()

    # -- start

    def record_start(self, entry: ProcessEntry, running: RunningProcess) -> None:
        """Record that the process is running, then copy its output and wait for its exit."""
        entry.running = running
        entry.record = entry.record.replace(
            state="running", ref=dict(running.ref), pid=running.pid, reason=""
        )
        self._journal.save(entry.record)
        self.follow(entry, running)

    def follow(self, entry: ProcessEntry, running: RunningProcess) -> None:
        entry.running = running
        entry.ring.is_record_stale = False
        self.restore_watches(entry)
        entry.copying = asyncio.create_task(self._copy(entry, running))
        entry.following = asyncio.create_task(self._follow(entry, running))

    def restore_watches(self, entry: ProcessEntry) -> None:
        """Start the watches of its record."""
        entry.watchers = [self._create_watcher(entry, watch) for watch in entry.record.watches]

    async def _copy(self, entry: ProcessEntry, running: RunningProcess) -> None:
        try:
            await running.copy_output(entry.ring)
        except ProcessError as error:
            logger.warning("process %s: cannot read its output: %s", entry.record.id, error)

    async def _follow(self, entry: ProcessEntry, running: RunningProcess) -> None:
        try:
            code = await running.wait()
        except ProcessError as error:
            await self.record_exit(entry, "lost", None, str(error))
            return
        if entry.copying:
            # Locally, all output is in the ring buffer when `wait` returns, and surviving children
            # may hold the pipe open forever. Remotely, the rest is still in transit.
            is_local = entry.record.backend == "local"
            await asyncio.wait([entry.copying], timeout=0 if is_local else _DRAIN_SECONDS)
        if code is None and not entry.record.killing:
            reason = "the shim that records the exit code was killed; the exit code is unknown"
            await self.record_exit(entry, "lost", None, reason)
        else:
            await self.record_exit(entry, "exited", code)

    def start_after(
        self, entry: ProcessEntry, other: ProcessEntry, start: Callable[[], Awaitable[object]]
    ) -> None:
        """Start a waiting process when another one has succeeded; else it has failed."""

        async def wait_and_start() -> None:
            await other.done.wait()
            if not has_succeeded(other):
                await self._abandon_start(entry, "failed", describe_failure(other))
                return
            entry.record = entry.record.replace(state="starting", started=time.time())
            try:
                await asyncio.to_thread(self._journal.save, entry.record, durable=True)
                await start()
            except (RekindleError, OSError) as error:
                await self._abandon_start(entry, "failed", str(error))

        entry.following = asyncio.create_task(wait_and_start())

    # -- exit

    async def record_exit(
        self, entry: ProcessEntry, state: ProcessState, code: int | None, reason: str = ""
    ) -> None:
        """Record the exit, notify all waiters, and save the record durably."""
        if not entry.live:
            return
        if entry.record.killing:
            state, code, reason = "killed", code if code is not None else _KILLED_EXIT_CODE, ""
        entry.ring.is_record_stale = True  # until the record is saved
        entry.record = entry.record.replace(
            state=state, exit_code=code, reason=reason, ended=time.time(), total=entry.ring.total
        )
        watchers, entry.watchers = entry.watchers, []
        for watcher in watchers:
            watcher.on_exit()
        entry.forget_at = time.monotonic() + self._limits.finished
        entry.wake_waiters()
        try:
            await asyncio.to_thread(self._journal.save, entry.record, durable=True)
            entry.ring.is_record_stale = False
        except JournalUnwritable as error:
            # The shim's file holds the exit code; a later program reads it there.
            logger.warning("process %s: %s", entry.record.id, error)
        entry.done.set()
        await self._trim_finished(entry.record.owner)

    async def kill(self, entry: ProcessEntry) -> None:
        """Kill the tree; concurrent callers wait for the same kill."""
        if entry.killing is None or entry.killing.done():
            entry.killing = asyncio.create_task(self._kill(entry))
        await asyncio.shield(entry.killing)

    async def _kill(self, entry: ProcessEntry) -> None:
        if not entry.live:
            if entry.running:
                await entry.running.kill()
            return
        if entry.record.state == "waiting":
            await self._abandon_start(entry, "killed", "it had not started yet")
            return
        running = self.require_running(entry)
        if not entry.record.killing:
            entry.record = entry.record.replace(killing=True)
            with suppress(JournalUnwritable):  # a full disk must not prevent the kill
                self._journal.save(entry.record)
        await running.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT):
                await entry.done.wait()

    async def _abandon_start(self, entry: ProcessEntry, state: ProcessState, reason: str) -> None:
        """Record the end of a process that was never started."""
        await self._cancel_tasks(entry)
        self.restore_watches(entry)
        await self.record_exit(entry, state, None, reason)

    def resume_kill(self, entry: ProcessEntry) -> None:
        """Finish a kill that an earlier program began."""
        task = asyncio.create_task(self._kill_quietly(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _kill_quietly(self, entry: ProcessEntry) -> None:
        try:
            await self.kill(entry)
        except ProcessError as error:
            logger.warning("process %s cannot be killed: %s", entry.record.id, error)

    def require_running(self, entry: ProcessEntry) -> RunningProcess:
        """Return its handle.

        Raise InputClosed if it has exited, or BackendUnreachable if its backend cannot be reached.
        """
        if not entry.live:
            raise InputClosed(f"process {entry.record.id} has ended ({entry.record.state})")
        if entry.record.state == "waiting":
            raise InputClosed(
                f"process {entry.record.id} has not started: it waits for {entry.record.after}"
            )
        if entry.running is None:
            reason = entry.record.reason or "still looking for it"
            raise BackendUnreachable(
                f"process {entry.record.id} on {entry.record.backend}: {reason}"
            )
        return entry.running

    # -- removal

    async def sweep_forever(self) -> None:
        """Remove exited processes after their retention time, forever."""
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, max(0.05, self._limits.finished / 4)))
            await self._remove_expired()

    async def _remove_expired(self) -> None:
        now = time.monotonic()
        for id in list(self._entries):  # ids, not entries: a reference would keep its files open
            entry = self._entries.get(id)
            if entry and entry.forget_at <= now and not has_open_output(entry):
                await self.remove(entry)

    async def _trim_finished(self, owner: str) -> None:
        ended = [
            e
            for e in self._entries.values()
            if e.record.owner == owner and e.done.is_set() and not has_open_output(e)
        ]
        ended.sort(key=lambda e: e.record.ended or 0.0)
        for entry in ended[: max(0, len(ended) - self._limits.finished_per_owner)]:
            await self.remove(entry)

    async def remove(self, entry: ProcessEntry) -> None:
        self._entries.pop(entry.record.id, None)
        self.log.forget_process(entry.record.id)
        await self._cancel_tasks(entry)
        if entry.running:
            with suppress(ProcessError):
                await entry.running.clean_up()
        entry.release()
        await asyncio.to_thread(self._journal.remove, entry.record.id)

    async def _cancel_tasks(self, entry: ProcessEntry) -> None:
        current = asyncio.current_task()
        tasks = [
            t for t in (entry.copying, entry.following) if t and not t.done() and t is not current
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def detach_all(self) -> None:
        """Detach from all processes; they keep running."""
        for task in self._tasks:
            task.cancel()
        for entry in self._entries.values():
            for watcher in entry.watchers:
                watcher.stop()
            await self._cancel_tasks(entry)
            if entry.running:
                entry.running.detach()
            entry.release()

    # -- watches

    def watch(self, entry: ProcessEntry, watch: Watch) -> Watch:
        if not entry.live:
            raise InvalidInput(f"process {entry.record.id} has ended and cannot be watched")
        known = entry.record.watches
        if len(known) >= self._limits.watches:
            raise InvalidInput(f"process {entry.record.id} already has {len(known)} watches")
        watch = watch._replace(number=1 + max((one.number for one in known), default=0))
        entry.record = entry.record.replace(watches=(*known, watch))
        self._journal.save(entry.record)
        # Report only output from now on. (Watches given at the start see all output.)
        entry.ring.set_position(f"watch {watch.number}", entry.ring.total)
        entry.watchers.append(self._create_watcher(entry, watch))
        return watch

    def unwatch(self, entry: ProcessEntry, number: int) -> None:
        for watcher in [one for one in entry.watchers if one.watch.number == number]:
            watcher.stop()
            entry.watchers.remove(watcher)
        remaining = tuple(one for one in entry.record.watches if one.number != number)
        if remaining != entry.record.watches:
            entry.record = entry.record.replace(watches=remaining)
            self._journal.save(entry.record)

    def _create_watcher(self, entry: ProcessEntry, watch: Watch) -> Watcher:
        def emit(watch: Watch, kind: EventKind, text: str, suppressed: int) -> None:
            self._emit(entry, watch, kind, text, suppressed)

        return Watcher(watch, entry.ring, self._limits.gap, emit)

    def _emit(
        self, entry: ProcessEntry, watch: Watch, kind: EventKind, text: str, suppressed: int
    ) -> None:
        process = record_to_process(
            entry.record, entry.ring.total, entry.ring.capacity, self._redact
        )
        event = ProcessEvent(
            0, process, kind, watch.number, text, time.time(), suppressed, watch.note
        )
        if self.log.add(event, self._limits.pending):
            self._event_added.set()
        if (watch.once or kind == "stopped") and entry.live:
            with suppress(JournalUnwritable):
                self.unwatch(entry, watch.number)

    async def fetch_events(self, request: FetchEvents) -> list[ProcessEvent]:
        end = time.monotonic() + min(request.wait, self._limits.wait)
        while True:
            self._event_added.clear()
            found = self.log.list_pending(request.owner, request.limit, request.notes)
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._event_added.wait()


def has_succeeded(entry: ProcessEntry) -> bool:
    """Return whether a process has exited with 0."""
    return entry.record.state == "exited" and entry.record.exit_code == 0


def describe_failure(entry: ProcessEntry) -> str:
    """Describe why nothing can start after a process."""
    record = entry.record
    end = f"exited with {record.exit_code}" if record.state == "exited" else f"is {record.state}"
    return f"not started: {record.name or record.id} {end}"


def has_open_output(entry: ProcessEntry) -> bool:
    """Return whether surviving children still hold its output open."""
    return entry.copying is not None and not entry.copying.done()
