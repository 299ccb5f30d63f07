"""Detects the cells below a secret's name: in CSV, in Markdown tables, in aligned columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.redaction.scanner import LiteralDetectors, RedactionSpan, ScanInput, make_secret_span
from rekindle.redaction.vocabulary.entropy import is_placeholder
from rekindle.redaction.vocabulary.secret_names import classify_name
from rekindle.redaction.vocabulary.secret_values import is_secret_string

_MAX_ROWS = 200
_MAX_LINE_CHARS = 400
_HEADER_CELL = re.compile(r"[\w .-]{1,40}\Z")
_CELL_END = re.compile(r"[\w-]{0,30}+[\"' ]{0,20}+[|,;\t\r\n]")
_RULE = re.compile(r"[|+:\s-]+\Z")


def _detect_column(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect the cells below the name at `at`, if its line is the header of a table."""
    text = scan.text
    if _CELL_END.match(text, at) is None:
        return
    start = text.rfind("\n", max(0, at - _MAX_LINE_CHARS), at) + 1
    end = text.find("\n", at, at + _MAX_LINE_CHARS)
    if end < 0 or at - start >= _MAX_LINE_CHARS:
        return
    separator = next((sign for sign in "|\t;," if sign in text[start:end]), "")
    header = text[start:end].split(separator) if separator else []
    if len(header) < 2 or not all(
        _HEADER_CELL.match(cell.strip(" \"'\r")) for cell in header[1:-1] or header
    ):
        return
    column = text.count(separator, start, at)
    name = classify_name(header[column].strip(" \"'\r"))
    if name is None or text[start].isspace():
        return
    table = (separator, column, len(header), name)
    first_row = max(end + 1, scan.table_ends.get(table, 0))  # a row may name the secret again
    count = _MAX_ROWS - text.count("\n", end + 1, first_row)
    for line_start, next_line, cells in _iter_rows(text, first_row, separator, len(header), count):
        scan.table_ends[table] = next_line
        cell = cells[column]
        value = cell.strip(" \t\"'`\r")
        if (
            is_placeholder(value)
            or value.isalpha()
            or " " in value
            or not is_secret_string(name, value)
        ):
            continue
        begin = line_start + sum(len(one) + 1 for one in cells[:column]) + cell.index(value)
        yield make_secret_span(begin, begin + len(value), name.kind)


def _iter_rows(
    text: str, at: int, separator: str, width: int, count: int
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield up to `count` rows of `width` cells: start, start of the next line, cells."""
    for _ in range(count):
        end = text.find("\n", at, at + _MAX_LINE_CHARS)
        line = text[at:end] if end >= 0 else text[at : at + _MAX_LINE_CHARS]
        cells = line.split(separator)
        if len(cells) != width:
            return
        if not _RULE.match(line):
            yield at, end + 1 if end >= 0 else at, cells
        if end < 0:
            return
        at = end + 1


LITERAL_DETECTORS: LiteralDetectors = tuple(
    (stem, _detect_column) for stem in (b"pass", b"pw", b"secret", b"token", b"key")
)
