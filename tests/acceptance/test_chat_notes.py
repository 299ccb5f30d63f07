"""What Rekindle's own chat recalls about calls, and that it learns when it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, ToolCall, open_store
from rekindle.learning.notes.learner import VERSION, learn_from_sessions
from rekindle.testing import ScriptedModel
from tests.acceptance.stores import make_store
from tests.acceptance.test_chat import Chat
from tests.waiting import wait_until

DENIED = "error: the cache is not permitted"
FIX = "./check.sh --offline"
CALL = {"name": "terminal", "arguments": {"command": "./check.sh"}}
SCRIPT = {"turns": [{"user": "check", "steps": [{"calls": [CALL]}, {"text": "done"}]}]}


@pytest.fixture
def chat(target: str, tmp_path: Path) -> Iterator[Chat]:
    make_store(target)
    with ScriptedModel(SCRIPT) as model:
        found = Chat(tmp_path, target, model)
        found.env["REKINDLE_WARM_CONTROL_SHARE"] = "0"
        script = found.work / "check.sh"
        script.write_text(f"#!/bin/sh\necho '{DENIED}'\nexit 1\n")
        script.chmod(0o755)
        with open_store(target) as store:
            for part in ("parser", "lexer", "printer"):
                session = store.begin(id=part, cwd=str(found.work))
                messages = [Message("user", f"check the {part}")]
                for at, (line, output) in enumerate((("./check.sh", DENIED), (FIX, "ok"))):
                    call = ToolCall(f"{part}-{at}", "terminal", {"command": line})
                    meta = {"exit_code": 1 - at}
                    messages.append(Message("assistant", tool_calls=(call,)))
                    messages.append(Message("tool", output, tool_call_id=call.id, meta=meta))
                store.append(session, *messages)
            learn_from_sessions(store)
        yield found


def ask(chat: Chat, *words: str, **env: str) -> str:
    """Ask for the check; return what the model was sent after its call."""
    chat.pipe("check", *words, code=0, **env)
    return json.dumps(chat.model.requests[-1].body["messages"][-1])


def test_a_failure_is_told_with_its_fix_unless_that_is_switched_off(chat: Chat) -> None:
    told = ask(chat)
    assert DENIED in told
    assert f"`./check.sh` failed; `{FIX}` then worked (3 sessions)." in told
    for told in (ask(chat, REKINDLE_WARM_AT_FAILURE="false"), ask(chat, "--cold")):
        assert DENIED in told
        assert "then worked" not in told


def test_a_call_that_is_known_to_fail_is_stopped_if_that_is_wanted(chat: Chat) -> None:
    told = ask(chat, REKINDLE_WARM_BEFORE_CALL="true")
    assert "Not run, because it failed in earlier sessions." in told
    assert f"`./check.sh` failed; `{FIX}` then worked (3 sessions)." in told
    assert DENIED not in told


def test_a_chat_learns_from_itself_when_it_ends(chat: Chat) -> None:
    ask(chat)
    with open_store(chat.target) as store:
        wait_until(lambda: not store.observations.find_stale(VERSION))
        (project,) = {one.project for one in store.recent(10)}
        assert len(store.observations.load_newest(project or "", VERSION, 10)) == 4
