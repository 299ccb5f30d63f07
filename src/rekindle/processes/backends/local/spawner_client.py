"""A connection to the spawner (spawner.py), which is started on first use."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rekindle.errors import ProcessStartFailed
from rekindle.processes.backends.base import PROCESS_ID_VARIABLE

from . import spawner as program
from .helper_program import start_helper

_LENGTH = struct.Struct(">I")
_DIED = "the spawner died; try again"


class SpawnRequest(NamedTuple):
    """A program to start; `files` are its input and output descriptors, unless it has a terminal."""

    path: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    exit: str
    files: Sequence[int] = ()
    terminal: str = ""
    group: str = ""
    limit: str = ""


class SpawnedProcess(NamedTuple):
    """The process ids of the shim and of the program below it."""

    shim: int
    program: int


class SpawnerClient:
    """Starts processes through a small program that forks on behalf of this one."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None

    async def spawn(self, request: SpawnRequest) -> SpawnedProcess:
        """Start a program in its own OS session below a shim, and return once it is executing."""
        words = [str(len(request.argv)), request.cwd, request.path, request.terminal]
        words += [request.group, request.exit, request.limit, *request.argv]
        words += [f"{name}={value}" for name, value in request.env.items()]
        encoded = os.fsencode("\0".join(words))
        cause: ConnectionError | None = None
        for _ in range(2):
            connection = self._connection or self._open()
            try:
                return await _send_request(connection, encoded, request.files)
            except ConnectionError as error:  # nothing was started: retry with a new spawner
                cause = error
                if self._connection is connection:
                    self.close()
        raise ProcessStartFailed(f"{request.argv[0]}: {_DIED}") from cause

    def _open(self) -> socket.socket:
        # Its shims must not count as children of a process that this program runs in.
        env = {name: value for name, value in os.environ.items() if name != PROCESS_ID_VARIABLE}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._program = start_helper(program.__file__, theirs, env)
        self._connection = ours
        return ours

    def close(self) -> None:
        """Disconnect from the spawner; the processes it started keep running."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._program is not None:
            self._program.wait()
            self._program = None


async def _send_request(
    connection: socket.socket, encoded: bytes, fds: Sequence[int]
) -> SpawnedProcess:
    """Send a request and return the response.

    Raise ConnectionError if the spawner dies before it has started anything.
    """
    response, theirs = os.pipe()
    try:
        try:
            socket.send_fds(connection, [_LENGTH.pack(len(encoded))], [theirs, *fds])
            connection.sendall(encoded)
        finally:
            os.close(theirs)
        return _parse_response(await _read_until_closed(response))
    finally:
        os.close(response)


async def _read_until_closed(fd: int) -> bytes:
    """Read a pipe until it is closed."""
    loop, data = asyncio.get_running_loop(), bytearray()
    closed: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        piece = os.read(fd, 256)
        data.extend(piece)
        if not piece and not closed.done():
            closed.set_result(None)

    loop.add_reader(fd, on_readable)
    try:
        await closed
    finally:
        loop.remove_reader(fd)
    return bytes(data)


def _parse_response(response: bytes) -> SpawnedProcess:
    ids, error = response[: program.IDS.size], response[program.IDS.size :]
    if len(ids) < program.IDS.size:
        raise ConnectionError(errno.EPIPE, _DIED)
    if error:
        (number,) = program.ERROR.unpack(error)
        raise OSError(number, os.strerror(number))
    return SpawnedProcess(*program.IDS.unpack(ids))
