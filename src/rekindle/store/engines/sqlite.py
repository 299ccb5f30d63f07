"""SQLite in one file: write-ahead log, full sync, one writer at a time, readers that never wait.

Only `apsw` may open the file: it brings its own SQLite, and two SQLite libraries in one process that
open the same file break each other's locks.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's own stubs leave the type of a blob open.
from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from rekindle.errors import (
    InvalidInput,
    RekindleError,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from rekindle.store.core import bulk
from rekindle.store.core.engine import Clause, Progress, Row, Transaction, Work
from rekindle.store.core.migrations import INDEXED, LATEST, refuse_newer, upgrade
from rekindle.store.core.search_query import Query
from rekindle.types import Finding, Message

from . import open_files, sqlite_search
from .connection_pool import Pool
from .sqlite_write_lock import RETRY, Turns

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x52454B44  # "REKD"
READERS = 8
CHECKPOINT_PAGES = 4000
CACHE = -4_000  # kilobytes, as SQLite counts them, for a reader, and
WRITER_CACHE = -16_000  # for the writer, who merges the index
SALVAGE = "run `rekindle sessions repair`, or restore a backup"


class SqliteTransaction:
    """Statements on one connection, inside its transaction."""

    __slots__ = ("_closing", "_execute", "_last", "_many", "besides", "connection")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._closing: list[str] = []
        self._last: dict[tuple[str, str], list[Row]] = {}
        self.besides: Callable[[], None] | None = None
        self._execute = connection.execute
        self._many = connection.executemany

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        return self._execute(sql, params).fetchall()

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        if isinstance(rows, list) and len(rows) == 1:
            self._execute(sql, rows[0])
        else:
            self._many(sql, rows)

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        return self._execute(sql, params)

    def insert_last(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        self._last.setdefault((table, columns), []).extend(rows)

    def run_last(self, sql: str) -> None:
        self._closing.append(sql)

    def write_last(self) -> None:
        if self._last:
            for (table, columns), rows in self._last.items():
                bulk.insert(self, table, columns, rows)
            self._last = {}
        while self._closing:
            self._execute(self._closing.pop(0))

    def meanwhile(self, do: Callable[[], None]) -> None:
        self.besides = do

    def close(self) -> None:
        self.connection.close()


class Reader(SqliteTransaction):
    """A reader's connection, with what it remembers of the newest messages."""

    __slots__ = ("tail",)

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.tail = sqlite_search.Tail()


