"""PostgreSQL: the same tables on a server, for several machines at once."""

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
from rekindle.store.core.engine import Clause, Progress, Row, Transaction, Work
from rekindle.store.core.migrations import INDEXED, LATEST, refuse_newer, upgrade
from rekindle.store.core.search_query import Query
from rekindle.types import Finding, Message

from . import postgres_search
from .connection_pool import Pool

if TYPE_CHECKING:
    from pathlib import Path

READERS = 8
UPGRADE_LOCK = 0x52454B44
TRIES = 50  # many who ask for the same title at once get out of each other's way one by one

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # we tell of lost connections
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
# Each writer notes in its transaction which of its own it is. If the answer to a commit is lost, this
# tells what became of it: asking waits for a commit still under way, and unlike the number that the
# server gives a transaction, it is not given to another after a crash.
_NOTE = (
    "INSERT INTO writers (name, number, time) VALUES (?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET number = excluded.number, time = excluded.time"
)
_ASK = (
    "INSERT INTO writers (name, number, time) VALUES (?, 0, 0) ON CONFLICT (name)"
    " DO UPDATE SET name = excluded.name RETURNING number"
)
_FORGET = (
    "DELETE FROM writers WHERE name IN"
    " (SELECT name FROM writers WHERE time < %s FOR UPDATE SKIP LOCKED)"
)
FORGET_AFTER = 7 * 86_400.0
_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)


