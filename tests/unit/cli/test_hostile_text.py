"""A session whose every field tries to control the terminal that shows it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rekindle import Message, ToolCall
from rekindle.cli.app import run_command_line
from rekindle.cli.session_choice import complete_session
from tests.new_store import open_new_store

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
C1_CLIPBOARD = "\x9d52;c;ZXZpbA==\x9c"
HOSTILE = f"x{CLIPBOARD}\x1b[2J\x1b[31m{C1_CLIPBOARD}\x9b2J\x7f\x08"
ID = f"2026{HOSTILE}"
# Our own colours on a terminal; everything else that controls one came from the data.
OUR_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

READING_VERBS = (
    "sessions list",
    "sessions list --json",
    "sessions show ID",
    "sessions show ID --full",
    "sessions show ID --json",
    "sessions show ID --usage",
    "sessions search needle",
    "sessions search needle --json",
    "sessions stats",
    "sessions verify",
    "sessions export ID -f md",
    "sessions export ID -f html",
    "sessions export ID -f atif",
    "sessions export ID",
    "calls",
    "calls --json",
    "profile ID",
    "profile ID --json",
    "compare ID child",
    "compress-check child",
    "insights",
    "insights --json",
    "sessions show nobodyHOSTILE",
    "sessions list HOSTILE=1",
)
WRITING_VERBS = (
    "sessions rename ID HOSTILE",
    "sessions fork ID",
    "sessions undo ID",
    "sessions redo ID",
    "sessions end ID --reason HOSTILE",
    "sessions reopen ID",
    "sessions end ID",
    "sessions archive source~x --yes",
    "sessions restore 2026",
)


@pytest.fixture(autouse=True)
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REKINDLE_HOME", str(tmp_path))
    with open_new_store(tmp_path / "sessions.db") as store:
        session = store.begin(
            id=ID, source=HOSTILE, owner=HOSTILE, user=HOSTILE, model=HOSTILE, title=HOSTILE,
            cwd=f"/{HOSTILE}", git_branch=HOSTILE,
        )  # fmt: skip
        call = ToolCall(HOSTILE, HOSTILE, '{"path": "x\\u001b]52;c;ZXZpbA==\\u0007"}')
        failed = {"is_error": True}
        store.append(
            session,
            Message("user", f"needle {HOSTILE}", name=HOSTILE),
            Message("assistant", HOSTILE, tool_calls=(call,), reasoning=HOSTILE),
            Message("tool", HOSTILE, tool_call_id=HOSTILE, name=HOSTILE, meta=failed),
            Message("assistant", HOSTILE, finish_reason="error"),
        )
        child = store.begin(id="child", parent=ID, source="local")
        store.append(child, Message("user", "needle"), Message("assistant", HOSTILE))


def fill(words: str) -> list[str]:
    return [word.replace("HOSTILE", HOSTILE).replace("ID", ID) for word in words.split()]


def run(words: str, capfd: pytest.CaptureFixture[str]) -> str:
    run_command_line(fill(words))
    return "".join(capfd.readouterr())


@pytest.mark.parametrize("words", READING_VERBS)
def test_no_field_of_a_session_controls_what_reads_it(
    words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said = run(words, capfd)
    assert said
    assert not CONTROL.search(said), said


def test_no_field_of_a_session_controls_what_changes_it(capfd: pytest.CaptureFixture[str]) -> None:
    for words in WRITING_VERBS:
        said = run(words, capfd)
        assert said, words
        assert not CONTROL.search(said), (words, said)


@pytest.mark.parametrize(
    "words", ["sessions list", "sessions show ID", "sessions search needle", "profile ID"]
)
def test_a_terminal_receives_no_control_but_our_own_colours(
    words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = run(words, capfd)
    assert "ZXZpbA" in shown
    assert OUR_COLOUR.search(shown)
    assert not CONTROL.search(OUR_COLOUR.sub("", shown)), shown


def test_completion_offers_no_name_that_controls_the_shell() -> None:
    assert [name for name, _ in complete_session("")] == ["child"]
