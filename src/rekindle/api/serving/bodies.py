"""Read the bodies of requests within limits: their size, the memory of all together, and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_SECONDS = 30.0
MAX_WAITING_BYTES = 128_000_000  # of all requests together
_GZIP = 16 + zlib.MAX_WBITS


class ApiRefusal(Exception):
    """A request that gets no answer but this."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class BodyReader:
    """Reads bodies; knows how many bytes are in memory."""

    def __init__(self, max_waiting: int = MAX_WAITING_BYTES) -> None:
        self._max_waiting = max_waiting
        self._waiting = 0

    async def read_body(
        self, receive: Receive, headers: Mapping[str, str], limit: int
    ) -> tuple[bytes, int]:
        """Return a body, decompressed, and the bytes to `release` when it is no longer needed."""
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length[:18]) > limit:
            raise _make_too_large(limit)
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise ApiRefusal(
                415,
                "unsupported_encoding",
                "Unsupported Content-Encoding: send the body uncompressed or with gzip.",
            )
        reserved = 0
        try:
            parts: list[bytes] = []
            size = 0
            async for part in _iter_parts(receive):
                size += len(part)
                if size > limit:
                    raise _make_too_large(limit)
                reserved += self._reserve(len(part))
                parts.append(part)
            body = b"".join(parts)
            if encoding == "gzip":
                body = expand_body(body, limit)
                reserved += self._reserve(len(body))
        except BaseException:
            self.release(reserved)
            raise
        return body, reserved

    def release(self, count: int) -> None:
        """Give back the bytes of a body."""
        self._waiting -= count

    def _reserve(self, count: int) -> int:
        if self._waiting + count > self._max_waiting:
            raise ApiRefusal(
                503, "busy", "The server is busy. Try again in a second.", retry_after=1.0
            )
        self._waiting += count
        return count


async def _iter_parts(receive: Receive) -> AsyncGenerator[bytes]:
    message = await receive()
    while True:
        if message["type"] != "http.request":
            raise ApiRefusal(400, "incomplete", "The request ended early.")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            raise ApiRefusal(408, "timeout", "The request took too long.") from None


def expand_body(data: bytes, limit: int) -> bytes:
    """Decompress gzip; a body that would become larger than the limit is not unpacked further."""
    reader = zlib.decompressobj(_GZIP)
    try:
        found = reader.decompress(data, limit + 1)
    except zlib.error:
        raise ApiRefusal(400, "invalid_gzip", "The body is not valid gzip.") from None
    if len(found) > limit:
        raise _make_too_large(limit)
    if not reader.eof or reader.unused_data:
        raise ApiRefusal(400, "invalid_gzip", "The body is not one complete gzip stream.")
    return found


def _make_too_large(limit: int) -> ApiRefusal:
    return ApiRefusal(413, "too_large", f"A request may have at most {limit:,} bytes here.")
