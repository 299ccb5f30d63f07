"""A chat network for tests and demos: a server on this machine, and the platform that talks to it.

    with ChatServer() as server:
        server.say(Source("memory", "1", user_name="Ada"), "hello")
        platform = MemoryPlatform(server.address)
        ...  # then look at server.seen("1")

The server gives what people say again and again until it is acknowledged, knows a message that is
sent twice by its nonce, and can be told to fail: to lose connections before or after it has done what
it was asked, to answer late, to refuse. Both speak JSON lines over TCP. For another process:
`python -m rekindle.testing_platform --port N`, and `gateway.platforms =
"rekindle.testing_platform:connect=127.0.0.1:N"`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any, NamedTuple, Self

from .errors import PlatformError
from .platforms import Incoming
from .routing.source import from_json, to_json
from .types import Message, Source

HOST = "127.0.0.1"
NAME = "memory"
LIMIT = 4000
_LINE = 16 << 20  # bytes of the longest line


class Faults(NamedTuple):
    """How often something goes wrong, from 0 to 1, and how long things take."""

    lost_before: float = 0.0  # the connection, before what was asked is done
    lost_after: float = 0.0  # and after it, without an answer
    refused: float = 0.0
    delay: float = 0.0  # seconds, at most


@dataclass(slots=True)
class Shown:
    """A message of the bot as people see it."""

    id: str
    chat: str
    text: str
    nonce: str
    thread: str | None = None
    edits: int = 0


@dataclass(slots=True)
class _Chats:
    """What the network knows."""

    limit: int = LIMIT
    said: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    unheard: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    shown: dict[str, Shown] = field(default_factory=dict[str, Shown])
    by_nonce: dict[str, str] = field(default_factory=dict[str, str])
    lock: threading.RLock = field(default_factory=threading.RLock)
    repeats: int = 0  # sends that were known by their nonce

    def say(self, message: dict[str, Any]) -> None:
        with self.lock:
            self.said[message["id"]] = message
            self.unheard[message["id"]] = message

    def hear(self, id: str) -> None:
        with self.lock:
            self.unheard.pop(id, None)

    def send(self, asked: dict[str, Any]) -> str:
        with self.lock:
            if asked["nonce"] in self.by_nonce:
                self.repeats += 1
                return self.by_nonce[asked["nonce"]]
            self._check(asked["text"])
            source = asked["source"]
            id = f"b{len(self.shown) + 1}"
            self.shown[id] = Shown(
                id, source["chat_id"], asked["text"], asked["nonce"], source.get("thread_id")
            )
            self.by_nonce[asked["nonce"]] = id
            return id

    def edit(self, asked: dict[str, Any]) -> str:
        with self.lock:
            self._check(asked["text"])
            shown = self.shown.get(asked["id"])
            if shown is None:
                raise PlatformError(f"no message {asked['id']}", lasting=True)
            shown.text, shown.edits = asked["text"], shown.edits + 1
            return shown.id

    def _check(self, text: str) -> None:
        if not 0 < len(text) <= self.limit:
            raise PlatformError(f"a text of {len(text)} characters is not taken", lasting=True)


class ChatServer:
    """The network, in a thread of its own; a context manager."""

    def __init__(
        self,
        *,
        port: int = 0,
        limit: int = LIMIT,
        faults: Faults | None = None,
        seed: int = 0,
        again: float = 1.0,
    ) -> None:
        self.port = port
        self.faults = faults or Faults()
        self.refuse: PlatformError | None = None  # what every send is answered with
        self._again = again
        self._random = Random(seed)
        self._chats = _Chats(limit)
        self._writers: set[asyncio.StreamWriter] = set()  # of those who listen
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="chat-server", daemon=True)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # -- what people do and see

    def say(self, source: Source, text: str, id: str | None = None) -> str:
        """Somebody says something; the id by which the network knows it."""
        name = id or f"u{len(self._chats.said) + 1}"
        message = {"id": name, "source": to_json(source), "text": text}
        self._chats.say(message)
        self._loop.call_soon_threadsafe(self._give, [message])
        return name

    def repeat(self, id: str) -> None:
        """Give a message once more, though it was acknowledged."""
        self._loop.call_soon_threadsafe(self._give, [self._chats.said[id]])

    def seen(self, chat: str | None = None) -> list[Shown]:
        """What the bot's messages show, in the order they were sent."""
        with self._chats.lock:
            every = [*self._chats.shown.values()]
        return [shown for shown in every if chat is None or shown.chat == chat]

    @property
    def unheard(self) -> list[str]:
        """The messages that were not acknowledged yet."""
        with self._chats.lock:
            return [*self._chats.unheard]

    @property
    def listeners(self) -> int:
        """How many connections listen."""
        return len(self._writers)

    @property
    def repeats(self) -> int:
        """How many sends were known by their nonce."""
        return self._chats.repeats

    def disconnect(self) -> None:
        """Lose every connection."""
        self._loop.call_soon_threadsafe(self._lose_all)

    # -- the wire

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        try:
            server = await asyncio.start_server(self._talk, HOST, self.port, limit=_LINE)
        except OSError as error:
            self._failed = error
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        giving = asyncio.create_task(self._give_again())
        await self._stop.wait()
        giving.cancel()
        server.close()
        self._lose_all()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _lose_all(self) -> None:
        for writer in [*self._open]:
            writer.transport.abort()

    async def _give_again(self) -> None:
        while True:
            await asyncio.sleep(self._again)
            with self._chats.lock:
                unheard = [*self._chats.unheard.values()]
            self._give(unheard)

    def _give(self, messages: Sequence[dict[str, Any]]) -> None:
        for message in messages:
            for writer in self._writers:
                _write(writer, {"message": message})

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while line := await reader.readline():
                await self._answer(writer, json.loads(line))
        except (ConnectionError, ValueError):
            writer.transport.abort()
        finally:
            self._open.discard(writer)
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        faults, chance = self.faults, self._random.random
        if faults.delay:
            await asyncio.sleep(chance() * faults.delay)
        if chance() < faults.lost_before:
            raise ConnectionResetError
        answer: dict[str, Any] = {"ref": asked.get("ref")}
        try:
            answer |= self._done(writer, asked, refused=chance() < faults.refused)
        except PlatformError as error:
            answer |= {"error": str(error), "lasting": error.lasting, "after": error.retry_after}
        if chance() < faults.lost_after:
            raise ConnectionResetError
        if answer["ref"] is not None:
            _write(writer, answer)
            await writer.drain()

    def _done(
        self, writer: asyncio.StreamWriter, asked: dict[str, Any], *, refused: bool
    ) -> dict[str, Any]:
        op = asked["op"]
        if op in ("send", "edit") and (refused or self.refuse):
            raise self.refuse or PlatformError("refused for now")
        if op == "listen":
            self._writers.add(writer)
            with self._chats.lock:
                unheard = [*self._chats.unheard.values()]
            for message in unheard:
                _write(writer, {"message": message})
            return {}
        if op == "ack":
            self._chats.hear(asked["id"])
            return {}
        if op == "say":
            return {"id": self.say(from_json(asked["source"]), asked["text"], asked.get("id"))}
        if op == "seen":
            shown = self.seen(asked.get("chat"))
            return {"seen": [[one.id, one.chat, one.text] for one in shown]}
        return {"id": self._chats.send(asked) if op == "send" else self._chats.edit(asked)}


def _write(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(value).encode() + b"\n")


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
                    streams = await asyncio.open_connection(*self._place, limit=_LINE)
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
        _write(self._writer, asked)

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server as a program, until it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.testing_platform")
    parser.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    given = parser.parse_args(arguments)
    stop = threading.Event()

    def told_to(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told_to)
    with ChatServer(port=given.port) as server:
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
