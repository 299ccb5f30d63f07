"""A client's connection to the supervisor, which is started when there is none."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.errors import SupervisorGone
from rekindle.processes.backends.base import MARK
from rekindle.processes.supervisor.supervisor import COMMAND, READY, SOCKET, TAKEN

from . import protocol
from .types import Limits

_PATIENCE = 30.0  # seconds for a supervisor to answer


class Lost(Exception):
    """The connection ended before the answer came."""


class Line:
    """One connection, shared by all questions of a client."""

    def __init__(self, folder: Path, limits: Limits, linger: float | None) -> None:
        self._folder = folder
        self._path = protocol.sockets(folder) / SOCKET
        words = [str(folder), msgspec.json.encode(limits).decode()]
        self._words = words if linger is None else [*words, str(linger)]
        self._writer: asyncio.StreamWriter | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Queue[protocol.Answer | None]] = {}
        self._number = 0
        self._opening = asyncio.Lock()

    @property
    def up(self) -> bool:
        """Whether the supervisor was there when the loop last heard of it."""
        return self._writer is not None

    async def connected(self) -> bool:
        """Whether a supervisor answers; none is started."""
        if self._writer is not None:
            return True
        async with self._opening:
            return self._writer is not None or await self._connect()

    async def ask(self, method: str, type: Any, arguments: dict[str, Any]) -> Any:
        """The answer; Lost if the supervisor died before it came."""
        asked = self._asked(method, arguments)
        try:
            async for value in asked:
                if isinstance(value, _Result):
                    return msgspec.convert(value.value, type)
            raise Lost
        finally:
            await asked.aclose()

    async def stream(
        self, method: str, type: Any, arguments: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        asked = self._asked(method, arguments)
        try:
            async for value in asked:
                if isinstance(value, _Result):
                    return
                yield msgspec.convert(value, type)
        finally:
            await asked.aclose()

    async def _asked(self, method: str, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """The parts of an answer, then its result."""
        writer = await self._ready()
        self._number += 1
        number, queue = self._number, asyncio.Queue[protocol.Answer | None]()
        self._answers[number] = queue
        over = False
        try:
            try:
                await _send(writer, protocol.Ask(number, method, arguments))
            except Lost:
                # Not left to the task that hears: it may not have had its turn yet.
                self._writer = None if self._writer is writer else self._writer
                raise
            while True:
                answer = await queue.get()
                over = answer is None or answer.kind != "part"
                if answer is None:
                    raise Lost
                if answer.kind == "error":
                    raise protocol.raised(answer.value)
                yield answer.value if answer.kind == "part" else _Result(answer.value)
                if over:
                    return
        finally:
            self._answers.pop(number, None)
            if not over and self._writer is writer:
                with suppress(OSError):
                    writer.write(protocol.frame(protocol.Ask(number, "cancel", {})))

    async def _ready(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None:
                await self._open()
            assert self._writer is not None
            return self._writer

    async def _open(self) -> None:
        why = "it does not answer"
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await self._connect():
                    said = await self._start()
                    if said not in (READY, TAKEN):
                        raise SupervisorGone(f"the supervisor cannot be started: {said}")
                    if said == TAKEN:  # another one begins, or is about to go
                        await asyncio.sleep(0.02)
        except TimeoutError:
            raise SupervisorGone(f"the supervisor of {self._folder}: {why}") from None

    async def _connect(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            return False
        try:
            connection: socket.socket = writer.get_extra_info("socket")
            if protocol.peer(connection)[1] != os.getuid():
                raise SupervisorGone(f"{self._path} belongs to another user")
            async with asyncio.timeout(_PATIENCE):
                hello = msgspec.msgpack.decode(await protocol.read(reader), type=protocol.Hello)
            await self._compare(hello, reader, writer)
        except (ConnectionError, TimeoutError, msgspec.MsgspecError, _Older):
            await _gone(writer)
            return False
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._hearing = asyncio.create_task(self._hear(reader, writer))
        return True

    async def _compare(
        self, hello: protocol.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Ask a supervisor that is older than this client to make room, and wait until it has."""
        ours = protocol.Hello(protocol.PROTOCOL, __version__, os.getpid())
        if hello.protocol > ours.protocol:
            raise SupervisorGone(
                f"a newer Rekindle ({hello.version}) keeps the processes; this one is {__version__}"
            )
        if hello.age < ours.age:
            await _send(writer, protocol.Ask(0, "step_down", {}))
            with suppress(ConnectionError):
                while True:
                    await protocol.read(reader)
            raise _Older

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = msgspec.msgpack.Decoder(protocol.Answer)
        try:
            while True:
                answer = decoder.decode(await protocol.read(reader))
                if queue := self._answers.get(answer.number):
                    queue.put_nowait(answer)
        except (ConnectionError, msgspec.MsgspecError):
            pass
        finally:
            if self._writer is writer:
                self._writer = None
            for queue in self._answers.values():
                queue.put_nowait(None)
            await _gone(writer)

    async def _start(self) -> str:
        """Start a supervisor; the word it says."""
        env = {name: value for name, value in os.environ.items() if name != MARK}
        command = [*COMMAND, *self._words]
        return await asyncio.to_thread(_started, command, env)

    async def close(self) -> None:
        if self._hearing:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)


class _Result:
    def __init__(self, value: Any) -> None:
        self.value = value


class _Older(Exception):
    """The supervisor is older than this client, and goes."""


def _started(command: list[str], env: dict[str, str]) -> str:
    """Run it until it says a word. What it leaves running is nobody's child."""
    program = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert program.stdout is not None
    with program.stdout as said:
        ready, _, _ = select.select([said], [], [], _PATIENCE)
        word = os.read(said.fileno(), 4096) if ready else b""
    try:
        program.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    return word.decode("utf-8", "replace").strip() or "it ended without a word"


async def _gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, ask: protocol.Ask) -> None:
    try:
        writer.write(protocol.frame(ask))
        await writer.drain()
    except ConnectionError as error:
        raise Lost from error
