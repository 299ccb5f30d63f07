"""Survey of a file's lines, for files whose first bytes do not show whether a line is a document.

A line may be longer than the head that detection reads, and damaged lines may come before the first good
one. Only the beginning and the end of each line are looked at, so a long line costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from rekindle.json_fields import JsonObject

from .partial import parse_partial_fields

_LINE_START_BYTES = 64 * 1024
_READ_BYTES = 1 << 20
_TAIL_BYTES = 256
_MAX_SURVEYED_LINES = 4096
# So many objects, or elements of a list, decide what the lines are.
_DECIDING_LINES = 2


class LineSurvey(NamedTuple):
    """The first objects on lines of their own, with the fields seen so far, and where they begin."""

    objects: Sequence[JsonObject] = ()
    first_start: int = 0
    has_document_per_line: bool = False


# Where a line starts, its beginning and its end.
_Line: TypeAlias = tuple[int, bytes, bytes]


def survey_lines(path: Path) -> LineSurvey:
    """Look for objects that are alone on their lines, up to the first few."""
    objects: list[JsonObject] = []
    first_start = elements = others = indented = 0
    first: _Line | None = None
    last: _Line = (0, b"", b"")
    with path.open("rb") as file:
        for last in islice(_iter_lines(file), _MAX_SURVEYED_LINES):
            start, head, tail = last
            first = first or last
            # An indented document has thousands of lines: no function calls for most of them.
            if (
                head.startswith(b"{")
                and tail.endswith(b"}")
                and (fields := parse_partial_fields(head))
            ):
                first_start = first_start if objects else start
                objects.append(fields)
            elif tail.endswith(b"},") and head.lstrip().startswith(b"{"):
                elements += 1
            else:
                others += 1
                indented += head.startswith((b" ", b"\t"))
                continue
            if max(len(objects), elements) >= _DECIDING_LINES:
                break
    is_document = indented * 2 > others or (len(objects) == 1 and _is_enclosed(first or last, last))
    is_decided = len(objects) > elements and len(objects) + others > 1 and not is_document
    return LineSurvey(objects, first_start, is_decided)


def is_enclosed(data: bytes) -> bool:
    """Return whether a text is enclosed in brackets that are not on one line with an object."""
    begin, end = data.find(b"\n"), data.rfind(b"\n") + 1
    first = (0, data[: begin if begin >= 0 else len(data)], data[:begin].rstrip())
    return _is_enclosed(first, (end, data[end:].lstrip(), data[end:].rstrip()))


def _is_enclosed(first: _Line, last: _Line) -> bool:
    brackets = (first[1][:1], last[2][-1:])
    if brackets == (b"{", b"}"):
        return not last[1].startswith(b"{")  # an object of its own
    return brackets == (b"[", b"]")


def _iter_lines(file: BinaryIO) -> Iterator[_Line]:
    """Yield the lines that are not blank."""
    start = 0
    while chunk := file.readline(_READ_BYTES):
        head, tail, end = chunk[:_LINE_START_BYTES], chunk[-_TAIL_BYTES:], start + len(chunk)
        while not chunk.endswith(b"\n") and (chunk := file.readline(_READ_BYTES)):
            tail = (tail + chunk)[-_TAIL_BYTES:]
            end += len(chunk)
        if tail := tail.rstrip():
            yield start, head.removeprefix(b"\xef\xbb\xbf"), tail
        start = end
