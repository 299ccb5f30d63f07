"""A TCP server on this machine in a thread of its own: what the fakes have in common."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Self, TypeAlias

HOST = "127.0.0.1"

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Beside: TypeAlias = Callable[[], Awaitable[None]]


class Loopback:
    """A context manager: it serves while it is open, and then ends every connection.

    `serve` talks with one client; `beside` runs as long as the server does. A line of a client may
    have `longest` bytes. Port 0 is a free one; `port` tells which.
    """

    def __init__(
        self,
        name: str,
        serve: Serve,
        *,
        port: int = 0,
        longest: int = 1 << 20,
        beside: Beside | None = None,
    ) -> None:
        self.port = port
        self._serve = serve
        self._longest = longest
        self._beside = beside
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[], object]) -> None:
        """Do something in the server's own thread, soon."""
        self._loop.call_soon_threadsafe(work)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._until_stopped())
        finally:
            self._started.set()
            self._loop.close()

    async def _until_stopped(self) -> None:
        try:
            server = await asyncio.start_server(
                self._serve, HOST, self.port, limit=self._longest, backlog=2048
            )
        except OSError as error:
            self._failed = error
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        beside = None if self._beside is None else asyncio.ensure_future(self._beside())
        await self._stop.wait()
        if beside is not None:
            beside.cancel()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def until_told(line: str) -> None:
    """Print a line that says where the server is, and wait for a signal to stop."""
    stop = threading.Event()

    def told_to(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told_to)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    stop.wait()
