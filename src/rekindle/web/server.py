"""Run the web server until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from .guard import Application

SHUTDOWN_SECONDS = 2


def serve_app(app: Application, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; open streams are cut after two seconds."""
    config = uvicorn.Config(
        app,
        http="h11",  # has limits for the head of a request
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
        proxy_headers=False,
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            on_start()
        await serving

    asyncio.run(run())