@lru_cache(maxsize=1024)
def _dialect(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresTransaction:
    """Statements on one connection, inside its transaction."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        cursor = self.connection.execute(_dialect(sql), params)  # pyright: ignore[reportArgumentType]
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(_dialect(sql), rows)  # pyright: ignore[reportArgumentType]

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        with self.connection.cursor(name="stream") as cursor:
            cursor.itersize = 500
            cursor.execute(_dialect(sql), params)  # pyright: ignore[reportArgumentType]
            yield from cursor

    def insert_last(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        self.many(bulk.statement(table, columns), rows)

    def run_last(self, sql: str) -> None:
        self.run(sql)

    def write_last(self) -> None:
        """Nothing: it was done at once."""

    def meanwhile(self, do: Callable[[], None]) -> None:
        """Nothing: little is left to do here when the works are done."""


class PostgresEngine:
    """A database on a server."""

    name = "postgresql"

    def __init__(self, url: str, *, durability: str, readonly: bool, busy_seconds: float) -> None:
        self.location = re.sub(r"(//[^:/@]*):[^@]*@", r"\1:…@", url)
        self.location = re.sub(r"(password=)[^&]*", r"\1…", self.location)
        self.version = LATEST
        self._url = url
        self._durability = durability
        self._readonly = readonly
        self._busy_seconds = busy_seconds
        self._writer: Connection | None = None
        self._closed = False
        self._readers = Pool(self._connect_reader, _close, psycopg.Error, READERS, _is_alive)
        self._name = secrets.token_hex(8)
        self._number = 0
        self._is_open = False
        with self._explained():
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
        # A machine that vanishes in mid-write must not hold its locks until the network gives up.
        connection.execute(
            "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;"
            "SET tcp_keepalives_count = 3"
        )
        connection.execute(_FORGET, (time.time() - FORGET_AFTER,))
        connection.commit()
        return connection

    def _connect_reader(self) -> Connection:
        # Only once the store is open: a wrong address is to be told at once.
        deadline = time.monotonic() + (self._busy_seconds if self._is_open else 0.0)
        connection = _patiently(self._connect, deadline)
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return connection

    def _open(self) -> None:
        with self._readers.lend() as connection:
            version = _version(connection)
            connection.rollback()
        refuse_newer(self.location, version)
        if version < LATEST:
            if self._readonly:
                raise StoreReadOnly(f"{self.location} has no tables of this version yet")
            self._upgrade()

    def _upgrade(self) -> None:
        with self._connect() as connection:
            tx = PostgresTransaction(connection)
            tx.run("SELECT pg_advisory_xact_lock(?)", (UPGRADE_LOCK,))
            version = _version(connection)  # again: somebody may have been faster
            if version == LATEST:
                return
            if version:
                self._keep_old(connection, version)

            def apply(sql: str) -> None:
                tx.run(sql)

            upgrade("postgres", version, apply)
            tx.run("CREATE TABLE IF NOT EXISTS rekindle_version (version INTEGER NOT NULL)")
            tx.run("DELETE FROM rekindle_version")
            tx.run("INSERT INTO rekindle_version VALUES (?)", (LATEST,))
            if 0 < version < INDEXED:
                self.reindex(tx)

    @staticmethod
    def _keep_old(connection: Connection, version: int) -> None:
        """Copy the tables as they were before an upgrade into a schema beside them."""
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

    def transact(self, works: Sequence[Work]) -> list[Any]:
        if self._readonly:
            raise StoreReadOnly(f"{self.location} was opened for reading only")
        self._readers.check_process()
        deadline = time.monotonic() + self._busy_seconds
        self._number += 1
        with self._explained():
            return self._retried(works, deadline)

    def _retried(self, works: Sequence[Work], deadline: float) -> list[Any]:
        """Run works, again after a lost connection, and never twice what was committed."""
        results: list[Any] = []
        unsure, tries = False, TRIES
        while True:
            connection = self._connected(deadline)
            tx = PostgresTransaction(connection)
            try:
                if unsure and tx.run(_ASK, (self._name,))[0][0] == self._number:
                    connection.commit()
                    return results
                unsure = False
                results = [work(tx) for work in works]
                tx.run(_NOTE, (self._name, self._number, time.time()))
                unsure = True
                connection.commit()
            except _AGAIN:
                connection.rollback()
                unsure, tries = False, tries - 1
                if not tries:
                    raise
            except _LOST as error:
                if not _is_lost(error):
                    connection.rollback()
                    raise
                self._drop()
                if time.monotonic() > deadline:
                    raise
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise
            else:
                return results

    def _connected(self, deadline: float) -> Connection:
        """The writer's connection; a server that restarts is waited for."""
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writer is None or self._writer.closed:
            self._writer = _patiently(self._connect_writer, deadline)
        return self._writer

    def _drop(self) -> None:
        if self._writer:
            _close(self._writer)
        self._writer = None
        self._readers.empty()

    @contextmanager
    def reading(self) -> Generator[Transaction]:
        with self._explained(), self._readers.lend() as connection:
            try:
                yield PostgresTransaction(connection)
            finally:
                if not connection.closed:
                    connection.rollback()

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Say what happened, where, and what to do, in place of the driver's words alone."""
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
        except _LOST as error:
            raise StoreUnavailable(
                f"{self.location} cannot be reached ({str(error).strip()}): is the server running?"
            ) from error
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            raise InvalidInput(f"{self.location} cannot hold this: {error}") from error
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
        said: Sequence[Message | str] = (),
    ) -> None:
        postgres_search.index_from(tx, num, position)

    def words(self, messages: Sequence[Message]) -> Sequence[str]:
        return ()

    def unindex(self, tx: Transaction, num: int) -> None:
        postgres_search.forget(tx, num)

    def reindex(self, tx: Transaction, progress: Progress | None = None) -> int:
        return postgres_search.rebuild(tx, progress)

    def find(
        self, tx: Transaction, query: Query, clause: Clause | None, newest: bool, likely: int
    ) -> Iterator[int]:
        return postgres_search.find(tx, query, clause, newest)

    # -- looking after itself

    def check(self, tx: Transaction) -> Iterator[Finding]:
        yield from postgres_search.check(tx)
        lost = tx.run("SELECT DISTINCT session FROM rewinds EXCEPT SELECT num FROM sessions")
        if lost:
            detail = f"{len(lost)} rows point at sessions that are not there"
            yield Finding(check="foreign key", where="rewinds", detail=detail)

    def check_index(self) -> list[Finding]:
        return []

    def sizes(self, tx: Transaction) -> tuple[int, int]:
        tables = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c WHERE"
        )
        mine = "c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname"
        disk = tx.run(
            f"{tables} {mine} IN ('sessions', 'messages', 'rewinds', 'imports', 'words')"
        )[0][0]
        return disk, tx.run(f"{tables} {mine} = 'words'")[0][0]

    def compact(self) -> None:
        with self._explained(), self._connect() as connection:
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE sessions, messages, words")

    def backup(self, path: Path, progress: Progress | None) -> bool:
        return False

    def close(self) -> None:
        self._closed = True
        self._readers.close()
        if self._writer:
            _close(self._writer)


def _close(connection: Connection) -> None:
    connection.close()


def _patiently(connect: Callable[[], Connection], deadline: float) -> Connection:
    """Connect; a server that restarts is waited for."""
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
    """Does the server still know a connection? One that slept through a restart is unknown to it."""
    try:
        connection.execute("SELECT 1")
    except _LOST:
        return False
    return True


def _is_lost(error: psycopg.Error) -> bool:
    """Is the connection gone, or did only a statement fail, as on a full disk?"""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _version(connection: Connection) -> int:
    known = connection.execute("SELECT to_regclass('rekindle_version')").fetchone()
    if known is None or known[0] is None:
        return 0
    row = connection.execute("SELECT version FROM rekindle_version").fetchone()
    return row[0] if row else 0
