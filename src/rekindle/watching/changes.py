"""Changes of files as the operating system reports them, through `watchfiles`.

Nothing is polled: two threads sleep until a file below their folders changes. One watches the session
folders with everything below them, the other the folders in which session folders may appear.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import WatchUnavailable

# Changes are reported when none came for a step, and at the latest after `DEBOUNCE`.
STEP_MILLISECONDS, DEBOUNCE_MILLISECONDS = 250, 800
START_SECONDS = 60.0  # to set up the watches of very many folders
_LIMIT_WORDS = ("no space left", "limit", "too many open files", "os error 28", "os error 24")
_LIMIT_ADVICE = (
    "The system's limit of watched folders is reached. Raise it with:"
    " sudo sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512"
)


class WatchedFolders(NamedTuple):
    """The folders to watch: `trees` with everything below them, `parents` alone."""

    trees: tuple[Path, ...]
    parents: tuple[Path, ...]

    def identify(self) -> dict[str, tuple[int, int]]:
        """Return the folders with what changes when one is replaced by another of its name."""
        found: dict[str, tuple[int, int]] = {}
        for folder in (*self.trees, *self.parents):
            try:
                status = folder.stat()
            except OSError:
                continue
            found[str(folder)] = status.st_dev, status.st_ino
        return found


class ChangeWatcher:
    """Watches folders in threads and passes the changed paths to a function."""

    def __init__(
        self, report_changes: Callable[[set[str]], None], report_end: Callable[[str], None]
    ) -> None:
        self._report_changes = report_changes
        self._report_end = report_end
        self._threads: list[_WatchThread] = []

    def start(self, folders: WatchedFolders) -> None:
        """Watch these folders instead of any earlier ones; raise WatchUnavailable if that fails."""
        self.stop()
        for paths, is_recursive in ((folders.trees, True), (folders.parents, False)):
            if paths:
                thread = _WatchThread(paths, is_recursive, self._report_changes, self._report_end)
                self._threads.append(thread)
                thread.start()
        for thread in self._threads:
            thread.wait_until_ready()

    def stop(self) -> None:
        """Stop watching."""
        for thread in self._threads:
            thread.is_stopped = True
        for thread in self._threads:
            thread.join()
        self._threads = []


class _WatchThread(threading.Thread):
    """One thread of the watcher; it is also the event by which `watchfiles` is told to stop."""

    def __init__(
        self,
        paths: Sequence[Path],
        is_recursive: bool,
        report_changes: Callable[[set[str]], None],
        report_end: Callable[[str], None],
    ) -> None:
        super().__init__(name="rekindle-watch", daemon=True)
        self.paths = paths
        self.is_recursive = is_recursive
        self.report_changes = report_changes
        self.report_end = report_end
        self.is_stopped = False
        self.error: str | None = None
        self.ready = threading.Event()

    def is_set(self) -> bool:
        # Asked for the first time when all folders are watched.
        self.ready.set()
        return self.is_stopped

    def run(self) -> None:
        try:
            try:
                self._report_all(ignore_denied=False)
            except PermissionError:  # of one folder; ignoring it would hide reached limits too
                self._report_all(ignore_denied=True)
        # The library raises errors of its own kind, and one here must not end in silence.
        except Exception as error:  # noqa: BLE001
            self.error = describe_watch_error(error)
            if self.ready.is_set():
                self.report_end(self.error)
        self.ready.set()

    def _report_all(self, *, ignore_denied: bool) -> None:
        from watchfiles import watch

        for changes in watch(
            *self.paths,
            watch_filter=None,
            step=STEP_MILLISECONDS,
            debounce=DEBOUNCE_MILLISECONDS,
            stop_event=self,
            rust_timeout=0,
            raise_interrupt=False,
            force_polling=False,
            recursive=self.is_recursive,
            ignore_permission_denied=ignore_denied,
        ):
            self.report_changes({path for _, path in changes})

    def wait_until_ready(self) -> None:
        """Wait until the folders are watched; raise WatchUnavailable if they cannot be."""
        if not self.ready.wait(START_SECONDS):
            raise WatchUnavailable("Watching the folders did not start in time.")
        if self.error is not None:
            raise WatchUnavailable(self.error)


def describe_watch_error(error: BaseException) -> str:
    """Say why folders cannot be watched, and what to do about it."""
    if isinstance(error, ImportError):
        return "The package watchfiles is not installed. Install it with: pip install 'rekindle[watch]'"
    text = " ".join(str(error).split())
    is_limit = isinstance(error, OSError) and error.errno in (24, 28)
    if is_limit or any(word in text.lower() for word in _LIMIT_WORDS):
        return _LIMIT_ADVICE
    return f"The folders cannot be watched: {text}."


def drop_nested(folders: Iterable[Path], trees: Sequence[Path]) -> tuple[Path, ...]:
    """Return the folders that are not inside a watched tree."""
    return tuple(
        folder for folder in folders if not any(folder.is_relative_to(tree) for tree in trees)
    )
