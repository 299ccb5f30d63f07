"""The protocol between client and supervisor over the Unix socket.

A frame is four bytes of length, then MessagePack. The supervisor sends a hello with its version. A
client sends requests (number, method, arguments); the responses to one number are the parts of a
stream, followed by a result or an error. The method `cancel` cancels the request with that number.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from rekindle import errors
from rekindle.errors import ProcessError, RekindleError, SupervisorUnavailable

PROTOCOL = 4
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_MAX_FRAME = 64 * 1024 * 1024
_MAX_SOCKET_PATH = 100  # bytes that fit into a socket address on every system


def _to_builtin(value: object) -> object:
    """Convert a collection that msgspec cannot encode, such as `os.environ`."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, Sequence):
        return list(cast("Sequence[object]", value))
    raise TypeError(f"cannot be sent: {value!r:.80}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_builtin)


class Hello(NamedTuple):
    """The version of one side. A supervisor older than its client steps down."""

    protocol: int
    version: str
    pid: int

    @property
    def age(self) -> tuple[int, tuple[int, ...]]:
        return self.protocol, tuple(int(part) for part in self.version.split(".") if part.isdigit())


class RpcRequest(NamedTuple):
    """A request from a client."""

    number: int
    method: str
    arguments: Any  # an operation when encoded, its fields by name when decoded


class RpcResponse(NamedTuple):
    """A part of a response, its result, or an error."""

    number: int
    kind: Literal["part", "result", "error"]
    value: Any = None


def encode_frame(value: Any) -> bytes:
    """Encode a value as a frame."""
    data = _encoder.encode(value)
    return _LENGTH.pack(len(data)) + data


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read the next frame; raise ConnectionError at the end of the stream or for an invalid frame."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _MAX_FRAME:
            raise ConnectionError("invalid frame: too large")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("connection closed") from error


def encode_error(error: RekindleError) -> tuple[str, str]:
    return type(error).__name__, str(error)


def decode_error(value: Any) -> RekindleError:
    """Rebuild the error that the supervisor raised."""
    name, message = value
    kind = getattr(errors, str(name), ProcessError)
    if not (isinstance(kind, type) and issubclass(kind, RekindleError)):
        kind = ProcessError
    return kind(str(message))


def get_peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and user id of the peer, as reported by the kernel."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid


def get_socket_folder(folder: Path) -> Path:
    """Return the socket folder for a process folder: itself, or a shorter path if necessary."""
    folder = folder.absolute()
    if len(os.fsencode(folder / "supervisor.sock")) <= _MAX_SOCKET_PATH:
        return folder
    name = blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"rekindle-{os.getuid()}" / name


def prepare_socket_folder(folder: Path) -> None:
    """Create the socket folder; raise SupervisorUnavailable if it belongs to another user."""
    for path in (
        (folder.parent, folder) if folder.parent.name.startswith("rekindle-") else (folder,)
    ):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(path)
        if status.st_uid != os.getuid():
            raise SupervisorUnavailable(f"{path} belongs to another user; remove it")
