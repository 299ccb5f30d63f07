"""`rekindle schedule` and `rekindle deliver`, with a real gateway that is killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import PlatformError
from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import Source
from tests import command
from tests.acceptance.stores import make_store
from tests.waiting import wait_until

ADA = Source("memory", "ada", user_id="1", user_name="Ada")
SCRIPT = {
    "turns": [
        {"user": "quiet", "steps": [{"text": "NOTHING", "chunk": 1, "pause": 0.1}]},
        {
            "user": "remind me",
            "steps": [
                {
                    "calls": [
                        {
                            "name": "schedule",
                            "arguments": {"action": "add", "when": "1s", "prompt": "tea is ready"},
                        }
                    ]
                },
                {"text": "I will."},
            ],
        },
    ]
}


class Home:
    """A home with a chat server and a model; gateways are started in it and killed."""

    def __init__(self, folder: Path, target: str, server: ChatServer, model: ScriptedModel) -> None:
        self.folder, self.server, self.model = folder, server, model
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
        self.env = {
            **kept,
            "REKINDLE_HOME": str(folder),
            "REKINDLE_STORE": target,
            "OPENAI_BASE_URL": model.url,
            "REKINDLE_MODEL": "scripted",
            "REKINDLE_KEYS_DIRECT": "shared",
            "REKINDLE_GATEWAY_LEASE_SECONDS": "2",
            "REKINDLE_GATEWAY_PLATFORMS": f"rekindle.testing:connect={server.address}",
            "REKINDLE_GATEWAY_ALLOW": "memory:1=owner",
            "TZ": "UTC",
        }

    @contextmanager
    def gateway(self) -> Iterator[subprocess.Popen[bytes]]:
        process = command.start(["gateway", "run"], env=self.env, stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *words: str, code: int = 0) -> str:
        done = command.run(words, env=self.env, capture_output=True, text=True)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout if not code else done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def texts(self, chat: str) -> list[str]:
        return [one.text for one in self.server.list_sent(chat)]

    def history(self, job: str) -> list[dict[str, Any]]:
        return self.json("schedule", "history", job)


@pytest.fixture
def home(target: str, tmp_path: Path) -> Iterator[Home]:
    make_store(target)
    with ChatServer(redeliver_seconds=0.3) as server, ScriptedModel(SCRIPT) as model:
        yield Home(tmp_path / "home", target, server, model)


def test_a_job_runs_by_itself_and_its_result_reaches_the_chat(home: Home) -> None:
    with home.gateway():
        wait_until(lambda: home.server.listeners == 1)
        job = home.json("schedule", "add", "1s", "say hello", "--deliver", "memory:ops")
        wait_until(lambda: home.texts("ops") == ["You said: say hello"])
        wait_until(lambda: [run["state"] for run in home.history(job["id"])] == ["done"])
        (run,) = home.history(job["id"])
        assert run["output"] == "You said: say hello"
        shown = home.run("sessions", "show", run["session"])
        assert "say hello" in shown
        wait_until(
            lambda: (
                (run["session"], "done")
                in [(one["id"], one["end_reason"]) for one in home.json("sessions", "list")]
            )
        )
        prompt = home.model.requests[-1].messages[0].text
        assert "This is a run of a scheduled job" in prompt
        wait_until(lambda: home.json("schedule", "list")[0]["state"] == "done")
        (done,) = home.json("schedule", "list")
        assert (done["next_run"], done["runs"]) == (None, 1)


def test_results_that_go_nowhere_are_kept_in_a_folder(home: Home) -> None:
    with home.gateway():
        home.run("schedule", "add", "1s", "--command", "echo out; echo $((6 * 7))", "--name", "sum")
        home.run("schedule", "add", "1s", "--command", "exit 3", "--name", "bad")
        wait_until(lambda: len([*(home.folder / "results").glob("*.md")]) == 2)
        wait_until(lambda: home.history("sum")[0]["state"] == "done")
        wait_until(lambda: home.history("bad")[0]["state"] == "failed")
        assert home.history("sum")[0]["output"] == "out\n42"
        assert (home.history("bad")[0]["state"], home.history("bad")[0]["reason"]) == (
            "failed",
            "exit code 3",
        )
    files = [*(home.folder / "results").glob("*.md")]
    assert sorted(file.read_text() for file in files) == ["(no output)\n\n(exit code 3)", "out\n42"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_run_that_was_missed_is_made_up_for_once(home: Home) -> None:
    home.run("schedule", "add", "every 1m", "tick", "--deliver", "local", "--name", "tick")
    _move_back(home, 600)
    with home.gateway():
        wait_until(lambda: [run["state"] for run in home.history("tick")] == ["done"])
        (job,) = home.json("schedule", "list")
        assert job["runs"] == 1


def test_a_killed_gateway_neither_loses_nor_repeats_a_run(home: Home) -> None:
    with home.gateway():
        wait_until(lambda: home.server.listeners == 1)
        with home.model.hold_requests():
            job = home.json("schedule", "add", "1s", "slow work", "--deliver", "memory:ops")
            wait_until(lambda: len(home.model.requests) == 1)
    with home.gateway():
        wait_until(lambda: home.texts("ops") == ["You said: slow work"])
        wait_until(lambda: [run["state"] for run in home.history(job["id"])] == ["done"])
    with home.gateway():
        wait_until(lambda: home.server.listeners == 1)
        assert home.texts("ops") == ["You said: slow work"]


def test_a_silent_job_says_nothing_when_there_is_nothing_to_say(home: Home) -> None:
    home.env["REKINDLE_GATEWAY_EDIT_SECONDS"] = "0.05"  # not even while it is being said
    with home.gateway():
        wait_until(lambda: home.server.listeners == 1)
        job = home.json("schedule", "add", "1s", "quiet", "--silent", "--deliver", "memory:ops")
        wait_until(lambda: [run["output"] for run in home.history(job["id"])] == ["NOTHING"])
        assert home.texts("ops") == []


def test_a_silent_command_keeps_its_output_in_its_history(home: Home) -> None:
    with home.gateway():
        wait_until(lambda: home.server.listeners == 1)
        words = ("--command", "echo all is well", "--silent", "--deliver", "memory:ops")
        job = home.json("schedule", "add", "1s", *words)
        wait_until(lambda: [run["state"] for run in home.history(job["id"])] == ["done"])
        assert [run["output"] for run in home.history(job["id"])] == ["all is well"]
        assert home.texts("ops") == []


def test_a_job_made_in_a_chat_belongs_to_the_one_who_made_it(home: Home) -> None:
    with home.gateway():
        home.server.post_message(ADA, "remind me")
        wait_until(lambda: home.texts("ada")[-1:] == ["You said: tea is ready"])
        (job,) = home.json("schedule", "list")
        assert job["owner"] == "agent:main:memory:dm:ada"
        with home.model.hold_requests():
            home.server.post_message(ADA, "remind me")
            wait_until(lambda: len(home.model.requests) == 4)
            home.run("gateway", "deny", "memory:1")
        wait_until(
            lambda: {one["state"] for one in home.json("schedule", "list")} == {"done", "paused"}
        )
        (paused,) = [one for one in home.json("schedule", "list") if one["state"] == "paused"]
        assert "may no longer talk" in paused["reason"]


def test_jobs_are_paused_resumed_run_and_removed(home: Home) -> None:
    home.run("schedule", "add", "every 2h", "check", "--name", "check")
    assert "paused" in home.run("schedule", "pause", "check")
    assert home.json("schedule", "list")[0]["next_run"] is None
    home.run("schedule", "run", "check")
    with home.gateway():
        wait_until(lambda: [run["state"] for run in home.history("check")] == ["done"])
    assert home.json("schedule", "list")[0]["state"] == "paused"
    assert "next 20" in home.run("schedule", "resume", "check")
    before = home.json("schedule", "list")[0]["next_run"]
    home.run("schedule", "run", "check")
    with home.gateway():
        wait_until(lambda: [run["state"] for run in home.history("check")] == ["done"] * 2)
    assert home.json("schedule", "list")[0]["next_run"] == before
    assert "Removed" in home.run("schedule", "remove", "check")
    assert "List jobs with `rekindle schedule list`." in home.run(
        "schedule", "pause", "check", code=2
    )
    assert "unknown platform" in home.run(
        "schedule", "add", "1h", "x", "--deliver", "pigeon", code=2
    )
    assert "Invalid value" in home.run("deliver", "retry", "9" * 30, code=2)
    assert "is not a time" in home.run("schedule", "add", "soon", "x", code=2)


def test_what_could_not_be_delivered_is_sent_again_on_request(home: Home) -> None:
    home.env["REKINDLE_GATEWAY_SEND_ATTEMPTS"] = "1"
    with home.gateway():
        wait_until(lambda: home.server.listeners == 1)
        home.server.refuse = PlatformError("gone", permanent=True)
        home.run("schedule", "add", "1s", "news", "--deliver", "memory:ops")
        wait_until(lambda: home.json("deliver", "list", "--state", "failed"))
        home.server.refuse = None
        (failed,) = home.json("deliver", "list", "--state", "failed")
        assert failed["text"] == "You said: news"
        assert home.texts("ops") == []
        assert "1 message queued" in home.run("deliver", "retry", str(failed["number"]))
        wait_until(lambda: home.texts("ops") == ["You said: news"])
        # It is marked as sent after it can be read.
        wait_until(lambda: [one["state"] for one in home.json("deliver", "list")] == ["sent"])
        (sent,) = home.json("deliver", "list")
        assert sent["message_id"]


def _move_back(home: Home, seconds: float) -> None:
    from rekindle import open_store

    with open_store(home.env["REKINDLE_STORE"]) as store:
        (job,) = store.jobs.list()
        store.jobs.set_state(job, "active", next_run=(job.next_run or 0.0) - seconds)
