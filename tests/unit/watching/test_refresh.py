"""A refresh in this process, with a real store and real files."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rekindle.store import Store
from rekindle.store.engines import sqlite
from rekindle.transcripts.discovery import DiscoveredFile
from rekindle.watching import background_learning, refresh
from rekindle.watching.lock import lock_watcher
from rekindle.watching.refresh import RefreshResult, SessionRefresher, list_problems
from tests.new_store import open_new_store

_opened: list[str] | None = None


def _note_open(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


@contextmanager
def watch_opens() -> Iterator[list[str]]:
    """The files that are opened meanwhile; a hook of the interpreter cannot be taken out again."""
    global _opened
    if _note_open not in _HOOKS:
        _HOOKS.append(_note_open)
        sys.addaudithook(_note_open)
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


_HOOKS: list[object] = []


class Home:
    """A user's home with transcripts, and a store that they are imported into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "rekindle"
        self.store_file = folder / "sessions.db"
        self.refresher = SessionRefresher(self.home, folder, {})

    def write(self, name: str, *texts: str, age: float = 3600.0) -> Path:
        path = self.folder / ".claude" / "projects" / "p" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            {
                "type": "user", "sessionId": name, "uuid": f"{name}{number}", "cwd": "/p",
                "timestamp": "2026-02-01T10:00:00Z", "message": {"role": "user", "content": text},
            }
            for number, text in enumerate(texts)
        ]  # fmt: skip
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        then = time.time() - age
        os.utime(path, (then, then))
        return path

    def open_store(self) -> Store:
        return open_new_store(self.store_file)

    def find_names(self) -> list[str]:
        with self.open_store() as store:
            return [Path(file.path).stem for file in self.refresher.find_changes(store)]

    def refresh(self) -> RefreshResult:
        with self.open_store() as store:
            files = self.refresher.find_changes(store)
        return self.refresher.import_changes(self.open_store, files)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_only_what_has_changed_is_found(home: Home) -> None:
    home.write("a", "one")
    home.write("b", "one")
    assert home.find_names() == ["a", "b"]
    report = home.refresh().report
    assert report is not None
    assert (report.sessions, report.new_sessions) == (2, 2)
    assert home.find_names() == []
    home.write("b", "one", "two")
    report = home.refresh().report
    assert report is not None
    assert (report.sessions, report.new_sessions, report.messages) == (1, 0, 1)


def test_of_unchanged_files_none_is_opened_and_the_store_is_asked_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        home.write(f"s{number}", "one")
    home.refresh()
    transactions: list[None] = []
    begin_read = sqlite.SqliteEngine.begin_read

    def count(engine: sqlite.SqliteEngine):
        transactions.append(None)
        return begin_read(engine)

    monkeypatch.setattr(sqlite.SqliteEngine, "begin_read", count)
    with home.open_store() as store, watch_opens() as opened:
        transactions.clear()
        assert home.refresher.find_changes(store) == []
    assert opened == []
    assert len(transactions) == 1


def test_an_empty_home_costs_nothing(home: Home) -> None:
    with home.open_store() as store, watch_opens() as opened:
        assert home.refresher.find_changes(store) == []
    assert opened == []
    assert not home.home.exists()


def test_young_changes_are_left_to_a_running_watcher(home: Home) -> None:
    home.write("old", "one")
    home.write("young", "one", age=0.0)
    with lock_watcher(home.home):
        assert home.find_names() == ["old"]
    assert home.find_names() == ["old", "young"]


