"""The form of commit messages that `scripts/check_commit_message.py` accepts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.check_commit_message import EXAMPLE, MAX_SUBJECT, find_problems, main

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_commit_message.py"


@pytest.mark.parametrize(
    "message",
    [
        EXAMPLE,
        "layout: move modules into rooms\n",
        "cli, docs: name every exit code\n\nScripts depend on them.\n",
        "store/engines: drop the page cache\n\n# Please enter the commit message\n# for your changes.\n",
        "\n# a comment first\nbench: measure the gateway again",
        "ci: run on Python 3.14\n# ------ >8 ------\ndiff --git a/x b/x\n",
        "agent: PostgreSQL URLs need no driver name",
        "shell: embed the rules",
        "processes: pass the exit code on",
        "x: " + "y" * (MAX_SUBJECT - 3),
        "Merge branch 'main' into work",
        'Revert "store: keep the write lock"\n\nThis reverts commit 0000000.',
        "fixup! Store: whatever",
    ],
)
def test_a_message_in_the_agreed_form_is_accepted(message: str) -> None:
    assert find_problems(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("Choosing measured on the last code", "area: subject"),
        ("Store: keep the lock", "lower case"),
        ("store:keep the lock", "area: subject"),
        ("store: ", "area: subject"),
        ("store: added a lock", "'add', not 'added'"),
        ("store: Fixes the lock", "'fix', not 'fixes'"),
        ("store: using fewer locks", "'use', not 'using'"),
        ("store: stopped waiting", "'stop', not 'stopped'"),
        ("docs: tidies the pages", "'tidy', not 'tidies'"),
        ("store: keep the lock.", "period"),
        ("x: " + "y" * (MAX_SUBJECT - 2), f"{MAX_SUBJECT + 1} characters"),
        ("store: keep the lock\nbecause of backups", "second line"),
    ],
)
def test_the_problem_is_named(message: str, problem: str) -> None:
    assert problem in "\n".join(find_problems(message))


def test_every_problem_is_reported_at_once() -> None:
    assert len(find_problems("Store: " + "y" * MAX_SUBJECT + ".\nmore")) == 4


def test_the_hook_exits_with_1_and_shows_an_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "message"
    file.write_text("Done.\n", encoding="utf-8")
    assert main([str(file)]) == 1
    assert EXAMPLE in capsys.readouterr().err


def test_the_script_runs_without_the_package(tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_text(f"{EXAMPLE}\n", encoding="utf-8")
    command = [sys.executable, "-I", str(SCRIPT), str(file)]
    assert subprocess.run(command, cwd=tmp_path, timeout=60).returncode == 0
    assert subprocess.run(command[:-1], stderr=subprocess.DEVNULL, timeout=60).returncode == 2
