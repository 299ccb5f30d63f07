"""A place that is reached through a shell: a container, a host behind SSH, a sandbox of others.

The process runs there on its own: in its own session, its input from a named pipe, its output and
its exit code in files. So it outlives the connection and this program, and is found again by its id.
What is done there are the small scripts in `far/`, for any POSIX shell; a *line* is what carries them
there and brings the answer back.
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

from rekindle.errors import InputClosed, NotStarted, PlaceUnreachable

from .base import GRACE, Ended, Lost, Output, Ref, Running, Size, Spec

logger = logging.getLogger(__name__)

UNREAD = "5"  # seconds until a process that does not read is given up
BEGIN = 30.0  # seconds for one to begin: the machine there may be busy
TRIES = "25"  # looks of one script at a process that is about to begin, some of a second apart
PIECE = 4096  # bytes of input that a pipe takes as one
FIRST_WAIT, LONGEST_WAIT = 0.2, 15.0  # before a lost connection is tried again


class Line(Protocol):
    """What carries scripts to a place. It raises PlaceUnreachable when it cannot."""

    async def run(self, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Run a script with `sh -c` and return what it wrote."""
        ...

    def stream(
        self, script: str, *arguments: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run a script and give what it writes as it comes; it ends with the context."""
        ...

    async def close(self) -> None: ...


@cache
def script(name: str) -> str:
    """One of the scripts, without its comments: they travel with every call."""
    text = (
        files("rekindle.processes.backends")
        .joinpath("remote_scripts", f"{name}.sh")
        .read_text(encoding="utf-8")
    )
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


class Remote:
    """A place at the end of a line."""

    def __init__(self, name: str, line: Line) -> None:
        self._name = name
        self._line = line

    @property
    def name(self) -> str:
        return self._name

    async def start(self, spec: Spec) -> Running:
        size = ("", "") if spec.pty is None else map(str, spec.pty)
        env = {**spec.env, "REKINDLE_RUNNER": script("run")}
        what = (spec.id, spec.cwd, *size, shlex.join(spec.argv), *spec.argv)
        said = await self._line.run(script("start"), *what, env=env)
        if said.startswith("refused "):
            raise NotStarted(
                f"{spec.argv[0]} on {self.name}: {said.removeprefix('refused ').strip()}"
            )
        try:
            async with asyncio.timeout(BEGIN):
                while (state := await self._probe(spec.id, TRIES)) == "starting":
                    pass
        except TimeoutError:
            await self._line.run(script("kill"), spec.id, "0")
            await self._line.run(script("forget"), spec.id)
            why = f"it did not begin within {BEGIN:g} s"
            raise NotStarted(f"{spec.argv[0]} on {self.name}: {why}") from None
        word, _, rest = state.partition(" ")
        if word in ("gone", "lost"):
            await self._line.run(script("forget"), spec.id)
            raise NotStarted(f"{spec.argv[0]} on {self.name}: {rest or 'it is gone already'}")
        pid = int(rest.split()[0]) if word == "running" else None
        return Far(self._line, spec.id, pid)

    async def find(self, spec: Spec, ref: Ref, seen: int) -> Running | Ended | Lost:
        state, _, rest = (await self._probe(spec.id)).partition(" ")
        if state == "running":
            return Far(self._line, spec.id, int(rest.split()[0]))
        if state == "ended":  # its output is there still: it is followed to its end
            return Far(self._line, spec.id, None)
        if state == "starting":
            return Lost(f"it was being started on {self.name} when the program that did so ended")
        return Lost(rest or f"nothing is known of it on {self.name}")

    async def close(self) -> None:
        await self._line.close()

    async def _probe(self, id: str, *tries: str) -> str:
        return (await self._line.run(script("probe"), id, *tries)).strip()


class Far:
    """A process at the end of a line."""

    def __init__(self, line: Line, id: str, pid: int | None) -> None:
        self._line = line
        self._id = id
        self._pid = pid
        self._code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    @property
    def ref(self) -> Ref:
        return {"pid": self._pid}

    @property
    def pid(self) -> int | None:
        return self._pid

    async def copy(self, output: Output) -> None:
        """Follow the output to its end, however often the connection is lost on the way."""
        pause = FIRST_WAIT
        while True:
            before = output.total
            try:
                last = await self._follow(output)
            except PlaceUnreachable as error:
                logger.info("process %s: %s; trying again", self._id, error)
                last = b""
            if last == b"end":
                break
            if last == b"again":
                continue
            pause = FIRST_WAIT if output.total > before else min(pause * 2, LONGEST_WAIT)
            await asyncio.sleep(pause)
        if not self._code.done():
            self._code.set_result(None)

    async def wait(self) -> int | None:
        return await asyncio.shield(self._code)

    async def write(self, data: bytes) -> int:
        taken = 0
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            text = "".join(f"\\{byte:03o}" for byte in piece)
            # The far end looks at the clock: a slow way there says nothing about the process.
            said = (await self._line.run(script("write"), self._id, UNREAD, text)).strip()
            if said == "closed":
                raise InputClosed(f"process {self._id} takes no more input")
            if said != "taken":
                return taken
            taken += len(piece)
        return taken

    async def close_stdin(self) -> None:
        await self._line.run(script("close"), self._id)

    async def resize(self, size: Size) -> None:
        await self._line.run(script("resize"), self._id, *map(str, size))

    async def signal(self, number: int) -> None:
        await self._line.run(script("signal"), self._id, str(number))

    async def kill(self, grace: float = GRACE) -> None:
        said = await self._line.run(script("kill"), self._id, str(ceil(grace)))
        if said.split() != ["left", "0"]:
            logger.warning("process %s: after the kill: %s", self._id, said.strip())

    async def forget(self) -> None:
        await self._line.run(script("forget"), self._id)

    def release(self) -> None:
        """Nothing is held here."""

    async def _follow(self, output: Output) -> bytes:
        """Take what comes over one connection; the word it ended with, if there was one."""
        async with self._line.stream(script("follow"), self._id, str(output.total)) as pieces:
            reader = _Reader(pieces)
            while line := await reader.line():
                word, *rest = line.split()
                if word == b"output":
                    await reader.copy(int(rest[1]), output)
                elif word == b"exit" and not self._code.done():
                    self._code.set_result(int(rest[0]))
                elif word in (b"end", b"again"):
                    return word
        return b""


class _Reader:
    """Lines, and bytes of a known number, out of pieces of any size."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = bytearray()

    async def line(self) -> bytes:
        """The next line; empty at the end."""
        while (end := self._rest.find(b"\n")) < 0:
            if not await self._more():
                return b""
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

    async def copy(self, count: int, output: Output) -> None:
        while count:
            if not self._rest and not await self._more():
                return
            output.append(bytes(self._rest[:count]))
            taken = min(count, len(self._rest))
            del self._rest[:taken]
            count -= taken

    async def _more(self) -> bool:
        piece = await anext(self._pieces, b"")
        self._rest += piece
        return bool(piece)
