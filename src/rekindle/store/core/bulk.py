"""Many rows with few statements.

A statement for each row goes back and forth between Python and SQLite each time, and beside another
thread every way back is a wait for the interpreter. One for hundreds of rows leaves the time to SQLite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from .engine import Row, Transaction

MOST = 400  # rows in one statement


def insert(tx: Transaction, table: str, columns: str, rows: Sequence[Row]) -> None:
    """Insert rows; `columns` are names with commas between them."""
    for start in range(0, len(rows), MOST):
        some = rows[start : start + MOST]
        tx.run(statement(table, columns, len(some)), [*chain.from_iterable(some)])


@lru_cache(maxsize=64)
def statement(table: str, columns: str, count: int = 1) -> str:
    """The statement for so many rows."""
    marks = f"({','.join('?' * (columns.count(',') + 1))})"
    return f"INSERT INTO {table} ({columns}) VALUES {','.join([marks] * count)}"
