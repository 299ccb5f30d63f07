"""The registry: all background processes of one folder, in one program.

The supervisor runs one; another program can embed one. A lock on the folder ensures that there is
only one at a time.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.errors import InvalidInput, NotFound, ProcessStartFailed, TooManyProcesses
from rekindle.processes.backends.base import CHUNK_SIZE, Backend, ProcessSpec, TerminalSize
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
from .lifecycle import Lifecycle, has_open_output
from .watch import validate_watch

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # without look-alikes
_ID_LENGTH = 7
_ID_PATTERN = re.compile(r"[a-z0-9-]{3,40}")


class ProcessRegistry:
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

    def _get_entry(self, id: str, owner: str | None) -> ProcessEntry:
        entry = self._entries.get(id)
        if entry is None or owner not in (None, entry.record.owner):
            raise NotFound(f"process not found: {id!r:.40}")
        return entry

    def _to_process(self, entry: ProcessEntry) -> Process:
        return record_to_process(entry.record, entry.ring.total, entry.ring.capacity, self._redact)

    @property
    def live_count(self) -> int:
        """The number of processes that are running or starting."""
        running = sum(e.record.state == "running" for e in self._entries.values())
        return running + len(self._starting)

    @property
    def is_needed(self) -> bool:
        """Whether a process is running, or leftovers of an exited one still write output."""
        return bool(self.live_count) or any(map(has_open_output, self._entries.values()))

    def _count_owned(self, owner: str) -> int:
        mine = (e for e in self._entries.values() if e.record.owner == owner)
        running = sum(e.record.state == "running" for e in mine)
        return running + list(self._starting.values()).count(owner)

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
        id: str = "",
    ) -> Process:
        argv = tuple(argv)
        if id and (id in self._entries or not _ID_PATTERN.fullmatch(id)):
            raise InvalidInput(f"id: {id!r:.40} is already used or is not a valid process id")
        if env is None:
            env = dict(os.environ) if backend == "local" else {}
        validate_command(argv, cwd, env)
        if pty and not (0 < pty.rows < 10_000 and 0 < pty.columns < 10_000):
            raise InvalidInput(f"pty: {pty.rows} × {pty.columns} is not a valid terminal size")
        numbered_watches = tuple(
            validate_watch(watch, self.limits.gap)._replace(number=number)
            for number, watch in enumerate(watches, 1)
        )
        target = self._get_backend(backend)
        cwd = cwd or (os.getcwd() if backend == "local" else "")
        record = ProcessRecord(
            id=id or generate_id(),
            owner=owner,
            argv=argv,
            backend=backend,
            state="starting",
            started=time.time(),
            cwd=cwd,
            pty=pty,
            watches=numbered_watches,
            session=session,
        )
        self._check_limits(owner)
        task = asyncio.create_task(self._start(record, target, dict(env)))
        self._starting[task] = owner
        task.add_done_callback(self._starting.pop)
        # Finish the start even if the caller is cancelled.
        return await asyncio.shield(task)

    async def _start(self, record: ProcessRecord, backend: Backend, env: dict[str, str]) -> Process:
        ring = await asyncio.to_thread(self._create_files, record)
        entry = self._entries[record.id] = ProcessEntry(record, ring)
        try:
            folder = self._journal.get_folder(record.id)
            spec = ProcessSpec(record.id, record.argv, record.cwd, env, record.pty, folder)
            running = await backend.start(spec)
            try:
                self._lifecycle.record_start(entry, running)
            except BaseException:
                await running.kill(0.0)
                raise
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

    async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
        return [
            self._to_process(entry)
            for entry in sorted(
                self._entries.values(), key=lambda e: (e.record.started, e.record.id)
            )
            if owner in (None, entry.record.owner) and (entry.live or not live)
        ]

    async def poll(
        self,
        id: str,
        *,
        owner: str | None = None,
        reader: str = "",
        plain: bool = True,
        request_id: int = 0,
    ) -> PollResult:
        """Return the state and the output since this reader's last poll.

        Repeat `request_id` to get the same output again if the answer was lost.
        """
        entry = self._get_entry(id, owner)
        output_reader = OutputReader(entry.record, entry.ring, self._redact)
        return output_reader.poll(reader, plain=plain, request_id=request_id)

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
        entry = self._get_entry(id, owner)
        output_reader = OutputReader(entry.record, entry.ring, self._redact)
        return output_reader.read_log(tail, offset, limit, since, plain=plain)

    async def wait(
        self,
        id: str,
        seconds: float,
        *,
        owner: str | None = None,
        reader: str = "",
        plain: bool = True,
        request_id: int = 0,
    ) -> WaitResult:
        entry = self._get_entry(id, owner)
        if not seconds >= 0:
            raise InvalidInput(f"wait: {seconds} is not a number of seconds")
        clamped = self.limits.wait if seconds > self.limits.wait else None
        try:
            async with asyncio.timeout(clamped or seconds):
                await entry.done.wait()
        except TimeoutError:
            pass
        output_reader = OutputReader(entry.record, entry.ring, self._redact)
        polled = output_reader.poll(reader, plain=plain, request_id=request_id)
        return WaitResult(polled.process, polled.output, polled.dropped, entry.live, clamped)

    async def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[OutputChunk, None]:
        entry = self._get_entry(id, owner)
        while True:
            piece = entry.ring.read(since, CHUNK_SIZE)
            if piece.data:
                since = piece.end
                yield OutputChunk(piece.data, piece.end, piece.dropped)
            elif not entry.live:
                return
            else:
                await entry.wait_for_output()

    # -- controlling

    async def kill(self, id: str, *, owner: str | None = None) -> Process:
        entry = self._get_entry(id, owner)
        await self._lifecycle.kill(entry)
        return self._to_process(entry)

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> WriteResult:
        running = self._lifecycle.require_running(self._get_entry(id, owner))
        encoded = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return WriteResult(await running.write(encoded), len(encoded))

    async def submit(self, id: str, line: str, *, owner: str | None = None) -> WriteResult:
        entry = self._get_entry(id, owner)
        end = "\r" if entry.record.pty else "\n"
        return await self.write(id, line + end, owner=owner)

    async def close_stdin(self, id: str, *, owner: str | None = None) -> None:
        entry = self._get_entry(id, owner)
        if entry.live:
            await self._lifecycle.require_running(entry).close_stdin()

    async def resize(self, id: str, size: TerminalSize, *, owner: str | None = None) -> None:
        entry = self._get_entry(id, owner)
        if entry.record.pty is None:
            raise InvalidInput(f"process {id} has no terminal")
        if entry.live:
            await self._lifecycle.require_running(entry).resize(size)

    # -- watching

    async def watch(self, id: str, watch: Watch, *, owner: str | None = None) -> Watch:
        entry = self._get_entry(id, owner)
        return self._lifecycle.watch(entry, validate_watch(watch, self.limits.gap))

    async def unwatch(self, id: str, number: int, *, owner: str | None = None) -> None:
        self._lifecycle.unwatch(self._get_entry(id, owner), number)

    async def fetch_events(
        self,
        *,
        owner: str | None = None,
        wait: float = 0.0,
        limit: int = 100,
        notes: Sequence[str] = (),
    ) -> list[ProcessEvent]:
        return await self._lifecycle.fetch_events(owner, min(wait, self.limits.wait), limit, notes)

    async def ack_events(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        self._lifecycle.log.acknowledge(numbers, owner)

    # -- owners

    async def count_live(self, owner: str) -> int:
        return self._count_owned(owner)

    async def kill_all(self, owner: str) -> int:
        starting = [task for task, task_owner in self._starting.items() if task_owner == owner]
        await asyncio.gather(*starting, return_exceptions=True)
        mine = [e for e in self._entries.values() if e.record.owner == owner]
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
