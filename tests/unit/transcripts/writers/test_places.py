"""Where a session is written: where its agent looks, under the name it had, and nowhere else."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import InvalidInput
from rekindle.transcripts.restore import RestorePlan, plan_restore, write_restored_file
from rekindle.transcripts.writers.places import UserFolders
from rekindle.types import Message, Session

ID = "6f1d3c52-8a0e-4b7f-9c1d-2e3f4a5b6c7d"
MESSAGES = [Message("user", "one"), Message("assistant", "two")]


def plan(
    home: Path, agent: str, *, source: str = "", imported: tuple[str, ...] = (), **more: Any
) -> RestorePlan:
    folder = more.pop("folder", "/work/my app")
    fields = {"id": ID, "source": source or agent, "started": 1.7e9, **more}
    return plan_restore(
        agent,
        Session(**fields),
        MESSAGES,
        folder=folder,
        folders=UserFolders(home, {}, home / "staging"),
        list_imports=lambda text: [path for path in imported if text in path],
    )


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude-code", f".claude/projects/-work-my-app/{ID}.jsonl"),
        ("codex", f".codex/sessions/2023/11/14/rollout-2023-11-14T22-13-20-{ID}.jsonl"),
        ("pi", f".pi/agent/sessions/--work-my app--/2023-11-14T22-13-20-000Z_{ID}.jsonl"),
    ],
)
def test_each_agent_has_its_place(tmp_path: Path, agent: str, name: str) -> None:
    planned = plan(tmp_path, agent)
    assert planned.path == tmp_path / name
    write_restored_file(planned)
    assert planned.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in planned.path.parent.iterdir()] == [planned.path.name]
    assert plan(tmp_path, agent).is_present


def test_gemini_is_asked_for_the_name_of_the_folder(tmp_path: Path) -> None:
    registry = tmp_path / ".gemini" / "projects.json"
    registry.parent.mkdir()
    for content in ("not json", "[]", '{"projects": {"/work/my app": "../../evil"}}'):
        registry.write_text(content)
        with pytest.raises(InvalidInput, match="Start it there once"):
            plan(tmp_path, "gemini")
    registry.write_text('{"projects": {"/work/my app": "my-app"}}')
    name = ".gemini/tmp/my-app/chats/session-2023-11-14T22-13-6f1d3c52.jsonl"
    assert plan(tmp_path, "gemini").path == tmp_path / name


def test_a_session_returns_to_where_it_was_imported_from_if_the_agent_looks_there(
    tmp_path: Path,
) -> None:
    projects = tmp_path / ".claude" / "projects"
    original = projects / "old-name" / f"{ID}.jsonl"
    elsewhere = f"/tmp/backup/{ID}.jsonl"
    other = str(projects / "x" / f"agent-{ID}.jsonl")
    imported = (elsewhere, other, str(original))
    assert plan(tmp_path, "claude-code", imported=imported).path == original
    assert plan(tmp_path, "claude-code", imported=(elsewhere,)).path.parent.name == "-work-my-app"


@pytest.mark.parametrize("agent", ["claude-code", "codex", "pi", "opencode"])
@pytest.mark.parametrize("text", ["../../../evil", "a\0b", "/", "x" * 400, "\u2028\n$(reboot)"])
def test_a_hostile_id_or_folder_leads_nowhere_else(tmp_path: Path, agent: str, text: str) -> None:
    planned = plan(tmp_path, agent, id=text, folder=f"/work/{text}")
    assert planned.path.resolve().is_relative_to(tmp_path)
    write_restored_file(planned)
    assert planned.path.is_file()
    assert "$(reboot)" not in planned.commands[-1] or "'/work/" in planned.commands[-1]


def test_a_file_that_appears_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(tmp_path, "claude-code")
    planned.path.parent.mkdir(parents=True)
    planned.path.write_text("theirs")

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    for _ in range(2):
        with pytest.raises(InvalidInput, match="created meanwhile"):
            write_restored_file(planned)
        assert planned.path.read_text() == "theirs"
        monkeypatch.setattr(os, "link", refuse)
    planned.path.unlink()
    write_restored_file(planned)
    assert planned.path.read_text() == planned.text
    planned.path.write_text("changed")
    with pytest.raises(InvalidInput, match="still has a file"):
        plan(tmp_path, "claude-code")


def test_a_session_without_messages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no messages"):
        plan_restore(
            "pi",
            Session(ID, source="pi"),
            [Message("system", "only this")],
            folder="/work",
            folders=UserFolders(tmp_path, {}, tmp_path),
            list_imports=lambda text: [],
        )
