"""Read rows from the raw pages of a SQLite file, whatever happened to the tree that held them.

Follows the published file format: a leaf page of a table lists its cells, a cell holds a row number
and a record, and a long record continues in a chain of overflow pages. Invalid pages are skipped.

The rows of one table are found by its tree, from the root that the schema names. A table without row
numbers is a tree of records alone, as an index is, and has rows on inner pages too.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rekindle.store.core.engine import Row

if TYPE_CHECKING:
    import mmap

PAGE_SIZE = 4096  # SQLite's default since 2016, which we keep
MAX_CELLS = (PAGE_SIZE - 8) // 6  # on one page; more is noise
LEAF_PAGE = 0x0D
INNER_PAGE = 0x05
RECORD_LEAF_PAGE, RECORD_INNER_PAGE = 0x0A, 0x02  # of indexes and tables without row numbers
_INNER_PAGES = (INNER_PAGE, RECORD_INNER_PAGE)
TABLE_PAGES, RECORD_PAGES = (LEAF_PAGE, INNER_PAGE), (RECORD_LEAF_PAGE, RECORD_INNER_PAGE)
_SCHEMA_WIDTH = 5  # type, name, table, root, statement
_READ_ERRORS = (IndexError, ValueError, OverflowError, struct.error)
Data: TypeAlias = "bytes | mmap.mmap"
MAGIC = b"SQLite format 3\0"


class PageTree(NamedTuple):
    """The pages of a tree that hold its rows, and the number of those that cannot be read."""

    pages: frozenset[int]
    damaged: int


class PageRow(NamedTuple):
    """A row of a page; no values if it cannot be read."""

    number: int
    values: Row | None


def iter_rows(data: Data, widths: Set[int]) -> Iterator[tuple[int, Row]]:
    """Yield the number and values of each readable row, of any table with so many columns."""
    for page in range(1, count_pages(data) + 1):
        if get_page_type(data, page) == LEAF_PAGE:
            for row in iter_page_rows(data, page, widths):
                if row.values is not None:
                    yield row.number, row.values


def count_pages(data: Data) -> int:
    """Return the number of complete pages."""
    return len(data) // PAGE_SIZE


def get_page_type(data: Data, page: int) -> int:
    """Return the first byte of a page's header."""
    return data[_get_header(page)]


def has_row_numbers(data: Data, page: int) -> bool:
    """Return whether a page belongs to a table with row numbers."""
    return get_page_type(data, page) in TABLE_PAGES


def find_roots(data: Data) -> dict[str, int]:
    """Return the first pages of tables and indexes, by name, from what is left of the schema."""
    pages: Iterable[int] = (
        sorted(walk_tree(data, 1, has_numbers=True).pages) if data[: len(MAGIC)] == MAGIC else ()
    )
    return _read_roots(data, pages) or _read_roots(data, range(1, count_pages(data) + 1))


