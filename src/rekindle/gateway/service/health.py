"""The health page: one address on this machine that tells whether the gateway works."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rekindle.errors import StoreError
from rekindle.gateway.gateway import Gateway

HOST = "127.0.0.1"
_PATIENCE = 5.0  # seconds for a request to come


async def facts(gateway: Gateway) -> dict[str, object]:
    """What the page tells; `status` is ok, or store when the store cannot be used."""
    told: dict[str, object] = {
        "status": "ok",
        "runner": gateway.office.runner,
        "uptime": round(time.time() - gateway.begun, 1),
        "platforms": [*gateway.platforms],
        "conversations": gateway.running,
        "sending": gateway.sending,
        "accepted": gateway.accepted,
    }
    try:
        counts = await gateway.office.desk.ask(gateway.office.desk.store.mail.counts)
    except StoreError as error:
        return {**told, "status": "store", "error": str(error)}
    return {**told, "mail": counts._asdict()}


@asynccontextmanager
async def page(gateway: Gateway, port: int) -> AsyncGenerator[int]:
    """Serve the page; the port it is at."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            told: dict[str, object] = {"error": "only /health is here"}
            status = b"404 Not Found"
            if path.split(b"?")[0] == b"/health":
                told = await facts(gateway)
                status = b"200 OK" if told["status"] == "ok" else b"503 Service Unavailable"
            body = json.dumps(told).encode() + b"\n"
            length = str(len(body)).encode()
            about = b"content-type: application/json\r\nconnection: close\r\ncontent-length: "
            writer.write(b"HTTP/1.1 " + status + b"\r\n" + about + length + b"\r\n\r\n" + body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has gone, or asked nothing
        except IndexError:
            pass  # no request at all
        finally:
            writer.close()

    server = await asyncio.start_server(answer, HOST, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
