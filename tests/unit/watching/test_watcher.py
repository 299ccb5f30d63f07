"""The watcher in this process, with a real store and real files."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import RekindleError, StoreBusy, StoreDamaged, StoreFull, WatchUnavailable
from rekindle.store import Store
from rekindle.watching import watcher as watcher_module
from rekindle.watching.changes import ChangeWatcher, WatchedFolders, describe_watch_error
from rekindle.watching.lock import find_running_watcher, lock_watcher
from rekindle.watching.watcher import (
    FilesImported,
    SessionWatcher,
    WatchEvent,
    WatchNotice,
    WatchStarted,
)
from tests.new_store import open_new_store
from tests.waiting import wait_until


class Watched:
    """A home with a watcher in a thread."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.store = store
        self.events: list[WatchEvent] = []
        self.watcher = SessionWatcher(store, self.home, {}, self.events.append)
        self.error: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        def run() -> None:
            try:
                self.watcher.run()
            except RekindleError as error:
                self.error = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_until(lambda: self.find(WatchStarted) or self.error)
            yield
        finally:
            self.watcher.stop()
            thread.join()

    def find(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def write(self, *numbers: int, session: str = "s1", folder: str = ".claude/projects/x") -> Path:
        path = self.home / folder / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            for number in numbers:
                line = {
                    "type": "user", "sessionId": session, "uuid": f"{session}-{number}",
                    "timestamp": "2026-03-01T10:00:00Z", "parentUuid": None,
                    "message": {"role": "user", "content": f"message {number}"},
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")
        return path

    def count(self, session: str = "s1") -> int:
        found = [one for one in self.store.recent() if one.id == session]
        return found[0].message_count if found else 0

    def wait_for(self, count: int, session: str = "s1") -> None:
        wait_until(lambda: self.count(session) == count)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with open_new_store(tmp_path / "sessions.db") as store:
        yield Watched(tmp_path, store)


def test_what_is_there_what_grows_and_what_appears_later_is_imported(watched: Watched) -> None:
    watched.write(1)
    with watched.running():
        watched.wait_for(1)
        watched.write(2, 3)
        watched.wait_for(3)
        watched.write(1, session="new", folder=".claude/projects/new/subfolder")
        watched.wait_for(1, "new")
        watched.write(1, session="later", folder=".config/claude/projects/y")
        watched.wait_for(1, "later")
        watched.write(2, session="later", folder=".config/claude/projects/y")
        watched.wait_for(2, "later")
    assert watched.error is None


def test_only_the_file_that_grew_is_read(watched: Watched) -> None:
    for number in range(50):
        watched.write(1, session=f"old-{number}")
    with watched.running():
        wait_until(lambda: len(watched.store.recent(100)) == 50)
        wait_until(lambda: watched.find(FilesImported))
        path = watched.write(2, session="old-7")
        watched.wait_for(2, "old-7")
        wait_until(lambda: len(watched.find(FilesImported)) == 2)
    event = watched.find(FilesImported)[-1]
    assert event.paths == (str(path),)
    assert (event.report.files, event.report.unchanged) == (1, 0)


def test_a_folder_that_is_replaced_is_still_watched(watched: Watched, tmp_path: Path) -> None:
    watched.write(1)
    with watched.running():
        watched.wait_for(1)
        (watched.home / ".claude").rename(tmp_path / "moved")
        watched.write(1, session="after")
        watched.wait_for(1, "after")
        watched.write(2, session="after")
        watched.wait_for(2, "after")


def test_a_folder_that_appears_while_watches_are_set_up_is_not_missed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, levels = ChangeWatcher.start, [".claude", ".claude/projects", ".claude/projects/x"]

    def create_meanwhile(self: ChangeWatcher, folders: WatchedFolders) -> None:
        if levels:  # after the folders were listed, and before they are watched
            (watched.home / levels.pop(0)).mkdir()
        real(self, folders)

    monkeypatch.setattr(ChangeWatcher, "start", create_meanwhile)
    with watched.running():
        watched.write(1)
        watched.wait_for(1)
    assert not watched.watcher._is_polling


def test_a_folder_that_vanishes_while_watches_are_set_up_does_not_end_them(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, gone = ChangeWatcher.start, watched.home / ".claude" / "projects"
    gone.mkdir(parents=True)

    def remove_meanwhile(self: ChangeWatcher, folders: WatchedFolders) -> None:
        if gone.exists() and not watched.events:
            gone.rmdir()
        real(self, folders)

    monkeypatch.setattr(ChangeWatcher, "start", remove_meanwhile)
    with watched.running():
        watched.write(1)
        watched.wait_for(1)
    assert watched.find(WatchNotice) == []


def test_a_deleted_file_and_a_damaged_line_cost_nothing_else(watched: Watched) -> None:
    gone, damaged = watched.write(1, session="gone"), watched.write(1, session="damaged")
    with watched.running():
        watched.wait_for(1, "damaged")
        gone.unlink()
        with damaged.open("a") as file:
            file.write('{"type": "user", "sess\n')
        watched.write(2, session="damaged")
        watched.wait_for(2, "damaged")
        damaged.rename(damaged.with_name("rotated.jsonl"))
        watched.write(3, session="damaged")
        watched.wait_for(3, "damaged")
    assert watched.count("gone") == 1
    assert watched.error is None


@pytest.mark.parametrize("error", [StoreBusy("Busy."), StoreFull("Full."), OSError(28, "Full.")])
def test_a_store_that_fails_for_a_while_is_tried_again(
    watched: Watched, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = watcher_module.import_transcripts, []

    def fail_twice(*args: Any) -> Any:
        calls.append(args)
        if len(calls) < 3:
            raise error
        return real(*args)

    monkeypatch.setattr(watcher_module, "import_transcripts", fail_twice)
    watched.write(1)
    with watched.running():
        watched.wait_for(1)
        wait_until(lambda: len(watched.find(WatchNotice)) == 2)
    failed, mended = watched.find(WatchNotice)
    assert "Trying again in 1 s" in failed.text
    assert mended.text == "Importing works again."


def test_a_damaged_store_ends_the_watcher(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise StoreDamaged("damaged")

    monkeypatch.setattr(watcher_module, "import_transcripts", fail)
    watched.write(1)
    with watched.running():
        wait_until(lambda: watched.error)
    assert isinstance(watched.error, StoreDamaged)


def test_without_reports_of_changes_the_folders_are_searched(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise WatchUnavailable("No reports.")

    monkeypatch.setattr(ChangeWatcher, "start", refuse)
    monkeypatch.setattr(watcher_module, "POLL_SECONDS", 0.1)
    with watched.running():
        watched.write(1)
        watched.wait_for(1)
    assert watched.find(WatchStarted)[0].is_polling
    assert watched.find(WatchNotice)[0].text.startswith("No reports. Meanwhile the folders are")


def test_sessions_are_learned_from_when_they_rest(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle.watching.schedule.LEARN_AFTER_SECONDS", 0.2)
    damaged = watched.write(1)
    with damaged.open("a") as file:
        file.write("{\n")
    with watched.running():
        wait_until(lambda: watched.find(watcher_module.SessionsLearned))
    assert watched.find(watcher_module.SessionsLearned)[0].report.sessions == 1
    (notice,) = watched.find(WatchNotice)
    assert f"Skipped a damaged part of {damaged}, line 2" in notice.text


def test_one_pass_imports_and_learns(watched: Watched) -> None:
    watched.write(1, 2)
    watched.watcher.import_once()
    assert watched.count() == 2
    assert [type(event).__name__ for event in watched.events] == [
        "FilesImported",
        "SessionsLearned",
    ]


def test_a_home_has_one_watcher(tmp_path: Path) -> None:
    assert find_running_watcher(tmp_path) is None
    with lock_watcher(tmp_path / "home"):
        with (
            pytest.raises(WatchUnavailable, match="already running"),
            lock_watcher(tmp_path / "home"),
        ):
            pass
        assert find_running_watcher(tmp_path / "home") is not None
    assert find_running_watcher(tmp_path / "home") is None
    with lock_watcher(tmp_path / "home"):
        pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "fs.inotify.max_user_watches"),
        (OSError(errno.EMFILE, "Too many open files"), "fs.inotify.max_user_instances"),
        (OSError("OS file watch limit reached. about [x]"), "fs.inotify.max_user_watches"),
        (ModuleNotFoundError("No module named 'watchfiles'"), "pip install 'rekindle[watch]'"),
        (RuntimeError("broken"), "cannot be watched: broken."),
    ],
)
def test_an_error_says_what_to_do(error: Exception, words: str) -> None:
    assert words in describe_watch_error(error)