def _read_roots(data: Data, pages: Iterable[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for page in pages:
        if get_page_type(data, page) != LEAF_PAGE:
            continue
        for _, row in iter_page_rows(data, page, {_SCHEMA_WIDTH}):
            if row is None or row[0] not in ("table", "index"):
                continue
            if isinstance(row[1], str) and isinstance(row[3], int):
                found[row[1]] = row[3]
    return {name: root for name, root in found.items() if 1 < root <= count_pages(data)}


def list_free_pages(data: Data) -> set[int]:
    """Return the pages that the file does not use, as far as its list of them can be read."""
    found: set[int] = set()
    page = int.from_bytes(data[32:36], "big") if data[: len(MAGIC)] == MAGIC else 0
    while 1 < page <= count_pages(data) and page not in found:
        found.add(page)
        start = (page - 1) * PAGE_SIZE
        page, count = struct.unpack(">II", data[start : start + 8])
        for at in range(start + 8, start + 8 + 4 * min(count, PAGE_SIZE // 4 - 2), 4):
            found.add(int.from_bytes(data[at : at + 4], "big"))
    return found


def walk_tree(data: Data, root: int, *, has_numbers: bool) -> PageTree:
    """Follow a tree from its first page, as far as it can be read.

    `has_numbers` says whether it is that of a table with row numbers.
    """
    allowed = TABLE_PAGES if has_numbers else RECORD_PAGES
    pages: set[int] = set()
    seen: set[int] = set()
    damaged = 0
    waiting = [root]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        if not 0 < page <= count_pages(data) or not is_sound_page(data, page, allowed):
            damaged += 1
            continue
        if get_page_type(data, page) != INNER_PAGE:
            pages.add(page)
        if get_page_type(data, page) in _INNER_PAGES:
            waiting += _list_children(data, page)
    return PageTree(frozenset(pages), damaged)


def is_sound_page(data: Data, page: int, types: Collection[int]) -> bool:
    """Return whether a page is of one of these types and its header describes its cells."""
    header, start = _get_header(page), (page - 1) * PAGE_SIZE
    if data[header] not in types:
        return False
    free, count, content = struct.unpack(">HHH", data[header + 1 : header + 7])
    pointers_end = header - start + (12 if data[header] in _INNER_PAGES else 8) + 2 * count
    if not (free < PAGE_SIZE and pointers_end <= content <= PAGE_SIZE):
        return False
    return all(content <= at < PAGE_SIZE for at in _list_cells(data, page))


def _list_children(data: Data, page: int) -> list[int]:
    start, header = (page - 1) * PAGE_SIZE, _get_header(page)
    children = [int.from_bytes(data[header + 8 : header + 12], "big")]
    for at in _list_cells(data, page):
        children.append(int.from_bytes(data[start + at : start + at + 4], "big"))
    return children


def _list_cells(data: Data, page: int) -> list[int]:
    header = _get_header(page)
    first = header + (12 if data[header] in _INNER_PAGES else 8)
    count = min(int.from_bytes(data[header + 3 : header + 5], "big"), MAX_CELLS)
    pointers = range(first, first + 2 * count, 2)
    return [int.from_bytes(data[one : one + 2], "big") for one in pointers]


def _get_header(page: int) -> int:
    return (page - 1) * PAGE_SIZE + (100 if page == 1 else 0)


def iter_page_rows(data: Data, page: int, widths: Set[int]) -> Iterator[PageRow]:
    """Yield the rows on a page of a tree."""
    start, kind = (page - 1) * PAGE_SIZE, get_page_type(data, page)
    skipped = 4 if kind == RECORD_INNER_PAGE else 0  # the page below
    for at in _list_cells(data, page):
        try:
            number, row = _read_cell(
                data,
                start + at + skipped,
                start + PAGE_SIZE,
                widths,
                has_number=kind == LEAF_PAGE,
            )
        except _READ_ERRORS:
            yield PageRow(0, None)
        else:
            yield PageRow(number, row)


def _read_varint(data: Data, at: int) -> tuple[int, int]:
    value = 0
    for used in range(8):
        byte = data[at + used]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + used + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >= 1 << 63 else value, at + 9


def _read_cell(
    data: Data, at: int, end: int, widths: Set[int], *, has_number: bool
) -> tuple[int, Row]:
    size, at = _read_varint(data, at)
    number, at = _read_varint(data, at) if has_number else (0, at)
    if not 0 < size <= len(data):
        raise ValueError("invalid record size")
    local = _compute_local_size(size, is_leaf=has_number)
    if at + local > end:
        raise ValueError("record exceeds its page")
    payload = data[at : at + local]
    _read_serial_types(payload, widths)  # check first, to avoid reading a long chain for nothing
    if local < size:
        payload += _read_overflow(
            data, int.from_bytes(data[at + local : at + local + 4], "big"), size - local
        )
    return number, _read_record(payload, widths)


def _compute_local_size(size: int, *, is_leaf: bool) -> int:
    """Compute how much of a record is stored on the page itself: more on a leaf of a table."""
    largest = PAGE_SIZE - 35 if is_leaf else (PAGE_SIZE - 12) * 64 // 255 - 23
    smallest = (PAGE_SIZE - 12) * 32 // 255 - 23
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
