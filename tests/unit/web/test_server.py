"""The server's socket: answers leave at once, and a taken port is said plainly."""

from __future__ import annotations

import asyncio
import socket

import pytest

from rekindle.config.address import Address, listen_at
from rekindle.errors import InvalidInput


def test_small_answers_are_sent_without_delay() -> None:
    async def connect() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own: socket.socket = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen_at(Address("127.0.0.1", 0))
        async with await asyncio.start_server(accept, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await found

    assert asyncio.run(connect()) != 0


def test_a_port_that_is_taken_is_refused() -> None:
    with listen_at(Address("127.0.0.1", 0)) as first, pytest.raises(InvalidInput, match="in use"):
        listen_at(Address(*first.getsockname()))
