"""Folders that an older gateway left: `sessions.json` and a file of messages for each session."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from rekindle import open_store
from tests.acceptance.test_cli import Rekindle

ADA = "20260110_090000_0a0a0a0a"
OPS = "20260111_100000_0b0b0b0b"
KEY = "agent:main:telegram:dm"


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    entry = {
        "session_key": KEY, "session_id": ADA, "display_name": "Ada",
        "created_at": "2026-01-10T09:00:00.5", "updated_at": "2026-01-10T09:30:00",
        "platform": "telegram", "chat_type": "dm",
        "input_tokens": 120, "output_tokens": 30, "total_tokens": 150,
        "origin": {"platform": "telegram", "chat_id": "7", "user_name": "Ada", "new": 1},
    }  # fmt: skip
    other = {**entry, "session_key": "agent:main:carrierpigeon:group:9", "session_id": OPS,
             "platform": "carrierpigeon", "chat_type": "group", "display_name": "Ops"}  # fmt: skip
    del other["origin"]
    (folder / "sessions.json").write_text(json.dumps({KEY: entry, "pigeons": other}))
    said = [
        {"role": "user", "content": "what is in the log?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "function": {"name": "terminal", "arguments": '{"command": "cat log"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"output": "", "exit_code": 1}'},
        {"role": "assistant", "content": "It is not there."},
    ]  # fmt: skip
    lines = [json.dumps(message) for message in said]
    lines.insert(2, '{"role": "assistant", "content": "cut in the mid')
    (folder / f"{ADA}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / f"{OPS}.jsonl").write_text(json.dumps({"role": "user", "content": "coo"}) + "\n")
    return folder


def test_sessions_keep_their_id_owner_platform_times_and_tokens(
    rekindle: Rekindle, folder: Path
) -> None:
    rekindle.run("import", folder, code=1)  # a line was damaged
    with open_store(rekindle.store) as store:
        ada = store.session(ADA)
        assert (ada.source, ada.owner, ada.message_count) == ("telegram", KEY, 4)
        assert (ada.tokens.input, ada.tokens.output) == (120, 30)
        local = datetime(2026, 1, 10, 9, 0, 0, 500_000).astimezone().timestamp()
        assert ada.started == pytest.approx(local)
        ops = store.session(OPS)
        assert (ops.source, ops.owner) == ("carrierpigeon", "agent:main:carrierpigeon:group:9")
        assert store.verify() == []


def test_a_damaged_line_is_located_and_costs_no_other(rekindle: Rekindle, folder: Path) -> None:
    report = rekindle.json("import", folder, code=1)
    assert report["damaged"] == 1
    (damage,) = report["damage"]
    assert (Path(damage["file"]).name, damage["line"]) == (f"{ADA}.jsonl", 3)
    calls = rekindle.lines("calls", ADA, "--json")
    assert [(call["tool"], call["failed"]) for call in calls] == [("terminal", True)]


def test_a_list_that_cannot_be_read_does_not_keep_the_sessions_out(
    rekindle: Rekindle, folder: Path
) -> None:
    (folder / "sessions.json").write_text('{"agent:main:telegram:dm": {"session_')
    rekindle.run("import", folder, code=1)
    with open_store(rekindle.store) as store:
        assert {session.id for session in store.recent()} == {ADA, OPS}


def test_to_import_again_changes_nothing_and_a_file_that_grew_adds_what_is_new(
    rekindle: Rekindle, folder: Path
) -> None:
    rekindle.run("import", folder, code=1)
    with (folder / f"{OPS}.jsonl").open("a") as file:
        file.write(json.dumps({"role": "assistant", "content": "coo coo"}) + "\n")
    report = rekindle.json("import", folder)
    assert (report["files"], report["messages"]) == (1, 1)
    with open_store(rekindle.store) as store:
        assert [message.text for message in store.messages(OPS)] == ["coo", "coo coo"]
