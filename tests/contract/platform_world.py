"""The other side of a platform: what people do on its network, and what they see there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rekindle.errors import PlatformError
from rekindle.platforms import Feature, Platform
from rekindle.testing import ChatServer, MemoryPlatform
from rekindle.types import Source

ADA = Source("memory", "ada", user_id="1", user_name="Ada")


class Upload(NamedTuple):
    """A file that a person sends."""

    name: str
    media_type: str
    data: bytes
    caption: str = ""


class World(Protocol):
    """One direct chat with Ada, and a group with Ada and Bob. Who says something gets its id."""

    chat: Source
    lacks: frozenset[Feature]  # what the network does not have, whatever the platform says
    limits_rate: bool  # it refuses who writes too much, and says for how long

    def connect(self) -> Platform: ...
    def say(self, text: str) -> str: ...
    def seen(self) -> list[str]: ...
    def disconnect(self) -> None: ...
    def refuse(self, error: PlatformError | None) -> None: ...
    def revoke(self) -> None: ...

    # Where the network has no such thing, a person can do nothing of the kind.
    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str: ...
    def say_as_bot(self, text: str) -> None: ...
    def reply(self, text: str, to: str) -> None: ...
    def edit(self, id: str, text: str) -> None: ...
    def delete(self, id: str) -> None: ...
    def send_file(self, file: Upload) -> None: ...
    def repeat(self, id: str) -> None: ...
    def say_swapped(self, first: str, second: str) -> None: ...
    def limit_uploads(self, max_bytes: int) -> None: ...
    def seen_files(self) -> list[bytes]: ...
    def seen_in_group(self, *, thread: bool = False) -> list[str]: ...


class Memory:
    """The in-memory platform and its server."""

    lacks: frozenset[Feature] = frozenset()
    limits_rate = True

    def __init__(self, server: ChatServer) -> None:
        self.chat, self._server = ADA, server
        self._group = Source("memory", "ops", "Ops", "group", "2", "Bob")
        self._texts: dict[str, str] = {}

    def connect(self) -> Platform:
        return MemoryPlatform(self._server.address, retry_seconds=0.02)

    def say(self, text: str) -> str:
        id = self._server.post_message(ADA, text)
        self._texts[id] = text
        return id

    def seen(self) -> list[str]:
        return [one.text for one in self._server.list_sent("ada") if one.file is None]

    def disconnect(self) -> None:
        self._server.disconnect()

    def refuse(self, error: PlatformError | None) -> None:
        self._server.refuse = error

    def revoke(self) -> None:
        self._server.reject_bots()

    def say_in_group(self, text: str, *, mentions: bool = False, thread: bool = False) -> str:
        source = self._group._replace(thread_id="t1" if thread else None)
        return self._server.post_message(source, text, is_addressed=mentions)

    def say_as_bot(self, text: str) -> None:
        """The test network gives nobody the messages of bots."""

    def reply(self, text: str, to: str) -> None:
        self._server.post_message(ADA, text, quote=self._texts[to])

    def edit(self, id: str, text: str) -> None:
        self._server.post_message(ADA, text, id=id, change="edited")

    def delete(self, id: str) -> None:
        self._server.post_message(ADA, "", id=id, change="deleted")

    def send_file(self, file: Upload) -> None:
        self._server.post_message(ADA, file.caption, files={file.name: file.data})

    def repeat(self, id: str) -> None:
        self._server.redeliver(id)

    def say_swapped(self, first: str, second: str) -> None:
        self._server.post_message(ADA, second, id="u1002")
        self._server.post_message(ADA, first, id="u1001")

    def limit_uploads(self, max_bytes: int) -> None:
        self._server.max_upload = max_bytes

    def seen_files(self) -> list[bytes]:
        return [one.content for one in self._server.list_sent("ada") if one.file is not None]

    def seen_in_group(self, *, thread: bool = False) -> list[str]:
        place = "t1" if thread else None
        return [one.text for one in self._server.list_sent("ops") if one.thread == place]


@contextmanager
def memory() -> Iterator[World]:
    with ChatServer(redeliver_seconds=0.1) as server:
        yield Memory(server)
