"""A local web server in a separate thread, on which the chat networks are built."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from aiohttp import web

from rekindle.errors import PlatformError
from rekindle.testing.server import HOST

T = TypeVar("T")


class WebServer:
    """A context manager that serves `routes` while it is open.

    `refuse` is the error that the network gives to every message that is sent.
    """

    def __init__(self, *, port: int = 0) -> None:
        self.port = port
        self.refuse: PlatformError | None = None
        self.requests: list[str] = []  # the methods that were called, in order
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def list_routes(self) -> list[web.RouteDef]:
        """Return the routes of the network."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Drop every connection."""
        self.call(self._abort_connections)

    def call(self, action: Callable[[], T]) -> T:
        """Call a function in the server's thread, and return what it returns."""

        async def run() -> T:
            return action()

        return self.run(run())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's thread, and return what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.add_routes(self.list_routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._started.set()
        await self._stop.wait()
        self._abort_connections()
        await self._runner.cleanup()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _abort_connections(self) -> None:
        server = self._runner.server if self._runner else None
        for connection in list(server.connections) if server else ():
            if connection.transport is not None:
                connection.transport.abort()
