"""A local TCP server in its own thread, shared by the fakes."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Self, TypeAlias

HOST = "127.0.0.1"

ServeClient: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BackgroundTask: TypeAlias = Callable[[], Awaitable[None]]


class LoopbackServer:
    """A context manager that serves while it is open, then closes every connection.

    `serve` handles one client; `background` runs as long as the server does. `max_line` limits the
    bytes of a line. Port 0 selects a free port, available as `port`.
    """

    def __init__(
        self,
        name: str,
        serve: ServeClient,
        *,
        port: int = 0,
        max_line: int = 1 << 20,
        background: BackgroundTask | None = None,
    ) -> None:
        self.port = port
        self._serve = serve
        self._max_line = max_line
        self._background = background
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self.call_soon(self._stop.set)
        self._thread.join()

    def call_soon(self, action: Callable[[], object]) -> None:
        """Schedule a call in the server's thread."""
        self._loop.call_soon_threadsafe(action)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve_until_stopped())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve_until_stopped(self) -> None:
        try:
            server = await asyncio.start_server(
                self._serve, HOST, self.port, limit=self._max_line, backlog=2048
            )
        except OSError as error:
            self._error = error
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        background = None if self._background is None else asyncio.ensure_future(self._background())
        await self._stop.wait()
        if background is not None:
            background.cancel()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def wait_for_signal(line: str) -> None:
    """Print a line with the server's address, and wait for a signal to stop."""
    stop = threading.Event()

    def on_signal(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    stop.wait()
