"""Bringing back what can be brought back from a SQLite file that no longer opens.

The damaged file is only read. What its pages still hold goes into a new file, whose counts, chains
and index are then derived anew; the damaged one is kept beside it.
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
from rekindle.store.core.engine import Progress, Row, Transaction
from rekindle.store.engines.sqlite import SqliteEngine

from .consistency import adopt
from .engines import sqlite_pages
from .store import Store

_NEEDS: dict[str, dict[int, type | tuple[type, ...]]] = {
    # What a row of the table must look like, by column, to be taken for one.
    "sessions": {1: str, 2: str, 3: str},
    "messages": {1: int, 2: int, 3: str, 4: (int, float)},
    "rewinds": {1: int, 2: str, 3: int},
}


def repair_file(path: str, progress: Progress | None = None) -> list[str]:
    """Repair the database at `path`, and say what was mended.

    One that can be opened is repaired in place. Of one that cannot, everything readable is brought
    into a new file under its name; the damaged one stays beside it, with `.damaged-` and the time.
    """
    where = os.path.abspath(path)
    if not os.path.isfile(where):
        raise NotFound(f"{where} is not a file")
    try:
        engine = SqliteEngine(where, durability="full", readonly=False, busy_seconds=30.0)
        with Store(engine) as store:
            if not any(finding.check == "file" for finding in store.verify()):
                return store.repair(progress)
    except StoreDamaged:
        pass
    return _rescue(where, progress)


def _rescue(path: str, progress: Progress | None) -> list[str]:
    fresh = f"{path}.rescued-{os.getpid()}"
    try:
        engine = SqliteEngine(fresh, durability="full", readonly=False, busy_seconds=30.0)
        with Store(engine) as store:
            with _pages(path, fresh) as data:
                found = engine.transact([lambda tx: _bring_in(tx, data)])[0]
            if not any(found.values()):
                raise StoreDamaged(f"{path} holds nothing that Rekindle has written")
            mended = store.repair(progress)
            wrong = store.verify()
            if wrong:
                raise StoreError(f"{path}: what was rescued is not sound: {wrong[0].detail}")
        kept = f"{path}.damaged-{time.strftime('%Y%m%d_%H%M%S')}"
        for end in ("-wal", "-shm", ""):
            if os.path.exists(path + end):
                os.link(path + end, kept + end)
        os.replace(fresh, path)  # at no moment is there no file under the name
        for end in ("-wal", "-shm"):
            if os.path.exists(path + end):
                os.unlink(path + end)
    finally:
        for end in ("", "-wal", "-shm", "-turns"):
            if os.path.exists(fresh + end):
                os.unlink(fresh + end)
    counted = f"{found['sessions']} sessions and {found['messages']} messages"
    return [f"rescued {counted}; the damaged file is kept as {kept}", *mended]


@contextmanager
def _pages(path: str, fresh: str) -> Generator[mmap.mmap]:
    """The pages of the file, with what its log holds on top, as a copy."""
    copy = f"{path}.copy-{os.getpid()}"
    try:
        shutil.copyfile(path, copy)
        if os.path.exists(f"{path}-wal"):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
            _give_header(copy, fresh)
            _merge_log(copy)
        with open(copy, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        for end in ("", "-wal", "-shm"):
            if os.path.exists(copy + end):
                os.unlink(copy + end)


def _give_header(copy: str, fresh: str) -> None:
    """Put a sound header in place of a lost one: without it, the log is not looked at."""
    with open(copy, "r+b") as file, open(fresh, "rb") as sound:
        if file.read(len(sqlite_pages.MAGIC)) != sqlite_pages.MAGIC:
            header = bytearray(sound.read(100))
            header[28:32] = (os.path.getsize(copy) // sqlite_pages.PAGE).to_bytes(4, "big")
            file.seek(0)
            file.write(header)


def _merge_log(copy: str) -> None:
    """Let SQLite bring the log's pages into the file; damage to either is no reason to stop."""
    import apsw

    try:
        connection = apsw.Connection(copy)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
    except apsw.Error:
        pass


def _bring_in(tx: Transaction, data: mmap.mmap) -> dict[str, int]:
    """Write the rows that are ours as they were; how many, by table."""
    for table in _NEEDS:  # sessions first: the others point at them
        known = {num for (num,) in tx.run("SELECT num FROM sessions")}
        width = tx.run("SELECT count(*) FROM pragma_table_info(?)", (table,))[0][0]
        for number, row in sqlite_pages.rows(data, width):
            if _fits(table, row):
                if table == "messages" and row[1] not in known:
                    adopt(tx, row[1], row[4], row[4])
                    known.add(row[1])
                if table == "sessions" or row[1] in known:
                    marks = ", ".join("?" * len(row))
                    tx.run(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (number, *row[1:]))
    return {table: tx.run(f"SELECT count(*) FROM {table}")[0][0] for table in _NEEDS}


def _fits(table: str, row: Row) -> bool:
    return all(isinstance(row[column], kind) for column, kind in _NEEDS[table].items())
