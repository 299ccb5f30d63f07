"""`read_file`: some lines of a text file, with their numbers."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple

from rekindle.agent.tools.sandbox_paths import Place, locate, open_file
from rekindle.agent.tools.tool import Tool, ToolContext, schema
from rekindle.errors import ToolError
from rekindle.types import JSON

DEFAULT_LINES = 500
MAX_LINES = 2000
LINE_CHARACTERS = 2000
_PAGE_CHARACTERS = 28_000
_SNIFFED = 8192
_COUNTED = 64 * 1024 * 1024  # bytes looked through to say how many lines there are
_CHUNK = 1024 * 1024
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Page(NamedTuple):
    """Lines of a file, the number of the first, and how many lines are known to follow."""

    lines: list[str]
    first: int
    total: int
    is_counted: bool  # False: there are more than `total`


def _read(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    place = locate(context, arguments["path"])
    with open_file(place) as (opened, _), os.fdopen(os.dup(opened), "rb") as file:
        _refuse_binary(place, file)
        page = _page(
            file,
            arguments.get("offset", 1),
            arguments.get("limit", DEFAULT_LINES),
        )
    return _shown(place, page)


def _refuse_binary(place: Place, file: BinaryIO) -> None:
    start = file.read(_SNIFFED)
    if start.startswith(_UTF16):
        raise ToolError(f"{place.asked}: UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in start:
        size = os.fstat(file.fileno()).st_size
        raise ToolError(f"{place.asked}: a binary file of {size:,} bytes, which is not shown")
    file.seek(0)


def _page(file: BinaryIO, first: int, limit: int) -> Page:
    lines: list[str] = []
    number, room = 0, _PAGE_CHARACTERS
    while number < first + limit - 1:
        # Of a line of any length only its beginning is held in memory.
        data = file.readline(4 * LINE_CHARACTERS + 4)
        if not data:
            return Page(lines, first, number, True)
        number += 1
        rest = 0 if data.endswith(b"\n") else _skip_line(file)
        if number < first:
            continue
        text = _line(data, rest)
        room -= len(text) + 8
        if room < 0 and lines:
            number -= 1
            file.seek(-len(data) - rest, io.SEEK_CUR)
            break
        lines.append(text)
    further, is_counted = _count(file)
    return Page(lines, first, number + further, is_counted)


def _skip_line(file: BinaryIO) -> int:
    """Read up to the end of the line; how many bytes that were."""
    skipped = 0
    while data := file.readline(_CHUNK):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _line(data: bytes, rest: int) -> str:
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    if rest or len(text) > LINE_CHARACTERS:
        more = len(data) + rest - len(text[:LINE_CHARACTERS].encode())
        return f"{text[:LINE_CHARACTERS]} [… about {more:,} more bytes in this line]"
    return text


def _count(file: BinaryIO) -> tuple[int, bool]:
    count, read, last = 0, 0, b"\n"
    while read < _COUNTED:
        data = file.read(_CHUNK)
        if not data:
            return count + (last != b"\n"), True
        read += len(data)
        count += data.count(b"\n")
        last = data[-1:]
    return count, not file.read(1)


def _shown(place: Place, page: Page) -> str:
    if not page.lines:
        if page.total == 0:
            return "[the file is empty]"
        raise ToolError(f"offset: {place.asked} has {page.total} lines, fewer than {page.first}")
    last = page.first + len(page.lines) - 1
    width = len(str(last))
    body = "\n".join(
        f"{number:>{width}}|{line}" for number, line in enumerate(page.lines, page.first)
    )
    if page.first == 1 and last == page.total and page.is_counted:
        return body
    of = f"{page.total:,}" if page.is_counted else f"more than {page.total:,}"
    further = f"; read on with offset={last + 1}" if last < page.total else ""
    return f"{body}\n[lines {page.first}–{last} of {of}{further}]"


READ_FILE = Tool(
    name="read_file",
    toolset="files",
    description=(
        "Read a text file. Lines come with their numbers (`12|text`); the numbers are not part of"
        " the file. Long files come in pages: go on with offset."
    ),
    parameters=schema(
        "path",
        path={"type": "string", "minLength": 1, "description": "the file"},
        offset={"type": "integer", "minimum": 1, "description": "first line to show (default 1)"},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LINES,
            "description": f"how many lines to show (default {DEFAULT_LINES})",
        },
    ),
    handler=_read,
    emoji="📖",
    seconds=30,
)
