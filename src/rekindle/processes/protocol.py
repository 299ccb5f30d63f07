"""What client and supervisor say to each other over the Unix socket.

Frames: four bytes of length, then MessagePack. The client says hello with its version, then asks
(number, method, arguments); the answers to one number are parts of a stream, and at last a result or
an error. To ask for `cancel` under a number takes the question back.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from rekindle import errors
from rekindle.errors import ProcessError, RekindleError, SupervisorGone

PROTOCOL = 2
_LENGTH = struct.Struct(">I")
_LARGEST = 64 * 1024 * 1024
_LONGEST_PATH = 100  # what fits into a socket's address everywhere

_encoder = msgspec.msgpack.Encoder()


class Hello(NamedTuple):
    """Who speaks. A supervisor that is older than its client makes room for another."""

    protocol: int
    version: str
    pid: int

    @property
    def age(self) -> tuple[int, tuple[int, ...]]:
        return self.protocol, tuple(int(part) for part in self.version.split(".") if part.isdigit())


class Ask(NamedTuple):
    number: int
    method: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    number: int
    kind: Literal["part", "result", "error"]
    value: Any = None


def frame(value: Any) -> bytes:
    data = _encoder.encode(value)
    return _LENGTH.pack(len(data)) + data


async def read(reader: asyncio.StreamReader) -> bytes:
    """The next frame. ConnectionError at the end, or if this is not what it should be."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _LARGEST:
            raise ConnectionError("the other side does not speak our language")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the connection has ended") from error


def failure(error: RekindleError) -> tuple[str, str]:
    return type(error).__name__, str(error)


def raised(value: Any) -> RekindleError:
    """The error that the other side had."""
    name, said = value
    kind = getattr(errors, str(name), ProcessError)
    if not (isinstance(kind, type) and issubclass(kind, RekindleError)):
        kind = ProcessError
    return kind(str(said))


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process id and user of the other side, as the kernel knows them."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return tuple(  # pyright: ignore[reportReturnType]
        int.from_bytes(credentials[at : at + 4], sys.byteorder) for at in (0, 4)
    )


def sockets(folder: Path) -> Path:
    """The folder of the sockets for a folder of processes: in it, or where names are shorter."""
    folder = folder.absolute()
    if len(os.fsencode(folder / "supervisor.sock")) <= _LONGEST_PATH:
        return folder
    name = blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"rekindle-{os.getuid()}" / name


def prepare(folder: Path) -> None:
    """Make the folder of the sockets, and see that it is nobody else's."""
    for path in (
        (folder.parent, folder) if folder.parent.name.startswith("rekindle-") else (folder,)
    ):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(path)
        if found.st_uid != os.getuid():
            raise SupervisorGone(f"{path} belongs to another user; remove it")
