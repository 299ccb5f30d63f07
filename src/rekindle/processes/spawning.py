"""A program's line to its spawner (spawner.py), which is started when it is first needed."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence

from ..errors import NotStarted
from . import spawner as program

_LENGTH = struct.Struct(">I")
_ANSWER = struct.Struct(">IQ")


class Spawning:
    """Starts processes through a small program that forks for this one."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._asked: deque[asyncio.Future[tuple[int, int]]] = deque()
        self._answer = b""

    async def spawn(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], files: Sequence[int]
    ) -> tuple[int, int]:
        """Start a program in a session of its own, as a subreaper; its id, and when it started."""
        words = [str(len(argv)), cwd, *argv, *(f"{name}={value}" for name, value in env.items())]
        data = b"\0".join(os.fsencode(word) for word in words)
        line = self._line or self._open()
        answer: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            line.sendmsg([_LENGTH.pack(len(data))], rights)
            line.sendall(data)
        except OSError as error:
            self._lost()
            raise NotStarted(f"{argv[0]}: the spawner died; try again") from error
        pid, started = await answer
        if not pid:
            raise NotStarted(f"{argv[0]}: the system allows no further process now")
        return pid, started

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
            )
        finally:
            os.close(file)
            theirs.close()
        self._line = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)
        return ours

    def _hear(self) -> None:
        assert self._line is not None
        try:
            said = self._line.recv(4096)
        except OSError:
            said = b""
        if not said:
            self._lost()
            return
        self._answer += said
        while len(self._answer) >= _ANSWER.size:
            pid, started = _ANSWER.unpack(self._answer[: _ANSWER.size])
            self._answer = self._answer[_ANSWER.size :]
            future = self._asked.popleft()
            if not future.done():
                future.set_result((pid, started))

    def _lost(self) -> None:
        """It died; the next start begins another one."""
        asked, self._asked = self._asked, deque()
        self.close()
        for future in asked:
            if not future.done():
                future.set_exception(NotStarted("the spawner died; try again"))

    def close(self) -> None:
        """Let it go; what it started goes on."""
        if self._line is not None:
            asyncio.get_running_loop().remove_reader(self._line)
            self._line.close()
            self._line = None
            self._answer = b""
        if self._program is not None:
            self._program.wait()
            self._program = None
