"""Read-only access to foreign SQLite databases, including rows that are only in the log.

Even reading SQLite writes: marks in the WAL's shared memory, or that file itself if it is missing. A
database with a log or a journal is therefore copied together with it and the copy is read; one without
is read in place as an immutable file.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator
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


@contextmanager
def open_sqlite_file(path: Path) -> Generator[apsw.Connection]:
    """Open a connection to what is committed now.

    Raise InvalidInput if the file keeps changing.
    """
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
