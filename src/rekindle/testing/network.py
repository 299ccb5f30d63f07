"""A local chat network: messages from people to a bot, and its replies.

    with ChatServer() as server:
        server.post_message(Source("memory", "1", user_name="Ada"), "hello")
        platform = MemoryPlatform(server.address)
        ...  # then inspect server.list_sent("1")

The server redelivers messages until they are acknowledged, recognizes a repeated send by its nonce,
and can inject faults: drop connections before or after handling a request, respond late, refuse. It
speaks JSON lines over TCP. From another process: `python -m rekindle.testing chats --port N`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Self

from rekindle.errors import PlatformError
from rekindle.routing.source import from_json, to_json
from rekindle.types import Source

from .server import HOST, LoopbackServer

MESSAGE_LIMIT = 4000
MAX_LINE = 16 << 20  # bytes per line


class NetworkFaults(NamedTuple):
    """Fault probabilities from 0 to 1, and the maximum delay."""

    lost_before: float = 0.0  # connection dropped before the request is handled
    lost_after: float = 0.0  # connection dropped after it is handled, without a response
    refused: float = 0.0
    delay: float = 0.0  # maximum seconds


@dataclass(slots=True)
class SentMessage:
    """A message of the bot as people see it."""

    id: str
    chat: str
    text: str
    nonce: str
    thread: str | None = None
    edits: int = 0
    file: str | None = None  # the name of the file that was sent
    content: bytes = b""


@dataclass(slots=True)
class _ChatState:
    """The state of the network."""

    limit: int = MESSAGE_LIMIT
    posted: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    unacknowledged: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sent: dict[str, SentMessage] = field(default_factory=dict[str, SentMessage])
    by_nonce: dict[str, str] = field(default_factory=dict[str, str])
    lock: threading.RLock = field(default_factory=threading.RLock)
    duplicate_count: int = 0  # sends recognized by their nonce

    def add_message(self, message: dict[str, Any]) -> None:
        with self.lock:
            self.posted[message["id"]] = message
            self.unacknowledged[message["id"]] = message

    def acknowledge(self, id: str) -> None:
        with self.lock:
            self.unacknowledged.pop(id, None)

    def send(self, request: dict[str, Any]) -> str:
        with self.lock:
            if request["nonce"] in self.by_nonce:
                self.duplicate_count += 1
                return self.by_nonce[request["nonce"]]
            if request.get("file") is None:
                self._check_length(request["text"])
            source = request["source"]
            id = f"b{len(self.sent) + 1}"
            self.sent[id] = SentMessage(
                id, source["chat_id"], request["text"], request["nonce"], source.get("thread_id"),
                file=request.get("file"), content=base64.b64decode(request.get("content", "")),
            )  # fmt: skip
            self.by_nonce[request["nonce"]] = id
            return id

    def edit(self, request: dict[str, Any]) -> str:
        with self.lock:
            self._check_length(request["text"])
            message = self.sent.get(request["id"])
            if message is None:
                raise PlatformError(f"message not found: {request['id']}", permanent=True)
            message.text, message.edits = request["text"], message.edits + 1
            return message.id

    def _check_length(self, text: str) -> None:
        if not 0 < len(text) <= self.limit:
            raise PlatformError(f"text length not allowed: {len(text)} characters", permanent=True)


class ChatServer:
    """The network in its own thread; a context manager."""

    def __init__(
        self,
        *,
        port: int = 0,
        limit: int = MESSAGE_LIMIT,
        faults: NetworkFaults | None = None,
        seed: int = 0,
        redeliver_seconds: float = 1.0,
    ) -> None:
        self.faults = faults or NetworkFaults()
        self.refuse: PlatformError | None = None  # raised for every send
        self.max_upload = MAX_LINE  # bytes of a file
        self._is_revoked = False
        self.progress: list[tuple[str, str]] = []  # what was shown of messages in progress
        self._redeliver_seconds = redeliver_seconds
        self._random = Random(seed)
        self._state = _ChatState(limit)
        self._listeners: set[asyncio.StreamWriter] = set()  # of listening clients
        self._connections: set[asyncio.StreamWriter] = set()
        self._server = LoopbackServer(
            "chat-server",
            self._serve_client,
            port=port,
            max_line=MAX_LINE,
            background=self._redeliver_forever,
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
        self._server.call_soon(self._abort_connections)
        self._server.__exit__()

    # -- the people's side

    def post_message(self, source: Source, text: str, id: str | None = None, **details: Any) -> str:
        """Post a message from a person and return its id.

        Details: `files` (name to content), `quote`, `is_addressed`, and `change` with the id of the
        message that is edited or deleted.
        """
        name = id or f"u{len(self._state.posted) + 1}"
        files = {
            file: base64.b64encode(content).decode()
            for file, content in details.pop("files", {}).items()
        }
        message = {"id": name, "source": to_json(source), "text": text, "files": files, **details}
        if "change" in details:
            message["id"], message["changed"] = f"{name}+{len(self._state.posted)}", name
        self._state.add_message(message)
        self._server.call_soon(lambda: self._deliver([message]))
        return name

    def redeliver(self, id: str) -> None:
        """Deliver a message again although it was acknowledged."""
        self._server.call_soon(lambda: self._deliver([self._state.posted[id]]))

    def list_sent(self, chat: str | None = None) -> list[SentMessage]:
        """List the bot's messages in the order they were sent."""
        with self._state.lock:
            messages = [*self._state.sent.values()]
        return [message for message in messages if chat is None or message.chat == chat]

    @property
    def unacknowledged(self) -> list[str]:
        """The ids of unacknowledged messages."""
        with self._state.lock:
            return [*self._state.unacknowledged]

    @property
    def listeners(self) -> int:
        """The number of listening connections."""
        return len(self._listeners)

    @property
    def duplicate_count(self) -> int:
        """The number of sends recognized as duplicates by their nonce."""
        return self._state.duplicate_count

    def disconnect(self) -> None:
        """Drop every connection."""
        self._server.call_soon(self._abort_connections)

    def reject_bots(self) -> None:
        """Let no bot in any more, for good."""
        self._is_revoked = True
        self.disconnect()

    # -- the bot's side

    def _abort_connections(self) -> None:
        for writer in [*self._connections]:
            writer.transport.abort()

    async def _redeliver_forever(self) -> None:
        while True:
            await asyncio.sleep(self._redeliver_seconds)
            with self._state.lock:
                messages = [*self._state.unacknowledged.values()]
            self._deliver(messages)

    def _deliver(self, messages: Sequence[dict[str, Any]]) -> None:
        for message in messages:
            for writer in self._listeners:
                write_line(writer, {"message": message})

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections.add(writer)
        try:
            while line := await reader.readline():
                await self._respond(writer, json.loads(line))
        except (ConnectionError, ValueError):
            writer.transport.abort()
        finally:
            self._connections.discard(writer)
            self._listeners.discard(writer)
            writer.close()

    async def _respond(self, writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
        faults, chance = self.faults, self._random.random
        if faults.delay:
            await asyncio.sleep(chance() * faults.delay)
        if chance() < faults.lost_before:
            raise ConnectionResetError
        response: dict[str, Any] = {"ref": request.get("ref")}
        try:
            response |= self._handle_request(writer, request, refused=chance() < faults.refused)
        except PlatformError as error:
            response |= {
                "error": str(error),
                "permanent": error.permanent,
                "after": error.retry_after,
            }
        if chance() < faults.lost_after:
            raise ConnectionResetError
        if response["ref"] is not None:
            write_line(writer, response)
            await writer.drain()

    def _handle_request(
        self, writer: asyncio.StreamWriter, request: dict[str, Any], *, refused: bool
    ) -> dict[str, Any]:
        op = request["op"]
        if op in ("send", "edit") and (refused or self.refuse):
            raise self.refuse or PlatformError("temporarily refused")
        if self._is_revoked and op in ("listen", "send", "edit"):
            raise PlatformError("the bot is no longer allowed in", permanent=True)
        if op == "send" and len(request.get("content", "")) * 3 // 4 > self.max_upload:
            raise PlatformError(f"the file is larger than {self.max_upload} bytes", permanent=True)
        if op == "listen":
            self._listeners.add(writer)
            with self._state.lock:
                messages = [*self._state.unacknowledged.values()]
            for message in messages:
                write_line(writer, {"message": message})
            return {}
        if op == "progress":
            self.progress.append((request["id"], request["progress"]))
            return {}
        if op == "ack":
            self._state.acknowledge(request["id"])
            return {}
        if op == "say":
            return {
                "id": self.post_message(
                    from_json(request["source"]), request["text"], request.get("id")
                )
            }
        if op == "seen":
            sent = self.list_sent(request.get("chat"))
            return {"seen": [[one.id, one.chat, one.text] for one in sent]}
        return {"id": self._state.send(request) if op == "send" else self._state.edit(request)}


def write_line(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    """Write a value as a JSON line, unless the connection is closing."""
    if not writer.is_closing():
        writer.write(json.dumps(value).encode() + b"\n")
