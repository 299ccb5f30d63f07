"""A chat network on this machine: what people say to a bot, and what it answers.

    with ChatServer() as server:
        server.say(Source("memory", "1", user_name="Ada"), "hello")
        platform = MemoryPlatform(server.address)
        ...  # then look at server.seen("1")

The server gives what people say again and again until it is acknowledged, knows a message that is
sent twice by its nonce, and can be told to fail: to lose connections before or after it has done what
it was asked, to answer late, to refuse. It speaks JSON lines over TCP. For another process:
`python -m rekindle.testing chats --port N`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Self

from rekindle.errors import PlatformError
from rekindle.routing.source import from_json, to_json
from rekindle.types import Source

from .server import HOST, Loopback

LIMIT = 4000
LONGEST = 16 << 20  # bytes of a line


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
        self.faults = faults or Faults()
        self.refuse: PlatformError | None = None  # what every send is answered with
        self._again = again
        self._random = Random(seed)
        self._chats = _Chats(limit)
        self._writers: set[asyncio.StreamWriter] = set()  # of those who listen
        self._open: set[asyncio.StreamWriter] = set()
        self._server = Loopback(
            "chat-server", self._talk, port=port, longest=LONGEST, beside=self._give_again
        )

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.call(self._lose_all)
        self._server.__exit__()

    # -- what people do and see

    def say(self, source: Source, text: str, id: str | None = None) -> str:
        """Somebody says something; the id by which the network knows it."""
        name = id or f"u{len(self._chats.said) + 1}"
        message = {"id": name, "source": to_json(source), "text": text}
        self._chats.say(message)
        self._server.call(lambda: self._give([message]))
        return name

    def repeat(self, id: str) -> None:
        """Give a message once more, though it was acknowledged."""
        self._server.call(lambda: self._give([self._chats.said[id]]))

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
        self._server.call(self._lose_all)

    # -- the wire

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
                write_line(writer, {"message": message})

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
            write_line(writer, answer)
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
                write_line(writer, {"message": message})
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


def write_line(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(value).encode() + b"\n")
