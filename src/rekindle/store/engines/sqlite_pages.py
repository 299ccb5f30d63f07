"""Rows out of the bare pages of a SQLite file, whatever became of the tree that held them.

Follows the published file format: a leaf page of a table says where its cells are, a cell holds a row
number and a record, a long record goes on in a chain of overflow pages. A page that makes no sense is
passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from rekindle.store.core.engine import Row

if TYPE_CHECKING:
    import mmap

PAGE = 4096  # what SQLite has made by default since 2016, and what we leave it at
LEAF = 0x0D
Data: TypeAlias = "bytes | mmap.mmap"
MAGIC = b"SQLite format 3\0"


def rows(data: Data, width: int) -> Iterator[tuple[int, Row]]:
    """Every row number and row of `width` columns that can be read from the leaves of any table."""
    for start in range(0, len(data) - PAGE + 1, PAGE):
        header = start + (100 if start == 0 else 0)
        if data[header] != LEAF:
            continue
        for index in range(int.from_bytes(data[header + 3 : header + 5], "big")):
            pointer = header + 8 + 2 * index
            at = int.from_bytes(data[pointer : pointer + 2], "big")
            try:
                number, row = _cell(data, start + at, start + PAGE, width)
            except (IndexError, ValueError, OverflowError, struct.error):
                continue
            yield number, row


def _varint(data: Data, at: int) -> tuple[int, int]:
    value = 0
    for used in range(8):
        byte = data[at + used]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + used + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >= 1 << 63 else value, at + 9


def _cell(data: Data, at: int, end: int, width: int) -> tuple[int, Row]:
    size, at = _varint(data, at)
    number, at = _varint(data, at)
    if not 0 < size <= len(data):
        raise ValueError("no record is that long")
    local = _local(size)
    if at + local > end:
        raise ValueError("the record leaves its page")
    payload = data[at : at + local]
    _kinds(payload, width)  # before a long chain of pages is read for nothing
    if local < size:
        payload += _overflow(
            data, int.from_bytes(data[at + local : at + local + 4], "big"), size - local
        )
    return number, _record(payload, width)


def _local(size: int) -> int:
    """How much of a record stands on the leaf itself."""
    most, least = PAGE - 35, (PAGE - 12) * 32 // 255 - 23
    if size <= most:
        return size
    kept = least + (size - least) % (PAGE - 4)
    return kept if kept <= most else least


def _overflow(data: Data, page: int, size: int) -> bytes:
    found: list[bytes] = []
    while size > 0:
        start = (page - 1) * PAGE
        if page < 2 or start + PAGE > len(data):
            raise ValueError("the chain of pages leaves the file")
        part = data[start + 4 : start + 4 + min(size, PAGE - 4)]
        found.append(part)
        size -= len(part)
        page = int.from_bytes(data[start : start + 4], "big")
    return b"".join(found)


def _kinds(payload: bytes, width: int) -> tuple[list[int], int]:
    """The kinds of a record's values, and where these begin; noise seldom has the right number."""
    length, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < length and len(kinds) <= width:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if len(kinds) != width:
        raise ValueError("a row of another table")
    return kinds, length


def _record(payload: bytes, width: int) -> Row:
    kinds, at = _kinds(payload, width)
    values: list[Any] = []
    for kind in kinds:
        value, at = _value(payload, kind, at)
        values.append(value)
    if at != len(payload):
        raise ValueError("the record is of another length than it says")
    return tuple(values)


def _value(payload: bytes, kind: int, at: int) -> tuple[Any, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), at
    if kind in (10, 11):
        raise ValueError("no such kind of value")
    if kind >= 12:
        size = (kind - 12) // 2
        raw = payload[at : at + size]
        return (raw.decode() if kind % 2 else raw), at + size
    size = (0, 1, 2, 3, 4, 6, 8, 8)[kind]
    raw = payload[at : at + size]
    if kind == 7:
        return struct.unpack(">d", raw)[0], at + 8
    return int.from_bytes(raw, "big", signed=True), at + size
