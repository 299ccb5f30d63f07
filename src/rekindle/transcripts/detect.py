"""The first bytes of a file, which is all that format detection looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast, overload

from rekindle.json_fields import JsonObject
from rekindle.store.engines.open_files import is_open
from rekindle.transcripts.jsonio.fast_path import is_document
from rekindle.transcripts.jsonio.jsonl import decode_json
from rekindle.transcripts.jsonio.line_survey import LineSurvey, is_enclosed, survey_lines
from rekindle.transcripts.jsonio.partial import parse_partial_fields

_HEAD_BYTES = 64 * 1024
_MAX_LINES = 40
_RARE_RATIO = 8


class FileHead:
    """The first bytes of a file, parsed once for all formats."""

    def __init__(self, data: bytes, path: Path | None = None) -> None:
        self.data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
        self.is_cut = len(data) >= _HEAD_BYTES
        # For formats that spread over several files.
        self.path = path

    @classmethod
    def read(cls, path: Path) -> FileHead:
        """Read the head of a file."""
        if is_open(path):  # our own store: opening and closing it would drop SQLite's locks
            return cls(b"", path)
        with path.open("rb") as file:
            return cls(file.read(_HEAD_BYTES), path)

    @cached_property
    def objects(self) -> Sequence[JsonObject]:
        """The JSON objects at the beginning; a truncated first one has the fields seen so far."""
        if not self.line_objects and self.data.startswith(b"{"):
            return [parse_partial_fields(self.data)]
        return self.line_objects

    @cached_property
    def fields(self) -> JsonObject:
        """The fields of the document that the file begins with, as far as they were read."""
        return parse_partial_fields(self.data) if self.data.startswith(b"{") else {}

    @cached_property
    def line_objects(self) -> Sequence[JsonObject]:
        """The JSON objects that are complete on a line of their own."""
        return _HeadLines(self._lines)

    @property
    def first_line_objects(self) -> Sequence[JsonObject]:
        """The first JSON objects on lines, wherever they are, with the fields seen so far."""
        return self.line_objects or self._survey.objects

    @cached_property
    def has_document_per_line(self) -> bool:
        """Whether documents are on lines of their own, with any damaged lines between them."""
        elements = sum(_is_element(line) for line in self._lines)
        if not self.line_objects:
            return not elements and self._survey.has_document_per_line
        if len(self.line_objects) <= elements:
            return False
        if _is_json(self._lines[0]):
            return True
        if self._is_indented:
            return False
        return len(self.line_objects) > 1 or not is_enclosed(self.data.rstrip())

    @property
    def is_binary(self) -> bool:
        """Whether the file is not text; a crash may leave NUL bytes between lines of text."""
        return b"\0" in self.data and not self.line_objects

    def skip_damaged_lines(self) -> FileHead | None:
        """Return the head of the file from its first good line, or None if that is the first."""
        if self.path is None or is_open(self.path):
            return None
        start = survey_lines(self.path).first_start
        if not start:
            return None
        with self.path.open("rb") as file:
            file.seek(start)
            return FileHead(file.read(_HEAD_BYTES), self.path)

    @cached_property
    def _lines(self) -> list[bytes]:
        return self.data.split(b"\n", _MAX_LINES)[:_MAX_LINES]

    @cached_property
    def _survey(self) -> LineSurvey:
        """The lines beyond the head, which are needed if it shows no document on a line."""
        if self.path is None or not (self.is_cut or len(self._lines) == _MAX_LINES):
            return LineSurvey()
        # An indented document has thousands of lines, and parsing it takes less time than they do.
        if len(self._lines) > 1 and is_document(self.path):
            return LineSurvey()
        return survey_lines(self.path)

    @property
    def _is_indented(self) -> bool:
        """Whether this is an indented document, where a small object may be alone on its line."""
        others = sum(bool(line.strip()) for line in self._lines) - len(self.line_objects)
        indented = sum(line[:1] in (b" ", b"\t") for line in self._lines)
        is_rare = len(self.line_objects) * _RARE_RATIO <= others
        return is_rare and (indented * 2 > others or not any(self.line_objects))


class _HeadLines(Sequence[JsonObject]):
    """Objects on lines, parsed lazily because the first ones are usually enough."""

    def __init__(self, lines: list[bytes]) -> None:
        self._cached: list[JsonObject] = []
        self._unparsed = self._iter_parsed(lines)

    def __iter__(self) -> Iterator[JsonObject]:
        index = 0
        while index < len(self._cached) or self._parse_next():
            yield self._cached[index]
            index += 1

    def __len__(self) -> int:
        while self._parse_next():
            pass
        return len(self._cached)

    def __bool__(self) -> bool:
        return bool(self._cached) or self._parse_next()

    @overload
    def __getitem__(self, index: int) -> JsonObject: ...

    @overload
    def __getitem__(self, index: slice) -> list[JsonObject]: ...

    def __getitem__(self, index: int | slice) -> JsonObject | list[JsonObject]:
        if index == 0 and self:
            return self._cached[0]
        return [*self][index]

    def _parse_next(self) -> bool:
        """Parse the next object and return whether there was one."""
        more = next(self._unparsed, None)
        if more is not None:
            self._cached.append(more)
        return more is not None

    def _iter_parsed(self, lines: list[bytes]) -> Iterator[JsonObject]:
        for line in lines:
            line = line.strip()
            # The last line may be truncated; parsing it costs more than all the others.
            if not _is_object_line(line):
                continue
            try:
                value = decode_json(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield cast(JsonObject, value)


def _is_object_line(line: bytes) -> bool:
    return line.startswith(b"{") and line.endswith(b"}")


def _is_element(line: bytes) -> bool:
    """Return whether a line holds one element of a list."""
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"},") and _is_json(line[:-1])


def _is_json(data: bytes) -> bool:
    try:
        decode_json(data)
    except ValueError:
        return False
    return True
