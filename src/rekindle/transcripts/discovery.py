"""Discovery of files to import. For an unchanged tree, only directory entries are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

ReportFailure: TypeAlias = Callable[[str, str], None]

# Large folders that never contain sessions.
_SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__"}
# Files that SQLite keeps next to a database. The newest sessions may be only in the WAL.
_WAL_SUFFIX = "-wal"
_SIDECAR_SUFFIXES = (_WAL_SUFFIX, "-shm", "-journal")


class DiscoveredFile(NamedTuple):
    """A regular file with its resolved path, and a stamp derived from its size and time."""

    path: str
    size: int
    mtime: float
    stamp: str


def find_files(
    paths: Iterable[str | Path], report_failure: ReportFailure
) -> Iterator[DiscoveredFile]:
    """Yield the files and all files below the folders, each once.

    `report_failure` is called with each path that cannot be read and the reason.
    """
    seen: set[str] = set()
    for given in paths:
        path = os.path.realpath(given)
        try:
            status = os.stat(path)
        except FileNotFoundError:
            report_failure(str(given), "file not found")
            continue
        except OSError as error:
            report_failure(str(given), error.strerror or str(error))
            continue
        if stat.S_ISDIR(status.st_mode):
            files = _walk_folder(path, report_failure)
        else:
            files = iter(
                [_make_discovered_file(path, status)] if stat.S_ISREG(status.st_mode) else []
            )
        for file in files:
            if file.path not in seen:
                seen.add(file.path)
                yield file


def _walk_folder(folder: str, report_failure: ReportFailure) -> Iterator[DiscoveredFile]:
    """Yield the files below a folder, its own first, because sub-agents are in subfolders."""
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(current) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            report_failure(current, error.strerror or str(error))
            continue
        names = {entry.name for entry in entries}
        inner: list[str] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner += [] if entry.name in _SKIPPED_FOLDERS else [entry.path]
            elif not _is_sidecar(entry.name, names):
                yield from _stat_entry(entry, f"{entry.name}{_WAL_SUFFIX}" in names, report_failure)
        folders += reversed(inner)


def _is_sidecar(name: str, names: set[str]) -> bool:
    """Return whether a file belongs to the database next to it."""
    return any(
        name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in _SIDECAR_SUFFIXES
    )


def _stat_entry(
    entry: os.DirEntry[str], has_wal: bool, report_failure: ReportFailure
) -> Iterator[DiscoveredFile]:
    try:
        if entry.is_symlink():
            path = os.path.realpath(entry.path)
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                yield _make_discovered_file(path, status)
        elif entry.is_file():
            yield _make_discovered_file(entry.path, entry.stat(), has_wal)
    except OSError as error:
        report_failure(entry.path, error.strerror or str(error))


def _make_discovered_file(
    path: str, status: os.stat_result, has_wal: bool | None = None
) -> DiscoveredFile:
    stamp = f"{status.st_size}:{status.st_mtime_ns}"
    wal = path + _WAL_SUFFIX
    if os.path.exists(wal) if has_wal is None else has_wal:
        wal_status = os.stat(wal)
        stamp += f"+{wal_status.st_size}:{wal_status.st_mtime_ns}"
    return DiscoveredFile(path, status.st_size, status.st_mtime, stamp)
