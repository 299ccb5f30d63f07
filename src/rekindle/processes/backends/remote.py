"""A backend reached through a shell: a container, an SSH host, a third-party sandbox.

The process runs there independently, in its own OS session: it reads its input from a named pipe
and writes its output and exit code to files. It therefore outlives the connection and this program,
and is found again by its id. The work is done by POSIX shell scripts in `remote_scripts/`; a *transport*
runs them there and returns their output.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.resources import files
from math import ceil
from typing import Protocol

from rekindle.errors import BackendUnreachable, InputClosed, ProcessStartFailed

from .base import (
    GRACE_SECONDS,
    Exited,
    OutputSink,
    ProcessRef,
    ProcessSpec,
    RunningProcess,
    TerminalSize,
    Vanished,
)

logger = logging.getLogger(__name__)

WRITE_TIMEOUT = "5"  # seconds to wait for a process that does not read its input
START_TIMEOUT = 30.0  # seconds for a process to start: the remote machine may be busy
PROBE_ATTEMPTS = "25"  # probes per script run for a starting process, fractions of a second apart
PIECE_SIZE = 4096  # bytes that a pipe accepts atomically
FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 0.2, 15.0  # seconds before reconnecting


class ScriptTransport(Protocol):
    """Runs scripts on a remote system. Raises BackendUnreachable when it cannot."""

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Run a script with `sh -c` and return its output."""
        ...

    def stream(
        self, script: str, *arguments: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run a script and stream its output; it is stopped when the context exits."""
        ...

    async def close(self) -> None: ...


@cache
def load_script(name: str) -> str:
    """Load a remote script without its comments, because it is sent with every call."""
    text = (
        files("rekindle.processes.backends")
        .joinpath("remote_scripts", f"{name}.sh")
        .read_text(encoding="utf-8")
    )
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


class RemoteBackend:
    """A backend that runs its scripts through a transport."""

    def __init__(self, name: str, transport: ScriptTransport) -> None:
        self._name = name
        self._transport = transport

    @property
    def name(self) -> str:
        return self._name

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        size = ("", "") if spec.pty is None else map(str, spec.pty)
        env = {**spec.env, "REKINDLE_RUNNER": load_script("run")}
        arguments = (spec.id, spec.cwd, *size, shlex.join(spec.argv), *spec.argv)
        answer = await self._transport.run(load_script("start"), *arguments, env=env)
        if answer.startswith("refused "):
            raise ProcessStartFailed(
                f"{spec.argv[0]} on {self.name}: {answer.removeprefix('refused ').strip()}"
            )
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while (state := await self._probe(spec.id, PROBE_ATTEMPTS)) == "starting":
                    pass
        except TimeoutError:
            await self._transport.run(load_script("kill"), spec.id, "0")
            await self._transport.run(load_script("forget"), spec.id)
            reason = f"not started within {START_TIMEOUT:g} s"
            raise ProcessStartFailed(f"{spec.argv[0]} on {self.name}: {reason}") from None
        word, _, rest = state.partition(" ")
        if word in ("gone", "lost"):
            await self._transport.run(load_script("forget"), spec.id)
            raise ProcessStartFailed(
                f"{spec.argv[0]} on {self.name}: {rest or 'it has already exited'}"
            )
        pid = int(rest.split()[0]) if word == "running" else None
        return RemoteProcess(self._transport, spec.id, pid)

    async def find(
        self, spec: ProcessSpec, ref: ProcessRef, seen: int
    ) -> RunningProcess | Exited | Vanished:
        state, _, rest = (await self._probe(spec.id)).partition(" ")
        if state == "running":
            return RemoteProcess(self._transport, spec.id, int(rest.split()[0]))
        if state == "ended":  # its output is still there: follow it to the end
            return RemoteProcess(self._transport, spec.id, None)
        if state == "starting":
            return Vanished(f"the supervisor died while starting it on {self.name}")
        return Vanished(rest or f"{self.name} has no record of it")

    async def close(self) -> None:
        await self._transport.close()

    async def _probe(self, id: str, *tries: str) -> str:
        return (await self._transport.run(load_script("probe"), id, *tries)).strip()


class RemoteProcess:
    """A process behind a transport."""

    def __init__(self, transport: ScriptTransport, id: str, pid: int | None) -> None:
        self._transport = transport
        self._id = id
        self._pid = pid
        self._code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    @property
    def ref(self) -> ProcessRef:
        return {"pid": self._pid}

    @property
    def pid(self) -> int | None:
        return self._pid

    async def copy_output(self, output: OutputSink) -> None:
        """Follow the output to its end, reconnecting whenever the connection is lost."""
        pause = FIRST_RETRY_DELAY
        while True:
            before = output.total
            try:
                last = await self._follow(output)
            except BackendUnreachable as error:
                logger.info("process %s: %s; reconnecting", self._id, error)
                last = b""
            if last == b"end":
                break
            if last == b"again":
                continue
            pause = FIRST_RETRY_DELAY if output.total > before else min(pause * 2, MAX_RETRY_DELAY)
            await asyncio.sleep(pause)
        if not self._code.done():
            self._code.set_result(None)

    async def wait(self) -> int | None:
        return await asyncio.shield(self._code)

    async def write(self, data: bytes) -> int:
        accepted = 0
        for start in range(0, len(data), PIECE_SIZE):
            piece = data[start : start + PIECE_SIZE]
            text = "".join(f"\\{byte:03o}" for byte in piece)
            # The remote side measures the timeout: a slow network says nothing about the process.
            answer = (
                await self._transport.run(load_script("write"), self._id, WRITE_TIMEOUT, text)
            ).strip()
            if answer == "closed":
                raise InputClosed(f"stdin of process {self._id} is closed")
            if answer != "taken":
                return accepted
            accepted += len(piece)
        return accepted

    async def close_stdin(self) -> None:
        await self._transport.run(load_script("close"), self._id)

    async def resize(self, size: TerminalSize) -> None:
        await self._transport.run(load_script("resize"), self._id, *map(str, size))

    async def signal(self, number: int) -> None:
        await self._transport.run(load_script("signal"), self._id, str(number))

    async def kill(self, grace: float = GRACE_SECONDS) -> None:
        answer = await self._transport.run(load_script("kill"), self._id, str(ceil(grace)))
        if answer.split() != ["left", "0"]:
            logger.warning("process %s: unexpected answer to kill: %s", self._id, answer.strip())

    async def clean_up(self) -> None:
        await self._transport.run(load_script("forget"), self._id)

    def detach(self) -> None:
        """Do nothing: no local resources are held."""

    async def _follow(self, output: OutputSink) -> bytes:
        """Copy output from one connection and return its final word, if there was one."""
        async with self._transport.stream(
            load_script("follow"), self._id, str(output.total)
        ) as pieces:
            reader = _FollowReader(pieces)
            while line := await reader.read_line():
                word, *rest = line.split()
                if word == b"output":
                    await reader.copy_bytes(int(rest[1]), output)
                elif word == b"exit" and not self._code.done():
                    self._code.set_result(int(rest[0]))
                elif word in (b"end", b"again"):
                    return word
        return b""


class _FollowReader:
    """Reads lines and counted bytes from a stream of arbitrary pieces."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    async def read_line(self) -> bytes:
        """Return the next line, or b"" at the end."""
        while (end := self._rest.find(b"\n")) < 0:
            if not await self._read_more():
                return b""
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

    async def copy_bytes(self, count: int, output: OutputSink) -> None:
        while count:
            if not self._rest and not await self._read_more():
                return
            output.append(bytes(self._rest[:count]))
            taken = min(count, len(self._rest))
            del self._rest[:taken]
            count -= taken

    async def _read_more(self) -> bool:
        piece = await anext(self._pieces, b"")
        self._rest += piece
        return bool(piece)
