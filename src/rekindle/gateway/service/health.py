"""The health page and the metrics: a local HTTP endpoint that reports how the gateway works."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rekindle.errors import StoreError
from rekindle.gateway.gateway import Gateway
from rekindle.gateway.monitoring.metrics import CONTENT_TYPE, Sample
from rekindle.routing.delivery_target import FOLDER
from rekindle.store.conversations.inbox import MessageCounts

HOST = "127.0.0.1"
_REQUEST_TIMEOUT = 5.0  # seconds to wait for a request


async def collect_health(gateway: Gateway) -> dict[str, object]:
    """Collect the health report.

    `status` is ok, store if the store is unavailable, or platform if one needs the operator.
    """
    health: dict[str, object] = {
        "status": "platform" if gateway.failures else "ok",
        "instance": gateway.context.instance,
        "uptime": round(time.time() - gateway.started, 1),
        "platforms": _list_platforms(gateway),
        "failures": dict(gateway.failures),
        "conversations": gateway.worker_count,
        "sending": gateway.sender_count,
        "accepted": gateway.accepted_count,
        # Those that could not be stored yet; the others are in the store.
        "errors": [one._asdict() for one in gateway.errors.list_collected()],
    }
    counts = await _load_counts(gateway)
    if isinstance(counts, StoreError):
        return {**health, "status": "store", "error": str(counts)}
    return {**health, "messages": counts._asdict()}


async def render_metrics(gateway: Gateway) -> str:
    """Render the metrics in the text format of Prometheus."""
    counts = await _load_counts(gateway)
    is_up = not isinstance(counts, StoreError)
    inbox: list[Sample] = []
    outbox: list[Sample] = []
    if not isinstance(counts, StoreError):
        inbox = [
            ("", {"state": "waiting"}, counts.waiting),
            ("", {"state": "running"}, counts.running),
        ]
        outbox = [("", {}, counts.unsent)]
    connected = [
        ("", {"platform": name}, float(is_connected(gateway, name)))
        for name in _list_platforms(gateway)
    ]
    return gateway.context.metrics.render(
        [
            ("up", "Whether the store can be used.", [("", {}, float(is_up))]),
            ("uptime_seconds", "Time since the start.", [("", {}, time.time() - gateway.started)]),
            ("inbox_messages", "Messages that are not answered yet.", inbox),
            ("outbox_messages", "Messages that are not sent yet.", outbox),
            ("active_conversations", "Conversations in work.", [("", {}, gateway.worker_count)]),
            ("platform_connected", "Whether a platform is connected.", connected),
        ]
    )


def is_connected(gateway: Gateway, name: str) -> bool:
    """Return whether a platform is connected, as far as it says so; else whether we listen to it."""
    connected: object = getattr(gateway.platforms[name], "is_connected", True)
    return gateway.listening.get(name, False) and connected is True


def _list_platforms(gateway: Gateway) -> list[str]:
    return [name for name in gateway.platforms if name != FOLDER]


async def _load_counts(gateway: Gateway) -> MessageCounts | StoreError:
    try:
        return await gateway.context.executor.run(gateway.context.executor.store.inbox.get_counts)
    except StoreError as error:
        return error


async def _build_response(gateway: Gateway, path: bytes) -> tuple[bytes, str, bytes]:
    """Return status, content type and body of the response to a request."""
    if path == b"/metrics":
        return b"200 OK", CONTENT_TYPE, (await render_metrics(gateway)).encode()
    payload: dict[str, object] = {"error": "not found; use /health or /metrics"}
    status = b"404 Not Found"
    if path == b"/health":
        payload = await collect_health(gateway)
        # Not for a platform: whoever restarts what is unhealthy would restart it without end.
        is_up = payload["status"] != "store"
        status = b"200 OK" if is_up else b"503 Service Unavailable"
    return status, "application/json", json.dumps(payload).encode() + b"\n"


@asynccontextmanager
async def serve_health(gateway: Gateway, port: int) -> AsyncGenerator[int]:
    """Serve the health page and the metrics, and yield their port."""

    async def handle_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].split(b"?")[0]
            status, kind, body = await _build_response(gateway, path)
            headers = f"content-type: {kind}\r\nconnection: close\r\ncontent-length: {len(body)}"
            writer.write(b"HTTP/1.1 " + status + b"\r\n" + headers.encode() + b"\r\n\r\n" + body)
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
