"""The health page: a local HTTP endpoint that reports whether the gateway works."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rekindle.errors import StoreError
from rekindle.gateway.gateway import Gateway
from rekindle.routing.delivery_target import FOLDER

HOST = "127.0.0.1"
_REQUEST_TIMEOUT = 5.0  # seconds to wait for a request


async def collect_health(gateway: Gateway) -> dict[str, object]:
    """Collect the health report; `status` is ok, or store if the store is unavailable."""
    health: dict[str, object] = {
        "status": "ok",
        "instance": gateway.context.instance,
        "uptime": round(time.time() - gateway.started, 1),
        "platforms": [name for name in gateway.platforms if name != FOLDER],
        "conversations": gateway.worker_count,
        "sending": gateway.sender_count,
        "accepted": gateway.accepted_count,
    }
    try:
        counts = await gateway.context.executor.run(gateway.context.executor.store.inbox.get_counts)
    except StoreError as error:
        return {**health, "status": "store", "error": str(error)}
    return {**health, "messages": counts._asdict()}


@asynccontextmanager
async def serve_health(gateway: Gateway, port: int) -> AsyncGenerator[int]:
    """Serve the health page and yield its port."""

    async def handle_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            payload: dict[str, object] = {"error": "not found; use /health"}
            status = b"404 Not Found"
            if path.split(b"?")[0] == b"/health":
                payload = await collect_health(gateway)
                status = b"200 OK" if payload["status"] == "ok" else b"503 Service Unavailable"
            body = json.dumps(payload).encode() + b"\n"
            length = str(len(body)).encode()
            headers = b"content-type: application/json\r\nconnection: close\r\ncontent-length: "
            writer.write(b"HTTP/1.1 " + status + b"\r\n" + headers + length + b"\r\n\r\n" + body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client disconnected or sent nothing
        except IndexError:
            pass  # not an HTTP request
        finally:
            writer.close()

    server = await asyncio.start_server(handle_request, HOST, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