class SqliteEngine:
    """A database file."""

    name = "sqlite"

    def __init__(self, path: str, *, durability: str, readonly: bool, busy_seconds: float) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self.location = self.path
        self.version = LATEST
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._readonly = readonly
        self._busy_seconds = busy_seconds
        self._batch = sqlite_search.Batch()
        self._closing = threading.Lock()
        self._turns: Turns | None = None
        self._writer: apsw.Connection | None = None
        self._readers = Pool(self._connect_reader, Reader.close, apsw.Error, READERS)
        self._file: open_files.File | None = None
        with self._explained():
            try:
                self._open()
            except BaseException:
                self._let_go()
                raise

    # -- opening

    def _open(self) -> None:
        if self._readonly:
            self._file = open_files.opened(self.path)
            with self._readers.lend() as reader:
                self._check_version(reader.connection)
            return
        self._make_folder()
        if not os.path.getsize(self.path) and self._has_log():
            raise StoreDamaged(  # SQLite would take it for new, and throw the log away
                f"{self.path} is empty, but {self.path}-wal holds messages: restore a backup, or"
                " move the log away to start anew"
            )
        self._turns = Turns(self.path, self._busy_seconds)
        self._file = open_files.opened(self.path)
        writer = apsw.Connection(self.location, flags=apsw.SQLITE_OPEN_READWRITE)
        writer.set_busy_handler(self._turns.wait)
        self._writer = writer
        self._bring_up_to_date(writer)
        _script(
            writer,
            f"PRAGMA synchronous = {self._synchronous};"
            f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
            f"PRAGMA cache_size = {WRITER_CACHE};"
            "PRAGMA foreign_keys = ON",
        )

    def _make_folder(self) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if not os.path.exists(self.path):
            # Transcripts are private; SQLite gives its log the mode of the file.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        for beside in (f"{self.path}-wal", f"{self.path}-shm"):
            # Left from when the file was read-only, SQLite would find itself read-only for ever.
            stale = os.path.exists(beside) and not os.access(beside, os.W_OK)
            if stale and os.access(self.path, os.W_OK):
                os.chmod(beside, 0o600)

    def _has_log(self) -> bool:
        log = f"{self.path}-wal"
        return os.path.exists(log) and os.path.getsize(log) > 0

    def _connect_reader(self) -> Reader:
        if self._readonly and not os.path.exists(self.path):
            raise StoreReadOnly(f"{self.path} does not exist, and a reader does not create it")
        try:
            connection = apsw.Connection(self.location, flags=apsw.SQLITE_OPEN_READONLY)
            connection.set_busy_timeout(int(self._busy_seconds * 1000))
            _script(connection, "SELECT 1 FROM sqlite_schema")
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            if not self._readonly:
                raise
            if self._has_log():
                raise StoreReadOnly(
                    f"{self.path}-wal holds the last messages and can only be read where its folder"
                    " can be written: copy the files to such a place"
                ) from None
            # No place for a log beside the file, so nobody writes to it either.
            from urllib.parse import quote

            uri = f"file:{quote(self.path)}?immutable=1"
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(uri, flags=flags)
        _script(connection, f"PRAGMA temp_store = MEMORY; PRAGMA cache_size = {CACHE}")
        connection.register_fts5_function("relevance", sqlite_search.relevance)
        return Reader(connection)

    def _check_version(self, connection: apsw.Connection) -> int:
        asked = (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_schema",
        )
        told: list[Any] = []
        with connection:  # one view: another process may be making the tables right now
            told += [value for sql in asked for (value,) in connection.execute(sql)]
        application, version, tables = told
        if application == APPLICATION_ID:
            refuse_newer(self.location, version)
            return version
        if tables or self._readonly:
            raise InvalidInput(f"{self.path} is a database, but not one of Rekindle's")
        return 0

    def _bring_up_to_date(self, writer: apsw.Connection) -> None:
        deadline = time.monotonic() + self._busy_seconds
        while self._check_version(writer) < LATEST:
            try:
                self._upgrade(writer)
            except apsw.BusyError:
                # Of several that make a file at once, SQLite sends some back without waiting.
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY)

    def _upgrade(self, writer: apsw.Connection) -> None:
        # A new file is flushed once, below, before anyone can see that it is a store.
        synchronous = "OFF" if os.path.getsize(self.path) == 0 else "FULL"
        _script(
            writer,
            f"PRAGMA synchronous = {synchronous}; PRAGMA journal_mode = WAL; BEGIN IMMEDIATE",
        )
        try:
            version = self._check_version(writer)  # again: somebody may have been faster
            if version == LATEST:
                writer.execute("ROLLBACK")
                return
            if version:
                self._keep_old(version)
            upgrade("sqlite", version, lambda sql: _script(writer, sql))
            if 0 < version < INDEXED:
                self.reindex(SqliteTransaction(writer))
            version_now = (
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LATEST}"
            )
            _script(writer, version_now)
            open_files.flush(self.path, self._file)
            _sync(os.path.dirname(self.path))
            writer.execute("COMMIT")  # in the log, which the first message flushes as a whole
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _keep_old(self, version: int) -> None:
        """Copy the database as it was before an upgrade to a file beside it."""
        copy = f"{self.path}.v{version}-{time.strftime('%Y%m%d_%H%M%S')}"
        with self._readers.lend() as source:
            _copy(source.connection, copy, None)

    # -- transactions

    def transact(self, works: Sequence[Work]) -> list[Any]:
        writer, turns = self._writer, self._turns
        if writer is None or turns is None:
            raise self._refusal()
        self._readers.check_process()
        turns.begin()
        try:
            writer.execute("BEGIN IMMEDIATE")
            tx = SqliteTransaction(writer)
            results: list[Any] = []
            for work in works:
                tx.write_last()  # of the work before: each sees what the others did
                results.append(work(tx))
            if tx.besides is None:
                self._finish(tx)
            else:
                _at_once(lambda: self._finish(tx), tx.besides)
        except BaseException as error:
            with self._explained():
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise error
        finally:
            self._batch.forget()
            turns.end()
        return results

    def _finish(self, tx: SqliteTransaction) -> None:
        tx.write_last()
        if self._batch.is_full:
            self._batch.settle(tx)
        tx.connection.execute("COMMIT")

    def _refusal(self) -> StoreError:
        if self._readonly:
            return StoreReadOnly(f"{self.path} was opened for reading only")
        return StoreClosed("the store is closed")

    @contextmanager
    def reading(self) -> Generator[Transaction]:
        # One generator, not three inside each other: a short read is made of little else.
        try:
            reader = self._readers.take()
            is_broken = True
            try:
                reader.connection.execute("BEGIN")
                yield reader
                is_broken = False
            except RekindleError:
                is_broken = False
                raise
            finally:
                try:
                    if reader.connection.in_transaction:
                        reader.connection.execute("COMMIT")
                except apsw.Error:  # on a damaged file; who waits for a reader must still get one
                    is_broken = True
                    raise
                finally:
                    self._readers.give_back(reader, is_broken=is_broken)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            with self._explained():
                raise error

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Say what happened, where, and what to do, in place of SQLite's words alone."""
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StoreBusy(
                f"{self.path}: another program has been writing for {self._busy_seconds:g} s;"
                " try again, or raise store.busy_seconds"
            ) from error
        except apsw.FullError as error:
            raise StoreFull(f"{self.path}: the disk is full; nothing was written") from error
        except (apsw.ReadOnlyError, apsw.PermissionsError, PermissionError) as error:
            raise StoreReadOnly(f"{self.path} cannot be written: {error}") from error
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
            raise StoreDamaged(f"{self.path} is {self._kind(error)}") from error
        except apsw.CantOpenError as error:
            raise self._unopenable(error) from error
        except (apsw.IOError, OSError) as error:
            raise _disk_trouble(self.path, error) from error
        except (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError) as error:
            raise InvalidInput(f"{self.path} cannot hold this: {error}") from error
        except apsw.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def _kind(self, error: Exception) -> str:
        if isinstance(error, apsw.NotADBError):
            return f"no database, or its beginning is damaged; if it was one: {SALVAGE}"
        return f"damaged ({error}): {SALVAGE}"

    def _unopenable(self, error: Exception) -> StoreError:
        if os.path.isdir(self.path):
            return StoreReadOnly(f"{self.path} is a folder, not a database file")
        folder = os.path.dirname(self.path)
        if os.path.exists(self.path) and not os.access(folder, os.W_OK):
            return StoreReadOnly(f"{folder} cannot be written: {error}")
        return StoreReadOnly(f"{self.path} cannot be opened: {error}")

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
        self._batch.note(tx, count, size)
        self._batch.remember(num, position, said)

    def words(self, messages: Sequence[Message]) -> Sequence[str]:
        return [sqlite_search.words_of(message) for message in messages]

    def unindex(self, tx: Transaction, num: int) -> None:
        sqlite_search.forget(tx, num)

    def reindex(self, tx: Transaction, progress: Progress | None = None) -> int:
        return sqlite_search.rebuild(tx, progress)

    def find(
        self, tx: Transaction, query: Query, clause: Clause | None, newest: bool, likely: int
    ) -> Iterator[int]:
        assert isinstance(tx, Reader)
        return sqlite_search.find(tx, tx.tail, query, clause, newest, likely)

    # -- looking after itself

    def check(self, tx: Transaction) -> Iterator[Finding]:
        for (line,) in tx.run("PRAGMA integrity_check(100)"):
            if line != "ok":
                # What only concerns an index can be built again from the tables.
                yield Finding(check="file", where=self.location, detail=line)
        for table, rowid, parent, _ in tx.run("PRAGMA foreign_key_check"):
            detail = f"row {rowid} points at a {parent} that is not there"
            yield Finding(check="foreign key", where=str(table), detail=detail)
        yield from sqlite_search.check(tx)

    def check_index(self) -> list[Finding]:
        if self._writer is None:
            return []
        try:
            self.transact(
                [lambda tx: tx.run("INSERT INTO words (words) VALUES ('integrity-check')")]
            )
        except StoreDamaged as error:
            return [Finding(check="search index", where="words", detail=str(error.__cause__))]
        return []

    def sizes(self, tx: Transaction) -> tuple[int, int]:
        beside = (self.path, f"{self.path}-wal")
        disk = sum(os.path.getsize(file) for file in beside if os.path.exists(file))
        return disk, sqlite_search.size(tx)

    def compact(self) -> None:
        if self._writer is None:
            raise self._refusal()
        with self._explained():
            _script(self._writer, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, path: Path, progress: Progress | None) -> bool:
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise InvalidInput(f"{folder} is not a folder")
        with self._explained(), self._readers.lend() as source:
            _copy(source.connection, str(path), progress)
        return True

    def close(self) -> None:
        with self._closing:
            self._readers.close()
            writer, self._writer = self._writer, None
            try:
                if writer:
                    with self._explained():
                        writer.close()
            finally:
                self._let_go()
            if self._turns:
                self._turns.close()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        open_files.closed(file)


