"""The platform for a `ChatServer`: set `gateway.platforms` to `rekindle.testing:connect=HOST:PORT`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import mimetypes
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from rekindle.errors import PlatformError
from rekindle.platforms import Attachment, Platform, PlatformMessage, Progress
from rekindle.routing.source import from_json, to_json
from rekindle.types import Message, Source

from .network import MAX_LINE, MESSAGE_LIMIT, write_line
from .server import HOST

PLATFORM_NAME = "memory"
_DELIVERY = "delivery"  # in the meta of a change: the id that it is acknowledged by


class MemoryPlatform(Platform):
    """The platform that talks to a `ChatServer`."""

    def __init__(
        self,
        address: str,
        *,
        name: str = PLATFORM_NAME,
        limit: int = MESSAGE_LIMIT,
        can_edit: bool = True,
        retry_seconds: float = 0.1,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.name = name
        self.limit = limit
        self.can_edit = can_edit
        self._server = (host or HOST, int(port))
        self._retry_seconds = retry_seconds
        self._connection: _ChatConnection | None = None
        self._connect_lock = asyncio.Lock()
        self._closed = False

    @property
    def is_connected(self) -> bool:
        """Whether the connection to the server is open."""
        return self._connection is not None and not self._connection.is_lost

    async def listen(self) -> AsyncGenerator[PlatformMessage]:
        """Yield people's messages, reconnecting when the connection is lost."""
        while not self._closed:
            try:
                connection = await self._ensure_connected()
                await connection.send_request({"op": "listen"})
                while (message := await connection.messages.get()) is not None:
                    yield _parse_message(message)
            except PlatformError as error:
                if error.permanent:
                    raise
            await asyncio.sleep(self._retry_seconds)

    async def acknowledge(self, incoming: PlatformMessage) -> None:
        connection = await self._ensure_connected()
        meta = incoming.message.meta or {}
        id = meta.get(_DELIVERY, incoming.message.platform_message_id)
        connection.write({"op": "ack", "id": id})

    async def send(self, target: Source, text: str, nonce: str) -> str:
        request = {"op": "send", "source": to_json(target), "text": text, "nonce": nonce}
        response = await (await self._ensure_connected()).send_request(request)
        return response["id"]

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        await (await self._ensure_connected()).send_request(
            {"op": "edit", "id": message_id, "text": text}
        )

    async def send_file(self, target: Source, file: Path, caption: str, nonce: str) -> str:
        try:
            content = base64.b64encode(await asyncio.to_thread(file.read_bytes)).decode()
        except OSError as error:
            raise PlatformError(f"the file cannot be read: {error}", permanent=True) from error
        request = {"op": "send", "source": to_json(target), "text": caption, "nonce": nonce,
                   "file": file.name, "content": content}  # fmt: skip
        return (await (await self._ensure_connected()).send_request(request))["id"]

    async def show_progress(self, target: Source, message_id: str, progress: Progress) -> None:
        request = {"op": "progress", "id": message_id, "progress": progress}
        await (await self._ensure_connected()).send_request(request)

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.close()

    async def _ensure_connected(self) -> _ChatConnection:
        async with self._connect_lock:
            if self._closed:
                raise PlatformError(f"{self.name} is closed")
            if self._connection is None or self._connection.is_lost:
                try:
                    streams = await asyncio.open_connection(*self._server, limit=MAX_LINE)
                except OSError as error:
                    raise PlatformError(f"{self.name} cannot be reached: {error}") from error
                self._connection = _ChatConnection(*streams)
            return self._connection


def _parse_message(message: dict[str, Any]) -> PlatformMessage:
    id = message.get("changed", message["id"])
    meta = {_DELIVERY: message["id"]} if "change" in message else None
    parsed = Message("user", message["text"], platform_message_id=id, meta=meta)
    return PlatformMessage(
        from_json(message["source"]),
        parsed,
        tuple(_parse_file(*file) for file in message.get("files", {}).items()),
        message.get("change", "new"),
        message.get("is_addressed", True),
        message.get("quote", ""),
    )


def _parse_file(name: str, encoded: str) -> Attachment:
    content = base64.b64decode(encoded)

    async def fetch(max_bytes: int) -> bytes:
        if len(content) > max_bytes:
            raise PlatformError(f"the file is larger than {max_bytes} bytes", permanent=True)
        return content

    media_type, _ = mimetypes.guess_type(name)
    return Attachment(name, media_type or "application/octet-stream", len(content), fetch)


class _ChatConnection:
    """One connection to the server: requests with their responses, and people's messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.is_lost = False
        self._reader, self._writer = reader, writer
        self._responses: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_ref = 0
        self._reader_task = asyncio.create_task(self._read_lines())

    def write(self, request: dict[str, Any]) -> None:
        if self.is_lost:
            raise PlatformError("the connection was lost")
        write_line(self._writer, request)

    async def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        self._last_ref += 1
        number = self._last_ref
        future = self._responses[number] = asyncio.get_running_loop().create_future()
        try:
            self.write({**request, "ref": number})
            response = await future
        finally:
            self._responses.pop(number, None)
        if "error" in response:
            raise PlatformError(
                response["error"], permanent=response["permanent"], retry_after=response["after"]
            )
        return response

    async def close(self) -> None:
        self._reader_task.cancel()
        await asyncio.gather(self._reader_task, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read_lines(self) -> None:
        try:
            while line := await self._reader.readline():
                received = json.loads(line)
                if "message" in received:
                    self.messages.put_nowait(received["message"])
                elif (future := self._responses.get(received["ref"])) and not future.done():
                    future.set_result(received)
        except (ConnectionError, ValueError):
            pass  # lost: waiting requests fail below
        finally:
            self.is_lost = True
            self.messages.put_nowait(None)
            for future in self._responses.values():
                if not future.done():
                    future.set_exception(PlatformError("the connection was lost"))


def connect(argument: str) -> MemoryPlatform:
    """Connect for the setting `gateway.platforms`.

    The argument is an address, optionally followed by `,name=NAME`, `,edit=no` or `,limit=N`.
    """
    address, *options = argument.split(",")
    values = dict(option.split("=", 1) for option in options)
    return MemoryPlatform(
        address,
        name=values.get("name", PLATFORM_NAME),
        limit=int(values.get("limit", MESSAGE_LIMIT)),
        can_edit=values.get("edit", "yes") != "no",
    )
