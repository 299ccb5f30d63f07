"""`read_file`: return numbered lines of a text file."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple

from rekindle.agent.tools.sandbox_paths import SandboxPath, assess_read, open_file, resolve_path
from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.errors import ToolError
from rekindle.types import JSON

DEFAULT_LINES = 500
MAX_LINES = 2000
LINE_CHARACTERS = 2000
_PAGE_CHARACTERS = 28_000
_SNIFF_BYTES = 8192
_MAX_COUNTED_BYTES = 64 * 1024 * 1024  # scanned to count the lines
_CHUNK_BYTES = 1024 * 1024
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class FilePage(NamedTuple):
    """A range of lines, the number of the first, and the total number of lines found."""

    lines: list[str]
    first: int
    total: int
    is_total_exact: bool  # False: there may be more than `total`


def _read_file(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    path = resolve_path(context, arguments["path"])
    with open_file(path) as (opened, _), os.fdopen(os.dup(opened), "rb") as file:
        _refuse_binary(path, file)
        page = _read_page(
            file,
            arguments.get("offset", 1),
            arguments.get("limit", DEFAULT_LINES),
        )
    return _format_page(path, page)


def _refuse_binary(path: SandboxPath, file: BinaryIO) -> None:
    start = file.read(_SNIFF_BYTES)
    if start.startswith(_UTF16):
        raise ToolError(f"{path.asked}: UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in start:
        size = os.fstat(file.fileno()).st_size
        raise ToolError(f"{path.asked}: cannot show a binary file ({size:,} bytes)")
    file.seek(0)


def _read_page(file: BinaryIO, first: int, limit: int) -> FilePage:
    lines: list[str] = []
    number, room = 0, _PAGE_CHARACTERS
    while number < first + limit - 1:
        # Keep only the beginning of a line in memory.
        data = file.readline(4 * LINE_CHARACTERS + 4)
        if not data:
            return FilePage(lines, first, number, True)
        number += 1
        rest = 0 if data.endswith(b"\n") else _skip_line(file)
        if number < first:
            continue
        text = _decode_line(data, rest)
        room -= len(text) + 8
        if room < 0 and lines:
            number -= 1
            file.seek(-len(data) - rest, io.SEEK_CUR)
            break
        lines.append(text)
    remaining, is_exact = _count_lines(file)
    return FilePage(lines, first, number + remaining, is_exact)


def _skip_line(file: BinaryIO) -> int:
    """Skip to the end of the line and return the number of bytes skipped."""
    skipped = 0
    while data := file.readline(_CHUNK_BYTES):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _decode_line(data: bytes, rest: int) -> str:
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    if rest or len(text) > LINE_CHARACTERS:
        more = len(data) + rest - len(text[:LINE_CHARACTERS].encode())
        return f"{text[:LINE_CHARACTERS]} [… about {more:,} more bytes on this line]"
    return text


def _count_lines(file: BinaryIO) -> tuple[int, bool]:
    count, read, last = 0, 0, b"\n"
    while read < _MAX_COUNTED_BYTES:
        data = file.read(_CHUNK_BYTES)
        if not data:
            return count + (last != b"\n"), True
        read += len(data)
        count += data.count(b"\n")
        last = data[-1:]
    return count, not file.read(1)


def _format_page(path: SandboxPath, page: FilePage) -> str:
    if not page.lines:
        if page.total == 0:
            return "[the file is empty]"
        raise ToolError(f"offset: {path.asked} has {page.total} lines, none at {page.first}")
    last = page.first + len(page.lines) - 1
    width = len(str(last))
    body = "\n".join(
        f"{number:>{width}}|{line}" for number, line in enumerate(page.lines, page.first)
    )
    if page.first == 1 and last == page.total and page.is_total_exact:
        return body
    of = f"{page.total:,}" if page.is_total_exact else f"more than {page.total:,}"
    further = f"; continue with offset={last + 1}" if last < page.total else ""
    return f"{body}\n[lines {page.first}–{last} of {of}{further}]"


READ_FILE = Tool(
    name="read_file",
    toolset="files",
    description=(
        "Read a text file. Lines are prefixed with their numbers (`12|text`), which are not part of"
        " the file. Long files are returned in pages: continue with offset."
    ),
    parameters=build_schema(
        "path",
        path={"type": "string", "minLength": 1, "description": "path of the file"},
        offset={"type": "integer", "minimum": 1, "description": "first line to show (default 1)"},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LINES,
            "description": f"number of lines to show (default {DEFAULT_LINES})",
        },
    ),
    handler=_read_file,
    abilities=frozenset(("read_files",)),
    assess=assess_read,
    emoji="📖",
    seconds=30,
)