def _script(connection: apsw.Connection, sql: str) -> None:
    """Run every statement of `sql`, whether or not one of them answers with rows."""
    connection.execute(sql).fetchall()


def _at_once(finish: Callable[[], None], besides: Callable[[], None]) -> None:
    """Do both, the first in a thread of its own: most of it is SQLite's work, not Python's."""
    failed: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            finish()
        except BaseException as error:  # noqa: BLE001  it goes to whoever waits for the end
            failed.append(error)
        finally:
            ended.set()

    try:
        _thread.start_new_thread(run, ())  # returns at once: nothing can interrupt it half-way
    except RuntimeError:  # no more threads to be had: one after the other
        finish()
        return
    try:
        besides()
    finally:
        _wait_for(ended)
        if failed:
            raise failed[0]


def _wait_for(ended: threading.Event) -> None:
    """Wait for the end, whatever is pressed meanwhile: until then the connection is not ours.

    (`Thread` would not do: interrupted in `start` or `join`, it tells nothing of what runs on.)
    """
    stopped: BaseException | None = None
    while not ended.is_set():
        try:
            ended.wait()
        except BaseException as error:  # noqa: BLE001  it is raised as soon as it can be
            stopped = error
    if stopped:
        raise stopped


def _copy(source: apsw.Connection, path: str, progress: Progress | None) -> None:
    """Copy a live database, complete or not at all."""
    draft = f"{path}.draft-{os.getpid()}"
    try:
        target = apsw.Connection(draft)
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(1000)
                if progress:
                    progress(copying.page_count - copying.remaining, copying.page_count)
        _script(target, "PRAGMA journal_mode = DELETE")
        target.close()
        os.chmod(draft, 0o600)
        _sync(draft)
        os.replace(draft, path)
        _sync(os.path.dirname(os.path.abspath(path)))
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _sync(path: str) -> None:
    """Flush a file, or a folder's list of files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _disk_trouble(path: str, error: Exception) -> StoreError:
    import errno

    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StoreFull(f"{path}: the disk is full; nothing was written")
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return StoreReadOnly(f"{path} cannot be written: {error}")
    return StoreError(f"{path}: the disk reports an error ({error}); nothing was acknowledged")
