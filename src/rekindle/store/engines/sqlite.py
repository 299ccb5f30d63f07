"""The SQLite engine: one file with a write-ahead log and full sync; one writer, readers never wait.

Only `apsw` may open the file: it brings its own SQLite, and two SQLite libraries in one process that
open the same file break each other's locks.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's own stubs leave the type of a blob open.
from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
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
from rekindle.files import sync_path
from rekindle.store.core.engine import Clause, Operation, Progress, Transaction
from rekindle.store.core.group_commit import MAX_BATCH_SIZE
from rekindle.store.core.migrations import (
    LAST_REINDEX_VERSION,
    LATEST_VERSION,
    REQUESTS_VERSION,
    apply_migrations,
    refuse_newer,
)
from rekindle.store.core.search_query import Query
from rekindle.store.sessions.requests import refresh_all_requests
from rekindle.types import Finding, Message

from . import open_files, sqlite_search
from .connection_pool import ConnectionPool
from .sqlite_transaction import SqliteReader, SqliteTransaction, run_in_parallel
from .sqlite_write_lock import RETRY_SECONDS, WriteLock

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x52454B44  # "REKD"
MAX_READERS = 8
CHECKPOINT_PAGES = 4000
READER_CACHE = -4_000  # negative: kilobytes
WRITER_CACHE = -16_000  # larger, because the writer merges the index
CACHED_STATEMENTS = 1_000  # one is dropped when so many others have run since it last did
REPAIR_HINT = "run `rekindle sessions repair`, or restore a backup"


class SqliteEngine:
    """A SQLite database file."""

    name = "sqlite"
    tenant = ""  # each has a file of its own
    max_batch = MAX_BATCH_SIZE
    max_recent_rows = 256

    def __init__(self, path: str, *, durability: str, readonly: bool, busy_seconds: float) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self.location = self.target = self.path
        self.version = LATEST_VERSION
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._readonly = readonly
        self._busy_seconds = busy_seconds
        self._index_batch = sqlite_search.IndexBatch()
        self._close_lock = threading.Lock()
        self._writer_lock = threading.Lock()  # held while the writer's connection is in use
        self._is_writer_waiting = False  # reads must not get ahead of it again and again
        self._write_lock: WriteLock | None = None
        self._writer: apsw.Connection | None = None
        self._readers = ConnectionPool(
            self._connect_reader, SqliteReader.close, apsw.Error, MAX_READERS
        )
        self._file_id: open_files.FileId | None = None
        with self._translate_errors():
            try:
                self._open()
            except BaseException:
                self._release_file()
                raise

    # -- opening

    def _open(self) -> None:
        if self._readonly:
            self._file_id = open_files.register_open(self.path)
            with self._readers.borrow() as reader:
                self._check_version(reader.connection)
            return
        self._create_file()
        if not os.path.getsize(self.path) and self._has_wal():
            raise StoreDamaged(  # SQLite would treat it as new and discard the log
                f"{self.path} is empty, but {self.path}-wal holds messages: restore a backup, or"
                " move the log away to start over"
            )
        self._write_lock = WriteLock(self.path, self._busy_seconds)
        self._file_id = open_files.register_open(self.path)
        writer = apsw.Connection(
            self.location,
            flags=apsw.SQLITE_OPEN_READWRITE,
            statementcachesize=CACHED_STATEMENTS,
        )
        writer.set_busy_handler(self._write_lock.wait)
        self._writer = writer
        self._migrate(writer)
        _run_script(
            writer,
            f"PRAGMA synchronous = {self._synchronous};"
            f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
            f"PRAGMA cache_size = {WRITER_CACHE};"
            "PRAGMA foreign_keys = ON",
        )

    def _create_file(self) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if not os.path.exists(self.path):
            # Transcripts are private; the log inherits the mode of the file.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        for sidecar in (f"{self.path}-wal", f"{self.path}-shm"):
            # A read-only leftover would make SQLite read-only permanently.
            is_readonly = os.path.exists(sidecar) and not os.access(sidecar, os.W_OK)
            if is_readonly and os.access(self.path, os.W_OK):
                os.chmod(sidecar, 0o600)

    def _has_wal(self) -> bool:
        log = f"{self.path}-wal"
        return os.path.exists(log) and os.path.getsize(log) > 0

    def _connect_reader(self) -> SqliteReader:
        if self._readonly and not os.path.exists(self.path):
            raise StoreReadOnly(f"{self.path} does not exist; read-only access does not create it")
        try:
            connection = apsw.Connection(self.location, flags=apsw.SQLITE_OPEN_READONLY)
            connection.set_busy_timeout(int(self._busy_seconds * 1000))
            _run_script(connection, "SELECT 1 FROM sqlite_schema")
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            if not self._readonly:
                raise
            if self._has_wal():
                raise StoreReadOnly(
                    f"{self.path}-wal holds the latest messages, and reading it needs a writable"
                    " folder: copy the files to one"
                ) from None
            # There can be no log next to the file, so nobody writes to it either.
            from urllib.parse import quote

            uri = f"file:{quote(self.path)}?immutable=1"
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(uri, flags=flags)
        _run_script(connection, f"PRAGMA temp_store = MEMORY; PRAGMA cache_size = {READER_CACHE}")
        connection.register_fts5_function("relevance", sqlite_search.score_relevance)
        return SqliteReader(connection)

    def _check_version(self, connection: apsw.Connection) -> int:
        queries = (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_schema",
        )
        values: list[Any] = []
        with connection:  # one snapshot: another process may be creating the tables
            values += [value for sql in queries for (value,) in connection.execute(sql)]
        application, version, tables = values
        if application == APPLICATION_ID:
            refuse_newer(self.location, version)
            return version
        if tables or self._readonly:
            raise InvalidInput(f"{self.path} is a database, but not a Rekindle store")
        return 0

    def _migrate(self, writer: apsw.Connection) -> None:
        deadline = time.monotonic() + self._busy_seconds
        while self._check_version(writer) < LATEST_VERSION:
            try:
                self._upgrade(writer)
            except apsw.BusyError:
                # When several processes create a file at once, SQLite fails some without waiting.
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _upgrade(self, writer: apsw.Connection) -> None:
        # A new file is flushed once, below, before it is recognisable as a store.
        synchronous = "OFF" if os.path.getsize(self.path) == 0 else "FULL"
        _run_script(
            writer,
            f"PRAGMA synchronous = {synchronous}; PRAGMA journal_mode = WAL; BEGIN IMMEDIATE",
        )
        try:
            version = self._check_version(writer)  # again: another process may have been faster
            if version == LATEST_VERSION:
                writer.execute("ROLLBACK")
                return
            if version:
                self._back_up_file(version)
            apply_migrations("sqlite", version, lambda sql: _run_script(writer, sql))
            if 0 < version < LAST_REINDEX_VERSION:
                self.reindex(SqliteTransaction(writer))
            if 0 < version < REQUESTS_VERSION:
                refresh_all_requests(SqliteTransaction(writer))
            version_now = (
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LATEST_VERSION}"
            )
            _run_script(writer, version_now)
            open_files.flush_file(self.path, self._file_id)
            sync_path(os.path.dirname(self.path))
            writer.execute("COMMIT")  # to the log, which the first message flushes
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _back_up_file(self, version: int) -> None:
        """Copy the database to a file next to it before an upgrade."""
        copy = f"{self.path}.v{version}-{time.strftime('%Y%m%d_%H%M%S')}"
        with self._readers.borrow() as source:
            _copy_database(source.connection, copy, None)

    # -- transactions

    def transact(self, operations: Sequence[Operation]) -> list[Any]:
        self._is_writer_waiting = True
        with self._writer_lock:
            self._is_writer_waiting = False
            return self._run_operations(operations)

    def _run_operations(self, operations: Sequence[Operation]) -> list[Any]:
        writer, write_lock = self._writer, self._write_lock
        if writer is None or write_lock is None:
            raise self._build_refusal()
        self._readers.check_process()
        write_lock.yield_to_waiters()
        try:
            writer.execute("BEGIN IMMEDIATE")
            tx = SqliteTransaction(writer)
            results: list[Any] = []
            for operation in operations:
                tx.flush_deferred()  # each operation sees the writes of the previous ones
                results.append(operation(tx))
            if tx.commit_task is None:
                self._commit(tx)
            else:
                run_in_parallel(lambda: self._commit(tx), tx.commit_task, self._copy_log)
        except BaseException as error:
            with self._translate_errors():
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise error
        finally:
            self._index_batch.clear_cache()
            write_lock.end_wait()
        return results

    def _commit(self, tx: SqliteTransaction) -> None:
        tx.flush_deferred()
        if self._index_batch.is_full:
            self._index_batch.flush(tx)
        tx.connection.execute("COMMIT")

    def _copy_log(self) -> None:
        """Copy the log to the file as far as readers allow, so that closing has less to copy."""
        if self._writer is not None:
            with suppress(apsw.Error):  # everything is safe in the log; the next one tries again
                self._writer.wal_checkpoint()

    def _build_refusal(self) -> StoreError:
        if self._readonly:
            return StoreReadOnly(f"{self.path} was opened read-only")
        return StoreClosed("the store is closed")

    @contextmanager
    def begin_read(self) -> Generator[Transaction]:
        # One generator instead of three nested ones: their overhead dominates short reads.
        try:
            reader = self._readers.acquire()
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
                except apsw.Error:  # on a damaged file; the pool must still get its slot back
                    is_broken = True
                    raise
                finally:
                    self._readers.release(reader, is_broken=is_broken)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            with self._translate_errors():
                raise error

    @contextmanager
    def begin_recent_read(self) -> Generator[Transaction]:
        # A reader drops its cache after every commit; the writer still has the pages it wrote.
        is_busy = self._readonly or self._is_writer_waiting
        if is_busy or not self._writer_lock.acquire(blocking=False):
            with self.begin_read() as tx:
                yield tx
            return
        try:
            writer = self._writer
            if writer is None:
                raise self._build_refusal()
            self._readers.check_process()
            try:
                writer.execute("BEGIN")
                yield SqliteTransaction(writer)
            finally:
                if writer.in_transaction:
                    writer.execute("COMMIT")
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            with self._translate_errors():
                raise error
        finally:
            self._writer_lock.release()

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Translate SQLite errors to store errors that say what happened, where, and what to do."""
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
            raise StoreDamaged(f"{self.path} is {self._describe_damage(error)}") from error
        except apsw.CantOpenError as error:
            raise self._explain_open_error(error) from error
        except (apsw.IOError, OSError) as error:
            raise _explain_disk_error(self.path, error) from error
        except (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError) as error:
            raise InvalidInput(f"{self.path} cannot store this value: {error}") from error
        except apsw.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def _describe_damage(self, error: Exception) -> str:
        if isinstance(error, apsw.NotADBError):
            return f"not a database, or its header is damaged; if it was a store: {REPAIR_HINT}"
        return f"damaged ({error}): {REPAIR_HINT}"

    def _explain_open_error(self, error: Exception) -> StoreError:
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
        texts: Sequence[Message | str] = (),
    ) -> None:
        self._index_batch.count(tx, count, size)
        self._index_batch.cache_texts(num, position, texts)

    def extract_words(self, messages: Sequence[Message]) -> Sequence[str]:
        return [sqlite_search.get_index_text(message) for message in messages]

    unindex = staticmethod(sqlite_search.delete_session_words)
    reindex = staticmethod(sqlite_search.rebuild_index)

    def select_titles(self, tx: Transaction, parts: Sequence[str]) -> None:
        """Return None: the index of titles is read whole."""

    def find(
        self, tx: Transaction, query: Query, clause: Clause | None, newest: bool, expected: int
    ) -> Iterator[int]:
        assert isinstance(tx, SqliteReader)
        return sqlite_search.find_messages(tx, tx.tail, query, clause, newest, expected)

    # -- maintenance

    def check(self, tx: Transaction) -> Iterator[Finding]:
        for (line,) in tx.run("PRAGMA integrity_check(100)"):
            if line != "ok":
                # Damage to an index alone can be repaired from the tables.
                yield Finding(check="file", where=self.location, detail=line)
        for table, rowid, parent, _ in tx.run("PRAGMA foreign_key_check"):
            detail = f"row {rowid} references a missing {parent}"
            yield Finding(check="foreign key", where=str(table), detail=detail)
        yield from sqlite_search.check_index(tx)

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

    def measure_sizes(self, tx: Transaction) -> tuple[int, int]:
        files = (self.path, f"{self.path}-wal")
        disk = sum(os.path.getsize(file) for file in files if os.path.exists(file))
        return disk, sqlite_search.measure_index(tx)

    def compact(self) -> None:
        if self._writer is None:
            raise self._build_refusal()
        with self._translate_errors():
            _run_script(self._writer, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, path: Path, progress: Progress | None) -> bool:
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise InvalidInput(f"{folder} is not a folder")
        with self._translate_errors(), self._readers.borrow() as source:
            _copy_database(source.connection, str(path), progress)
        return True

    def close(self) -> None:
        with self._close_lock:
            self._readers.close()
            try:
                with self._writer_lock, self._translate_errors():
                    writer, self._writer = self._writer, None
                    if writer:
                        writer.close()
            finally:
                self._release_file()
            if self._write_lock:
                self._write_lock.close()

    def _release_file(self) -> None:
        file_id, self._file_id = self._file_id, None
        open_files.register_close(file_id)


def _run_script(connection: apsw.Connection, sql: str) -> None:
    """Run every statement of `sql`, discarding rows."""
    connection.execute(sql).fetchall()


def _copy_database(source: apsw.Connection, path: str, progress: Progress | None) -> None:
    """Copy a live database, completely or not at all."""
    draft = f"{path}.draft-{os.getpid()}"
    try:
        target = apsw.Connection(draft)
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(1000)
                if progress:
                    progress(backup.page_count - backup.remaining, backup.page_count)
        _run_script(target, "PRAGMA journal_mode = DELETE")
        target.close()
        os.chmod(draft, 0o600)
        sync_path(draft)
        os.replace(draft, path)
        sync_path(os.path.dirname(os.path.abspath(path)))
    except apsw.FullError as error:
        raise StoreFull(f"{path}: the disk is full; nothing was written") from error
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _explain_disk_error(path: str, error: Exception) -> StoreError:
    import errno

    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StoreFull(f"{path}: the disk is full; nothing was written")
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return StoreReadOnly(f"{path} cannot be written: {error}")
    return StoreError(f"{path}: disk error ({error}); the write was not acknowledged")
