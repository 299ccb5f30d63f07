"""`rekindle sessions restore-to`, the real command, on the files of agents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rekindle.transcripts.discovery import SAMPLE
from tests.acceptance.test_cli import Rekindle


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """A transcript of Claude Code where it keeps them, with a name that is not ours to guess."""
    source = SAMPLE / "claude-code-rounding.jsonl"
    id = json.loads(source.read_text().splitlines()[1])["sessionId"]
    path = tmp_path / ".claude" / "projects" / "-some-other-name" / f"{id}.jsonl"
    path.parent.mkdir(parents=True)
    shutil.copy(source, path)
    return path


def test_a_deleted_session_is_put_back_under_its_name_and_imported_without_copies(
    rekindle: Rekindle, transcript: Path
) -> None:
    rekindle("import")
    before = rekindle.lines("sessions", "show", transcript.stem, "--json")
    transcript.unlink()
    shown = rekindle("sessions", "restore-to", "claude-code", transcript.stem)
    assert f"to {transcript}" in shown
    assert f"claude --resume {transcript.stem}" in shown
    assert transcript.stat().st_mode & 0o777 == 0o600
    assert rekindle.json("import")["messages"] == 0
    assert rekindle.lines("sessions", "show", transcript.stem, "--json") == before


def test_a_dry_run_writes_nothing(rekindle: Rekindle, transcript: Path) -> None:
    rekindle("import")
    transcript.unlink()
    words = ("sessions", "restore-to", "claude-code", transcript.stem, "--dry-run")
    assert f"Would write 9 prompts and answers to {transcript}" in rekindle(*words)
    plan = rekindle.json(*words)
    assert (plan["path"], plan["written"]) == (str(transcript), False)
    assert not transcript.exists()


def test_a_file_that_the_agent_still_has_is_never_changed(
    rekindle: Rekindle, transcript: Path
) -> None:
    rekindle("import")
    data = transcript.read_bytes()
    words = ("sessions", "restore-to", "claude-code", transcript.stem)
    refused = rekindle.refusal(*words)
    assert f"still has a file of this session, which differs: {transcript}" in refused
    assert transcript.read_bytes() == data
    transcript.unlink()
    rekindle(*words)
    restored = transcript.read_bytes()
    assert f"Already there: {transcript}" in rekindle(*words)
    assert transcript.read_bytes() == restored


def test_a_session_of_another_agent_is_written_for_the_folder_that_is_named(
    rekindle: Rekindle, transcript: Path, tmp_path: Path
) -> None:
    rekindle("import")
    folder = tmp_path / "my folder"
    words = ("sessions", "restore-to", "codex", transcript.stem, "--folder", str(folder))
    plan = rekindle.json(*words)
    path = Path(plan["path"])
    assert path.parts[-5:-1] == ("sessions", "2026", "05", path.parts[-2])
    header = json.loads(path.read_text().splitlines()[0])["payload"]
    assert (header["id"], header["cwd"]) == (plan["id"], str(folder))
    assert plan["commands"] == [f"cd '{folder}' && codex resume {plan['id']}"]
    assert plan["changed"]["call written as text"] > 0
    again = rekindle.json(*words)
    assert (again["id"], again["written"]) == (plan["id"], False)


def test_gemini_cli_has_to_know_the_folder(rekindle: Rekindle, transcript: Path) -> None:
    rekindle("import")
    refused = rekindle.refusal("sessions", "restore-to", "gemini", transcript.stem)
    assert "Start it there once" in refused


def test_opencode_has_to_import_the_session_itself(rekindle: Rekindle, transcript: Path) -> None:
    rekindle("import")
    plan = rekindle.json("sessions", "restore-to", "opencode", transcript.stem)
    assert plan["commands"][0] == f"opencode import {plan['path']}"
    assert plan["commands"][1].endswith(f"opencode --session {plan['id']} --model PROVIDER/MODEL")
    document = json.loads(Path(plan["path"]).read_text())
    assert document["info"]["id"] == plan["id"]


def test_an_unknown_session_or_agent_is_a_plain_error(rekindle: Rekindle) -> None:
    assert "not found" in rekindle.refusal("sessions", "restore-to", "pi", "nobody").lower()
    assert "aider" in rekindle.refusal("sessions", "restore-to", "aider", "x")
