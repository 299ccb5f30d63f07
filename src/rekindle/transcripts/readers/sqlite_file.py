"""A foreign SQLite database, read with its newest rows and without a trace beside the original.

Even a reader of SQLite writes: marks into the shared memory of the log, and that file itself where
there is none. So a database with a log or a journal is copied together with it, and the copy is
read; one without is read in place, as a file that does not change.
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

_TRIES = 8
_PAUSE = 0.1
_LOG_HEAD = 32


@contextmanager
def opened(path: Path) -> Generator[apsw.Connection]:
    """A connection to what is committed now. InvalidInput if the file does not stand still."""
    if any(_size(beside) for beside in _beside(path)):
        with TemporaryDirectory(prefix="rekindle-") as folder, _copy(path, Path(folder)) as copy:
            yield copy
        return
    before = _state(path)
    with _in_place(path) as connection:
        yield connection
    if _state(path) != before:
        raise InvalidInput(f"{path}: changed while it was read; import it again")


@contextmanager
def _in_place(path: Path) -> Generator[apsw.Connection]:
    import apsw

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(os.fsencode(path))}?immutable=1", flags=flags)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _copy(path: Path, folder: Path) -> Generator[apsw.Connection]:
    import apsw

    # Writable, since SQLite first has to bring the log of the copy in order.
    copied = str(_copied(path, folder))
    connection = apsw.Connection(copied, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        yield connection
    finally:
        connection.close()


def _copied(path: Path, folder: Path) -> Path:
    """A copy in which no checkpoint came between the copying of the file and that of its log."""
    copy = folder / "copy.db"
    for _ in range(_TRIES):
        before = _state(path)
        shutil.copyfile(path, copy)
        for beside, target in zip(_beside(path), _beside(copy), strict=True):
            target.unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # whoever closes the database last takes them away
                shutil.copyfile(beside, target)
        if _state(path) == before:
            return copy
        time.sleep(_PAUSE)
    raise InvalidInput(f"{path}: written to without a pause; import it again later")


def _state(path: Path) -> tuple[object, ...]:
    """What stays the same while a log only grows: the file, the head of the log, the journal."""
    log, journal = _beside(path)
    about = path.stat()
    head = b""
    if _size(log):
        with log.open("rb") as file:
            head = file.read(_LOG_HEAD)
    return about.st_size, about.st_mtime_ns, head, _size(journal)


def _beside(path: Path) -> tuple[Path, Path]:
    return Path(f"{path}-wal"), Path(f"{path}-journal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
