"""Import what agents write within two seconds, and learn from it when it rests."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rekindle.errors import (
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    WatchUnavailable,
)
from rekindle.learning.notes.learner import LearnReport, learn_from_sessions
from rekindle.store import Store
from rekindle.transcripts.discovery import (
    find_database,
    find_parent_folders,
    find_session_paths,
)
from rekindle.transcripts.importer import ImportReport, import_transcripts

from .changes import ChangeWatcher, WatchedFolders, drop_nested
from .schedule import WatchSchedule

POLL_SECONDS = 15.0  # where changes are not reported
RESCAN_SECONDS = 3600.0  # in case a change was not reported
RETRY_FILE_SECONDS, MAX_FILE_RETRIES = 5.0, 3
MAX_WATCH_ATTEMPTS = 50  # of setting up watches while folders come and go
# Errors that no waiting mends.
_FINAL_ERRORS = (StoreDamaged, StoreTooNew, StoreClosed)


class WatchStarted(NamedTuple):
    """The folders and databases that are watched; `is_polling` if the system reports no changes."""

    paths: tuple[str, ...]
    is_polling: bool = False


class FilesImported(NamedTuple):
    """New messages were imported from these paths."""

    paths: tuple[str, ...]
    report: ImportReport
    seconds: float


class SessionsLearned(NamedTuple):
    """Sessions that rest were learned from."""

    report: LearnReport


class WatchNotice(NamedTuple):
    """Something that a person should know."""

    text: str


WatchEvent: TypeAlias = WatchStarted | FilesImported | SessionsLearned | WatchNotice


class SessionWatcher:
    """Follows the session folders of all agents of one user."""

    def __init__(
        self,
        store: Store,
        home: Path,
        env: Mapping[str, str],
        report: Callable[[WatchEvent], None],
    ) -> None:
        self.store = store
        self.home = home
        self.env = env
        self.report = report
        self.schedule = WatchSchedule()
        # Sets of changed paths, the reason why watching ended, or None to stop.
        self._queue: queue.SimpleQueue[set[str] | str | None] = queue.SimpleQueue()
        self._watcher = ChangeWatcher(self._queue.put, self._queue.put)
        self._session_paths: list[Path] = []
        self._folders: dict[str, tuple[int, int]] = {}
        self._is_polling = False
        self._next_scan = 0.0
        self._problem = ""
        self._file_retries: dict[str, int] = {}
        self._noted: set[str] = set()
        self._damage: dict[str, str] = {}

    def stop(self) -> None:
        """Stop the watcher after the work at hand; safe in a signal handler."""
        self._queue.put(None)

    def import_once(self) -> None:
        """Import everything that is new, learn from it, and return; store errors are raised."""
        self._session_paths = find_session_paths(self.home, self.env)
        self._import_paths([str(path) for path in self._session_paths])
        self._learn()

    def run(self) -> None:
        """Follow the folders until `stop` is called."""
        self._watch_folders(is_first=True)
        self._scan(time.monotonic())
        try:
            while self._handle_next():
                pass
        finally:
            self._watcher.stop()

    # -- what happened ----------------------------------------------------------------------------

    def _handle_next(self) -> bool:
        """Wait for the next change or the next work; return whether to go on."""
        now = time.monotonic()
        wait = self.schedule.compute_wait(now)
        until_scan = max(0.0, self._next_scan - now)
        try:
            change = self._queue.get(timeout=until_scan if wait is None else min(wait, until_scan))
        except queue.Empty:
            change = set[str]()
        if change is None:
            return False
        if isinstance(change, str):
            self._start_polling(change)
        elif change:
            self._handle_changes(change)
        now = time.monotonic()
        if now >= self._next_scan:
            self._watch_folders()
            self._scan(now)
        self._run_due_work(now)
        return True

    def _handle_changes(self, paths: set[str]) -> None:
        """Schedule the changed files that belong to sessions; watch folders that have appeared."""
        known = set(self._session_paths)
        is_replaced = self._watch_folders()
        # What was written before a folder was watched has not been reported.
        added = [str(path) for path in self._session_paths if is_replaced or path not in known]
        self.schedule.add_paths([*added, *self._select_files(paths)], time.monotonic())

    def _select_files(self, paths: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for path in map(find_database, paths):
            if any(path == root or root in path.parents for root in self._session_paths):
                found.add(str(path))
        return found

    def _watch_folders(self, *, is_first: bool = False) -> bool:
        """Watch the folders that exist now; return whether they are others than before.

        A folder may appear or vanish while the watches are set up, so they are compared again after it.
        """
        is_changed = False
        for _ in range(MAX_WATCH_ATTEMPTS):
            wanted = self._list_folders()
            folders = wanted.identify()
            if folders == self._folders:
                break
            self._folders, is_changed = folders, True
            if self._is_polling:
                break
            try:
                self._watcher.start(wanted)
            except WatchUnavailable as error:
                if self._list_folders().identify() == folders:
                    self._start_polling(str(error))
        if is_first:
            shown = tuple(map(str, self._session_paths))
            self.report(WatchStarted(shown, self._is_polling))
        return is_changed

    def _list_folders(self) -> WatchedFolders:
        self._session_paths = find_session_paths(self.home, self.env)
        trees = drop_nested_trees(
            tuple(path for path in self._session_paths if os.path.isdir(path))
        )
        return WatchedFolders(trees, drop_nested(find_parent_folders(self.home, self.env), trees))

    def _start_polling(self, reason: str) -> None:
        self._watcher.stop()
        self._is_polling = True
        self._next_scan = min(self._next_scan, time.monotonic() + POLL_SECONDS)
        self._report_once(
            f"{reason} Meanwhile the folders are searched every {POLL_SECONDS:.0f} s."
        )

    def _scan(self, now: float) -> None:
        """Schedule all folders: of an unchanged one, only the names of its files are read."""
        self._next_scan = now + (POLL_SECONDS if self._is_polling else RESCAN_SECONDS)
        self.schedule.add_paths(map(str, self._session_paths), now)

    # -- work -------------------------------------------------------------------------------------

    def _run_due_work(self, now: float) -> None:
        """Import what is due, and learn when it is time; retry later if the store fails."""
        due = self.schedule.take_due(now)
        try:
            if due:
                self._import_paths([path for path in due if os.path.exists(path)])
            if self.schedule.is_learning_due(now):
                self._learn()
        except _FINAL_ERRORS:
            raise
        except (StoreError, OSError) as error:
            pause = self.schedule.record_failure(due, time.monotonic())
            text = " ".join(str(error).split())
            if text != self._problem:
                self._problem = text
                self.report(WatchNotice(f"{text} Trying again in {pause:.0f} s, then less often."))
            return
        if self._problem and due:
            self._problem = ""
            self.report(WatchNotice("Importing works again."))

    def _import_paths(self, paths: list[str]) -> None:
        if not paths:
            return
        started = time.monotonic()
        report = import_transcripts(self.store, paths)
        now = time.monotonic()
        seconds = now - started
        self.schedule.record_import(paths, now, seconds, has_news=report.messages > 0)
        for path in paths:
            self._damage.pop(path, None)
        # The end of a file that is being written looks damaged: noted only if it stays so.
        self._damage.update((one.file, f"line {one.line}: {one.what}") for one in report.damage)
        self._retry_failed(report, now)
        if report.messages:
            self.report(FilesImported(tuple(paths), report, seconds))

    def _retry_failed(self, report: ImportReport, now: float) -> None:
        for file, reason in report.failed:
            if not os.path.exists(file):
                continue  # deleted meanwhile
            attempt = self._file_retries[file] = self._file_retries.get(file, 0) + 1
            if attempt <= MAX_FILE_RETRIES:
                self.schedule.add_paths([file], now, RETRY_FILE_SECONDS * attempt)
            else:
                self._report_once(f"Cannot import {file}: {reason}.")
                del self._file_retries[file]

    def _learn(self) -> None:
        report = learn_from_sessions(self.store)
        self.schedule.record_learning()
        for file, what in self._damage.items():
            self._report_once(f"Skipped a damaged part of {file}, {what}")
        self._damage.clear()
        if report.sessions:
            self.report(SessionsLearned(report))

    def _report_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.report(WatchNotice(text))


def drop_nested_trees(trees: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the folders that are not inside another one of them."""
    return tuple(tree for tree in trees if not any(other in tree.parents for other in trees))
