"""Folders that an older gateway left: `sessions.json` and a file of messages for each session."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rekindle import open_store
from rekindle.testing import ChatServer, ScriptedModel
from tests.acceptance.test_cli import Rekindle
from tests.acceptance.test_gateway import ADA as ADA_SOURCE
from tests.acceptance.test_gateway import Place
from tests.waiting import wait_until

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


def test_conversations_become_routes_with_origin_and_times(
    rekindle: Rekindle, folder: Path
) -> None:
    listed = json.loads((folder / "sessions.json").read_text())
    listed["empty"] = {**listed[KEY], "session_key": "agent:main:telegram:group:5",
                       "session_id": "20260101_000000_0c0c0c0c", "chat_type": "group"}  # fmt: skip
    listed["odd"] = {**listed[KEY], "session_key": "x", "chat_type": "booth", "origin": None}
    (folder / "sessions.json").write_text(json.dumps(listed))
    report = rekindle.json("import", folder, code=1)["routes"]
    assert (report["made"], report["known"], report["empty"]) == (2, 0, 1)
    (problem,) = report["problems"]
    assert "conversation 'x'" in problem["what"]
    with open_store(rekindle.store) as store:
        ada = store.routes.get(KEY)
        assert (ada.session, ada.origin.chat_id, ada.origin.user_name) == (ADA, "7", "Ada")
        assert (ada.display_name, ada.owner, ada.tokens.total) == ("Ada", None, 150)
        local = datetime(2026, 1, 10, 9, 30).astimezone().timestamp()
        assert ada.updated == pytest.approx(local)
        assert ada.created == pytest.approx(local - 30 * 60 + 0.5)
        ops = store.routes.get("agent:main:carrierpigeon:group:9")
        assert (ops.session, ops.origin.platform, ops.origin.chat_id) == (OPS, "carrierpigeon", "9")
        store.routes.reset(KEY)
        live = store.routes.get(KEY)
    again = rekindle.json("import", folder, code=1)["routes"]
    assert (again["made"], again["known"]) == (0, 2)
    with open_store(rekindle.store) as store:
        assert store.routes.get(KEY) == live, "a live route is not overwritten"
        assert store.verify() == []


def test_a_conversation_goes_on_in_the_gateway_where_it_stopped(
    tmp_path: Path, folder: Path
) -> None:
    now = datetime.now() - timedelta(minutes=5)
    entry = {
        "session_key": "agent:main:memory:dm", "session_id": ADA, "display_name": "Ada",
        "created_at": (now - timedelta(minutes=5)).isoformat(), "updated_at": now.isoformat(),
        "platform": "memory", "chat_type": "dm",
        "origin": {"platform": "memory", "chat_id": "ada", "user_id": 1, "user_name": "Ada"},
    }  # fmt: skip
    (folder / "sessions.json").write_text(json.dumps({"agent:main:memory:dm": entry}))
    target = str(tmp_path / "home" / "sessions.db")
    with ChatServer(redeliver_seconds=0.3) as server, ScriptedModel() as model:
        place = Place(tmp_path / "home", target, server, model)  # with keys.direct = shared
        place.env["REKINDLE_RESET_MODE"] = "idle"
        done = place.run("import", str(folder))
        assert "1 conversation will go on in the gateway" in done.stdout
        with place.gateway():
            server.post_message(ADA_SOURCE, "and now?")
            place.reads("ada", "You said: and now?")
            (request,) = model.requests
            assert [one.text for one in request.messages][-3:] == [
                "{\"output\": \"\", \"exit_code\": 1}", "It is not there.", "and now?",
            ]  # fmt: skip
            server.post_message(ADA_SOURCE, "/sessions")
            wait_until(lambda: len(server.list_sent("ada")) == 2)
            assert "6 messages" in server.list_sent("ada")[1].text
        (route,) = json.loads(place.run("gateway", "routes", "--json").stdout)
        assert (route["key"], route["session"]) == ("agent:main:memory:dm:ada", ADA)
