"""Read rows from the raw pages of a SQLite file, whatever happened to the tree that held them.

Follows the published file format: a leaf page of a table lists its cells, a cell holds a row number
and a record, and a long record continues in a chain of overflow pages. Invalid pages are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Any, TypeAlias

from rekindle.store.core.engine import Row

if TYPE_CHECKING:
    import mmap

PAGE_SIZE = 4096  # SQLite's default since 2016, which we keep
MAX_CELLS = (PAGE_SIZE - 8) // 6  # on one page; more is noise
LEAF_PAGE = 0x0D
Data: TypeAlias = "bytes | mmap.mmap"
MAGIC = b"SQLite format 3\0"


def iter_rows(data: Data, widths: Set[int]) -> Iterator[tuple[int, Row]]:
    """Yield the number and values of each readable row, of any table with so many columns."""
    for start in range(0, len(data) - PAGE_SIZE + 1, PAGE_SIZE):
        header = start + (100 if start == 0 else 0)
        if data[header] != LEAF_PAGE:
            continue
        count = int.from_bytes(data[header + 3 : header + 5], "big")
        for index in range(min(count, MAX_CELLS)):
            pointer = header + 8 + 2 * index
            at = int.from_bytes(data[pointer : pointer + 2], "big")
            try:
                number, row = _read_cell(data, start + at, start + PAGE_SIZE, widths)
            except (IndexError, ValueError, OverflowError, struct.error):
                continue
            yield number, row


def _read_varint(data: Data, at: int) -> tuple[int, int]:
    value = 0
    for used in range(8):
        byte = data[at + used]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + used + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >= 1 << 63 else value, at + 9


def _read_cell(data: Data, at: int, end: int, widths: Set[int]) -> tuple[int, Row]:
    size, at = _read_varint(data, at)
    number, at = _read_varint(data, at)
    if not 0 < size <= len(data):
        raise ValueError("invalid record size")
    local = _compute_local_size(size)
    if at + local > end:
        raise ValueError("record exceeds its page")
    payload = data[at : at + local]
    _read_serial_types(payload, widths)  # check first, to avoid reading a long chain for nothing
    if local < size:
        payload += _read_overflow(
            data, int.from_bytes(data[at + local : at + local + 4], "big"), size - local
        )
    return number, _read_record(payload, widths)


def _compute_local_size(size: int) -> int:
    """Compute how much of a record is stored on the leaf page itself."""
    largest, smallest = PAGE_SIZE - 35, (PAGE_SIZE - 12) * 32 // 255 - 23
    if size <= largest:
        return size
    local_size = smallest + (size - smallest) % (PAGE_SIZE - 4)
    return local_size if local_size <= largest else smallest


def _read_overflow(data: Data, page: int, size: int) -> bytes:
    found: list[bytes] = []
    while size > 0:
        start = (page - 1) * PAGE_SIZE
        if page < 2 or start + PAGE_SIZE > len(data):
            raise ValueError("overflow chain exceeds the file")
        part = data[start + 4 : start + 4 + min(size, PAGE_SIZE - 4)]
        found.append(part)
        size -= len(part)
        page = int.from_bytes(data[start : start + 4], "big")
    return b"".join(found)


def _read_serial_types(payload: bytes, widths: Set[int]) -> tuple[list[int], int]:
    """Return the types of a record's values and their offset; noise rarely has the right count."""
    length, at = _read_varint(payload, 0)
    kinds: list[int] = []
    while at < length and len(kinds) <= max(widths):
        kind, at = _read_varint(payload, at)
        kinds.append(kind)
    if len(kinds) not in widths:
        raise ValueError("row of another table")
    return kinds, length


def _read_record(payload: bytes, widths: Set[int]) -> Row:
    kinds, at = _read_serial_types(payload, widths)
    values: list[Any] = []
    for kind in kinds:
        value, at = _read_value(payload, kind, at)
        values.append(value)
    if at != len(payload):
        raise ValueError("record length mismatch")
    return tuple(values)


def _read_value(payload: bytes, kind: int, at: int) -> tuple[Any, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), at
    if kind in (10, 11):
        raise ValueError("reserved serial type")
    if kind >= 12:
        size = (kind - 12) // 2
        raw = payload[at : at + size]
        return (raw.decode() if kind % 2 else raw), at + size
    size = (0, 1, 2, 3, 4, 6, 8, 8)[kind]
    raw = payload[at : at + size]
    if kind == 7:
        return struct.unpack(">d", raw)[0], at + 8
    return int.from_bytes(raw, "big", signed=True), at + size
