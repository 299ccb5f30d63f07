"""The limits of requests as httptools reads them, and the server where it is not installed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from rekindle.api.serving.server import find_loop_factory, find_protocol

HEAD = b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class Transport:
    """What a connection was sent, and whether it was closed."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def read_all(data: bytes, size: int) -> tuple[int, Transport]:
    """Feed a request in parts; return the bytes of its body that arrived, and the connection."""
    pytest.importorskip("httptools")
    import uvicorn
    from uvicorn.server import ServerState

    arrived: list[int] = [0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            arrived[0] += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    kind: Any = find_protocol()
    protocol, transport = kind(config, ServerState(), {}), Transport()
    protocol.connection_made(transport)
    for at in range(0, len(data), size):
        if transport.is_closed:
            break
        protocol.data_received(data[at : at + size])
        await asyncio.sleep(0)
    for task in [*protocol.tasks]:
        if not transport.is_closed:
            await task
        task.cancel()
    protocol.connection_lost(None)
    return arrived[0], transport


def test_a_body_in_small_chunks_is_read() -> None:
    chunk = b"10\r\n" + b"x" * 16 + b"\r\n"
    arrived, transport = asyncio.run(read_all(HEAD + chunk * 20_000 + b"0\r\n\r\n", 50_000))
    assert arrived == 320_000
    assert b" 204 " in transport.sent


def test_requests_on_one_connection_are_counted_one_by_one() -> None:
    padding = b"x: " + b"a" * 30_000 + b"\r\n"
    request = b"GET / HTTP/1.1\r\nhost: x\r\n" + padding + b"\r\n"
    _, transport = asyncio.run(read_all(request * 5, len(request)))
    assert transport.sent.count(b" 204 ") == 5


@pytest.mark.parametrize("begin", [b"GET /", HEAD[:-2] + b"x: ", HEAD + b"0\r\nx: "])
def test_a_head_or_trailer_that_is_too_long_ends_the_connection(begin: bytes) -> None:
    _, transport = asyncio.run(read_all(begin + b"a" * 100_000, 10_000))
    assert transport.is_closed
    assert b" 400 " in transport.sent


def test_without_the_libraries_the_server_works_with_those_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("httptools", "uvloop"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in (
        "rekindle.api.serving.httptools_protocol",
        "uvicorn.protocols.http.httptools_impl",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert find_protocol() == "h11"
    assert find_loop_factory() is None
