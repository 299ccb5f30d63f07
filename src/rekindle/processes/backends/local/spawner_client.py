"""A program's line to its spawner (spawner.py), which is started when it is first needed."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rekindle.errors import NotStarted
from rekindle.processes.backends.base import MARK

from . import spawner as program

_LENGTH = struct.Struct(">I")
_DIED = "the spawner died; try again"


class Command(NamedTuple):
    """What is to be started; `files` are its input and output, where there is no terminal."""

    path: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    exit: str
    files: Sequence[int] = ()
    terminal: str = ""
    group: str = ""
    limit: str = ""


class Spawned(NamedTuple):
    """The process ids of the shim and of the program below it."""

    shim: int
    program: int


class Spawning:
    """Starts processes through a small program that forks for this one."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None

    async def spawn(self, command: Command) -> Spawned:
        """Start a program in a session of its own, below a shim. It is executed when this returns."""
        words = [str(len(command.argv)), command.cwd, command.path, command.terminal]
        words += [command.group, command.exit, command.limit, *command.argv]
        words += [f"{name}={value}" for name, value in command.env.items()]
        question = os.fsencode("\0".join(words))
        died: ConnectionError | None = None
        for _ in range(2):
            line = self._line or self._open()
            try:
                return await _asked(line, question, command.files)
            except ConnectionError as error:  # and nothing was started: ask another one
                died = error
                if self._line is line:
                    self.close()
        raise NotStarted(f"{command.argv[0]}: {_DIED}") from died

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        file = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 10)
        try:
            self._program = subprocess.Popen(
                [sys.executable, "-I", "-S", program.__file__, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(file,),
                start_new_session=True,
                cwd="/",
                # Its shims are no part of a process that this program may itself belong to.
                env={name: value for name, value in os.environ.items() if name != MARK},
            )
        finally:
            os.close(file)
            theirs.close()
        self._line = ours
        return ours

    def close(self) -> None:
        """Let it go; what it started goes on."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._program is not None:
            self._program.wait()
            self._program = None


async def _asked(line: socket.socket, question: bytes, files: Sequence[int]) -> Spawned:
    """What the spawner answers; ConnectionError if it dies before it has started anything."""
    answer, theirs = os.pipe()
    try:
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (theirs, *files)))]
            line.sendmsg([_LENGTH.pack(len(question))], rights)
            line.sendall(question)
        finally:
            os.close(theirs)
        return _spawned(await _all_of(answer))
    finally:
        os.close(answer)


async def _all_of(file: int) -> bytes:
    """What is written into a pipe up to its end."""
    loop, said = asyncio.get_running_loop(), bytearray()
    over: asyncio.Future[None] = loop.create_future()

    def hear() -> None:
        piece = os.read(file, 256)
        said.extend(piece)
        if not piece and not over.done():
            over.set_result(None)

    loop.add_reader(file, hear)
    try:
        await over
    finally:
        loop.remove_reader(file)
    return bytes(said)


def _spawned(said: bytes) -> Spawned:
    ids, wrong = said[: program.IDS.size], said[program.IDS.size :]
    if len(ids) < program.IDS.size:
        raise ConnectionError(errno.EPIPE, _DIED)
    if wrong:
        (number,) = program.ERROR.unpack(wrong)
        raise OSError(number, os.strerror(number))
    return Spawned(*program.IDS.unpack(ids))
