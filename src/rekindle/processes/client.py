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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rekindle.errors import SupervisorUnavailable
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.state.direct_read import DirectReader
from rekindle.processes.state.offline import OfflineReader
from rekindle.processes.supervisor.registry import create_redactor, generate_id

from .connection import ConnectionLost, SupervisorConnection
from .types import (
    LogResult,
    OutputChunk,
    PollResult,
    Process,
    ProcessEvent,
    ProcessLimits,
    WaitResult,
    Watch,
    WriteResult,
)

T = TypeVar("T")

_RETRY_SECONDS = 2.0  # seconds between checks for a supervisor


class ProcessClient:
    """The background processes of one folder, managed by its supervisor."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: ProcessLimits = ProcessLimits(),  # noqa: B008 -- immutable
        linger: float | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._connection = SupervisorConnection(folder.absolute(), limits, linger)
        self._limits = limits
        self._folder = folder.absolute()
        self._redact = redact
        self._direct_reader: DirectReader | None = None

    @property
    def _offline_reader(self) -> OfflineReader:
        self._redact = self._redact or create_redactor()
        return OfflineReader(self._folder, self._limits, self._redact)

    async def _poll_directly(
        self, id: str, owner: str | None, reader: str, plain: bool
    ) -> PollResult | None:
        """Poll by reading the files of a running supervisor; return None if it must be asked."""
        await asyncio.sleep(0)  # let the event loop notice a lost connection
        if not self._connection.is_connected:
            return None
        if self._direct_reader is None:
            self._redact = self._redact or create_redactor()
            self._direct_reader = DirectReader(self._folder, self._redact)
        return self._direct_reader.poll(id, owner, reader, plain)

    async def _call(self, method: str, type: Any, *, retry: bool = True, **arguments: Any) -> Any:
        """Call the supervisor.

        With `retry`, for idempotent methods, repeat the call if the supervisor dies.
        """
        while True:
            try:
                return await self._connection.call(method, type, arguments)
            except ConnectionLost as error:
                if not retry:
                    message = f"{method}: the supervisor died; check whether it took effect"
                    raise SupervisorUnavailable(message) from error

    async def _can_read_offline(self) -> bool:
        """Return whether the disk is up to date: no supervisor and no process is running."""
        if await self._connection.try_connect():
            return False
        return not await asyncio.to_thread(self._offline_reader.has_live_records)

    async def _query(
        self, method: str, type: Any, read_offline: Callable[[OfflineReader], T], **asked: Any
    ) -> T:
        """Read from disk if it is up to date, otherwise ask the supervisor; fall back to the disk."""
        while not await self._can_read_offline():
            try:
                return await self._connection.call(method, type, asked)
            except ConnectionLost:
                continue
            except SupervisorUnavailable:
                if os.access(self._folder, os.W_OK):
                    raise
                break
        return await asyncio.to_thread(read_offline, self._offline_reader)

    # -- starting

    async def start(
        self,
        argv: Sequence[str],
        *,
        owner: str,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        pty: TerminalSize | None = None,
        backend: str = "local",
        watches: Sequence[Watch] = (),
        session: str = "",
    ) -> Process:
        is_local = backend == "local"
        arguments = {
            "argv": list(argv),
            "owner": owner,
            "cwd": os.path.abspath(cwd) if is_local else cwd,
            "env": dict(env) if env is not None else dict(os.environ) if is_local else {},
            "pty": pty,
            "backend": backend,
            "watches": list(watches),
            "session": session,
            "id": generate_id(),
        }
        while True:
            try:
                return await self._connection.call("start", Process, arguments)
            except ConnectionLost:
                # It may have been started: look for its id.
                for process in await self.list(owner=owner):
                    if process.id == arguments["id"] and process.state != "failed":
                        return process
                arguments["id"] = generate_id()

    # -- reading

    async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
        return await self._query(
            "list", list[Process], lambda offline: offline.list(owner, live), owner=owner, live=live
        )

    async def poll(
        self, id: str, *, owner: str | None = None, reader: str = "", plain: bool = True
    ) -> PollResult:
        if found := await self._poll_directly(id, owner, reader, plain):
            return found
        request_id = _generate_request_id()
        return await self._query(
            "poll",
            PollResult,
            lambda offline: offline.poll(id, owner, reader, plain, request_id),
            id=id,
            owner=owner,
            reader=reader,
            plain=plain,
            request_id=request_id,
        )

    async def read_log(
        self,
        id: str,
        *,
        owner: str | None = None,
        tail: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
        since: int | None = None,
        plain: bool = True,
    ) -> LogResult:
        return await self._query(
            "read_log",
            LogResult,
            lambda offline: offline.read_log(id, owner, (tail, offset, limit), since, plain),
            id=id,
            owner=owner,
            since=since,
            plain=plain,
            tail=tail,
            offset=offset,
            limit=limit,
        )

    async def wait(
        self,
        id: str,
        seconds: float,
        *,
        owner: str | None = None,
        reader: str = "",
        plain: bool = True,
    ) -> WaitResult:
        end = time.monotonic() + seconds
        request_id = _generate_request_id()
        arguments = {
            "id": id,
            "owner": owner,
            "reader": reader,
            "plain": plain,
            "request_id": request_id,
        }
        while not await self._can_read_offline():
            try:
                return await self._connection.call(
                    "wait", WaitResult, {**arguments, "seconds": seconds}
                )
            except ConnectionLost:
                seconds = max(0.0, end - time.monotonic())
        polled = await asyncio.to_thread(
            self._offline_reader.poll, id, owner, reader, plain, request_id
        )
        clamped = self._limits.wait if seconds > self._limits.wait else None
        return WaitResult(polled.process, polled.output, polled.dropped, False, clamped)

    async def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[OutputChunk, None]:
        while not await self._can_read_offline():
            arguments = {"id": id, "owner": owner, "since": since}
            try:
                async for chunk in self._connection.stream("attach", OutputChunk, arguments):
                    since = chunk.end
                    yield chunk
                return
            except ConnectionLost:
                continue
        data, end, dropped = await asyncio.to_thread(
            self._offline_reader.read_bytes, id, owner, since
        )
        if data:
            yield OutputChunk(data, end, dropped)

    # -- controlling

    async def kill(self, id: str, *, owner: str | None = None) -> Process:
        return await self._query(
            "kill", Process, lambda offline: offline.get_process(id, owner), id=id, owner=owner
        )

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> WriteResult:
        encoded = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return await self._call("write", WriteResult, retry=False, id=id, data=encoded, owner=owner)

    async def submit(self, id: str, line: str, *, owner: str | None = None) -> WriteResult:
        return await self._call("submit", WriteResult, retry=False, id=id, line=line, owner=owner)

    async def close_stdin(self, id: str, *, owner: str | None = None) -> None:
        await self._call("close_stdin", None, id=id, owner=owner)

    async def resize(self, id: str, size: TerminalSize, *, owner: str | None = None) -> None:
        await self._call("resize", None, id=id, size=size, owner=owner)

    # -- watching

    async def watch(self, id: str, watch: Watch, *, owner: str | None = None) -> Watch:
        return await self._call("watch", Watch, retry=False, id=id, watch=watch, owner=owner)

    async def unwatch(self, id: str, number: int, *, owner: str | None = None) -> None:
        await self._call("unwatch", None, id=id, number=number, owner=owner)

    async def fetch_events(
        self,
        *,
        owner: str | None = None,
        wait: float = 0.0,
        limit: int = 100,
        notes: Sequence[str] = (),
    ) -> list[ProcessEvent]:
        end = time.monotonic() + wait
        arguments = {"owner": owner, "limit": limit, "notes": list(notes)}
        while True:
            left = max(0.0, end - time.monotonic())
            if not await self._can_read_offline():
                try:
                    request = {**arguments, "wait": left}
                    return await self._connection.call("fetch_events", list[ProcessEvent], request)
                except ConnectionLost:
                    continue
            found = await asyncio.to_thread(self._offline_reader.fetch_events, owner, limit, notes)
            if found or not left:
                return found
            await asyncio.sleep(min(left, _RETRY_SECONDS))

    async def ack_events(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        await self._call("ack_events", None, numbers=list(numbers), owner=owner)

    # -- owners

    async def count_live(self, owner: str) -> int:
        return await self._query("count_live", int, lambda _: 0, owner=owner)

    async def kill_all(self, owner: str) -> int:
        return await self._query("kill_all", int, lambda _: 0, owner=owner)

    async def aclose(self) -> None:
        if self._direct_reader:
            self._direct_reader.close()
            self._direct_reader = None
        await self._connection.close()


def _generate_request_id() -> int:
    """Generate the id of a poll, to repeat it without losing output."""
    return secrets.randbits(63) | 1
