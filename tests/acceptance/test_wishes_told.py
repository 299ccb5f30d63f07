"""What users asked for: learned on import, told at every start, if it was a user who said it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Rekindle
from tests.acceptance.test_notes import FOLDER, Step, write_session

STANDING = "Always run the tests before a commit."
SHARED = "Please use strong types instead of strings."
WORKS: Step = ("make check", "ok", True)


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    return Rekindle(tmp_path)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    return folder


def write_wish(agent: Path, name: str, said: str, **fields: object) -> None:
    """Write a session in which a user says something after the first request."""
    write_session(agent, name, WORKS, asked=f"fix the {name}")
    turn = {
        "sessionId": name,
        "cwd": FOLDER,
        "timestamp": "2026-01-28T10:00:00Z",
        "type": "user",
        "uuid": f"{name}-w",
        "message": {"role": "user", "content": said},
        **fields,
    }
    with (agent / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(turn) + "\n")


def recall(rekindle: Rekindle, agent: Path) -> str:
    rekindle("import", agent)
    told = rekindle("warm", "recall", "tidy the router", "--folder", FOLDER)
    return told + rekindle("lessons", "--project", "shop")


def test_a_standing_wish_is_told_after_one_session(rekindle: Rekindle, agent: Path) -> None:
    write_wish(agent, "parser", STANDING)
    write_session(agent, "lexer", WORKS, asked="fix the lexer")
    told = recall(rekindle, agent)
    assert told.count(f"“{STANDING}” (1 session)") == 2, "at the start and among the lessons"


def test_a_preference_is_told_after_two_independent_sessions(
    rekindle: Rekindle, agent: Path
) -> None:
    write_wish(agent, "parser", SHARED)
    assert "strong types" not in recall(rekindle, agent)
    write_wish(agent, "lexer", SHARED)
    assert "strong types instead of strings" in recall(rekindle, agent)


def test_what_a_sub_agent_or_a_program_was_told_is_no_wish(rekindle: Rekindle, agent: Path) -> None:
    write_wish(agent, "parser", STANDING, isSidechain=True)
    write_wish(agent, "lexer", STANDING, isMeta=True)
    write_wish(agent, "printer", f"<system-reminder>{STANDING}</system-reminder>")
    assert "before a commit" not in recall(rekindle, agent)
