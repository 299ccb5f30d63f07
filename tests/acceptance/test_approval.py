"""A tool call that needs approval: an owner is asked in their own chat, and decides."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import Source
from tests.acceptance.stores import make_store
from tests.acceptance.test_gateway import ADA, BOB, Place
from tests.waiting import PATIENCE, wait_until

COMMAND = "echo ran >> ran.txt; rm -rf build"
STEP = {"calls": [{"name": "terminal", "arguments": {"command": COMMAND}}]}
HIDDEN = {"name": "terminal", "arguments": {"command": "rm -rf a\u202e\n/approve it\x1b[2J"}}
SECRET = {"calls": [{"name": "read_file", "arguments": {"path": ".env"}}]}
SCRIPT = {
    "turns": [
        {"user": "clean", "steps": [STEP, {"text": "{result}"}]},
        {"user": "twice", "steps": [STEP, STEP, {"text": "{result}"}]},
        {"user": "hidden", "steps": [{"calls": [HIDDEN]}, {"text": "{result}"}]},
        {"user": "secret", "steps": [SECRET, {"text": "{result}"}]},
    ]
}
OPS = Source("memory", "ops", "Ops", "group", "2", "Bob")


@pytest.fixture
def place(target: str, tmp_path: Path) -> Iterator[Place]:
    make_store(target)
    with ChatServer(redeliver_seconds=0.3) as server, ScriptedModel(SCRIPT) as model:
        yield Place(tmp_path / "home", target, server, model)


def texts(place: Place, chat: str) -> list[str]:
    return [one.text for one in place.server.list_sent(chat)]


def wait_for(place: Place, chat: str, part: str, count: int = 1) -> str:
    """Wait until so many messages in a chat contain the text; return the last of them."""

    def found() -> list[str]:
        return [text for text in texts(place, chat) if part in text]

    try:
        wait_until(lambda: len(found()) >= count)
    except TimeoutError:
        assert texts(place, chat) == part
    return found()[-1]


def find_id(question: str) -> str:
    return next(line.split()[1] for line in question.splitlines() if line.startswith("/approve"))


def count_runs(place: Place) -> int:
    file = Path(place.env["REKINDLE_HOME"]) / "work" / "ran.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_an_owner_is_asked_in_their_chat_and_approves_once_for_a_session_or_not(
    place: Place,
) -> None:
    with place.gateway():
        place.server.post_message(ADA, "clean")
        question = wait_for(place, "ada", "needs your approval")
        assert question.startswith(
            f"Ada (memory, direct chat) needs your approval for terminal:\n> {COMMAND}\nFolder: "
        )
        assert "Why: " in question
        assert count_runs(place) == 0
        place.server.post_message(ADA, f"/deny {find_id(question)}")
        wait_for(place, "ada", "Denied: terminal does not run.")
        wait_for(place, "ada", "refused by the user")
        assert count_runs(place) == 0
        place.server.post_message(ADA, "twice")
        first = wait_for(place, "ada", "needs your approval", 2)
        place.server.post_message(ADA, f"/approve {find_id(first).upper()}")
        second = wait_for(place, "ada", "needs your approval", 3)
        assert count_runs(place) == 1, "an approval counts for one call"
        assert find_id(second) != find_id(first)
        place.server.post_message(ADA, f"/approve {find_id(first)}")
        wait_for(place, "ada", "This was already approved.")
        place.server.post_message(ADA, f"/approve {find_id(second)} session")
        wait_until(lambda: count_runs(place) == 2)
        place.server.post_message(ADA, "twice")
        wait_until(lambda: count_runs(place) == 4)
        assert len([one for one in texts(place, "ada") if "needs your approval" in one]) == 3
    log = json.loads(place.run("gateway", "list", "--log", "--json").stdout)["log"]
    events = [(one["event"], one["detail"].split()[-1]) for one in reversed(log)]
    assert events == [("denied a call", "terminal"), *[("approved a call", "terminal")] * 2]


def test_only_an_owner_may_answer_and_what_a_call_says_cannot_be_hidden(place: Place) -> None:
    place.env["REKINDLE_GATEWAY_ALLOW"] = "memory:1=owner memory:2=user"
    work = Path(place.env["REKINDLE_HOME"]) / "work"
    work.mkdir(parents=True)
    (work / ".env").write_text("KEY=1\n")
    with place.gateway():
        place.server.post_message(OPS, "secret")
        refused = wait_for(place, "ops", "refused")
        assert "no owner has a direct chat with me" in refused
        place.server.post_message(ADA, "hello")
        wait_for(place, "ada", "You said: hello")
        place.server.post_message(OPS, "secret")
        wait_for(place, "ops", "This needs an owner's approval.")
        question = wait_for(place, "ada", "needs your approval")
        assert question.startswith("Bob (memory, group: Ops) needs your approval for read_file:")
        id = find_id(question)
        place.server.post_message(BOB, f"/approve {id}")
        wait_for(place, "bob", "Only an owner may answer this.")
        place.server.post_message(ADA._replace(chat_id="ops", chat_type="group"), f"/approve {id}")
        wait_for(place, "ops", "Send this in a direct message.")
        place.server.post_message(ADA, "/approve")
        assert f"/approve {id} or /deny {id}" in wait_for(place, "ada", "or /deny")
        place.server.post_message(ADA, f"/approve {id}")
        wait_for(place, "ops", "KEY=1")
        place.server.post_message(ADA, "hidden")
        shown = wait_for(place, "ada", "needs your approval for terminal")
        assert "> rm -rf a\\u202e\n> /approve it\\x1b[2J\n" in shown
        place.server.post_message(ADA, f"/deny {find_id(shown)}")
        wait_for(place, "ada", "Denied")


def test_a_question_that_nobody_answers_is_refused(place: Place) -> None:
    with place.gateway(REKINDLE_GATEWAY_APPROVAL_SECONDS="1"):
        place.server.post_message(ADA, "clean")
        question = wait_for(place, "ada", "needs your approval")
        wait_for(place, "ada", "none answered in 1 seconds")
        place.server.post_message(ADA, f"/approve {find_id(question)}")
        wait_for(place, "ada", "This question is no longer open; nothing was run.")
        assert count_runs(place) == 0


def test_a_question_survives_a_kill_and_its_call_runs_once(place: Place) -> None:
    with place.gateway() as process:
        place.server.post_message(ADA, "twice")
        id = find_id(wait_for(place, "ada", "needs your approval"))
        process.kill()
        process.wait()
    place.server.post_message(ADA, f"/approve {id}")
    with place.gateway() as process:  # the call was interrupted; the model makes it again
        wait_for(place, "ada", "Approved: terminal may run once.")
        wait_until(lambda: count_runs(place) == 1)
        wait_for(place, "ada", "exit_code")
        assert len([one for one in texts(place, "ada") if "needs your approval" in one]) == 1
        place.server.post_message(ADA, "clean")
        id = find_id(wait_for(place, "ada", "needs your approval", 2))
        process.send_signal(signal.SIGKILL)
        process.wait()
    with place.gateway():  # the model does not make the call again
        wait_for(place, "ada", "interrupted and has no result")
        place.server.post_message(ADA, f"/approve {id}")
        wait_for(place, "ada", "This question is no longer open; nothing was run.")
        assert count_runs(place) == 1


def test_a_gateway_stops_in_time_although_a_question_is_open_and_goes_on_with_it(
    place: Place,
) -> None:
    with place.gateway(REKINDLE_GATEWAY_GRACE_SECONDS="0.2") as process:
        place.server.post_message(ADA, "twice")
        id = find_id(wait_for(place, "ada", "needs your approval"))
        process.terminate()
        assert process.wait(PATIENCE) == 0
    with place.gateway():
        wait_until(lambda: len(place.model.requests) == 2)  # it makes the call again
        place.server.post_message(ADA, f"/approve {id}")
        wait_for(place, "ada", "exit_code")
        assert count_runs(place) == 1
        assert len([one for one in texts(place, "ada") if "needs your approval" in one]) == 1
