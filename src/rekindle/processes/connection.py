"""A client's connection to the supervisor, which is started on demand."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rekindle import __version__
from rekindle.errors import SupervisorUnavailable
from rekindle.processes.backends.base import PROCESS_ID_VARIABLE
from rekindle.processes.supervisor.supervisor import ALREADY_RUNNING, COMMAND, READY, SOCKET

from . import protocol
from .operations import Operation, get_operation_name, get_response_type
from .types import ProcessLimits

R = TypeVar("R")

_TIMEOUT = 30.0  # seconds for a supervisor to respond


class ConnectionLost(Exception):
    """The connection was lost before the response arrived."""


class SupervisorConnection:
    """One connection, shared by all calls of a client."""

    def __init__(self, folder: Path, limits: ProcessLimits, linger: float | None) -> None:
        self._folder = folder
        self._path = protocol.get_socket_folder(folder) / SOCKET
        arguments = [str(folder), msgspec.json.encode(limits).decode()]
        self._arguments = arguments if linger is None else [*arguments, str(linger)]
        self._writer: asyncio.StreamWriter | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._responses: dict[int, asyncio.Queue[protocol.RpcResponse | None]] = {}
        self._number = 0
        self._connect_lock = asyncio.Lock()

    @property
    def is_connected(self) -> bool:
        """Whether the supervisor was connected when the event loop last checked."""
        return self._writer is not None

    async def try_connect(self) -> bool:
        """Connect if a supervisor is running, without starting one; return whether it is connected."""
        if self._writer is not None:
            return True
        async with self._connect_lock:
            return self._writer is not None or await self._connect()

    async def call(self, request: Operation[R]) -> R:
        """Send a request and return its result; raise ConnectionLost if the supervisor dies first."""
        async with aclosing(self._iter_response(request)) as responses:
            async for response in responses:
                if response.kind == "result":
                    return msgspec.convert(response.value, get_response_type(type(request)))
        raise ConnectionLost

    async def stream(self, request: Operation[R]) -> AsyncGenerator[R, None]:
        """Send a request and yield the parts of its response."""
        async with aclosing(self._iter_response(request)) as responses:
            async for response in responses:
                if response.kind == "part":
                    yield msgspec.convert(response.value, get_response_type(type(request)))

    async def _iter_response(
        self, request: Operation[Any]
    ) -> AsyncGenerator[protocol.RpcResponse, None]:
        """Yield the parts of a response, then its result."""
        self._number += 1
        number, queue = self._number, asyncio.Queue[protocol.RpcResponse | None]()
        # Before a supervisor is started: a request that cannot be expressed needs none.
        frame = protocol.encode_frame(
            protocol.RpcRequest(number, get_operation_name(request), request)
        )
        writer = await self._ensure_connected()
        self._responses[number] = queue
        is_complete = False
        try:
            try:
                await _send_frame(writer, frame)
            except ConnectionLost:
                # Do not leave this to the reader task, which may not have run yet.
                self._writer = None if self._writer is writer else self._writer
                raise
            while True:
                response = await queue.get()
                is_complete = response is None or response.kind != "part"
                if response is None:
                    raise ConnectionLost
                if response.kind == "error":
                    raise protocol.decode_error(response.value)
                yield response
                if is_complete:
                    return
        finally:
            self._responses.pop(number, None)
            if not is_complete and self._writer is writer:
                with suppress(OSError):
                    writer.write(protocol.encode_frame(protocol.RpcRequest(number, "cancel", {})))

    async def _ensure_connected(self) -> asyncio.StreamWriter:
        async with self._connect_lock:
            if self._writer is None:
                await self._connect_or_start()
            assert self._writer is not None
            return self._writer

    async def _connect_or_start(self) -> None:
        reason = "no response"
        try:
            async with asyncio.timeout(_TIMEOUT):
                while not await self._connect():
                    status = await self._start_supervisor()
                    if status not in (READY, ALREADY_RUNNING):
                        raise SupervisorUnavailable(f"cannot start the supervisor: {status}")
                    if status == ALREADY_RUNNING:  # another one is starting or stopping
                        await asyncio.sleep(0.02)
        except TimeoutError:
            raise SupervisorUnavailable(f"the supervisor of {self._folder}: {reason}") from None

    async def _connect(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            return False
        try:
            connection: socket.socket = writer.get_extra_info("socket")
            if protocol.get_peer_credentials(connection)[1] != os.getuid():
                raise SupervisorUnavailable(f"{self._path} belongs to another user")
            async with asyncio.timeout(_TIMEOUT):
                hello = msgspec.msgpack.decode(
                    await protocol.read_frame(reader), type=protocol.Hello
                )
            await self._check_version(hello, reader, writer)
        except (ConnectionError, TimeoutError, msgspec.MsgspecError, _OutdatedSupervisor):
            await _close_writer(writer)
            return False
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._reader_task = asyncio.create_task(self._read_responses(reader, writer))
        return True

    async def _check_version(
        self, hello: protocol.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Ask an older supervisor to step down, and wait until it has."""
        ours = protocol.Hello(protocol.PROTOCOL, __version__, os.getpid())
        if hello.protocol > ours.protocol:
            raise SupervisorUnavailable(
                f"the supervisor is newer ({hello.version}) than this Rekindle ({__version__})"
            )
        if hello.age < ours.age:
            step_down = protocol.encode_frame(protocol.RpcRequest(0, "step_down", {}))
            await _send_frame(writer, step_down)
            with suppress(ConnectionError):
                while True:
                    await protocol.read_frame(reader)
            raise _OutdatedSupervisor

    async def _read_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        decoder = msgspec.msgpack.Decoder(protocol.RpcResponse)
        try:
            while True:
                response = decoder.decode(await protocol.read_frame(reader))
                if queue := self._responses.get(response.number):
                    queue.put_nowait(response)
        except (ConnectionError, msgspec.MsgspecError):
            pass
        finally:
            if self._writer is writer:
                self._writer = None
            for queue in self._responses.values():
                queue.put_nowait(None)
            await _close_writer(writer)

    async def _start_supervisor(self) -> str:
        """Start a supervisor and return its status word."""
        env = {name: value for name, value in os.environ.items() if name != PROCESS_ID_VARIABLE}
        command = [*COMMAND, *self._arguments]
        return await asyncio.to_thread(_run_supervisor, command, env)

    async def close(self) -> None:
        if self._reader_task:
            self._reader_task.cancel()
            await asyncio.gather(self._reader_task, return_exceptions=True)


class _OutdatedSupervisor(Exception):
    """The supervisor is older than this client, and has stepped down."""


def _run_supervisor(command: list[str], env: dict[str, str]) -> str:
    """Run the command until it prints a status word; the daemon it leaves is not our child."""
    program = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert program.stdout is not None
    with program.stdout as stdout:
        ready, _, _ = select.select([stdout], [], [], _TIMEOUT)
        status = os.read(stdout.fileno(), 4096) if ready else b""
    try:
        program.wait(_TIMEOUT)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    return status.decode("utf-8", "replace").strip() or "it exited without a message"


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _send_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    try:
        writer.write(frame)
        await writer.drain()
    except ConnectionError as error:
        raise ConnectionLost from error
