"""Recover what can be read from a SQLite file that no longer opens.

The damaged file is only read. Rows found in its pages go into a new file, whose counts, chains and
index are then rebuilt; the damaged file is kept next to it. Sessions and messages are recognised by
their columns, wherever they are. The rows of other tables could be mistaken for those of an index or
of each other: they are read from the pages of their table, and from pages that belong to nothing if
they can be rows of one table only.
"""

# pyright: reportUnknownMemberType=false
# apsw's own stubs leave the type of a blob open.
from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rekindle.errors import NotFound, StoreDamaged, StoreError
from rekindle.store.core import tables
from rekindle.store.core.columns import BLOB, JSON, ROWID, SERIAL, Table
from rekindle.store.core.engine import Progress, Row, Transaction
from rekindle.store.core.tables import MESSAGES, REWINDS, SESSIONS, TABLES
from rekindle.store.engines.sqlite import SqliteEngine

from .consistency import create_recovered_session
from .engines import sqlite_pages
from .store import Store

_TABLES = (SESSIONS, MESSAGES, REWINDS)  # sessions first: the others reference them
# Without these the file is complete: what is derived from the rest, who was at work, and which
# transcripts were imported, so that lost sessions can be imported again.
_LEFT_OUT = (
    tables.IMPORTS, tables.LEASES, tables.SESSION_LEASES, tables.CALLS, tables.JUDGED_SESSIONS,
    tables.SESSION_OUTCOMES, tables.OBSERVATIONS, tables.PLAYBOOKS, tables.TEMPLATES,
)  # fmt: skip
_OTHERS = tuple(table for table in TABLES if table not in _TABLES and table not in _LEFT_OUT)
_MIN_WIDTH = 4  # of a row that is recognised by its columns; those of indexes are narrower


class TableRecovery(NamedTuple):
    """What was recovered of a table: rows, and how many rows and pages could not be read."""

    rows: int = 0
    lost_rows: int = 0
    lost_pages: int = 0


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
                found, others = engine.transact([lambda tx: _import_all(tx, data)])[0]
            if not any(found.values()) and not any(one.rows for one in others.values()):
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
    return [
        f"recovered {counts}; the damaged file is kept as {damaged_path}",
        *_describe_others(others),
        *repairs,
    ]


def _describe_others(found: dict[str, TableRecovery]) -> Iterator[str]:
    rows = ", ".join(f"{one.rows} {name}" for name, one in found.items() if one.rows)
    if rows:
        yield f"recovered rows of other tables: {rows}"
    for name, one in found.items():
        if one.lost_rows:
            yield f"{name}: {one.lost_rows} rows could not be read or belong to something lost"
        if one.lost_pages:
            yield f"{name}: {one.lost_pages} damaged pages were skipped"


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


def _import_all(
    tx: Transaction, data: mmap.mmap
) -> tuple[dict[str, int], dict[str, TableRecovery]]:
    found = _import_rows(tx, data)
    return found, _import_others(tx, data)


def _import_others(tx: Transaction, data: mmap.mmap) -> dict[str, TableRecovery]:
    """Insert the rows of the other tables, in the order of their references."""
    roots = sqlite_pages.find_roots(data)
    kinds = {table.name: table.has_rowid for table in TABLES}
    trees = {
        name: sqlite_pages.walk_tree(
            data, root, has_numbers=kinds.get(name, sqlite_pages.has_row_numbers(data, root))
        )
        for name, root in roots.items()
    }
    known = sqlite_pages.list_free_pages(data).union(*(tree.pages for tree in trees.values()))
    orphans = _group_orphans(data, known, trees)
    found: dict[str, TableRecovery] = {}
    for table in _OTHERS:
        tree = trees.get(table.name, sqlite_pages.PageTree(frozenset(), 0))
        pages = [*sorted(tree.pages), *orphans.get(table.name, ())]
        rows = (
            row for page in pages for row in sqlite_pages.iter_page_rows(data, page, table.widths)
        )
        done = _insert_rows(tx, table, rows)
        found[table.name] = done._replace(lost_pages=tree.damaged)
    return found


def _insert_rows(
    tx: Transaction, table: Table, rows: Iterable[sqlite_pages.PageRow]
) -> TableRecovery:
    import apsw

    count = lost = 0
    for number, row in rows:
        if row is None or not _matches_table(table, row):
            lost += 1
            continue
        values = (number, *row[1:]) if table.columns[0].kind in (SERIAL, ROWID) else row
        names, marks = ", ".join(table.names[: len(row)]), ", ".join("?" * len(row))
        try:
            tx.run(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", values)
        except apsw.ConstraintError:  # of a session or a job that is lost
            lost += 1
        else:
            count += 1
    return TableRecovery(count, lost)


def _group_orphans(
    data: mmap.mmap, known: set[int], trees: dict[str, sqlite_pages.PageTree]
) -> dict[str, list[int]]:
    """Return the pages that no tree leads to and whose rows can be those of one damaged table only."""
    damaged = [table for table in _OTHERS if table.name not in trees or trees[table.name].damaged]
    found: dict[str, list[int]] = {}
    if not damaged:
        return found
    kinds = {True: (sqlite_pages.LEAF_PAGE,), False: sqlite_pages.RECORD_PAGES}
    for page in range(2, sqlite_pages.count_pages(data) + 1):
        if page in known:
            continue
        fitting = [
            table
            for table in TABLES
            if sqlite_pages.is_sound_page(data, page, kinds[table.has_rowid])
            and _matches_page(data, page, table)
        ]
        if len(fitting) == 1 and fitting[0] in damaged:
            found.setdefault(fitting[0].name, []).append(page)
    return found


def _matches_page(data: mmap.mmap, page: int, table: Table) -> bool:
    rows = [row.values for row in sqlite_pages.iter_page_rows(data, page, table.widths)]
    has_width = len(table.columns) >= _MIN_WIDTH or any(
        column.kind is BLOB for column in table.columns
    )
    return has_width and bool(rows) and all(row and _matches_table(table, row) for row in rows)


def _matches_table(table: Table, row: Row) -> bool:
    return all(
        value is None
        if column.kind in (SERIAL, ROWID)
        else isinstance(value, str if column.kind is JSON else column.kind.types)
        or (value is None and column.null)
        for column, value in zip(table.columns, row, strict=False)
    )
