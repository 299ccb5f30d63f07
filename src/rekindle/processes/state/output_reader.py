"""Reading output out of a ring: since the last look, or by lines. The same with and without a
supervisor.
"""

from __future__ import annotations

from collections.abc import Callable

from rekindle.errors import InvalidInput
from rekindle.processes.supervisor.entry import told
from rekindle.processes.types import LIVE, Log, Polled, Process

from .journal import Record
from .output_text import text, whole
from .ring_buffer import Ring, Span


class Reading:
    """One process's output, with what may be said about the process."""

    def __init__(self, record: Record, ring: Ring, redact: Callable[[str], str]) -> None:
        self._record = record
        self._ring = ring
        self._redact = redact
        self._ended = record.state not in LIVE

    def poll(self, reader: str, *, plain: bool, remember: bool = True, asked: int = 0) -> Polled:
        """What came since this reader's last look; the same once more for the same `asked`."""
        since = self._ring.position(reader, asked)
        span = whole(self._ring.read(since), ended=self._ended, plain=plain)
        if remember and (span.end != since or not self._ring.knows(reader)):
            self._ring.seen(reader, span.end, since, asked)
        return Polled(self._process(), text(span.data, plain=plain), span.dropped)

    def log(
        self,
        tail: int | None,
        offset: int | None,
        limit: int | None,
        since: int | None,
        *,
        plain: bool,
    ) -> Log:
        for name, value in (("tail", tail), ("offset", offset), ("limit", limit), ("since", since)):
            if value is not None and value < 0:
                raise InvalidInput(f"{name}: {value} is less than 0")
        span = whole(self._ring.read(since or 0), ended=self._ended, plain=plain)
        lines = _lines(span.data)
        cut = _cut(span, lines, tail, offset, limit)
        said = text(cut.data, plain=plain)
        return Log(self._process(), said, cut.start, cut.end, span.dropped, len(lines))

    def _process(self) -> Process:
        return told(self._record, self._ring.total, self._ring.capacity, self._redact)


def _lines(data: bytes) -> list[bytes]:
    """Lines end at a newline alone: a progress bar is one line."""
    parts = data.split(b"\n")
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def _cut(
    span: Span, lines: list[bytes], tail: int | None, offset: int | None, limit: int | None
) -> Span:
    if tail is None and offset is None and limit is None:
        return span
    first = offset or 0
    if tail is not None:
        first = max(0, len(lines) - tail)
    chosen = lines[first:] if limit is None else lines[first : first + limit]
    start = span.start + sum(map(len, lines[:first]))
    data = b"".join(chosen)
    return Span(data, start, start + len(data), span.dropped)
