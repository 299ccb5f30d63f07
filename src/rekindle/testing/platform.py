"""The platform that talks to a `ChatServer`: the setting is `rekindle.testing:connect=HOST:PORT`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from rekindle.errors import PlatformError
from rekindle.platforms import Incoming
from rekindle.routing.source import from_json, to_json
from rekindle.types import Message, Source

from .network import LIMIT, LONGEST, write_line
from .server import HOST

NAME = "memory"


class MemoryPlatform:
    """The platform that talks to a `ChatServer`."""

    def __init__(
        self,
        address: str,
        *,
        name: str = NAME,
        limit: int = LIMIT,
        can_edit: bool = True,
        pause: float = 0.1,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.name = name
        self.limit = limit
        self.can_edit = can_edit
        self._place = (host or HOST, int(port))
        self._pause = pause
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def listen(self) -> AsyncGenerator[Incoming]:
        """What people say; a lost connection is made again."""
        while not self._closed:
            try:
                line = await self._connected()
                await line.ask({"op": "listen"})
                while (message := await line.messages.get()) is not None:
                    yield _incoming(message)
            except PlatformError:
                pass
            await asyncio.sleep(self._pause)

    async def acknowledge(self, incoming: Incoming) -> None:
        line = await self._connected()
        line.write({"op": "ack", "id": incoming.message.platform_message_id})

    async def send(self, target: Source, text: str, nonce: str) -> str:
        asked = {"op": "send", "source": to_json(target), "text": text, "nonce": nonce}
        answer = await (await self._connected()).ask(asked)
        return answer["id"]

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        await (await self._connected()).ask({"op": "edit", "id": message_id, "text": text})

    async def close(self) -> None:
        self._closed = True
        if self._line is not None:
            await self._line.close()

    async def _connected(self) -> _Line:
        async with self._connecting:
            if self._closed:
                raise PlatformError(f"{self.name} is closed")
            if self._line is None or self._line.is_lost:
                try:
                    streams = await asyncio.open_connection(*self._place, limit=LONGEST)
                except OSError as error:
                    raise PlatformError(f"{self.name} cannot be reached: {error}") from error
                self._line = _Line(*streams)
            return self._line


def _incoming(message: dict[str, Any]) -> Incoming:
    said = Message("user", message["text"], platform_message_id=message["id"])
    return Incoming(from_json(message["source"]), said)


class _Line:
    """One connection to the server: questions with their answers, and what people say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.is_lost = False
        self._reader, self._writer = reader, writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._asked = 0
        self._task = asyncio.create_task(self._read())

    def write(self, asked: dict[str, Any]) -> None:
        if self.is_lost:
            raise PlatformError("the connection was lost")
        write_line(self._writer, asked)

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        number = self._asked
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self.write({**asked, "ref": number})
            answer = await future
        finally:
            self._answers.pop(number, None)
        if "error" in answer:
            raise PlatformError(
                answer["error"], lasting=answer["lasting"], retry_after=answer["after"]
            )
        return answer

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                told = json.loads(line)
                if "message" in told:
                    self.messages.put_nowait(told["message"])
                elif (future := self._answers.get(told["ref"])) and not future.done():
                    future.set_result(told)
        except (ConnectionError, ValueError):
            pass  # lost: whoever waits is told
        finally:
            self.is_lost = True
            self.messages.put_nowait(None)
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(PlatformError("the connection was lost"))


def connect(argument: str) -> MemoryPlatform:
    """For the setting `gateway.platforms`: an address, and `,edit=no` or `,limit=N` behind it."""
    address, *options = argument.split(",")
    given = dict(option.split("=", 1) for option in options)
    return MemoryPlatform(
        address,
        limit=int(given.get("limit", LIMIT)),
        can_edit=given.get("edit", "yes") != "no",
    )
