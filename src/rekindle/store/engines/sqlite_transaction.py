"""One SQLite transaction: run statements on a connection, and defer work to the commit."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's own stubs leave the type of a blob open.
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apsw

from rekindle.store.core import bulk
from rekindle.store.core.engine import Row

from .sqlite_search import UnindexedTail


class SqliteTransaction:
    """Statements on one connection, inside its transaction."""

    __slots__ = (
        "_deferred_rows",
        "_execute",
        "_execute_many",
        "commit_task",
        "connection",
    )

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._deferred_rows: dict[tuple[str, str], list[Row]] = {}
        self.commit_task: Callable[[], None] | None = None
        self._execute = connection.execute
        self._execute_many = connection.executemany

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        return self._execute(sql, params).fetchall()

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        if isinstance(rows, list) and len(rows) == 1:
            self._execute(sql, rows[0])
        else:
            self._execute_many(sql, rows)

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        return self._execute(sql, params)

    def defer_insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        self._deferred_rows.setdefault((table, columns), []).extend(rows)

    def flush_deferred(self) -> None:
        if self._deferred_rows:
            for (table, columns), rows in self._deferred_rows.items():
                bulk.insert_rows(self, table, columns, rows)
            self._deferred_rows = {}

    def run_during_commit(self, task: Callable[[], None]) -> None:
        self.commit_task = task

    def close(self) -> None:
        self.connection.close()


class SqliteReader(SqliteTransaction):
    """A reader's connection, with its index of the newest messages."""

    __slots__ = ("tail",)

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.tail = UnindexedTail()
