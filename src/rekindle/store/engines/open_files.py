"""Which database files this process has open, and handles on them that must not be closed yet.

Locks of files belong to the process: to close any handle on a file gives up every lock that the
process has on it. SQLite would go on as if it had them, and another process that closes the same
database would take its log away. So a database that is open is never opened and closed beside
SQLite; a handle that was needed stays open until the last connection has gone.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TypeAlias

File: TypeAlias = tuple[int, int]  # device and number

_open: Counter[File] = Counter()
_kept: dict[File, list[int]] = {}
_guard = threading.Lock()


def file_of(path: str | os.PathLike[str]) -> File | None:
    """What tells the file apart from others, whatever its names are; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def opened(path: str) -> File | None:
    """SQLite opens this file now; give the answer to `closed` when it has closed it."""
    file = file_of(path)
    if file is not None:
        with _guard:
            _open[file] += 1
    return file


def closed(file: File | None) -> None:
    """SQLite has closed the file."""
    if file is None:
        return
    with _guard:
        _open[file] -= 1
        if _open[file] > 0:
            return
        del _open[file]
        for handle in _kept.pop(file, ()):
            os.close(handle)


def is_open(path: str | os.PathLike[str]) -> bool:
    """Has this process a database open in that file?"""
    return bool(_open) and file_of(path) in _open


def flush(path: str, file: File | None) -> None:
    """Flush a file that SQLite has open."""
    handle = os.open(path, os.O_RDONLY)
    with _guard:
        if file is not None and file in _open:
            _kept.setdefault(file, []).append(handle)
            os.fsync(handle)
            return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
