"""One process in the registry: its record, its output, its handle, and who waits for it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable

from rekindle.processes.backends.base import Running
from rekindle.processes.state.journal import Record
from rekindle.processes.state.ring_buffer import Ring, nobody
from rekindle.processes.types import LIVE, Process

from .watch import Watcher


class Entry:
    """A process that is known. `running` is None while its place cannot be reached, or after."""

    def __init__(self, record: Record, ring: Ring) -> None:
        self.record = record
        self.ring = ring
        self.running: Running | None = None
        self.copying: asyncio.Task[None] | None = None
        self.following: asyncio.Task[None] | None = None
        self.killing: asyncio.Task[None] | None = None
        self.watchers: list[Watcher] = []
        self.done = asyncio.Event()  # it has ended, and that is written down
        self.forget_at = float("inf")  # by the clock that never jumps
        self.awake: list[asyncio.Future[None]] = []
        ring.heard = self._heard

    @property
    def live(self) -> bool:
        return self.record.state in LIVE

    def _heard(self) -> None:
        if self.awake:
            self.wake()
        for watcher in self.watchers:
            watcher.heard()

    def wake(self) -> None:
        """Something was written, or it has ended."""
        waiting, self.awake = self.awake, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def let_go(self) -> None:
        """It is forgotten. Who still reads the ring may: it goes with its last reader."""
        self.ring.heard = nobody
        self.wake()
        # Without these no circle is left, so its files are closed now and not at some later time.
        self.running = self.copying = self.following = self.killing = None

    async def next_sound(self) -> None:
        """Wait until something is written, or it ends."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.awake.append(future)
        await future


def told(record: Record, total: int, capacity: int, redact: Callable[[str], str]) -> Process:
    """What may be said about a process."""
    return Process(
        id=record.id,
        state=record.state,
        exit_code=record.code,
        command=redact(shlex.join(record.argv)),
        owner=record.owner,
        place=record.place,
        pid=record.pid,
        started=record.started,
        ended=record.ended,
        bytes=total,
        dropped=max(0, total - capacity),
        cwd=record.cwd,
        pty=record.pty is not None,
        why=record.why,
        session=record.session,
    )
