"""The registry: all background processes of one folder, in one program.

The supervisor runs one; another program can embed one. A lock on the folder ensures that there is
only one at a time.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rekindle.errors import InvalidInput, NotFound, ProcessStartFailed, TooManyProcesses
from rekindle.processes import operations
from rekindle.processes.backends.base import CHUNK_SIZE, Backend, ProcessSpec
from rekindle.processes.backends.local.executable import validate_command
from rekindle.processes.backends.registry import open_backend
from rekindle.processes.state.events import EventLog
from rekindle.processes.state.journal import Journal, ProcessRecord
from rekindle.processes.state.lock import FolderLock
from rekindle.processes.state.output_reader import OutputReader
from rekindle.processes.state.ring_buffer import RingBuffer
from rekindle.processes.types import (
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

from .adopt import ProcessRecovery
from .entry import ProcessEntry, record_to_process
from .lifecycle import Lifecycle, describe_failure, has_open_output, has_succeeded
from .watch import validate_watch

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # without look-alikes
_ID_LENGTH = 7
_ID_PATTERN = re.compile(r"[a-z0-9-]{3,40}")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_COUNTED = ("waiting", "running")  # those that start are counted as such


class ProcessRegistry(operations.Processes):
    """Background processes, embedded in this program. Created by `ProcessRegistry.open`."""

    def __init__(
        self,
        journal: Journal,
        lock: FolderLock,
        backend_factory: Callable[[str], Backend],
        limits: ProcessLimits,
        redact: Callable[[str], str],
    ) -> None:
        self.limits = limits
        self._journal = journal
        self._lock = lock
        self._backend_factory = backend_factory
        self._backends: dict[str, Backend] = {}
        self._redact = redact
        self._entries: dict[str, ProcessEntry] = {}
        self._lifecycle = Lifecycle(
            journal, limits, self._entries, EventLog(journal.folder / "events"), redact
        )
        self._starting: dict[asyncio.Task[Process], str] = {}
        self._sweep_task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        limits: ProcessLimits = ProcessLimits(),  # noqa: B008 -- immutable
        backend_factory: Callable[[str], Backend] = open_backend,
        redact: Callable[[str], str] | None = None,
        lock: FolderLock | None = None,
    ) -> ProcessRegistry:
        """Open the folder and recover the processes that an earlier program left running there.

        Raise SupervisorUnavailable if another program has the folder open, or JournalUnwritable.
        """
        journal = Journal(folder)
        journal.prepare()
        lock = lock or FolderLock.acquire(folder)
        try:
            await asyncio.to_thread(journal.remove_leftovers)
            registry = cls(journal, lock, backend_factory, limits, redact or create_redactor())
            await registry._load()
        except BaseException:
            lock.release()
            raise
        return registry

    async def _load(self) -> None:
        records = await asyncio.to_thread(self._journal.load_all)
        await ProcessRecovery(
            self._journal, self._lifecycle, self._get_backend, self._entries, self.limits
        ).adopt(records)
        self._sweep_task = asyncio.create_task(self._lifecycle.sweep_forever())

    def _get_backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = self._backend_factory(name)
        return self._backends[name]

    def _get_entry(self, request: operations.ProcessOperation[Any]) -> ProcessEntry:
        entry = self._entries.get(request.id)
        if entry is None or not request.may_see(entry.record.owner):
            raise NotFound(f"process not found: {request.id!r:.40}")
        return entry

    def _open_output(self, entry: ProcessEntry) -> OutputReader:
        return OutputReader(entry.record, entry.ring, self._redact)

    def _to_process(self, entry: ProcessEntry) -> Process:
        return record_to_process(entry.record, entry.ring.total, entry.ring.capacity, self._redact)

    @property
    def live_count(self) -> int:
        """The number of processes that are running or starting."""
        running = sum(e.record.state in _COUNTED for e in self._entries.values())
        return running + len(self._starting)

    @property
    def is_needed(self) -> bool:
        """Whether a process is running, or leftovers of an exited one still write output."""
        return bool(self.live_count) or any(map(has_open_output, self._entries.values()))

    def _count_owned(self, owner: str) -> int:
        mine = (e for e in self._entries.values() if e.record.owner == owner)
        running = sum(e.record.state in _COUNTED for e in mine)
        return running + list(self._starting.values()).count(owner)

    # -- starting

    async def handle_start(self, request: operations.StartProcess) -> Process:
        if request.id and (request.id in self._entries or not _ID_PATTERN.fullmatch(request.id)):
            raise InvalidInput(
                f"id: {request.id!r:.40} is already used or is not a valid process id"
            )
        env = request.resolve_env()
        validate_command(request.argv, request.cwd, env)
        if request.wrapper:
            validate_command(request.wrapper, request.cwd, env)
        pty = request.pty
        if pty and not (0 < pty.rows < 10_000 and 0 < pty.columns < 10_000):
            raise InvalidInput(f"pty: {pty.rows} × {pty.columns} is not a valid terminal size")
        numbered_watches = tuple(
            validate_watch(watch, self.limits.gap)._replace(number=number)
            for number, watch in enumerate(request.watches, 1)
        )
        target = self._get_backend(request.backend)
        record = ProcessRecord(
            id=request.id or generate_id(),
            owner=request.owner,
            argv=tuple(request.argv),
            backend=request.backend,
            state="starting",
            started=time.time(),
            cwd=request.cwd or (os.getcwd() if request.backend == "local" else ""),
            pty=pty,
            watches=numbered_watches,
            session=request.session,
            name=request.name,
            after=request.after,
            confined=bool(request.wrapper),
        )
        self._check_name(request.owner, request.name)
        self._check_limits(request.owner)
        other, wrapper = self._find_predecessor(request), tuple(request.wrapper)
        if other is not None and not other.done.is_set():
            return await self._wait_to_start(record, other, target, dict(env), wrapper)
        task = asyncio.create_task(self._run_program(record, target, dict(env), wrapper))
        self._starting[task] = request.owner
        task.add_done_callback(self._starting.pop)
        # Finish the start even if the caller is cancelled.
        return await asyncio.shield(task)

    def _check_name(self, owner: str, name: str) -> None:
        if not name:
            return
        if not _NAME_PATTERN.fullmatch(name):
            raise InvalidInput(
                f"name: {name!r:.40} is not a name; use up to 40 letters, digits, '.', '_' and '-'"
            )
        for entry in self._entries.values():
            if entry.live and (entry.record.owner, entry.record.name) == (owner, name):
                raise InvalidInput(
                    f"Process {entry.record.id} is named {name!r} and still running."
                    f" End it with `rekindle kill {name}`, or use `rekindle restart {name}`."
                )

    def _find_predecessor(self, request: operations.StartProcess) -> ProcessEntry | None:
        """Return the process that a start waits for; raise if it will never succeed."""
        if not request.after:
            return None
        other = self._entries.get(request.after)
        if other is None or other.record.owner != request.owner:
            raise NotFound(f"process not found: {request.after!r:.40}")
        if other.done.is_set() and not has_succeeded(other):
            raise ProcessStartFailed(describe_failure(other))
        return other

    async def _wait_to_start(
        self,
        record: ProcessRecord,
        other: ProcessEntry,
        backend: Backend,
        env: dict[str, str],
        wrapper: tuple[str, ...],
    ) -> Process:
        record = record.replace(state="waiting")
        ring = await asyncio.to_thread(self._create_files, record)
        entry = self._entries[record.id] = ProcessEntry(record, ring)
        self._lifecycle.start_after(
            entry, other, lambda: self._start_entry(entry, backend, env, wrapper)
        )
        return self._to_process(entry)

    async def _start_entry(
        self,
        entry: ProcessEntry,
        backend: Backend,
        env: dict[str, str],
        wrapper: tuple[str, ...],
    ) -> None:
        record = entry.record
        folder = self._journal.get_folder(record.id)
        spec = ProcessSpec(record.id, record.argv, record.cwd, env, record.pty, folder, wrapper)
        running = await backend.start(spec)
        try:
            self._lifecycle.record_start(entry, running)
        except BaseException:
            await running.kill(0.0)
            raise

    async def _run_program(
        self,
        record: ProcessRecord,
        backend: Backend,
        env: dict[str, str],
        wrapper: tuple[str, ...],
    ) -> Process:
        ring = await asyncio.to_thread(self._create_files, record)
        entry = self._entries[record.id] = ProcessEntry(record, ring)
        try:
            await self._start_entry(entry, backend, env, wrapper)
        except BaseException as error:
            self._entries.pop(record.id, None)
            ring.close()
            await asyncio.to_thread(self._journal.remove, record.id)
            if isinstance(error, OSError):
                raise ProcessStartFailed(f"{record.argv[0]}: {error.strerror or error}") from error
            raise
        return self._to_process(entry)

    def _create_files(self, record: ProcessRecord) -> RingBuffer:
        self._journal.create(record)
        path = self._journal.get_ring_path(record.id)
        try:
            return self._journal.run_guarded(lambda: RingBuffer.create(path, self.limits.ring))
        except BaseException:
            self._journal.remove(record.id)
            raise

    def _check_limits(self, owner: str) -> None:
        if self.live_count >= self.limits.in_all:
            raise TooManyProcesses(f"{self.live_count} processes are running, which is the limit")
        mine = self._count_owned(owner)
        if mine >= self.limits.per_owner:
            raise TooManyProcesses(
                f"{mine} processes are running, the limit per owner; kill one first"
            )

    # -- reading

    async def handle_list(self, request: operations.ListProcesses) -> list[Process]:
        return [
            self._to_process(entry)
            for entry in sorted(
                self._entries.values(), key=lambda e: (e.record.started, e.record.id)
            )
            if request.may_see(entry.record.owner) and (entry.live or not request.live)
        ]

    async def handle_poll(self, request: operations.PollOutput) -> PollResult:
        return self._open_output(self._get_entry(request)).poll(request)

    async def handle_read_log(self, request: operations.ReadLog) -> LogResult:
        return self._open_output(self._get_entry(request)).read_log(request)

    async def handle_wait(self, request: operations.WaitForExit) -> WaitResult:
        entry = self._get_entry(request)
        if not request.seconds >= 0:
            raise InvalidInput(f"wait: {request.seconds} is not a number of seconds")
        with suppress(TimeoutError):
            async with asyncio.timeout(min(request.seconds, self.limits.wait)):
                await entry.done.wait()
        return self._open_output(entry).wait(request, self.limits.wait)

    async def stream(self, request: operations.AttachOutput) -> AsyncGenerator[OutputChunk, None]:
        entry = self._get_entry(request)
        while True:
            chunk = self._open_output(entry).read_chunk(request, CHUNK_SIZE)
            if chunk.data:
                request = replace(request, since=chunk.end)
                yield chunk
            elif not entry.live:
                return
            else:
                await entry.wait_for_output()

    # -- controlling

    async def handle_kill(self, request: operations.KillProcess) -> Process:
        entry = self._get_entry(request)
        await self._lifecycle.kill(entry)
        return self._to_process(entry)

    async def handle_signal(self, request: operations.SignalProcess) -> None:
        if request.number not in signal.valid_signals():
            raise InvalidInput(f"{request.number} is not the number of a signal")
        await self._lifecycle.require_running(self._get_entry(request)).signal(request.number)

    async def handle_restart(self, request: operations.RestartProcess) -> Process:
        entry = self._get_entry(request)
        record = entry.record
        if record.confined:
            raise InvalidInput(
                f"process {record.id} was started in a sandbox, which a restart would leave out;"
                " start it again from where it was started"
            )
        if entry.live:
            await self._lifecycle.kill(entry)
        return await self.handle_start(
            operations.StartProcess(
                argv=record.argv,
                owner=record.owner,
                cwd=record.cwd,
                env=request.env if record.backend == "local" else None,
                pty=record.pty,
                backend=record.backend,
                watches=record.watches,
                session=record.session,
                name=record.name,
            )
        )

    async def handle_write(self, request: operations.WriteInput) -> WriteResult:
        running = self._lifecycle.require_running(self._get_entry(request))
        return WriteResult(await running.write(request.data), len(request.data))

    async def handle_submit(self, request: operations.SubmitLine) -> WriteResult:
        end = "\r" if self._get_entry(request).record.pty else "\n"
        return await self.write(request.id, request.line + end, owner=request.owner)

    async def handle_close_stdin(self, request: operations.CloseStdin) -> None:
        entry = self._get_entry(request)
        if entry.live:
            await self._lifecycle.require_running(entry).close_stdin()

    async def handle_resize(self, request: operations.ResizeTerminal) -> None:
        entry = self._get_entry(request)
        if entry.record.pty is None:
            raise InvalidInput(f"process {request.id} has no terminal")
        if entry.live:
            await self._lifecycle.require_running(entry).resize(request.size)

    # -- watching

    async def handle_watch(self, request: operations.AddWatch) -> Watch:
        entry = self._get_entry(request)
        return self._lifecycle.watch(entry, validate_watch(request.watch, self.limits.gap))

    async def handle_unwatch(self, request: operations.RemoveWatch) -> None:
        self._lifecycle.unwatch(self._get_entry(request), request.number)

    async def handle_fetch_events(self, request: operations.FetchEvents) -> list[ProcessEvent]:
        return await self._lifecycle.fetch_events(request)

    async def handle_ack_events(self, request: operations.AckEvents) -> None:
        self._lifecycle.log.acknowledge(request.numbers, request.owner)

    # -- owners

    async def handle_count_live(self, request: operations.CountLive) -> int:
        return self._count_owned(request.owner)

    async def handle_kill_all(self, request: operations.KillAll) -> int:
        starting = [task for task, owner in self._starting.items() if owner == request.owner]
        await asyncio.gather(*starting, return_exceptions=True)
        mine = [e for e in self._entries.values() if e.record.owner == request.owner]
        live = sum(entry.live for entry in mine)
        await asyncio.gather(*(self._lifecycle.kill(entry) for entry in mine))
        return live

    async def aclose(self) -> None:
        if self._sweep_task:
            self._sweep_task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await self._lifecycle.detach_all()
        for backend in self._backends.values():
            await backend.close()
        self._lock.release()


def create_redactor() -> Callable[[str], str]:
    """Create a function that redacts secrets in a command line, with a cache."""

    @cache
    def load_redactor() -> Redactor:
        from rekindle.redaction.redactor import (
            Redactor,  # lazy: compiles many patterns
        )

        return Redactor()

    @lru_cache(4096)
    def redact_line(text: str) -> str:
        return load_redactor().redact_text(text)

    return redact_line


def generate_id() -> str:
    """Generate a process id."""
    return "p" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
