"""What the agent is told about itself, its folder and its time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekindle import Message
from rekindle.agent.persona import PersonaSettings, SessionStart, build_persona, load_persona
from rekindle.projects import find_branch
from tests.new_store import open_new_store

NOON = 1_800_014_400.0  # 2027-01-15


def test_date_zone_and_folder_are_those_of_the_start(tmp_path: Path) -> None:
    text = build_persona(PersonaSettings("Be brief."), SessionStart(tmp_path, NOON, "Asia/Tokyo"))
    assert text.startswith("Be brief.\n")
    assert "- Date when this session started: Friday, 2027-01-15" in text
    assert "- Time zone: Asia/Tokyo (UTC+09:00)" in text
    assert f'- Working folder: "{tmp_path}"' in text


def test_a_long_instruction_file_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("x" * 50)
    text = build_persona(PersonaSettings(max_chars=10), SessionStart(tmp_path, NOON))
    assert f"\n\n{'x' * 10}\n(The rest of the file is left out.)" in text
    assert "x" * 11 not in text


def test_what_is_no_text_file_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SOUL.md")
    (tmp_path / "AGENTS.md").mkdir()
    assert "Instructions" not in build_persona(PersonaSettings(), SessionStart(tmp_path, NOON))


def test_a_session_keeps_its_text_and_so_do_its_children(tmp_path: Path) -> None:
    elsewhere = SessionStart(tmp_path / "other", NOON)
    with open_new_store(tmp_path / "sessions.db") as store:
        session = store.begin()
        store.append(session, Message("user", "hello"))
        start = SessionStart(tmp_path, NOON, notice="The conversation was reset.")
        text = load_persona(store, session, PersonaSettings("Be brief."), start)
        assert text.endswith("The conversation was reset.")
        later = SessionStart(tmp_path, NOON + 90_000, "Asia/Tokyo")
        assert load_persona(store, session, PersonaSettings(), later) == text
        child = store.fork(session)
        assert load_persona(store, child, PersonaSettings(), later) == text
        moved = load_persona(store, child, PersonaSettings(), elsewhere)
        assert str(elsewhere.folder) in moved, "a session that goes on in another folder"
        assert load_persona(store, session, PersonaSettings(), later) == text
        assert store.search("brief") == [], "it is no message"


@pytest.mark.parametrize(
    ("head", "branch"),
    [("ref: refs/heads/main\n", "main"), ("0123abcd\n", None), ("", None)],
)
def test_the_branch_is_read_from_the_folder_or_one_above(
    tmp_path: Path, head: str, branch: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    assert find_branch(tmp_path / "deep" / "er") == branch


def test_the_branch_of_a_worktree_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "git" / "worktrees" / "w").mkdir(parents=True)
    (tmp_path / "git" / "worktrees" / "w" / "HEAD").write_text("ref: refs/heads/side\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text(f"gitdir: {tmp_path}/git/worktrees/w\n")
    assert find_branch(tmp_path / "w") == "side"
