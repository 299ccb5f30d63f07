"""Run the API server until it is stopped: listen, serve, finish open requests, close the store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import uvicorn

from rekindle.config.address import Address
from rekindle.errors import InvalidInput

from .bodies import Application

SHUTDOWN_SECONDS = 10
KEEP_ALIVE_SECONDS = 75
MAX_CONNECTIONS = 4_000
BACKLOG = 2_048
_log = logging.getLogger("rekindle.api")


class TlsFiles(NamedTuple):
    """The certificate chain and the private key of a server."""

    certificate: Path
    key: Path


def check_exposure(address: Address, tls: TlsFiles | None, *, is_insecure: bool) -> None:
    """Refuse to send keys in plain text over a network, unless that is wanted."""
    if not address.is_loopback and tls is None and not is_insecure:
        raise InvalidInput(
            f"{address.host} can be reached by others: pass --tls-cert and --tls-key, listen on"
            " 127.0.0.1 behind a proxy with TLS, or allow plain HTTP with --insecure"
        )


class _ApiServer(uvicorn.Server):
    """A server that leaves signals to us: a stopped server has ended well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return how to make an event loop: that of uvloop takes less time, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def find_protocol() -> type[asyncio.Protocol] | Literal["h11"]:
    """Return what reads requests: httptools takes less time than h11, where it is installed."""
    try:
        from .httptools_protocol import LimitedProtocol
    except ImportError:
        return "h11"
    return LimitedProtocol


async def serve_app(
    app: Application,
    listener: socket.socket,
    on_start: Callable[[], None],
    tls: TlsFiles | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are answered first."""
    options: dict[str, Any] = {}
    if tls is not None:
        options = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    config = uvicorn.Config(
        app,
        http=find_protocol(),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        **options,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise InvalidInput(f"the certificate cannot be used: {error}") from None
    server = _ApiServer(config)
    loop = asyncio.get_running_loop()

    def stop_server() -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_server)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        _raise_file_limit()
        on_start()
    await serving
    _log.info("stopped")


def _raise_file_limit() -> None:
    """Allow as many connections as the system permits us."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + 1_000
    with contextlib.suppress(ValueError, OSError):
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


class ServerLogFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, event and fields; never the contents of a request."""
        fields: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_logging() -> None:
    """Write the log of the server to standard error, one object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ServerLogFormatter())
    _log.handlers[:] = [handler]
    _log.propagate = False
    _log.setLevel(logging.INFO)


def log_start(url: str, store: str) -> None:
    """Record in the log where the server listens."""
    fields = {"url": url, "store": store, "pid": os.getpid(), "started": round(time.time(), 3)}
    _log.info("started", extra={"fields": fields})