def test_a_file_that_failed_is_tried_again_when_it_changes_or_after_an_hour(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write("a", "one")

    def fail(path: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("rekindle.transcripts.importer.detect_format", fail)
        result = home.refresh()
        assert list_problems(result) == [f"Cannot import {path}: Input/output error."]
        assert home.find_names() == []
        os.utime(path)
        assert home.find_names() == ["a"]
        home.refresh()
        assert home.find_names() == []
    later = time.time() + refresh.RETRY_SECONDS + 1
    monkeypatch.setattr(refresh.time, "time", lambda: later)
    assert home.find_names() == ["a"]
    home.refresh()
    assert home.find_names() == []


def test_a_growing_file_that_takes_long_is_read_less_often(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "MAX_SHARE", 1e-9)  # an hour of rest, however fast this machine is
    home.write("big", "one" * 1000, age=0.0)
    home.refresh()
    home.write("big", "one" * 1000, "two", age=0.0)
    home.write("small", "one", age=0.0)
    assert home.find_names() == ["small"]
    later = time.time() + refresh.RETRY_SECONDS + 1
    monkeypatch.setattr(refresh.time, "time", lambda: later)
    assert home.find_names() == ["big", "small"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', '{"x": {"until": "soon"}}', "\xff"])
def test_a_damaged_list_of_postponed_files_is_ignored(home: Home, text: str) -> None:
    home.home.mkdir()
    (home.home / refresh.POSTPONED_NAME).write_text(text, encoding="latin-1")
    home.write("a", "one")
    assert home.find_names() == ["a"]


def test_a_clock_that_was_set_back_does_not_postpone_for_ever(home: Home) -> None:
    path = home.write("a", "one")
    home.home.mkdir()
    postponed = {str(path): {"until": time.time() + 10 * refresh.RETRY_SECONDS}}
    (home.home / refresh.POSTPONED_NAME).write_text(json.dumps(postponed))
    assert home.find_names() == ["a"]


def test_what_another_process_is_importing_is_left_to_it(home: Home) -> None:
    home.write("a", "one")
    home.home.mkdir()
    with (home.home / refresh.LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert home.refresh().report is None
    assert home.find_names() == ["a"]


def test_damage_is_told_unless_the_file_is_being_written(home: Home) -> None:
    for age, lines in ((3600.0, 1), (0.0, 0)):
        path = home.write(f"s{lines}", "one")
        path.write_text(path.read_text() + "{broken\n")
        then = time.time() - age
        os.utime(path, (then, then))
        assert len(list_problems(home.refresh())) == lines


def test_a_file_that_was_deleted_meanwhile_is_no_problem(home: Home) -> None:
    gone = DiscoveredFile(str(home.folder / "gone.jsonl"), 1, 0.0, "1")
    result = home.refresher.import_changes(home.open_store, [gone])
    assert result.report is not None
    assert result.report.failed
    assert list_problems(result) == []


# ── learning


def test_a_learner_is_started_for_new_sessions_and_not_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def start(command: object, **options: object) -> None:
        started.append(command)

    monkeypatch.setattr(background_learning.subprocess, "Popen", start)
    background_learning.start_learning(tmp_path)
    assert started == []
    background_learning.mark_pending(tmp_path)
    background_learning.start_learning(tmp_path)
    background_learning.start_learning(tmp_path)
    assert len(started) == 1
    later = time.time() + background_learning.INTERVAL_SECONDS + 1
    monkeypatch.setattr(background_learning.time, "time", lambda: later)
    background_learning.start_learning(tmp_path)
    assert len(started) == 2


def test_learning_that_fails_stays_pending(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("a", "one")
    home.refresh()
    background_learning.mark_pending(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no room")

    with home.open_store() as store:
        with monkeypatch.context() as patched:
            patched.setattr("rekindle.learning.notes.learner.learn_from_sessions", fail)
            with pytest.raises(OSError, match="no room"):
                background_learning.learn_pending(tmp_path, store)
        assert background_learning.is_learning_pending(tmp_path)
        report = background_learning.learn_pending(tmp_path, store)
    assert report is not None
    assert report.sessions == 1
    assert not background_learning.is_learning_pending(tmp_path)


def test_only_one_process_learns_at_a_time(home: Home, tmp_path: Path) -> None:
    with (tmp_path / background_learning.LOCK_NAME).open("w") as lock, home.open_store() as store:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert background_learning.learn_pending(tmp_path, store) is None
