"""Import what agents write while the server runs, so that pages show sessions as they grow.

Changes of files are reported by the system where `watchfiles` is installed, else the folders are
looked through at an interval. One import runs at a time. A large backlog is left to a process of its
own: it would take memory that the server should not keep.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from starlette.applications import Starlette

from rekindle.errors import RekindleError, WatchUnavailable
from rekindle.store import Store
from rekindle.transcripts.discovery import DiscoveredFile, find_session_paths
from rekindle.watching.background_learning import mark_pending, start_learning
from rekindle.watching.changes import ChangeWatcher, WatchedFolders
from rekindle.watching.refresh import SessionRefresher
from rekindle.watching.watcher import drop_nested_trees

from .changes import ChangeFeed
from .sessions.state import get_list_state

POLL_SECONDS = 3.0  # where changes are not reported
RESCAN_SECONDS = 60.0  # in case a change was not reported, or a folder is new
MAX_SHARE = 0.05  # of the time, for looking through the folders,
MAX_BUSY_SHARE = 0.25  # and while agents are at work
MAX_BYTES = 30_000_000  # of changed files that are imported here
LEARN_SECONDS = 120.0
JUDGED_SAMPLE = 50  # sessions
_BACKLOG_COMMAND = ("-m", "rekindle.cli", "watch", "--once")
_log = logging.getLogger(__name__)


class FreshnessOptions(NamedTuple):
    """Where agents write, and how to open the store for an import."""

    home: Path
    user_home: Path
    env: Mapping[str, str]
    open_writer: Callable[[], Store]


class SessionFreshness:
    """Imports changes until it is cancelled."""

    def __init__(self, store: Store, options: FreshnessOptions, feed: ChangeFeed) -> None:
        self._store = store
        self._options = options
        self._feed = feed
        self._refresher = SessionRefresher(options.home, options.user_home, options.env)
        self._learned_at = time.monotonic()

    async def run(self) -> None:
        """Import what is new, and whatever changes."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def report_change(_: object) -> None:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(changed.set)

        watcher = ChangeWatcher(report_change, report_change)
        watched: tuple[Path, ...] = ()
        is_watching = False
        await asyncio.to_thread(self._judge_known)
        try:
            while True:
                changed.clear()
                started = time.monotonic()
                folders = await asyncio.to_thread(self._list_folders)
                if folders != watched:
                    watched = folders
                    is_watching = await asyncio.to_thread(_start_watcher, watcher, folders)
                await self._import_changes()
                spent = time.monotonic() - started
                pause = max(RESCAN_SECONDS if is_watching else POLL_SECONDS, spent / MAX_SHARE)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await changed.wait()
                if changed.is_set():  # a file that grows all the time must not keep a core busy
                    await asyncio.sleep(min(spent / MAX_BUSY_SHARE, POLL_SECONDS))
        finally:
            watcher.stop()

    def _judge_known(self) -> None:
        """Start a separate process to judge sessions if most outcomes are unknown."""
        with suppress(RekindleError, OSError):
            ids = [one.id for one in self._store.recent(JUDGED_SAMPLE)]
            if len(self._store.session_outcomes.load(ids)) < len(ids) / 2:
                mark_pending(self._options.home)
                start_learning(self._options.home)

    def _list_folders(self) -> tuple[Path, ...]:
        paths = find_session_paths(self._options.user_home, self._options.env)
        return drop_nested_trees(tuple(path for path in paths if os.path.isdir(path)))

    async def _import_changes(self) -> None:
        try:
            files = await asyncio.to_thread(self._refresher.find_changes, self._store)
            if sum(file.size for file in files) > MAX_BYTES:
                await self._import_backlog()
            elif files:
                await asyncio.to_thread(self._import_files, files)
            self._feed.notify()
        except (RekindleError, OSError) as error:
            _log.warning("New sessions were not imported: %s", " ".join(str(error).split()))
        except Exception:  # noqa: BLE001  # a mistake of ours must not keep anybody from reading
            _log.exception("New sessions were not imported")

    def _import_files(self, files: Sequence[DiscoveredFile]) -> None:
        result = self._refresher.import_changes(self._options.open_writer, files)
        if result.report is None or not result.report.messages:
            return
        mark_pending(self._options.home)
        if time.monotonic() - self._learned_at > LEARN_SECONDS:
            self._learned_at = time.monotonic()
            start_learning(self._options.home)

    async def _import_backlog(self) -> None:
        """Import in another process, and wait for it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *_BACKLOG_COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise


def _start_watcher(watcher: ChangeWatcher, folders: tuple[Path, ...]) -> bool:
    """Watch the folders; return False if the system cannot report changes."""
    try:
        watcher.start(WatchedFolders(folders, ()))
    except WatchUnavailable as error:
        _log.info("%s", error)
        return False
    return bool(folders)


@asynccontextmanager
async def run_background(app: Starlette) -> AsyncGenerator[None]:
    """Run the background work of the server, from its start to its end."""
    tasks = [asyncio.create_task(get_list_state(app).refresh_choices())]
    freshness: SessionFreshness | None = app.state.freshness
    if freshness is not None:
        tasks.append(asyncio.create_task(freshness.run()))
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
