"""A process in the registry: its record, output, handle, and waiters."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable

from rekindle.processes.backends.base import RunningProcess
from rekindle.processes.state.journal import ProcessRecord
from rekindle.processes.state.ring_buffer import RingBuffer, ignore_writes
from rekindle.processes.types import LIVE, Process

from .watch import Watcher


class ProcessEntry:
    """A known process. `running` is None while its backend is unreachable and after its removal."""

    def __init__(self, record: ProcessRecord, ring: RingBuffer) -> None:
        self.record = record
        self.ring = ring
        self.running: RunningProcess | None = None
        self.copying: asyncio.Task[None] | None = None
        self.following: asyncio.Task[None] | None = None
        self.killing: asyncio.Task[None] | None = None
        self.watchers: list[Watcher] = []
        self.done = asyncio.Event()  # it has exited and the record is saved
        self.forget_at = float("inf")  # on the monotonic clock
        self.waiters: list[asyncio.Future[None]] = []
        ring.on_write = self._on_write

    @property
    def live(self) -> bool:
        return self.record.state in LIVE

    def _on_write(self) -> None:
        if self.waiters:
            self.wake_waiters()
        for watcher in self.watchers:
            watcher.on_output()

    def wake_waiters(self) -> None:
        """Wake everyone who waits for output or for the exit."""
        waiting, self.waiters = self.waiters, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def release(self) -> None:
        """Release the process's resources. Its ring buffer stays open for remaining readers."""
        self.ring.on_write = ignore_writes
        self.wake_waiters()
        # Break the reference cycles, so that files are closed now and not by a later collection.
        self.running = self.copying = self.following = self.killing = None

    async def wait_for_output(self) -> None:
        """Wait for output or for the exit."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(future)
        await future


def record_to_process(
    record: ProcessRecord, total: int, capacity: int, redact: Callable[[str], str]
) -> Process:
    """Build the public view of a process from its record, with secrets redacted."""
    return Process(
        id=record.id,
        state=record.state,
        exit_code=record.exit_code,
        command=redact(shlex.join(record.argv)),
        owner=record.owner,
        backend=record.backend,
        pid=record.pid,
        started=record.started,
        ended=record.ended,
        bytes=total,
        dropped=max(0, total - capacity),
        cwd=record.cwd,
        pty=record.pty is not None,
        reason=record.reason,
        session=record.session,
        name=record.name,
        after=record.after,
    )
