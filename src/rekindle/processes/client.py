"""The client of the supervisor: the same operations, over its socket.

The client starts the supervisor on demand. If the supervisor dies during a request, the request is
repeated with its successor; a process is never started twice, because the client chooses its id.
When nothing is running, everything can be read from disk and no supervisor is started.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from rekindle.errors import SupervisorUnavailable
from rekindle.processes.state.direct_read import DirectReader
from rekindle.processes.state.offline import OfflineReader
from rekindle.processes.supervisor.registry import create_redactor, generate_id

from . import operations
from .connection import ConnectionLost, SupervisorConnection
from .types import (
    OutputChunk,
    PollResult,
    Process,
    ProcessEvent,
    ProcessLimits,
    WaitResult,
)

R = TypeVar("R")
Reading = TypeVar("Reading", operations.PollOutput, operations.WaitForExit)

_RETRY_SECONDS = 2.0  # seconds between checks for a supervisor


class ProcessClient(operations.Processes):
    """The background processes of one folder, managed by its supervisor."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: ProcessLimits = ProcessLimits(),  # noqa: B008 -- immutable
        linger: float | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        redact = redact or create_redactor()
        self._folder = folder.absolute()
        self._connection = SupervisorConnection(self._folder, limits, linger)
        self._offline_reader = OfflineReader(self._folder, limits, redact)
        self._direct_reader = DirectReader(self._folder, redact)

    async def _call(self, request: operations.Operation[R]) -> R:
        """Ask the supervisor, and the next one if it dies."""
        while True:
            try:
                return await self._connection.call(request)
            except ConnectionLost:
                continue

    async def _call_once(self, request: operations.Operation[R]) -> R:
        """Ask the supervisor; a request that is not idempotent is not repeated if it dies."""
        try:
            return await self._connection.call(request)
        except ConnectionLost as error:
            name = operations.get_operation_name(request)
            message = f"{name}: the supervisor died; check whether it took effect"
            raise SupervisorUnavailable(message) from error

    async def _query(self, request: operations.Operation[R]) -> R:
        """Read from disk if it is up to date, otherwise ask the supervisor; fall back to the disk."""
        while not await self._can_read_offline():
            try:
                return await self._connection.call(request)
            except ConnectionLost:
                continue
            except SupervisorUnavailable:
                if os.access(self._folder, os.W_OK):
                    raise
                break
        return await asyncio.to_thread(self._offline_reader.execute, request)

    handle_close_stdin = handle_resize = handle_unwatch = handle_ack_events = _call
    handle_write = handle_submit = handle_watch = handle_signal = _call_once

    async def handle_restart(self, request: operations.RestartProcess) -> Process:
        env = os.environ if request.env is None else request.env
        return await self._call_once(replace(request, env=env))

    handle_list = handle_read_log = handle_kill = handle_count_live = handle_kill_all = _query

    async def _can_read_offline(self) -> bool:
        """Return whether the disk is up to date: no supervisor and no process is running."""
        if await self._connection.try_connect():
            return False
        return not await asyncio.to_thread(self._offline_reader.has_live_records)

    async def handle_start(self, request: operations.StartProcess) -> Process:
        cwd = os.path.abspath(request.cwd) if request.backend == "local" else request.cwd
        env, id = request.resolve_env(), request.id or generate_id()
        request = replace(request, cwd=cwd, env=env, id=id)
        while True:
            try:
                return await self._connection.call(request)
            except ConnectionLost:
                # It may have been started: look for its id.
                for process in await self.list(owner=request.owner):
                    if process.id == request.id and process.state != "failed":
                        return process
                request = replace(request, id=generate_id())

    async def handle_poll(self, request: operations.PollOutput) -> PollResult:
        await asyncio.sleep(0)  # let the event loop notice a lost connection
        if self._connection.is_connected and (found := self._direct_reader.poll(request)):
            return found
        return await self._query(_number_request(request))

    async def handle_wait(self, request: operations.WaitForExit) -> WaitResult:
        end = time.monotonic() + request.seconds
        request = _number_request(request)
        while not await self._can_read_offline():
            try:
                return await self._connection.call(request)
            except ConnectionLost:
                request = replace(request, seconds=max(0.0, end - time.monotonic()))
        return await asyncio.to_thread(self._offline_reader.execute, request)

    async def handle_fetch_events(self, request: operations.FetchEvents) -> list[ProcessEvent]:
        end = time.monotonic() + request.wait
        while True:
            left = max(0.0, end - time.monotonic())
            if not await self._can_read_offline():
                try:
                    return await self._connection.call(replace(request, wait=left))
                except ConnectionLost:
                    continue
            found = await asyncio.to_thread(self._offline_reader.execute, request)
            if found or not left:
                return found
            await asyncio.sleep(min(left, _RETRY_SECONDS))

    async def stream(self, request: operations.AttachOutput) -> AsyncGenerator[OutputChunk, None]:
        while not await self._can_read_offline():
            try:
                async for chunk in self._connection.stream(request):
                    request = replace(request, since=chunk.end)
                    yield chunk
                return
            except ConnectionLost:
                continue
        chunk = await asyncio.to_thread(self._offline_reader.execute, request)
        if chunk.data:
            yield chunk

    async def aclose(self) -> None:
        self._direct_reader.close()
        await self._connection.close()


def _number_request(request: Reading) -> Reading:
    """Give the request an id, to repeat it without losing output."""
    return replace(request, request_id=request.request_id or secrets.randbits(63) | 1)
