"""One SQLite transaction: run statements on a connection, and defer work to the commit."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's own stubs leave the type of a blob open.
from __future__ import annotations

import _thread
import threading
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
    is_exclusive = True

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


def run_in_parallel(
    finish: Callable[[], None], task: Callable[[], None], use_spare_time: Callable[[], None]
) -> None:
    """Run both, `finish` in a thread of its own: it spends most of its time in SQLite, not Python.

    If it ends before the task, `use_spare_time` is called there.
    """
    errors: list[BaseException] = []
    ended = threading.Event()
    task_ended = threading.Event()

    def run() -> None:
        try:
            finish()
            if not task_ended.is_set():
                use_spare_time()
        except BaseException as error:  # noqa: BLE001  raised by the waiting thread
            errors.append(error)
        finally:
            ended.set()

    try:
        _thread.start_new_thread(run, ())  # returns immediately and cannot be interrupted half-way
    except RuntimeError:  # no thread available: skip the parallel task
        finish()
        return
    try:
        task()
    finally:
        task_ended.set()
        _wait_uninterrupted(ended)
        if errors:
            raise errors[0]


def _wait_uninterrupted(ended: threading.Event) -> None:
    """Wait for the end despite interrupts: until then another thread uses the connection.

    (`Thread` does not work here: interrupted in `start` or `join`, it does not report what still runs.)
    """
    interrupt: BaseException | None = None
    while not ended.is_set():
        try:
            ended.wait()
        except BaseException as error:  # noqa: BLE001  raised as soon as possible
            interrupt = error
    if interrupt:
        raise interrupt
