"""Read output from a ring buffer: since the last poll, or by lines, with or without a supervisor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekindle.errors import InvalidInput
from rekindle.processes.operations import AttachOutput, ReadingOperation, ReadLog, WaitForExit
from rekindle.processes.supervisor.entry import record_to_process
from rekindle.processes.types import (
    LIVE,
    LogResult,
    OutputChunk,
    PollResult,
    Process,
    WaitResult,
)

from .journal import ProcessRecord
from .output_text import decode_output, trim_partial
from .ring_buffer import ByteRange, RingBuffer


class OutputReader:
    """Reads the output of one process, together with the process's public state."""

    def __init__(
        self, record: ProcessRecord, ring: RingBuffer, redact: Callable[[str], str]
    ) -> None:
        self._record = record
        self._ring = ring
        self._redact = redact
        self._ended = record.state not in LIVE

    def poll(self, request: ReadingOperation[Any], *, remember: bool = True) -> PollResult:
        """Return the output since this reader's last poll; the same for a repeated `request_id`."""
        reader, plain = request.reader, request.plain
        since = self._ring.get_position(reader, request.request_id)
        piece = trim_partial(self._ring.read(since), ended=self._ended, plain=plain)
        if remember and (piece.end != since or not self._ring.has_reader(reader)):
            self._ring.set_position(reader, piece.end, since, request.request_id)
        return PollResult(self._to_process(), decode_output(piece.data, plain=plain), piece.dropped)

    def wait(
        self, request: WaitForExit, max_seconds: float, *, remember: bool = True
    ) -> WaitResult:
        """Return the result of a wait that is over."""
        clamped = max_seconds if request.seconds > max_seconds else None
        return WaitResult(*self.poll(request, remember=remember), not self._ended, clamped)

    def read_log(self, request: ReadLog) -> LogResult:
        for name in ("tail", "offset", "limit", "since"):
            value: int | None = getattr(request, name)
            if value is not None and value < 0:
                raise InvalidInput(f"{name}: must not be negative, got {value}")
        piece = self._ring.read(request.since or 0)
        retained = trim_partial(piece, ended=self._ended, plain=request.plain)
        lines = _split_lines(retained.data)
        selected = _select_lines(retained, lines, request)
        output = decode_output(selected.data, plain=request.plain)
        return LogResult(
            self._to_process(), output, selected.start, selected.end, retained.dropped, len(lines)
        )

    def read_chunk(self, request: AttachOutput, limit: int | None = None) -> OutputChunk:
        """Return at most `limit` bytes of retained output."""
        piece = self._ring.read(request.since, limit)
        return OutputChunk(piece.data, piece.end, piece.dropped)

    def _to_process(self) -> Process:
        return record_to_process(self._record, self._ring.total, self._ring.capacity, self._redact)


def _split_lines(data: bytes) -> list[bytes]:
    """Split at newlines only: a progress bar is one line."""
    parts = data.split(b"\n")
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def _select_lines(span: ByteRange, lines: list[bytes], request: ReadLog) -> ByteRange:
    tail, offset, limit = request.tail, request.offset, request.limit
    if tail is None and offset is None and limit is None:
        return span
    first = offset or 0
    if tail is not None:
        first = max(0, len(lines) - tail)
    chosen = lines[first:] if limit is None else lines[first : first + limit]
    start = span.start + sum(map(len, lines[:first]))
    data = b"".join(chosen)
    return ByteRange(data, start, start + len(data), span.dropped)
