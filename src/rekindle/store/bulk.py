"""Many rows with few statements.

A statement for each row goes back and forth between Python and SQLite each time, and beside another
thread every way back is a wait for the interpreter. One for hundreds of rows leaves the time to SQLite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from .engine import Row, Transaction

_COUNTS = (400, 50, 7, 1)  # rows in one statement: few sizes, so that all stay prepared


def insert(tx: Transaction, table: str, columns: str, rows: Sequence[Row]) -> None:
    """Insert rows; `columns` are names with commas between them."""
    start = 0
    for count in _COUNTS:
        sql = statement(table, columns, count)
        while len(rows) - start >= count:
            tx.run(sql, [*chain.from_iterable(rows[start : start + count])])
            start += count


@lru_cache(maxsize=32)
def statement(table: str, columns: str, count: int = 1) -> str:
    """The statement for so many rows."""
    marks = f"({','.join('?' * (columns.count(',') + 1))})"
    return f"INSERT INTO {table} ({columns}) VALUES {','.join([marks] * count)}"
