"""Follow the output of a process once, however many pages show it.

A process can write faster than a browser can show. So output is collected up to a limit while the last
part is being shown; then it is not read any more, and what the supervisor has dropped by the next
time is skipped. Rendering takes a bounded share of the processor.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rekindle.errors import RekindleError
from rekindle.processes.operations import Processes
from rekindle.processes.types import Process

from .output_views import OutputView, encode_event

SLICE = 4096  # bytes that are shown before other work gets its turn
MAX_EVENTS = 8  # of the past, for pages that are slow; slower ones start over
PAUSE_RATIO = 3.0  # between pauses and work, if there is much to show
LINGER_SECONDS = 5.0  # without anybody who looks
KEEP_ALIVE_SECONDS = 15.0
REPLAY_SECONDS = 2.0  # until output of before is shown at the latest


class OutputFeed:
    """The output of one process, as events for everybody who looks."""

    def __init__(
        self,
        processes: Processes,
        process: Process,
        view: OutputView,
        *,
        since: int,
        pause: float,
        max_pending: int,
    ) -> None:
        self.view = view
        self._processes, self._id = processes, process.id
        self._end, self._known = since, process.bytes
        self._pause, self._max_pending = pause, max_pending
        self._pending, self._skipped = bytearray(), 0
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._replayed, self._changed = asyncio.Event(), asyncio.Event()
        self._events: deque[str] = deque(maxlen=MAX_EVENTS)
        self._count = 0  # of events
        self._last = ""  # event, when the process has ended
        self._viewers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_timer: asyncio.TimerHandle | None = None
        self.on_stop: Callable[[], object] = lambda: None

    async def stream_events(self) -> AsyncGenerator[str, None]:
        """Yield the events for one page: all there is, then each change, until the process ends."""
        self._viewers += 1
        try:
            self._start()
            await self._wait_until_replayed()
            seen = self._count
            yield self.view.encode_all()
            while True:
                changed = self._changed
                if self._count - seen > len(self._events):  # too slow
                    seen = self._count
                    yield self.view.encode_all()
                elif seen < self._count:
                    seen += 1
                    yield self._events[seen - self._count - 1]
                elif self._last:
                    yield self._last
                    return
                else:
                    try:
                        async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                            await changed.wait()
                    except TimeoutError:
                        yield ": still here\n\n"
        finally:
            self._viewers -= 1
            if not self._viewers:
                loop = asyncio.get_running_loop()
                self._stop_timer = loop.call_later(LINGER_SECONDS, self._stop_if_unused)

    async def _wait_until_replayed(self) -> None:
        try:
            async with asyncio.timeout(REPLAY_SECONDS):
                await self._replayed.wait()
        except TimeoutError:
            pass

    def publish(self, event: str | None = None) -> None:
        """Send an event to everybody, or else what has changed."""
        self._events.append(self.view.encode_changes() if event is None else event)
        self._count += 1
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- following

    def _start(self) -> None:
        if self._stop_timer is not None:
            self._stop_timer.cancel()
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._follow()),
                asyncio.create_task(self._show()),
            ]

    def _stop_if_unused(self) -> None:
        if not self._viewers:
            for task in self._tasks:
                task.cancel()
            self.on_stop()

    async def _follow(self) -> None:
        """Collect the output until the process ends."""
        try:
            while await self._collect():
                while self._pending:
                    self._taken.clear()
                    await self._taken.wait()
            self._last = encode_event({}, "end")
        except RekindleError as error:
            self._last = encode_event({"error": str(error)}, "end")
        finally:
            self._arrived.set()

    async def _collect(self) -> bool:
        """Collect output; return True when that is enough for now, False at the end of the process."""
        stream = self._processes.attach(self._id, since=self._end)
        async with aclosing(stream):
            async for chunk in stream:
                self._end = chunk.end
                self._skipped += chunk.dropped
                self._pending += chunk.data
                surplus = len(self._pending) - self._max_pending
                if surplus > 0:
                    del self._pending[:surplus]
                    self._skipped += surplus
                self._arrived.set()
                if surplus > 0:
                    return True
        return False

    async def _show(self) -> None:
        """Show what was collected, again and again."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            began = time.thread_time()
            await self._show_pending()
            if self._end >= self._known or self._last:
                self._replayed.set()
            if self._last:
                self._wake()
                return
            spent = time.thread_time() - began
            await asyncio.sleep(max(self._pause, PAUSE_RATIO * spent))

    async def _show_pending(self) -> None:
        data, skipped = bytes(self._pending), self._skipped
        self._pending.clear()
        self._skipped = 0
        self._taken.set()
        if skipped:
            self.view.skip_output(skipped)
        for start in range(0, len(data), SLICE):
            self.view.add_output(data[start : start + SLICE])
            await asyncio.sleep(0)
        if data or skipped:
            self.publish()
