"""Database files that this process has open, and file descriptors that must not be closed yet.

POSIX file locks belong to the process: closing any descriptor of a file releases every lock that the
process holds on it. SQLite would continue as if it held them, and another process that closes the
same database would remove its log. So an open database is never opened and closed outside SQLite; a
descriptor that was needed stays open until the last connection is closed.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TypeAlias

FileId: TypeAlias = tuple[int, int]  # device and inode

_open_counts: Counter[FileId] = Counter()
_kept_handles: dict[FileId, list[int]] = {}
_lock = threading.Lock()


def get_file_id(path: str | os.PathLike[str]) -> FileId | None:
    """Return what identifies a file regardless of its names, or None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def register_open(path: str) -> FileId | None:
    """Record that SQLite opens this file; pass the result to `register_close` afterwards."""
    file_id = get_file_id(path)
    if file_id is not None:
        with _lock:
            _open_counts[file_id] += 1
    return file_id


def register_close(file_id: FileId | None) -> None:
    """Record that SQLite has closed the file."""
    if file_id is None:
        return
    with _lock:
        _open_counts[file_id] -= 1
        if _open_counts[file_id] > 0:
            return
        del _open_counts[file_id]
        for handle in _kept_handles.pop(file_id, ()):
            os.close(handle)


def is_open(path: str | os.PathLike[str]) -> bool:
    """Return whether this process has a database open in this file."""
    return bool(_open_counts) and get_file_id(path) in _open_counts


def flush_file(path: str, file_id: FileId | None) -> None:
    """Flush a file that SQLite has open."""
    handle = os.open(path, os.O_RDONLY)
    with _lock:
        if file_id is not None and file_id in _open_counts:
            _kept_handles.setdefault(file_id, []).append(handle)
            os.fsync(handle)
            return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
