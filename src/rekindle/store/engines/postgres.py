"""The PostgreSQL engine: the same tables on a server, for several machines at once."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import errors as pg

from rekindle.errors import (
    InvalidInput,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from rekindle.store.core import bulk
from rekindle.store.core.engine import Operation, Progress, Row, Transaction
from rekindle.store.core.migrations import (
    LAST_REINDEX_VERSION,
    LATEST_VERSION,
    REQUESTS_VERSION,
    apply_migrations,
    refuse_newer,
)
from rekindle.store.sessions.requests import refresh_all_requests
from rekindle.types import Finding, Message

from . import postgres_search
from .connection_pool import ConnectionPool

if TYPE_CHECKING:
    from pathlib import Path

MAX_READERS = 8
UPGRADE_LOCK = 0x52454B44
MAX_ATTEMPTS = 50  # many writers that claim the same title succeed one by one

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # we report lost connections
_CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError)
# Each writer records the number of its transaction in it. If the answer to a commit is lost, this
# shows whether it succeeded: the query waits for a commit in progress and, unlike a transaction id
# of the server, the number is not reused after a crash.
_RECORD_COMMIT = (
    "INSERT INTO writers (name, number, time) VALUES (?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET number = excluded.number, time = excluded.time"
)
_SELECT_COMMIT = (
    "INSERT INTO writers (name, number, time) VALUES (?, 0, 0) ON CONFLICT (name)"
    " DO UPDATE SET name = excluded.name RETURNING number"
)
_DELETE_OLD_WRITERS = (
    "DELETE FROM writers WHERE name IN"
    " (SELECT name FROM writers WHERE time < %s FOR UPDATE SKIP LOCKED)"
)
WRITER_RETENTION_SECONDS = 7 * 86_400.0
_RETRYABLE_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)


@lru_cache(maxsize=1024)
def _to_postgres_sql(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresTransaction:
    """Statements on one connection, inside its transaction."""

    __slots__ = ("connection",)
    convert_sql = staticmethod(_to_postgres_sql)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        cursor = self.connection.execute(self.convert_sql(sql), params)  # pyright: ignore[reportArgumentType]
        return cursor.fetchall() if cursor.description else []

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(self.convert_sql(sql), rows)  # pyright: ignore[reportArgumentType]

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        with self.connection.cursor(name="stream") as cursor:
            cursor.itersize = 500
            cursor.execute(self.convert_sql(sql), params)  # pyright: ignore[reportArgumentType]
            yield from cursor

    def defer_insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        self.run_many(bulk.build_insert(table, columns), rows)

    def flush_deferred(self) -> None:
        """Do nothing: rows are inserted immediately."""

    def run_during_commit(self, task: Callable[[], None]) -> None:
        """Do nothing: a commit leaves no time for another task."""


class PostgresEngine:
    """A database on a PostgreSQL server."""

    name = "postgresql"
    _transaction_type = PostgresTransaction

    def __init__(self, url: str, *, durability: str, readonly: bool, busy_seconds: float) -> None:
        self.location = re.sub(r"\A(\w+://[^:/@]*):[^@]*@", r"\1:…@", url)
        self.location = re.sub(r"(password=)[^&]*", r"\1…", self.location)
        self.version = LATEST_VERSION
        self._url = url
        self._durability = durability
        self._readonly = readonly
        self._busy_seconds = busy_seconds
        self._writer: Connection | None = None
        self._closed = False
        self._readers = ConnectionPool(
            self._connect_reader, _close_connection, psycopg.Error, MAX_READERS, _is_alive
        )
        self._writer_name = secrets.token_hex(8)
        self._commit_number = 0
        self._is_open = False
        with self._translate_errors():
            self._open()
        self._is_open = True

    # -- opening

    def _connect(self) -> Connection:
        connection = psycopg.connect(
            self._url, connect_timeout=max(2, int(self._busy_seconds)), application_name="rekindle"
        )
        milliseconds = int(self._busy_seconds * 1000)
        commit = "on" if self._durability == "full" else "off"
        tx = PostgresTransaction(connection)
        tx.run(f"SET lock_timeout = {milliseconds}")
        tx.run(f"SET synchronous_commit = {commit}")
        connection.commit()
        return connection

    def _connect_writer(self) -> Connection:
        connection = self._connect()
        # A machine that disappears mid-write must not hold its locks until the network times out.
        connection.execute(
            "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;"
            "SET tcp_keepalives_count = 3"
        )
        self._begin(connection)
        connection.execute(_DELETE_OLD_WRITERS, (time.time() - WRITER_RETENTION_SECONDS,))
        connection.commit()
        return connection

    def _connect_reader(self) -> Connection:
        # Retry only once the store is open: a wrong address must fail immediately.
        deadline = time.monotonic() + (self._busy_seconds if self._is_open else 0.0)
        connection = _connect_with_retries(self._connect, deadline)
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return connection

    def _open(self) -> None:
        with self._readers.borrow() as connection:
            version = _read_version(connection)
            connection.rollback()
        refuse_newer(self.location, version)
        if version < LATEST_VERSION:
            if self._readonly:
                raise StoreReadOnly(f"{self.location} has not been migrated to this version yet")
            self._upgrade()

    def _upgrade(self) -> None:
        with self._connect() as connection:
            tx = PostgresTransaction(connection)
            tx.run("SELECT pg_advisory_xact_lock(?)", (UPGRADE_LOCK,))
            version = _read_version(connection)  # again: another process may have been faster
            if version == LATEST_VERSION:
                return
            if version:
                self._back_up_tables(connection, version)

            def apply(sql: str) -> None:
                tx.run(sql)

            apply_migrations("postgres", version, apply)
            tx.run("CREATE TABLE IF NOT EXISTS rekindle_version (version INTEGER NOT NULL)")
            tx.run("DELETE FROM rekindle_version")
            tx.run("INSERT INTO rekindle_version VALUES (?)", (LATEST_VERSION,))
            if 0 < version < LAST_REINDEX_VERSION:
                self.reindex(tx)
            if 0 < version < REQUESTS_VERSION:
                refresh_all_requests(tx)

    @staticmethod
    def _back_up_tables(connection: Connection, version: int) -> None:
        """Copy the tables to a separate schema before an upgrade."""
        tx = PostgresTransaction(connection)
        schema = f"rekindle_v{version}_{time.strftime('%Y%m%d_%H%M%S')}"
        tables = tx.run(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            " AND tablename IN ('sessions', 'messages', 'rewinds', 'imports')"
        )
        tx.run(f"CREATE SCHEMA {schema}")
        for (table,) in tables:
            tx.run(f"CREATE TABLE {schema}.{table} AS TABLE {table}")

    # -- transactions

    def _begin(self, connection: Connection) -> None:
        """Prepare a transaction; a store of one tenant limits it to its rows."""

    def transact(self, operations: Sequence[Operation]) -> list[Any]:
        if self._readonly:
            raise StoreReadOnly(f"{self.location} was opened read-only")
        self._readers.check_process()
        deadline = time.monotonic() + self._busy_seconds
        self._commit_number += 1
        with self._translate_errors():
            return self._run_with_retries(operations, deadline)

    def _run_with_retries(self, operations: Sequence[Operation], deadline: float) -> list[Any]:
        """Run operations, retrying after a lost connection, without committing anything twice."""
        results: list[Any] = []
        is_uncertain, attempts_left = False, MAX_ATTEMPTS
        while True:
            connection = self._get_writer(deadline)
            tx = self._transaction_type(connection)
            try:
                self._begin(connection)
                if (
                    is_uncertain
                    and tx.run(_SELECT_COMMIT, (self._writer_name,))[0][0] == self._commit_number
                ):
                    connection.commit()
                    return results
                is_uncertain = False
                results = [operation(tx) for operation in operations]
                tx.run(_RECORD_COMMIT, (self._writer_name, self._commit_number, time.time()))
                is_uncertain = True
                connection.commit()
            except _RETRYABLE_ERRORS:
                connection.rollback()
                is_uncertain, attempts_left = False, attempts_left - 1
                if not attempts_left:
                    raise
            except _CONNECTION_ERRORS as error:
                if not _is_connection_lost(error):
                    connection.rollback()
                    raise
                self._drop_connections()
                if time.monotonic() > deadline:
                    raise
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise
            else:
                return results

    def _get_writer(self, deadline: float) -> Connection:
        """Return the writer's connection, waiting for a server that restarts."""
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writer is None or self._writer.closed:
            self._writer = _connect_with_retries(self._connect_writer, deadline)
        return self._writer

    def _drop_connections(self) -> None:
        if self._writer:
            _close_connection(self._writer)
        self._writer = None
        self._readers.clear()

    @contextmanager
    def begin_read(self) -> Generator[Transaction]:
        with self._translate_errors(), self._readers.borrow() as connection:
            try:
                self._begin(connection)
                yield self._transaction_type(connection)
            finally:
                if not connection.closed:
                    connection.rollback()

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Translate driver errors to store errors that say what happened, where, and what to do."""
        try:
            yield
        except pg.LockNotAvailable as error:
            raise StoreBusy(
                f"{self.location}: another program has been writing for {self._busy_seconds:g} s;"
                " try again, or raise store.busy_seconds"
            ) from error
        except pg.DiskFull as error:
            raise StoreFull(f"{self.location}: the server's disk is full") from error
        except (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege) as error:
            raise StoreReadOnly(f"{self.location} cannot be written: {error}") from error
        except _CONNECTION_ERRORS as error:
            raise StoreUnavailable(
                f"{self.location} cannot be reached ({str(error).strip()}): is the server running?"
            ) from error
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            raise InvalidInput(f"{self.location} cannot store this value: {error}") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.location}: {error}") from error

    # -- search

    def index(
        self,
        tx: Transaction,
        num: int,
        position: int,
        count: int,
        size: int,
        texts: Sequence[Message | str] = (),
    ) -> None:
        postgres_search.index_messages_from(tx, num, position)

    def extract_words(self, messages: Sequence[Message]) -> Sequence[str]:
        return ()

    unindex = staticmethod(postgres_search.delete_session_words)
    reindex = staticmethod(postgres_search.rebuild_index)
    find = staticmethod(postgres_search.find_messages)

    # -- maintenance

    def check(self, tx: Transaction) -> Iterator[Finding]:
        yield from postgres_search.check_index(tx)
        lost = tx.run("SELECT DISTINCT session FROM rewinds EXCEPT SELECT num FROM sessions")
        if lost:
            detail = f"{len(lost)} rows reference missing sessions"
            yield Finding(check="foreign key", where="rewinds", detail=detail)

    def check_index(self) -> list[Finding]:
        return []

    def measure_sizes(self, tx: Transaction) -> tuple[int, int]:
        tables = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c WHERE"
        )
        own_tables = (
            "c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname"
        )
        disk = tx.run(
            f"{tables} {own_tables} IN ('sessions', 'messages', 'rewinds', 'imports', 'words')"
        )[0][0]
        return disk, tx.run(f"{tables} {own_tables} = 'words'")[0][0]

    def compact(self) -> None:
        with self._translate_errors(), self._connect() as connection:
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE sessions, messages, words")

    def backup(self, path: Path, progress: Progress | None) -> bool:
        return False

    def close(self) -> None:
        self._closed = True
        self._readers.close()
        if self._writer:
            _close_connection(self._writer)


def _close_connection(connection: Connection) -> None:
    connection.close()


def _connect_with_retries(connect: Callable[[], Connection], deadline: float) -> Connection:
    """Connect, retrying until `deadline` while the server restarts."""
    pause = 0.05
    while True:
        try:
            return connect()
        except psycopg.OperationalError:
            if time.monotonic() + pause > deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def _is_alive(connection: Connection) -> bool:
    """Return whether the server still knows a connection; after a restart it does not."""
    try:
        connection.execute("SELECT 1")
    except _CONNECTION_ERRORS:
        return False
    return True


def _is_connection_lost(error: psycopg.Error) -> bool:
    """Return whether the connection is gone, rather than only a statement failed, as on a full disk."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _read_version(connection: Connection) -> int:
    known = connection.execute("SELECT to_regclass('rekindle_version')").fetchone()
    if known is None or known[0] is None:
        return 0
    row = connection.execute("SELECT version FROM rekindle_version").fetchone()
    return row[0] if row else 0
