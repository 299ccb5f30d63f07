"""Recover sessions and messages from a SQLite file that no longer opens.

The damaged file is only read. Rows found in its pages go into a new file, whose counts, chains and
index are then rebuilt; the damaged file is kept next to it.
"""

# pyright: reportUnknownMemberType=false
# apsw's own stubs leave the type of a blob open.
from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager

from rekindle.errors import NotFound, StoreDamaged, StoreError
from rekindle.store.core.columns import JSON, Table
from rekindle.store.core.engine import Progress, Row, Transaction
from rekindle.store.core.tables import MESSAGES, REWINDS, SESSIONS
from rekindle.store.engines.sqlite import SqliteEngine

from .consistency import create_recovered_session
from .engines import sqlite_pages
from .store import Store

_TABLES = (SESSIONS, MESSAGES, REWINDS)  # sessions first: the others reference them


def repair_file(path: str, progress: Progress | None = None) -> list[str]:
    """Repair the database at `path` and return what was repaired.

    A file that opens is repaired in place. Otherwise, everything readable is copied into a new file
    under the same name; the damaged file is kept next to it with the suffix `.damaged-` and the time.
    """
    location = os.path.abspath(path)
    if not os.path.isfile(location):
        raise NotFound(f"{location} is not a file")
    try:
        engine = SqliteEngine(location, durability="full", readonly=False, busy_seconds=30.0)
        with Store(engine) as store:
            if not any(finding.check == "file" for finding in store.verify()):
                return store.repair(progress)
    except StoreDamaged:
        pass
    return _recover_file(location, progress)


def _recover_file(path: str, progress: Progress | None) -> list[str]:
    new_path = f"{path}.rescued-{os.getpid()}"
    try:
        engine = SqliteEngine(new_path, durability="full", readonly=False, busy_seconds=30.0)
        with Store(engine) as store:
            with _map_pages(path, new_path) as data:
                found = engine.transact([lambda tx: _import_rows(tx, data)])[0]
            if not any(found.values()):
                raise StoreDamaged(f"{path} contains no Rekindle data")
            repairs = store.repair(progress)
            findings = store.verify()
            if findings:
                raise StoreError(
                    f"{path}: the recovered data is inconsistent: {findings[0].detail}"
                )
        damaged_path = f"{path}.damaged-{time.strftime('%Y%m%d_%H%M%S')}"
        for suffix in ("-wal", "-shm", ""):
            if os.path.exists(path + suffix):
                os.link(path + suffix, damaged_path + suffix)
        os.replace(new_path, path)  # so that a file exists under this name at all times
        for suffix in ("-wal", "-shm"):
            if os.path.exists(path + suffix):
                os.unlink(path + suffix)
    finally:
        for suffix in ("", "-wal", "-shm", "-turns"):
            if os.path.exists(new_path + suffix):
                os.unlink(new_path + suffix)
    counts = f"{found['sessions']} sessions and {found['messages']} messages"
    return [f"recovered {counts}; the damaged file is kept as {damaged_path}", *repairs]


@contextmanager
def _map_pages(path: str, new_path: str) -> Generator[mmap.mmap]:
    """Map a copy of the file, merged with its write-ahead log."""
    copy = f"{path}.copy-{os.getpid()}"
    try:
        shutil.copyfile(path, copy)
        if os.path.exists(f"{path}-wal"):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
            _restore_header(copy, new_path)
            _merge_wal(copy)
        with open(copy, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(copy + suffix):
                os.unlink(copy + suffix)


def _restore_header(copy: str, new_path: str) -> None:
    """Replace a destroyed header with an intact one; without it SQLite ignores the log."""
    with open(copy, "r+b") as file, open(new_path, "rb") as intact:
        if file.read(len(sqlite_pages.MAGIC)) != sqlite_pages.MAGIC:
            header = bytearray(intact.read(100))
            header[28:32] = (os.path.getsize(copy) // sqlite_pages.PAGE_SIZE).to_bytes(4, "big")
            file.seek(0)
            file.write(header)


def _merge_wal(copy: str) -> None:
    """Let SQLite merge the log's pages into the file; damage to either is ignored."""
    import apsw

    try:
        connection = apsw.Connection(copy)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
    except apsw.Error:
        pass


def _import_rows(tx: Transaction, data: mmap.mmap) -> dict[str, int]:
    """Insert the rows that belong to our tables, and return their number per table."""
    for table in _TABLES:
        known = {num for (num,) in tx.run("SELECT num FROM sessions")}
        for number, row in sqlite_pages.iter_rows(data, table.widths):
            if _matches_table(table, row):
                if table is MESSAGES and row[1] not in known:
                    create_recovered_session(tx, row[1], row[4], row[4])
                    known.add(row[1])
                if table is SESSIONS or row[1] in known:
                    names, marks = table.names[: len(row)], ", ".join("?" * len(row))
                    sql = (
                        f"INSERT OR REPLACE INTO {table.name} ({', '.join(names)}) VALUES ({marks})"
                    )
                    tx.run(sql, (number, *row[1:]))
    return {table.name: tx.run(f"SELECT count(*) FROM {table.name}")[0][0] for table in _TABLES}


def _matches_table(table: Table, row: Row) -> bool:
    pairs = zip(table.columns[1:], row[1:], strict=False)
    return all(
        isinstance(value, str if column.kind is JSON else column.kind.types)
        or (value is None and column.null)
        for column, value in pairs
    )
