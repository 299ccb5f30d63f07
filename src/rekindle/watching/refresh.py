"""Import what agents have written since the last time, before something is read.

Of unchanged files only the folder entries are read, and the store is asked for all of them together.
Whoever reads does not wait for others: a change that another process is importing, or that a running
watcher is about to import, is left to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rekindle.files import write_new_file
from rekindle.transcripts.discovery import (
    DiscoveredFile,
    find_files,
    find_pending_files,
    find_session_paths,
)

from .lock import find_running_watcher, try_lock

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.transcripts.importer import ImportReport, ProgressCallback

LOCK_NAME, POSTPONED_NAME = "refresh.lock", "refresh.json"
BUSY_SECONDS = 1.0  # to wait for another writer of the store
# Younger changes are left to a running watcher, and their damage may be a line that is being written.
FRESH_SECONDS = 10.0
RETRY_SECONDS = 3600.0  # before a file that failed is tried again, unless it has changed
MAX_SHARE = 0.1  # of the time, for reading a file that grows all the time
MIN_REST_SECONDS = 5.0


class PostponedFile(msgspec.Struct, frozen=True):
    """A file that is not read before `until`; with a `stamp`, as long as it has this one."""

    until: float
    stamp: str = ""


class RefreshResult(NamedTuple):
    """What a refresh found; without a report, another process was importing."""

    report: ImportReport | None
    files: tuple[DiscoveredFile, ...]


class SessionRefresher:
    """Imports what has changed in the session folders of one user into the store of a home."""

    def __init__(self, home: Path, user_home: Path, env: Mapping[str, str]) -> None:
        self.home = home
        self.user_home = user_home
        self.env = env

    def find_changes(self, store: Store) -> list[DiscoveredFile]:
        """Return the files that are to be imported now; of unchanged ones none is opened."""
        paths = find_session_paths(self.user_home, self.env)
        if not paths:
            return []
        files = find_pending_files(store, find_files(paths, lambda path, reason: None))
        if not files:
            return []
        now = time.time()
        if find_running_watcher(self.home) is not None:
            files = [file for file in files if abs(now - file.mtime) > FRESH_SECONDS]
        postponed = _load_postponed(self.home / POSTPONED_NAME)
        return [file for file in files if not _is_postponed(postponed.get(file.path), file, now)]

    def import_changes(
        self,
        open_writer: Callable[[], Store],
        files: Sequence[DiscoveredFile],
        progress: ProgressCallback | None = None,
    ) -> RefreshResult:
        """Import the files, unless another process is at it; errors of the store are raised."""
        from rekindle.transcripts.importer import import_transcripts

        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with try_lock(self.home / LOCK_NAME) as is_held:
            if not is_held:
                return RefreshResult(None, tuple(files))
            started = time.monotonic()
            with open_writer() as store:
                report = import_transcripts(store, [file.path for file in files], progress)
            self._record_postponed(report, files, time.monotonic() - started)
        return RefreshResult(report, tuple(files))

    def _record_postponed(
        self, report: ImportReport, files: Sequence[DiscoveredFile], seconds: float
    ) -> None:
        """Remember which files failed, and which take too long to be read at every refresh."""
        file = self.home / POSTPONED_NAME
        now, before = time.time(), _load_postponed(file)
        kept = {path: one for path, one in before.items() if one.until > now}
        failed = {failure.file for failure in report.failed}
        total = sum(one.size for one in files) or 1
        for one in files:
            rest = min(seconds * one.size / total / MAX_SHARE, RETRY_SECONDS)
            if one.path in failed:
                kept[one.path] = PostponedFile(now + RETRY_SECONDS, one.stamp)
            elif rest >= MIN_REST_SECONDS and is_fresh(one, now):
                kept[one.path] = PostponedFile(now + rest)
        if kept != before:
            _save_postponed(file, kept)


def is_fresh(file: DiscoveredFile, now: float) -> bool:
    """Return whether a file was changed so recently that its agent may still be writing."""
    return abs(now - file.mtime) <= FRESH_SECONDS


def list_problems(result: RefreshResult) -> list[str]:
    """Return a line for each file that was not imported or is damaged."""
    if result.report is None:
        return []
    now = time.time()
    growing = {file.path for file in result.files if is_fresh(file, now)}
    problems = {
        failure.file: f"Cannot import {failure.file}: {failure.reason}."
        for failure in result.report.failed
        if os.path.exists(failure.file)  # not deleted meanwhile
    }
    for damage in result.report.damage:
        if damage.file not in growing:
            place = f"{damage.file}, line {damage.line}" if damage.line else damage.file
            problems.setdefault(damage.file, f"Skipped a damaged part of {place}: {damage.what}.")
    return [*problems.values()]


def _is_postponed(postponed: PostponedFile | None, file: DiscoveredFile, now: float) -> bool:
    return (
        postponed is not None
        and postponed.until > now
        and postponed.stamp in ("", file.stamp)
        and postponed.until <= now + RETRY_SECONDS  # else the clock was set back
    )


def _load_postponed(file: Path) -> dict[str, PostponedFile]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, PostponedFile])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _save_postponed(file: Path, postponed: Mapping[str, PostponedFile]) -> None:
    with suppress(OSError, UnicodeEncodeError):  # then it is tried again sooner
        write_new_file(file, msgspec.json.encode(postponed), durable=False)
