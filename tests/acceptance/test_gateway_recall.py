"""What a gateway recalls: each owner is told what their own sessions learned, and nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, ToolCall, open_store
from rekindle.learning.notes.learner import VERSION
from rekindle.routing.key import build_key
from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import KeyRule, Source
from tests.acceptance.stores import make_store
from tests.acceptance.test_gateway import ADA, BOB, Place
from tests.waiting import wait_until

DENIED = "error: the cache is not permitted\ncheck failed"
CALL = {"name": "terminal", "arguments": {"command": "./check.sh"}}
SCRIPT = {"turns": [{"user": "check", "steps": [{"calls": [CALL]}, {"text": "done"}]}]}
FIX = "./check.sh --offline"
PARTS = ("parser", "lexer", "printer", "router", "planner", "reader")


@pytest.fixture
def place(target: str, tmp_path: Path) -> Iterator[Place]:
    make_store(target)
    work = tmp_path / "work"
    work.mkdir()
    script = work / "check.sh"
    script.write_text(f"#!/bin/sh\nprintf '%s\\n' '{DENIED}'\nexit 1\n")
    script.chmod(0o755)
    with ChatServer(redeliver_seconds=0.3) as server, ScriptedModel(SCRIPT) as model:
        found = Place(tmp_path / "home", target, server, model)
        found.env |= {"REKINDLE_GATEWAY_WORKDIR": str(work), "REKINDLE_WARM_CONTROL_SHARE": "0"}
        yield found


def _add_sessions(place: Place, who: Source) -> None:
    """Store six sessions of a person's chat, in which the check works only offline."""
    owner = build_key(who, KeyRule(direct="shared"))
    with open_store(place.env["REKINDLE_STORE"]) as store:
        for number, part in enumerate(PARTS):
            folder = place.env["REKINDLE_GATEWAY_WORKDIR"]
            name = f"{who.chat_id}-{number}"
            session = store.begin(id=name, source="memory", owner=owner, cwd=folder)
            messages = [Message("user", f"check the {part}")]
            for at, (line, output) in enumerate((("./check.sh", DENIED), (FIX, "ok"))):
                call = ToolCall(f"{name}-{at}", "terminal", {"command": line})
                meta = {"exit_code": 1 - at}
                messages.append(Message("assistant", tool_calls=(call,)))
                messages.append(Message("tool", output, tool_call_id=call.id, meta=meta))
            store.append(session, *messages)


def _await_learning(place: Place) -> None:
    with open_store(place.env["REKINDLE_STORE"]) as store:
        wait_until(lambda: not store.observations.find_stale(VERSION))


def _ask(place: Place, who: Source) -> list[str]:
    """Ask for the check; return all that the model was sent, one text for each request."""
    before = len(place.model.requests)
    place.server.post_message(who, "check")
    place.reads(who.chat_id, "done")
    return [json.dumps(one.body["messages"]) for one in place.model.requests[before:]]


def test_an_owner_is_told_at_the_start_and_at_a_failure_what_their_sessions_learned(
    place: Place,
) -> None:
    _add_sessions(place, ADA)
    with place.gateway():
        _await_learning(place)
        first, second = _ask(place, ADA)
        assert "From 6 sessions in this project before:" in first
        assert FIX in first
        assert "[From earlier sessions in this project]" not in first
        assert f"`./check.sh` failed; `{FIX}` then worked" in second.split("cache is not")[-1]
        assert not any("--offline" in text for text in _ask(place, BOB)), "another owner's"
    folder = place.env["REKINDLE_GATEWAY_WORKDIR"]
    told = place.run("warm", "recall", "check", "--folder", folder, "--json")
    assert json.loads(told.stdout)["text"] == "", "a terminal is not taught by chats"


def test_a_guest_is_told_nothing(place: Place) -> None:
    place.env["REKINDLE_GATEWAY_ALLOW"] = "memory:1=guest"
    _add_sessions(place, ADA)
    with place.gateway():
        _await_learning(place)
        assert not any("--offline" in text for text in _ask(place, ADA))


def test_what_is_told_at_a_failure_and_all_of_it_can_be_switched_off(place: Place) -> None:
    _add_sessions(place, ADA)
    with place.gateway(REKINDLE_WARM_AT_FAILURE="false"):
        _await_learning(place)
        first, second = _ask(place, ADA)
        assert FIX in first
        assert "[From earlier sessions in this project]" not in second


def test_a_command_that_is_known_to_fail_is_stopped_if_that_is_wanted(place: Place) -> None:
    _add_sessions(place, ADA)
    with place.gateway(REKINDLE_WARM_BEFORE_CALL="true"):
        _await_learning(place)
        second = _ask(place, ADA)[1]
        assert "Not run, because it failed in earlier sessions." in second
        assert f"`./check.sh` failed; `{FIX}` then worked" in second
        assert "the cache is not permitted" not in second
