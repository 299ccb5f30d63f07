"""Multi-row INSERT statements.

One statement per row would cross between Python and SQLite each time and, next to another thread,
wait for the GIL on every return. One statement for hundreds of rows leaves the time to SQLite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from .engine import Row, Transaction

MAX_ROWS_PER_INSERT = 400  # rows in one statement


def insert_rows(tx: Transaction, table: str, columns: str, rows: Sequence[Row]) -> None:
    """Insert rows; `columns` is a comma-separated list of column names."""
    for start in range(0, len(rows), MAX_ROWS_PER_INSERT):
        batch = rows[start : start + MAX_ROWS_PER_INSERT]
        tx.run(build_insert(table, columns, len(batch)), [*chain.from_iterable(batch)])


@lru_cache(maxsize=64)
def build_insert(table: str, columns: str, count: int = 1) -> str:
    """Build the INSERT statement for `count` rows."""
    marks = f"({','.join('?' * (columns.count(',') + 1))})"
    return f"INSERT INTO {table} ({columns}) VALUES {','.join([marks] * count)}"
