"""The list of processes: those that run first, each with its last line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rekindle.errors import RekindleError
from rekindle.processes.operations import Processes
from rekindle.processes.types import Process

PAGE_SIZE = 50
_MAX_CACHED = 2000
_MAX_LINE_CHARS = 300


class ProcessRow(NamedTuple):
    """A process and the last line of its output."""

    process: Process
    last_line: str


class ProcessPage(NamedTuple):
    """A page of the list. `live` and `total` count all processes."""

    rows: Sequence[ProcessRow]
    live: int
    total: int
    has_more: bool


class LastLines:
    """The last line of each process; that of a process which has ended is read once."""

    def __init__(self) -> None:
        self._ended: dict[str, str] = {}

    async def read_line(self, processes: Processes, one: Process) -> str:
        """Return the last line that a process has written, empty if there is none."""
        if one.id in self._ended:
            return self._ended[one.id]
        try:
            # Two lines: the last one is empty while a line feed is the last character.
            output = (await processes.read_log(one.id, tail=2)).output if one.bytes else ""
        except RekindleError:
            return ""
        lines = output.rstrip().rsplit("\n", 1)
        found = lines[-1][:_MAX_LINE_CHARS]
        if not one.live:
            self._ended[one.id] = found
            while len(self._ended) > _MAX_CACHED:
                del self._ended[next(iter(self._ended))]
        return found


async def list_page(
    processes: Processes, lines: LastLines, *, only_live: bool, page: int
) -> ProcessPage:
    """Return a page of the list, the newest first among those that run and those that have ended."""
    known = await processes.list()
    ordered = sorted(known, key=lambda one: (not one.live, -one.started))
    live = sum(one.live for one in known)
    chosen = ordered[:live] if only_live else ordered
    shown = chosen[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
    texts = await asyncio.gather(*(lines.read_line(processes, one) for one in shown))
    rows = [ProcessRow(one, text) for one, text in zip(shown, texts, strict=True)]
    return ProcessPage(rows, live, len(known), len(chosen) > (page + 1) * PAGE_SIZE)


def format_span(seconds: float) -> str:
    """Say how long something took, with the two largest units."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
