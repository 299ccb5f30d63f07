"""Connections to a PostgreSQL server, directly or through a pooler such as pgbouncer.

A pooler in transaction mode may give each transaction another connection of the server. So nothing is
left on a connection between transactions: limits are set in each of them, and statements are not
prepared. A server that has no free connection is asked again until the time to wait is over.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import errors as pg

from rekindle.errors import (
    InvalidInput,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # we report lost connections
CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError)
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0  # seconds between attempts to connect
# What PostgreSQL and pgbouncer say when they have no connection left; such errors have no code.
_NO_CONNECTION_LEFT = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)
# The number of the server's process is not the one that a pooler gave us. The limits then end with this
# transaction: another program may get the same connection for its next one.
_SET_LIMITS = (
    "SELECT pg_backend_pid(), set_config('lock_timeout', %(lock)s, pg_backend_pid() <> %(pid)s),"
    " set_config('synchronous_commit', %(commit)s, pg_backend_pid() <> %(pid)s)"
)
# A machine that disappears mid-write must not hold its locks until the network times out.
_SET_KEEPALIVES = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)


class Connector:
    """Opens connections to one server and knows whether a pooler stands before it."""

    def __init__(self, url: str, *, durability: str, busy_seconds: float) -> None:
        self.is_pooled = False  # until the first connection
        self._url = url
        self._busy_seconds = busy_seconds
        self._lock_timeout = str(int(busy_seconds * 1000))
        self._commit = "on" if durability == "full" else "off"
        set_local = (
            f"SET LOCAL lock_timeout = {self._lock_timeout};"
            f"SET LOCAL synchronous_commit = {self._commit}"
        )
        self._set_local = set_local.encode()

    def connect(self) -> Connection:
        """Open a connection, with limits that keep it from waiting for ever."""
        connection = psycopg.connect(
            self._url, connect_timeout=max(2, int(self._busy_seconds)), application_name="rekindle"
        )
        try:
            pid = connection.info.backend_pid
            params = {"lock": self._lock_timeout, "commit": self._commit, "pid": pid}
            row = connection.execute(_SET_LIMITS, params, prepare=False).fetchone()
            connection.commit()
        except BaseException:
            connection.close()
            raise
        self.is_pooled = row is None or row[0] != pid
        if self.is_pooled:
            connection.prepare_threshold = None
        return connection

    def connect_writer(self) -> Connection:
        """Open a connection that holds locks."""
        connection = self.connect()
        if not self.is_pooled:
            connection.execute(_SET_KEEPALIVES)
            connection.commit()
        return connection

    def set_limits(self, connection: Connection) -> None:
        """Set the limits in a new transaction, unless the connection keeps them."""
        if self.is_pooled:
            connection.execute(self._set_local)

    def is_alive(self, connection: Connection) -> bool:
        """Return whether the server still knows a connection; after a restart it does not."""
        try:
            # Through a pooler, each transaction has to begin like this anyway.
            connection.execute(self._set_local if self.is_pooled else b"SELECT 1")
        except CONNECTION_ERRORS:
            return False
        return True


def connect_with_retries(
    connect: Callable[[], Connection],
    deadline: float,
    *,
    only_if_full: bool = False,
    reuse: Callable[[], Connection | None] = lambda: None,
) -> Connection:
    """Connect, retrying until `deadline` while the server restarts or has no free connection.

    Return what `reuse` has, if it becomes free in the meantime. With `only_if_full`, a server that
    cannot be reached is an error at once.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return connect()
        except psycopg.OperationalError as error:
            if only_if_full and not is_out_of_connections(error):
                raise
            if time.monotonic() + pause > deadline:
                raise
            time.sleep(pause * random.uniform(0.5, 1.0))  # programs that wait together come apart
            pause = min(pause * 2, LAST_PAUSE)
            if (idle := reuse()) is not None:
                return idle


def close_connection(connection: Connection) -> None:
    """Close a connection."""
    connection.close()


def is_connection_lost(error: psycopg.Error) -> bool:
    """Return whether the connection is gone, rather than only a statement failed, as on a full disk."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def is_out_of_connections(error: psycopg.Error) -> bool:
    """Return whether the server, or the pooler before it, has no connection left for us."""
    text = str(error)
    return error.sqlstate == "53300" or any(one in text for one in _NO_CONNECTION_LEFT)


@contextmanager
def translate_errors(location: str, busy_seconds: float) -> Generator[None]:
    """Translate driver errors to store errors that say what happened, where, and what to do."""
    try:
        yield
    except pg.LockNotAvailable as error:
        raise StoreBusy(
            f"{location}: another program has been writing for {busy_seconds:g} s;"
            " try again, or raise store.busy_seconds"
        ) from error
    except pg.DiskFull as error:
        raise StoreFull(f"{location}: the server's disk is full") from error
    except (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege) as error:
        raise StoreReadOnly(f"{location} cannot be written: {error}") from error
    except CONNECTION_ERRORS as error:
        if is_out_of_connections(error):
            raise StoreBusy(
                f"{location}: the server has had no free connection for"
                f" {busy_seconds:g} s; raise its max_connections, or put pgbouncer in front of it"
            ) from error
        raise StoreUnavailable(
            f"{location} cannot be reached ({str(error).strip()}): is the server running?"
        ) from error
    except (psycopg.IntegrityError, psycopg.DataError) as error:
        raise InvalidInput(f"{location} cannot store this value: {error}") from error
    except psycopg.Error as error:
        raise StoreError(f"{location}: {error}") from error
