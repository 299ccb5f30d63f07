"""The beginning of a file: all that detection looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast, overload

from rekindle.json_fields import Record
from rekindle.store.engines.open_files import is_open
from rekindle.transcripts.jsonio.jsonl import decode
from rekindle.transcripts.jsonio.partial import fields_so_far

_BYTES = 64 * 1024
_LINES = 40
_RARE = 8


class Head:
    """The first bytes of a file, parsed once for all formats that want to look."""

    def __init__(self, data: bytes, path: Path | None = None) -> None:
        self.data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
        # For formats that spread over several files: what lies beside this one.
        self.path = path

    @classmethod
    def of(cls, path: Path) -> Head:
        if is_open(path):  # our own store: to open it beside SQLite would cost it its locks
            return cls(b"", path)
        with path.open("rb") as file:
            return cls(file.read(_BYTES), path)

    @cached_property
    def records(self) -> Sequence[Record]:
        """The JSON objects at the beginning; a first one that is cut has what is there of it."""
        if not self.lines and self.data.startswith(b"{"):
            return [fields_so_far(self.data)]
        return self.lines

    @cached_property
    def fields(self) -> Record:
        """The fields of the document that the file begins with, as far as they are there."""
        return fields_so_far(self.data) if self.data.startswith(b"{") else {}

    @cached_property
    def lines(self) -> Sequence[Record]:
        """The JSON objects that stand whole on a line of their own."""
        return _Lines(self.data.split(b"\n", _LINES)[:_LINES])

    @property
    def is_lines(self) -> bool:
        """Whether objects stand on lines of their own, and not as elements of one document."""
        lines = [line.strip() for line in self.data.split(b"\n", _LINES)[:_LINES]]
        elements = sum(
            line.startswith(b"{") and line.endswith(b"},") and _is_json(line[:-1]) for line in lines
        )
        # In a document that is laid out, some small object may stand on its line alone.
        others = sum(bool(line) for line in lines) - len(self.lines)
        is_rare = len(self.lines) * _RARE <= others and not _is_json(lines[0])
        return len(self.lines) > elements and not is_rare

    @property
    def is_binary(self) -> bool:
        return b"\0" in self.data


class _Lines(Sequence[Record]):
    """Objects on lines, each parsed when somebody looks at it: mostly the first ones are enough."""

    def __init__(self, lines: list[bytes]) -> None:
        self._found: list[Record] = []
        self._rest = self._parsed(lines)

    def __iter__(self) -> Iterator[Record]:
        place = 0
        while place < len(self._found) or self._more():
            yield self._found[place]
            place += 1

    def __len__(self) -> int:
        while self._more():
            pass
        return len(self._found)

    def __bool__(self) -> bool:
        return bool(self._found) or self._more()

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if place == 0 and self:
            return self._found[0]
        return [*self][place]

    def _more(self) -> bool:
        """Whether there was another one; it is among those that were found now."""
        more = next(self._rest, None)
        if more is not None:
            self._found.append(more)
        return more is not None

    def _parsed(self, lines: list[bytes]) -> Iterator[Record]:
        for line in lines:
            line = line.strip()
            # The last one may be cut; to find that out by parsing it costs more than all others.
            if not (line.startswith(b"{") and line.endswith(b"}")):
                continue
            try:
                value = decode(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield cast(Record, value)


def _is_json(data: bytes) -> bool:
    try:
        decode(data)
    except ValueError:
        return False
    return True
