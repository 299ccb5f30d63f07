"""Survey of a file's lines, for files whose first bytes do not show whether a line is a document.

A line may be longer than the head that detection reads, and damaged lines may come before the first good
one. Only the beginning and the end of each line are looked at, so a long line costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

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


class _Line(NamedTuple):
    start: int
    head: bytes
    tail: bytes

    @property
    def is_object(self) -> bool:
        # An object of an indented document is indented.
        return self.head.startswith(b"{") and self.tail.endswith(b"}")

    @property
    def is_element(self) -> bool:
        return self.head.lstrip().startswith(b"{") and self.tail.endswith(b"},")


def survey_lines(path: Path) -> LineSurvey:
    """Look for objects that are alone on their lines, up to the first few."""
    objects: list[JsonObject] = []
    first_start = elements = others = indented = 0
    first = last = _Line(0, b"", b"")
    with path.open("rb") as file:
        for number, line in enumerate(_iter_lines(file)):
            first, last = first if number else line, line
            fields = parse_partial_fields(line.head) if line.is_object else {}
            if fields:
                first_start = first_start if objects else line.start
                objects.append(fields)
            elif line.is_element:
                elements += 1
            else:
                others += 1
                indented += line.head[:1] in (b" ", b"\t")
            if max(len(objects), elements) >= _DECIDING_LINES or number + 1 >= _MAX_SURVEYED_LINES:
                break
    is_document = indented * 2 > others or (len(objects) == 1 and _is_enclosed(first, last))
    is_decided = len(objects) > elements and len(objects) + others > 1 and not is_document
    return LineSurvey(objects, first_start, is_decided)


def is_enclosed(data: bytes) -> bool:
    """Return whether a text is enclosed in brackets that are not on one line with an object."""
    begin, end = data.find(b"\n"), data.rfind(b"\n") + 1
    first = _Line(0, data[: begin if begin >= 0 else len(data)], data[:begin].rstrip())
    return _is_enclosed(first, _Line(end, data[end:].lstrip(), data[end:].rstrip()))


def _is_enclosed(first: _Line, last: _Line) -> bool:
    brackets = (first.head[:1], last.tail[-1:])
    return brackets == (b"[", b"]") or (brackets == (b"{", b"}") and not last.is_object)


def _iter_lines(file: BinaryIO) -> Iterator[_Line]:
    """Yield the lines that are not blank."""
    start = 0
    while chunk := file.readline(_READ_BYTES):
        head, tail, end = chunk[:_LINE_START_BYTES], chunk, start + len(chunk)
        while not chunk.endswith(b"\n") and (chunk := file.readline(_READ_BYTES)):
            tail = (tail + chunk)[-_TAIL_BYTES:]
            end += len(chunk)
        if tail := tail[-_TAIL_BYTES:].rstrip():
            yield _Line(start, head.removeprefix(b"\xef\xbb\xbf"), tail)
        start = end
