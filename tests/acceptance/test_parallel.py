"""Work in several processes, through the command: the same results, and plain mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.acceptance.test_cli import Rekindle
from tests.new_store import open_new_store
from tests.unit.learning.test_parallel import read_tables
from tests.unit.web.histories import tell


def test_two_processes_learn_and_replay_what_one_does(tmp_path: Path) -> None:
    with open_new_store(tmp_path / "one.db") as store:
        for number in range(14):
            failed = [("make", "error: no rule", False)] if number % 2 else []
            tell(store, f"s{number:02}", *failed, ("make check", "ok", True), started=1e9 + number)
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    command = Rekindle(tmp_path)
    found: list[Any] = []
    for name, jobs in (("one.db", 1), ("two.db", 2)):
        chosen = ("--store", tmp_path / name)
        learned = command.json(*chosen, "warm", "learn", "--jobs", jobs)
        replayed = command.json(*chosen, "warm", "replay", "--jobs", jobs)
        shown = command.json(*chosen, "insights", "--all", "--jobs", jobs)
        found.append((learned, replayed, shown, read_tables(tmp_path / name)))
    assert found[0] == found[1]
    assert found[0][0]["sessions"] == 14
    assert found[0][1][0]["sessions"] == 9
    assert not (tmp_path / "rekindle" / "unfinished").is_dir() or not any(
        (tmp_path / "rekindle" / "unfinished").iterdir()
    )


def test_mistakes_about_workers_are_answered_plainly(tmp_path: Path) -> None:
    command = Rekindle(tmp_path)
    said = command.refusal("warm", "learn", "--scheduler", "10.0.0.5:8786")
    assert "scheduler: expected tcp://HOST:PORT or tls://HOST:PORT" in said
    said = command.refusal("insights", "--jobs", "2", "--scheduler", "tcp://10.0.0.5:8786")
    assert "--jobs or --scheduler, not both" in said
    assert "--jobs" in command.refusal("warm", "replay", "--jobs", "0")
