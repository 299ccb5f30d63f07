"""The client of the supervisor: the same actions, over its socket.

It starts the supervisor when it needs one. If the supervisor dies in the middle, questions are
asked again of its successor; a start is not done twice, because the client gave it its id. When
nothing runs, the disk can tell everything, and no supervisor is started for it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rekindle.errors import SupervisorGone
from rekindle.processes.backends.base import Size
from rekindle.processes.state.direct_read import Glance
from rekindle.processes.state.offline import Shelf
from rekindle.processes.supervisor.registry import new_id, redactor

from .connection import Line, Lost
from .types import Chunk, Event, Limits, Log, Polled, Process, Waited, Watch, Written

T = TypeVar("T")

_AGAIN = 2.0  # seconds between looks for a supervisor while there is none


class Client:
    """Background processes of one folder, kept by its supervisor."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008 -- a value that cannot change
        linger: float | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._line = Line(folder.absolute(), limits, linger)
        self._limits = limits
        self._folder = folder.absolute()
        self._redact = redact
        self._glance: Glance | None = None

    @property
    def _shelf(self) -> Shelf:
        self._redact = self._redact or redactor()
        return Shelf(self._folder, self._limits, self._redact)

    async def _glanced(self, id: str, owner: str | None, reader: str, plain: bool) -> Polled | None:
        """A look at the files of a supervisor that runs; None if it must be asked."""
        await asyncio.sleep(0)  # that the loop may hear of its death
        if not self._line.up:
            return None
        if self._glance is None:
            self._redact = self._redact or redactor()
            self._glance = Glance(self._folder, self._redact)
        return self._glance.poll(id, owner, reader, plain)

    async def _call(self, method: str, type: Any, *, again: bool = True, **arguments: Any) -> Any:
        """Ask the supervisor; `again`: to be asked twice does no harm."""
        while True:
            try:
                return await self._line.ask(method, type, arguments)
            except Lost as error:
                if not again:
                    said = f"{method}: the supervisor died in the middle; look whether it was done"
                    raise SupervisorGone(said) from error

    async def _settled(self) -> bool:
        """Whether the disk knows everything: no supervisor runs, and nothing did when it went."""
        if await self._line.connected():
            return False
        return not await asyncio.to_thread(self._shelf.unsettled)

    async def _tell(self, method: str, type: Any, disk: Callable[[Shelf], T], **asked: Any) -> T:
        """Ask the disk where it knows, else the supervisor, and the disk again if there is none."""
        while not await self._settled():
            try:
                return await self._line.ask(method, type, asked)
            except Lost:
                continue
            except SupervisorGone:
                if os.access(self._folder, os.W_OK):
                    raise
                break
        return await asyncio.to_thread(disk, self._shelf)

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
    ) -> Process:
        here = place == "local"
        asked = {
            "argv": list(argv),
            "owner": owner,
            "cwd": os.path.abspath(cwd) if here else cwd,
            "env": dict(env) if env is not None else dict(os.environ) if here else {},
            "pty": pty,
            "place": place,
            "watches": list(watches),
            "session": session,
            "id": new_id(),
        }
        while True:
            try:
                return await self._line.ask("start", Process, asked)
            except Lost:
                # It may have been started: its id says so.
                for process in await self.list(owner=owner):
                    if process.id == asked["id"] and process.state != "failed":
                        return process
                asked["id"] = new_id()

    # -- looking

    async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
        return await self._tell(
            "list", list[Process], lambda shelf: shelf.list(owner, live), owner=owner, live=live
        )

    async def poll(
        self, id: str, *, owner: str | None = None, reader: str = "", plain: bool = True
    ) -> Polled:
        if found := await self._glanced(id, owner, reader, plain):
            return found
        asked = _number()
        return await self._tell(
            "poll",
            Polled,
            lambda shelf: shelf.poll(id, owner, reader, plain, asked),
            id=id,
            owner=owner,
            reader=reader,
            plain=plain,
            asked=asked,
        )

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
        return await self._tell(
            "log",
            Log,
            lambda shelf: shelf.log(id, owner, (tail, offset, limit), since, plain),
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
    ) -> Waited:
        end = time.monotonic() + seconds
        number = _number()
        asked = {"id": id, "owner": owner, "reader": reader, "plain": plain, "asked": number}
        while not await self._settled():
            try:
                return await self._line.ask("wait", Waited, {**asked, "seconds": seconds})
            except Lost:
                seconds = max(0.0, end - time.monotonic())
        polled = await asyncio.to_thread(self._shelf.poll, id, owner, reader, plain, number)
        clamped = self._limits.wait if seconds > self._limits.wait else None
        return Waited(polled.process, polled.output, polled.dropped, False, clamped)

    async def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[Chunk, None]:
        while not await self._settled():
            asked = {"id": id, "owner": owner, "since": since}
            try:
                async for chunk in self._line.stream("attach", Chunk, asked):
                    since = chunk.end
                    yield chunk
                return
            except Lost:
                continue
        data, end, dropped = await asyncio.to_thread(self._shelf.bytes, id, owner, since)
        if data:
            yield Chunk(data, end, dropped)

    # -- doing

    async def kill(self, id: str, *, owner: str | None = None) -> Process:
        return await self._tell(
            "kill", Process, lambda shelf: shelf.process(id, owner), id=id, owner=owner
        )

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> Written:
        given = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return await self._call("write", Written, again=False, id=id, data=given, owner=owner)

    async def submit(self, id: str, line: str, *, owner: str | None = None) -> Written:
        return await self._call("submit", Written, again=False, id=id, line=line, owner=owner)

    async def close(self, id: str, *, owner: str | None = None) -> None:
        await self._call("close", None, id=id, owner=owner)

    async def resize(self, id: str, size: Size, *, owner: str | None = None) -> None:
        await self._call("resize", None, id=id, size=size, owner=owner)

    # -- watching

    async def watch(self, id: str, watch: Watch, *, owner: str | None = None) -> Watch:
        return await self._call("watch", Watch, again=False, id=id, watch=watch, owner=owner)

    async def unwatch(self, id: str, number: int, *, owner: str | None = None) -> None:
        await self._call("unwatch", None, id=id, number=number, owner=owner)

    async def events(
        self,
        *,
        owner: str | None = None,
        wait: float = 0.0,
        limit: int = 100,
        notes: Sequence[str] = (),
    ) -> list[Event]:
        end = time.monotonic() + wait
        asked = {"owner": owner, "limit": limit, "notes": list(notes)}
        while True:
            left = max(0.0, end - time.monotonic())
            if not await self._settled():
                try:
                    return await self._line.ask("events", list[Event], {**asked, "wait": left})
                except Lost:
                    continue
            found = await asyncio.to_thread(self._shelf.events, owner, limit, notes)
            if found or not left:
                return found
            await asyncio.sleep(min(left, _AGAIN))

    async def ack(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        await self._call("ack", None, numbers=list(numbers), owner=owner)

    # -- owners

    async def busy(self, owner: str) -> int:
        return await self._tell("busy", int, lambda _: 0, owner=owner)

    async def close_owner(self, owner: str) -> int:
        return await self._tell("close_owner", int, lambda _: 0, owner=owner)

    async def aclose(self) -> None:
        if self._glance:
            self._glance.close()
            self._glance = None
        await self._line.close()


def _number() -> int:
    """The number of a question, to ask it again without losing what its answer said."""
    return secrets.randbits(63) | 1
