"""The registry: all background processes of one folder, in one program.

The supervisor runs one; another program may embed one. A lock on the folder sees to it that there
is only one at a time.
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

from rekindle.errors import InvalidInput, NotFound, NotStarted, TooManyProcesses
from rekindle.processes.backends.base import CHUNK, Place, Size, Spec
from rekindle.processes.backends.local.executable import valid
from rekindle.processes.backends.registry import open_place
from rekindle.processes.state.events import EventLog
from rekindle.processes.state.journal import Journal, Record
from rekindle.processes.state.lock import Lock
from rekindle.processes.state.output_reader import Reading
from rekindle.processes.state.ring_buffer import Ring
from rekindle.processes.types import (
    Chunk,
    Event,
    Limits,
    Log,
    Polled,
    Process,
    Waited,
    Watch,
    Written,
)

from .adopt import Adoption
from .entry import Entry, told
from .lifecycle import Life, is_open
from .watch import checked

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
_ID = 7
_NAME = re.compile(r"[a-z0-9-]{3,40}")


class Registry:
    """Background processes, embedded in this program. Made by `Registry.open`."""

    def __init__(
        self,
        journal: Journal,
        lock: Lock,
        places: Callable[[str], Place],
        limits: Limits,
        redact: Callable[[str], str],
    ) -> None:
        self.limits = limits
        self._journal = journal
        self._lock = lock
        self._open_place = places
        self._places: dict[str, Place] = {}
        self._redact = redact
        self._entries: dict[str, Entry] = {}
        self._life = Life(
            journal, limits, self._entries, EventLog(journal.folder / "events"), redact
        )
        self._starting: dict[asyncio.Task[Process], str] = {}
        self._sweeping: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008 -- a value that cannot change
        places: Callable[[str], Place] = open_place,
        redact: Callable[[str], str] | None = None,
        lock: Lock | None = None,
    ) -> Registry:
        """Open the folder, and find again what an earlier program left running there.

        SupervisorGone if another program has it open; JournalUnwritable.
        """
        journal = Journal(folder)
        journal.prepare()
        lock = lock or Lock.take(folder)
        try:
            await asyncio.to_thread(journal.tidy)
            registry = cls(journal, lock, places, limits, redact or redactor())
            await registry._load()
        except BaseException:
            lock.release()
            raise
        return registry

    async def _load(self) -> None:
        records = await asyncio.to_thread(self._journal.all)
        await Adoption(self._journal, self._life, self._place, self._entries, self.limits).adopt(
            records
        )
        self._sweeping = asyncio.create_task(self._life.sweep())

    def _place(self, name: str) -> Place:
        if name not in self._places:
            self._places[name] = self._open_place(name)
        return self._places[name]

    def _entry(self, id: str, owner: str | None) -> Entry:
        entry = self._entries.get(id)
        if entry is None or owner not in (None, entry.record.owner):
            raise NotFound(f"there is no process {id!r:.40}")
        return entry

    def _told(self, entry: Entry) -> Process:
        return told(entry.record, entry.ring.total, entry.ring.capacity, self._redact)

    @property
    def live(self) -> int:
        """How many processes run, or are about to."""
        running = sum(e.record.state == "running" for e in self._entries.values())
        return running + len(self._starting)

    @property
    def needed(self) -> bool:
        """Whether something runs, or something that an ended process left still writes."""
        return bool(self.live) or any(map(is_open, self._entries.values()))

    def _count(self, owner: str) -> int:
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
        pty: Size | None = None,
        place: str = "local",
        watches: Sequence[Watch] = (),
        session: str = "",
        id: str = "",
    ) -> Process:
        argv = tuple(argv)
        if id and (id in self._entries or not _NAME.fullmatch(id)):
            raise InvalidInput(f"id: {id!r:.40} is taken, or no name for a process")
        if env is None:
            env = dict(os.environ) if place == "local" else {}
        valid(argv, cwd, env)
        if pty and not (0 < pty.rows < 10_000 and 0 < pty.columns < 10_000):
            raise InvalidInput(f"pty: {pty.rows} × {pty.columns} is no size of a terminal")
        kept = tuple(
            checked(watch, self.limits.gap)._replace(number=number)
            for number, watch in enumerate(watches, 1)
        )
        where = self._place(place)
        cwd = cwd or (os.getcwd() if place == "local" else "")
        record = Record(
            id=id or new_id(),
            owner=owner,
            argv=argv,
            place=place,
            state="starting",
            started=time.time(),
            cwd=cwd,
            pty=pty,
            watches=kept,
            session=session,
        )
        self._check_limits(owner)
        task = asyncio.create_task(self._start(record, where, dict(env)))
        self._starting[task] = owner
        task.add_done_callback(self._starting.pop)
        # Whoever asked may go away: what has begun is brought to its end.
        return await asyncio.shield(task)

    async def _start(self, record: Record, place: Place, env: dict[str, str]) -> Process:
        ring = await asyncio.to_thread(self._write_down, record)
        entry = self._entries[record.id] = Entry(record, ring)
        try:
            folder = self._journal.home_of(record.id)
            spec = Spec(record.id, record.argv, record.cwd, env, record.pty, folder)
            running = await place.start(spec)
            try:
                self._life.begin(entry, running)
            except BaseException:
                await running.kill(0.0)
                raise
        except BaseException as error:
            self._entries.pop(record.id, None)
            ring.close()
            await asyncio.to_thread(self._journal.remove, record.id)
            if isinstance(error, OSError):
                raise NotStarted(f"{record.argv[0]}: {error.strerror or error}") from error
            raise
        return self._told(entry)

    def _write_down(self, record: Record) -> Ring:
        self._journal.create(record)
        path = self._journal.ring_of(record.id)
        try:
            return self._journal.told(lambda: Ring.create(path, self.limits.ring))
        except BaseException:
            self._journal.remove(record.id)
            raise

    def _check_limits(self, owner: str) -> None:
        if self.live >= self.limits.in_all:
            raise TooManyProcesses(f"{self.live} processes run already, as many as are allowed")
        mine = self._count(owner)
        if mine >= self.limits.per_owner:
            raise TooManyProcesses(
                f"{mine} processes run already, as many as one owner may have; end one first"
            )

    # -- looking

    async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
        return [
            self._told(entry)
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
        asked: int = 0,
    ) -> Polled:
        """`asked`: a number of one's own, to ask the same again if the answer was lost."""
        entry = self._entry(id, owner)
        reading = Reading(entry.record, entry.ring, self._redact)
        return reading.poll(reader, plain=plain, asked=asked)

    async def log(
        self,
        id: str,
        *,
        owner: str | None = None,
        tail: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
        since: int | None = None,
        plain: bool = True,
    ) -> Log:
        entry = self._entry(id, owner)
        reading = Reading(entry.record, entry.ring, self._redact)
        return reading.log(tail, offset, limit, since, plain=plain)

    async def wait(
        self,
        id: str,
        seconds: float,
        *,
        owner: str | None = None,
        reader: str = "",
        plain: bool = True,
        asked: int = 0,
    ) -> Waited:
        entry = self._entry(id, owner)
        if not seconds >= 0:
            raise InvalidInput(f"wait: {seconds} is no number of seconds")
        clamped = self.limits.wait if seconds > self.limits.wait else None
        try:
            async with asyncio.timeout(clamped or seconds):
                await entry.done.wait()
        except TimeoutError:
            pass
        reading = Reading(entry.record, entry.ring, self._redact)
        polled = reading.poll(reader, plain=plain, asked=asked)
        return Waited(polled.process, polled.output, polled.dropped, entry.live, clamped)

    async def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[Chunk, None]:
        entry = self._entry(id, owner)
        while True:
            span = entry.ring.read(since, CHUNK)
            if span.data:
                since = span.end
                yield Chunk(span.data, span.end, span.dropped)
            elif not entry.live:
                return
            else:
                await entry.next_sound()

    # -- doing

    async def kill(self, id: str, *, owner: str | None = None) -> Process:
        entry = self._entry(id, owner)
        await self._life.kill(entry)
        return self._told(entry)

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> Written:
        running = self._life.reachable(self._entry(id, owner))
        given = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return Written(await running.write(given), len(given))

    async def submit(self, id: str, line: str, *, owner: str | None = None) -> Written:
        entry = self._entry(id, owner)
        end = "\r" if entry.record.pty else "\n"
        return await self.write(id, line + end, owner=owner)

    async def close(self, id: str, *, owner: str | None = None) -> None:
        entry = self._entry(id, owner)
        if entry.live:
            await self._life.reachable(entry).close_stdin()

    async def resize(self, id: str, size: Size, *, owner: str | None = None) -> None:
        entry = self._entry(id, owner)
        if entry.record.pty is None:
            raise InvalidInput(f"process {id} has no terminal")
        if entry.live:
            await self._life.reachable(entry).resize(size)

    # -- watching

    async def watch(self, id: str, watch: Watch, *, owner: str | None = None) -> Watch:
        entry = self._entry(id, owner)
        return self._life.watch(entry, checked(watch, self.limits.gap))

    async def unwatch(self, id: str, number: int, *, owner: str | None = None) -> None:
        self._life.unwatch(self._entry(id, owner), number)

    async def events(
        self,
        *,
        owner: str | None = None,
        wait: float = 0.0,
        limit: int = 100,
        notes: Sequence[str] = (),
    ) -> list[Event]:
        return await self._life.events(owner, min(wait, self.limits.wait), limit, notes)

    async def ack(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        self._life.log.done(numbers, owner)

    # -- owners

    async def busy(self, owner: str) -> int:
        return self._count(owner)

    async def close_owner(self, owner: str) -> int:
        about_to = [task for task, whose in self._starting.items() if whose == owner]
        await asyncio.gather(*about_to, return_exceptions=True)
        mine = [e for e in self._entries.values() if e.record.owner == owner]
        live = sum(entry.live for entry in mine)
        await asyncio.gather(*(self._life.kill(entry) for entry in mine))
        return live

    async def aclose(self) -> None:
        if self._sweeping:
            self._sweeping.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await self._life.release()
        for place in self._places.values():
            await place.close()
        self._lock.release()


def redactor() -> Callable[[str], str]:
    """Takes secrets out of a command line; the same line is not looked at twice."""

    @cache
    def rules() -> Redactor:
        from rekindle.redaction.redactor import (
            Redactor,  # many patterns: only for who has processes
        )

        return Redactor()

    @lru_cache(4096)
    def line(text: str) -> str:
        return rules().text(text)

    return line


def new_id() -> str:
    """The id of a process, before there is one."""
    return "p" + "".join(secrets.choice(_LETTERS) for _ in range(_ID))
