"""Read-only access to foreign SQLite databases, including rows that are only in the log.

Even reading SQLite writes: marks in the WAL's shared memory, or that file itself if it is missing. A
database with a log or a journal is therefore copied together with it and the copy is read; one without
is read in place as an immutable file.

The file may be hostile: a view can run for ever, and an expression can make a value of any size. Views
are refused, no value is longer than the file, and the work is limited by the size of the file.
"""

# pyright: reportUnknownMemberType=false
# apsw's stubs do not type bindings.
from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    import apsw

_MAX_ATTEMPTS = 8
_RETRY_SECONDS = 0.1
_WAL_HEADER_BYTES = 32
_SCHEMA_BYTES = 1 << 20  # migrations may move a table's definition far from the beginning
_SELECT_VIEWS = "SELECT name FROM sqlite_schema WHERE type = 'view'"
_MIN_VALUE_BYTES = 1_000_000
# Steps of SQLite's virtual machine; reading a row takes a few per column, far fewer than this.
_MIN_STEPS, _STEPS_PER_BYTE, _STEPS_PER_CHECK = 20_000_000, 1_000, 100_000


def iter_schema_bytes(path: Path) -> Iterator[bytes]:
    """Yield the beginnings of a database and of its log, where its CREATE statements stand."""
    for file in (path, Path(f"{path}-wal")):
        with suppress(FileNotFoundError), file.open("rb") as opened:
            yield opened.read(_SCHEMA_BYTES)


def has_row(path: Path, sql: str, *values: str) -> bool:
    """Return whether a query finds anything; False if the file cannot be read."""
    import apsw

    try:
        with open_sqlite_file(path) as database:
            return next(iter(database.execute(sql, values)), None) is not None
    except (apsw.Error, OSError, UnicodeDecodeError, InvalidInput):
        return False


@contextmanager
def open_sqlite_file(path: Path) -> Generator[apsw.Connection]:
    """Open a connection to what is committed now.

    Raise InvalidInput if the file keeps changing, or for a view or endless work in place of data.
    """
    import apsw

    try:
        with _open_committed(path) as connection:
            _limit_work(connection, path)
            yield connection
    except apsw.AuthError:
        raise InvalidInput(f"{path}: expected a table, found a view") from None
    except apsw.InterruptError:
        raise InvalidInput(f"{path}: reading it takes far more work than its size allows") from None


def _limit_work(connection: apsw.Connection, path: Path) -> None:
    import apsw

    size = sum(map(_get_size, (path, *_list_sidecars(path))))
    steps = max(_MIN_STEPS, _STEPS_PER_BYTE * size)
    checks = iter(range(steps // _STEPS_PER_CHECK))
    connection.set_progress_handler(lambda: next(checks, None) is None, _STEPS_PER_CHECK)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, max(_MIN_VALUE_BYTES, size))

    views = {name for (name,) in connection.execute(_SELECT_VIEWS)}  # pyright: ignore[reportUnknownMemberType]

    def refuse_views(
        operation: int, first: str | None, second: str | None, db: str | None, source: str | None
    ) -> int:
        return apsw.SQLITE_DENY if source in views else apsw.SQLITE_OK

    connection.authorizer = refuse_views


@contextmanager
def _open_committed(path: Path) -> Generator[apsw.Connection]:
    if any(_get_size(sidecar) for sidecar in _list_sidecars(path)):
        with (
            TemporaryDirectory(prefix="rekindle-") as folder,
            _open_copy(path, Path(folder)) as copy,
        ):
            yield copy
        return
    before = _fingerprint_database(path)
    with _open_in_place(path) as connection:
        yield connection
    if _fingerprint_database(path) != before:
        raise InvalidInput(f"{path}: the file changed while it was being read; import it again")


@contextmanager
def _open_in_place(path: Path) -> Generator[apsw.Connection]:
    import apsw

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(os.fsencode(path))}?immutable=1", flags=flags)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _open_copy(path: Path, folder: Path) -> Generator[apsw.Connection]:
    import apsw

    # Writable, because SQLite first has to recover the copy's log.
    copy_path = str(_copy_database(path, folder))
    connection = apsw.Connection(copy_path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        yield connection
    finally:
        connection.close()


def _copy_database(path: Path, folder: Path) -> Path:
    """Copy the database and its log without a checkpoint in between."""
    copy = folder / "copy.db"
    for _ in range(_MAX_ATTEMPTS):
        before = _fingerprint_database(path)
        shutil.copyfile(path, copy)
        for sidecar, target in zip(_list_sidecars(path), _list_sidecars(copy), strict=True):
            target.unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # removed by whoever closes the database last
                shutil.copyfile(sidecar, target)
        if _fingerprint_database(path) == before:
            return copy
        time.sleep(_RETRY_SECONDS)
    raise InvalidInput(f"{path}: the database keeps changing; import it again later")


def _fingerprint_database(path: Path) -> tuple[object, ...]:
    """Return what is constant while a log only grows: the file, the log's header, the journal."""
    wal, journal = _list_sidecars(path)
    status = path.stat()
    wal_header = b""
    if _get_size(wal):
        with wal.open("rb") as file:
            wal_header = file.read(_WAL_HEADER_BYTES)
    return status.st_size, status.st_mtime_ns, wal_header, _get_size(journal)


def _list_sidecars(path: Path) -> tuple[Path, Path]:
    return Path(f"{path}-wal"), Path(f"{path}-journal")


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
