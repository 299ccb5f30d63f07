"""Which files there are to take in. Of a tree that did not change, this is all that is looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

Fail: TypeAlias = Callable[[str, str], None]

# Folders that are large and never hold sessions.
_SKIPPED = {".git", "node_modules", "__pycache__"}
# What SQLite keeps beside a database. The newest sessions may be in the log alone.
_LOG = "-wal"
_BESIDE = (_LOG, "-shm", "-journal")


class Found(NamedTuple):
    """A regular file, without links in its path, and what its size and time say of its state."""

    path: str
    size: int
    time: float
    stamp: str


def find(paths: Iterable[str | Path], fail: Fail) -> Iterator[Found]:
    """The files, and all files below the folders, each once; `fail` is told what cannot be read."""
    seen: set[str] = set()
    for given in paths:
        path = os.path.realpath(given)
        try:
            about = os.stat(path)
        except FileNotFoundError:
            fail(str(given), "there is no such file")
            continue
        except OSError as error:
            fail(str(given), error.strerror or str(error))
            continue
        if stat.S_ISDIR(about.st_mode):
            found = _below(path, fail)
        else:
            found = iter([_found(path, about)] if stat.S_ISREG(about.st_mode) else [])
        for file in found:
            if file.path not in seen:
                seen.add(file.path)
                yield file


def _below(folder: str, fail: Fail) -> Iterator[Found]:
    """The files below a folder. Its own come first: sub-agents lie deeper."""
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            with os.scandir(here) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            fail(here, error.strerror or str(error))
            continue
        names = {entry.name for entry in entries}
        inner: list[str] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner += [] if entry.name in _SKIPPED else [entry.path]
            elif not _is_beside(entry.name, names):
                yield from _entry(entry, f"{entry.name}{_LOG}" in names, fail)
        folders += reversed(inner)


def _is_beside(name: str, names: set[str]) -> bool:
    """Whether a file belongs to the database next to it."""
    return any(name.endswith(end) and name.removesuffix(end) in names for end in _BESIDE)


def _entry(entry: os.DirEntry[str], has_log: bool, fail: Fail) -> Iterator[Found]:
    try:
        if entry.is_symlink():
            path = os.path.realpath(entry.path)
            about = os.stat(path)
            if stat.S_ISREG(about.st_mode):
                yield _found(path, about)
        elif entry.is_file():
            yield _found(entry.path, entry.stat(), has_log)
    except OSError as error:
        fail(entry.path, error.strerror or str(error))


def _found(path: str, about: os.stat_result, has_log: bool | None = None) -> Found:
    stamp = f"{about.st_size}:{about.st_mtime_ns}"
    log = path + _LOG
    if os.path.exists(log) if has_log is None else has_log:
        newest = os.stat(log)
        stamp += f"+{newest.st_size}:{newest.st_mtime_ns}"
    return Found(path, about.st_size, about.st_mtime, stamp)
