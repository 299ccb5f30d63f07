"""The PostgreSQL engine: the same tables on a server, for several machines at once."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper

from rekindle.errors import StoreClosed, StoreReadOnly
from rekindle.store.core import bulk
from rekindle.store.core.engine import Operation, Progress, Row, Transaction
from rekindle.store.core.migrations import (
    LAST_REINDEX_VERSION,
    LATEST_VERSION,
    OLDEST_COMPATIBLE,
    REQUESTS_VERSION,
    apply_migrations,
    refuse_newer,
)
from rekindle.store.core.rows import INSERT_MESSAGE
from rekindle.store.sessions.requests import refresh_all_requests
from rekindle.types import Finding, Message

from . import postgres_search
from .connection_pool import ConnectionPool
from .postgres_append import (
    MAX_MESSAGES,
    AppendBatch,
    AppendPlan,
    CommitRecord,
    build_statement,
    number_params,
    plan_appends,
)
from .postgres_connections import (
    CONNECTION_ERRORS,
    Connection,
    Connector,
    close_connection,
    connect_with_retries,
    is_connection_lost,
    translate_errors,
)

if TYPE_CHECKING:
    from pathlib import Path

MAX_READERS = 8
UPGRADE_LOCK = 0x52454B44
MAX_ATTEMPTS = 50  # many writers that claim the same title succeed one by one

# Each writer records the number of its transaction in it. If the answer to a commit is lost, this
# shows whether it succeeded: the query waits for a commit in progress and, unlike a transaction id
# of the server, the number is not reused after a crash.
_RECORD_COMMIT = (
    "INSERT INTO writers (name, number, time) VALUES (?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET number = excluded.number, time = excluded.time"
    " RETURNING (SELECT version FROM rekindle_version)"
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
# An upgrade that waits for a table makes all others wait behind it: it gives way and tries again.
UPGRADE_LOCK_TIMEOUT = "2s"
_RETRYABLE_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)


@lru_cache(maxsize=1024)
def _to_postgres_sql(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class _Unsent(NamedTuple):
    """A statement without a result that was not sent yet, with named parts that it uses."""

    sql: str
    params: Sequence[Any]
    parts: str = ""  # of WITH


class PostgresTransaction:
    """Statements on one connection, inside its transaction.

    A single row that is written waits for the next statement, which may take it along.
    """

    __slots__ = ("_unsent", "connection")
    is_exclusive = False
    convert_sql = staticmethod(_to_postgres_sql)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._unsent: _Unsent | None = None

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        if self._unsent is not None:
            self.flush_deferred()
        cursor = self.connection.execute(self.convert_sql(sql), params)  # pyright: ignore[reportArgumentType]
        return cursor.fetchall() if cursor.description else []

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.flush_deferred()
        rows = list(rows)
        if len(rows) == 1:
            self._unsent = _Unsent(sql, rows[0])
            return
        with self.connection.cursor() as cursor:
            cursor.executemany(self.convert_sql(sql), rows)  # pyright: ignore[reportArgumentType]

    def extend_unsent(self, first: str, sql: str, params: Sequence[Any]) -> bool:
        """Add a statement that uses what `first`, if it was not sent yet, returns as `added`."""
        if self._unsent is None or self._unsent.sql != first:
            return False
        params = [*self._unsent.params, *params]
        self._unsent = _Unsent(sql, params, f"added AS ({first} RETURNING id, session, time)")
        return True

    def run_last(self, sql: str, params: Sequence[Any]) -> list[Row]:
        """Run the last statement of a transaction, together with what was not sent yet."""
        unsent, self._unsent = self._unsent, None
        if unsent is None:
            return self.run(sql, params)
        parts = f"{unsent.parts}, " if unsent.parts else ""
        whole = f"WITH {parts}written AS ({unsent.sql}) {sql}"
        return self.run(whole, [*unsent.params, *params])

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        self.flush_deferred()
        with self.connection.cursor(name="stream") as cursor:
            cursor.itersize = 500
            cursor.execute(self.convert_sql(sql), params)  # pyright: ignore[reportArgumentType]
            yield from cursor

    def defer_insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        self.run_many(bulk.build_insert(table, columns), rows)

    def flush_deferred(self) -> None:
        """Send the deferred statements."""
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            parts = f"WITH {unsent.parts} " if unsent.parts else ""
            self.run(parts + unsent.sql, unsent.params)

    def run_during_commit(self, task: Callable[[], None]) -> None:
        """Do nothing: a commit leaves no time for another task."""


class PostgresEngine:
    """A database on a PostgreSQL server."""

    name = "postgresql"
    max_batch = MAX_MESSAGES  # appends beyond it would need several statements each
    max_recent_rows = 0
    tenant = ""
    _transaction_type = PostgresTransaction

    def __init__(self, url: str, *, durability: str, readonly: bool, busy_seconds: float) -> None:
        self.location = re.sub(r"\A(\w+://[^:/@]*):[^@]*@", r"\1:…@", url)
        self.location = re.sub(r"(password=)[^&]*", r"\1…", self.location)
        self.version = LATEST_VERSION
        self.target = url
        self._connector = Connector(url, durability=durability, busy_seconds=busy_seconds)
        self._readonly = readonly
        self._busy_seconds = busy_seconds
        self._writer: Connection | None = None
        self._batch_cursor: psycopg.RawCursor[Row] | None = None  # of the writer
        self._closed = False
        self._readers = ConnectionPool(
            self._connect_reader,
            close_connection,
            psycopg.Error,
            MAX_READERS,
            self._connector.is_alive,
        )
        self._writer_name = secrets.token_hex(8)
        self._commit_number = 0
        self._known_version = LATEST_VERSION  # of the tables, which others may have upgraded
        self._is_open = False
        with self._translate_errors():
            self._open()
        self._is_open = True

    # -- opening

    def _connect_writer(self) -> Connection:
        connection = self._connector.connect_writer()
        self._begin(connection)
        connection.execute(_DELETE_OLD_WRITERS, (time.time() - WRITER_RETENTION_SECONDS,))
        connection.commit()
        return connection

    def _connect_reader(self) -> Connection:
        return connect_with_retries(
            self._open_reader,
            time.monotonic() + self._busy_seconds,
            only_if_full=not self._is_open,  # a wrong address must fail immediately
            reuse=self._readers.take_idle,
        )

    def _open_reader(self) -> Connection:
        connection = self._connector.connect()
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connector.set_limits(connection)
        return connection

    def _open(self) -> None:
        with self._readers.borrow() as connection:
            version, oldest = _read_version(connection)
            connection.rollback()
        refuse_newer(self.location, version, oldest)
        if version < LATEST_VERSION:
            if self._readonly:
                raise StoreReadOnly(f"{self.location} has not been migrated to this version yet")
            self._upgrade_when_possible()

    def _upgrade_when_possible(self) -> None:
        """Upgrade while other programs go on with their work."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                return self._upgrade()
            except (pg.LockNotAvailable, pg.DeadlockDetected):
                if time.monotonic() > deadline:
                    raise

    def _upgrade(self) -> None:
        with self._connector.connect() as connection:
            self._connector.set_limits(connection)
            tx = PostgresTransaction(connection)
            tx.run("SELECT pg_advisory_xact_lock(?)", (UPGRADE_LOCK,))
            version, _ = _read_version(connection)  # again: another process may have been faster
            if version >= LATEST_VERSION:
                return
            tx.run(f"SET LOCAL lock_timeout = '{UPGRADE_LOCK_TIMEOUT}'")
            if 0 < version < OLDEST_COMPATIBLE:
                self._back_up_tables(connection, version)

            def apply(sql: str) -> None:
                tx.run(sql)

            apply_migrations("postgres", version, apply)
            # After the migrations: writers use this table last, too.
            tx.run("CREATE TABLE IF NOT EXISTS rekindle_version (version INTEGER NOT NULL)")
            tx.run("ALTER TABLE rekindle_version ADD COLUMN IF NOT EXISTS oldest INTEGER")
            tx.run("DELETE FROM rekindle_version")
            tx.run(
                "INSERT INTO rekindle_version (version, oldest) VALUES (?, ?)",
                (LATEST_VERSION, OLDEST_COMPATIBLE),
            )
            if 0 < version < LAST_REINDEX_VERSION:
                self.reindex(tx)
            if 0 < version < REQUESTS_VERSION:
                refresh_all_requests(tx)
            tx.flush_deferred()

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
        plan = plan_appends(operations)
        while True:
            connection = self._get_writer(deadline)
            # After a lost answer, a transaction that asks for the last one locks its record: what the
            # server may still have to read of the first attempt then fails.
            is_set_up = not self.tenant and not self._connector.is_pooled
            is_alone = bool(plan.batch) and is_set_up and not plan.first and not is_uncertain
            try:
                self._begin_write(connection, is_alone)
                if is_uncertain and self._is_committed(connection):
                    return results or self._find_results(connection, plan.batch)
                is_uncertain, results = is_alone, []
                results = self._run_all(connection, plan)
                is_uncertain = True
                if not is_alone:
                    connection.commit()
            except pg.DivisionByZero:  # see `build_statement`; one by one, they show the reason
                connection.rollback()
                if plan.batch is None:
                    raise
                is_uncertain, plan = False, AppendPlan(operations, None)
            except _RETRYABLE_ERRORS:
                connection.rollback()
                is_uncertain, attempts_left = False, attempts_left - 1
                if not attempts_left:
                    raise
            except CONNECTION_ERRORS as error:
                if not is_connection_lost(error):
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

    def _begin_write(self, connection: Connection, is_alone: bool) -> None:
        if connection.autocommit != is_alone:
            connection.autocommit = is_alone
        if not is_alone:
            self._connector.set_limits(connection)
            self._begin(connection)

    def _is_committed(self, connection: Connection) -> bool:
        """Return whether the last attempt was committed; in that case, end this transaction."""
        [(number,)] = self._transaction_type(connection).run(_SELECT_COMMIT, (self._writer_name,))
        is_committed = number == self._commit_number
        if is_committed:
            connection.rollback()
        return is_committed

    def _find_results(self, connection: Connection, batch: AppendBatch | None) -> list[Any]:
        assert batch is not None  # any other transaction has its results before it is committed
        starts = batch.find_starts(self._transaction_type(connection), self._writer_name)
        connection.rollback()
        return [*batch.read_results(starts)]

    def _run_all(self, connection: Connection, plan: AppendPlan) -> list[Any]:
        tx = self._transaction_type(connection)
        results = [operation(tx) for operation in plan.first]
        record = (self._writer_name, self._commit_number, time.time())
        if plan.batch is not None:
            tx.flush_deferred()
            results += plan.batch.read_results(self._write_batch(connection, plan.batch, record))
            return plan.sort_results(results)
        ((version,),) = tx.run_last(_RECORD_COMMIT, record)
        if version != self._known_version:
            self._check_upgrade(connection)
        return results

    def _write_batch(
        self, connection: Connection, batch: AppendBatch, record: tuple[str, int, float]
    ) -> list[Row]:
        cursor = self._batch_cursor
        if cursor is None or cursor.connection is not connection:
            cursor = self._batch_cursor = psycopg.RawCursor(connection)
            # Otherwise the type follows the size of a number, and each type is a statement to prepare.
            cursor.adapters.register_dumper(int, Int8Dumper)
        about = CommitRecord(*record, self._known_version)
        shape, params = batch.build_params(about)
        sql = self._transaction_type.convert_sql(build_statement(shape))
        return cursor.execute(number_params(sql), params).fetchall()

    def _check_upgrade(self, connection: Connection) -> None:
        """Raise `StoreTooNew` if another program has upgraded the tables to what this one cannot use."""
        version, oldest = _read_version(connection)
        refuse_newer(self.location, version, oldest)
        self._known_version = version

    def _get_writer(self, deadline: float) -> Connection:
        """Return the writer's connection, waiting for a server that restarts."""
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writer is None or self._writer.closed:
            self._writer = connect_with_retries(self._connect_writer, deadline)
        return self._writer

    def _drop_connections(self) -> None:
        if self._writer:
            close_connection(self._writer)
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

    begin_recent_read = begin_read

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.location, self._busy_seconds)

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
        messages = [text for text in texts if isinstance(text, Message)]
        if len(messages) == count == 1:
            words = postgres_search.build_insert_of_added(messages[0])
            if isinstance(tx, PostgresTransaction) and tx.extend_unsent(INSERT_MESSAGE, *words):
                return
        if messages and len(messages) == count:
            postgres_search.index_messages(tx, num, position, messages)
        else:
            postgres_search.index_messages_from(tx, num, position)

    def extract_words(self, messages: Sequence[Message]) -> Sequence[str]:
        return ()

    unindex = staticmethod(postgres_search.delete_session_words)
    reindex = staticmethod(postgres_search.rebuild_index)
    find = staticmethod(postgres_search.find_messages)
    select_titles = staticmethod(postgres_search.select_titles)

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
            " c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname"
        )
        names = "'sessions', 'messages', 'rewinds', 'imports', 'words', 'title_parts'"
        return tx.run(f"{tables} IN ({names})")[0][0], tx.run(f"{tables} = 'words'")[0][0]

    def compact(self) -> None:
        with self._translate_errors(), self._connector.connect() as connection:
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE sessions, messages, words")

    def backup(self, path: Path, progress: Progress | None) -> bool:
        return False

    def close(self) -> None:
        self._closed = True
        self._readers.close()
        if self._writer:
            close_connection(self._writer)


def _read_version(connection: Connection) -> tuple[int, int | None]:
    """Return the version of the tables, and the oldest one whose programs can use them."""
    known = connection.execute("SELECT to_regclass('rekindle_version')").fetchone()
    if known is None or known[0] is None:
        return 0, None
    # Not as a column: older programs made the table without it.
    row = connection.execute(
        "SELECT version, (to_jsonb(v) ->> 'oldest')::int FROM rekindle_version v"
    ).fetchone()
    return row or (0, None)
