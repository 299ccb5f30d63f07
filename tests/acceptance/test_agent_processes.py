"""The agent's background processes, by the command: chat and gateway come and go, they go on."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle.errors import PlatformError
from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import Source
from tests import command
from tests.acceptance.stores import make_store
from tests.acceptance.terminals import Terminal
from tests.processes import stop
from tests.waiting import PATIENCE, wait_until

ADA = Source("memory", "ada", user_id="1", user_name="Ada")


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def background(user: str, command: str, **more: Any) -> dict[str, Any]:
    steps = [call("terminal", command=command, background=True, **more), {"text": "{result}"}]
    return {"user": user, "steps": steps}


SCRIPT: dict[str, Any] = {
    "turns": [
        background("begin", "until test -e go; do sleep 0.05; done; echo built; exit 7"),
        background("server", "until test -e go; do sleep 0.05; done"),
        background("quick", "echo ready; exit 5"),
        {"user": "look", "steps": [call("process", action="list"), {"text": "{result}"}]},
        {"user": "heard", "steps": [{"text": "yes"}]},
    ]
}


class Home:
    """A home with a model that follows the script, and a chat server."""

    def __init__(self, folder: Path, server: ChatServer, model: ScriptedModel) -> None:
        self.folder, self.server, self.model = folder, server, model
        self.work = folder / "rk" / "work"
        self.work.mkdir(parents=True)
        make_store(folder / "rk" / "sessions.db")
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
        self.env = {
            **kept,
            "HOME": str(folder),
            "REKINDLE_HOME": str(folder / "rk"),
            "REKINDLE_MODEL": "scripted",
            "REKINDLE_CHAT_APPROVAL": "never",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "a-key",
            "REKINDLE_KEYS_DIRECT": "shared",
            "REKINDLE_GATEWAY_APPROVAL": "never",
            "REKINDLE_GATEWAY_LEASE_SECONDS": "2",
            "REKINDLE_GATEWAY_PLATFORMS": f"rekindle.testing:connect={server.address}",
            "REKINDLE_GATEWAY_ALLOW": "memory:*=owner",
        }

    def run(self, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        done = command.run(
            words,
            input=said,
            env=self.env,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    @contextmanager
    def gateway(self) -> Generator[subprocess.Popen[str]]:
        with open(self.folder / "gateway.log", "a") as log:
            process = command.start(["gateway", "run"], env=self.env, stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def texts(self) -> list[str]:
        return [one.text for one in self.server.list_sent("ada")]

    def reads(self, count: int) -> str:
        """The last of so many messages in the chat, when its answer is whole."""

        def whole() -> bool:
            return len(self.texts()) >= count and self.mail() == 0

        try:
            wait_until(whole)
        except TimeoutError:
            raise AssertionError(
                (self.texts(), (self.folder / "gateway.log").read_text())
            ) from None
        assert len(self.texts()) == count, self.texts()
        return self.texts()[-1]

    def asked(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "rk" / "sessions.db")) as file, file:
            return file.execute(sql).fetchall()

    def mail(self) -> int:
        """How much is on its way."""
        inbox = "SELECT count(*) FROM inbox WHERE state IN ('waiting', 'running')"
        outbox = "SELECT count(*) FROM outbox WHERE state = 'waiting'"
        return self.asked(f"SELECT ({inbox}) + ({outbox})")[0][0]

    def session(self) -> str:
        return self.asked("SELECT session FROM routes")[0][0]

    def process(self) -> dict[str, Any]:
        (one,) = self.json("ps", "--all")
        return one


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with ChatServer(redeliver_seconds=0.3) as server, ScriptedModel(SCRIPT) as model:
        one = Home(tmp_path, server, model)
        try:
            yield one
        finally:
            (one.work / "go").touch()
            one.run("kill", *(each["id"] for each in one.json("ps")))
            stop(tmp_path / "rk" / "processes")


def test_a_chat_leaves_a_command_running_and_the_next_one_sees_how_it_ended(home: Home) -> None:
    started = json.loads(home.run("chat", said="begin").stdout)
    one = home.process()
    assert (one["id"], one["state"]) == (started["process_id"], "running")
    (session,) = home.json("sessions", "list")
    assert one["session"] == session["id"]
    (home.work / "go").touch()
    assert home.run("wait", one["id"], "--timeout", "120").returncode == 7
    done = home.run("chat", "-c", said="look")
    assert "exited with 7" in done.stderr, "what it reports is not the answer"
    (seen,) = json.loads(done.stdout)["processes"]
    assert (seen["process_id"], seen["state"], seen["exit_code"]) == (one["id"], "exited", 7)
    again = home.run("chat", "-c", said="heard")
    assert (again.stdout.strip(), "exited with" in again.stderr) == ("yes", False)
    told = [said for said in home.model.requests[-1].messages if "exited with 7" in said.text]
    assert [said.role for said in told] == ["assistant"], "the model heard it, once"
    assert "```\nbuilt\n```" in told[0].text


def test_at_a_terminal_the_end_of_a_command_is_shown_while_nothing_is_said(home: Home) -> None:
    screen = Terminal(["chat"], home.env, home.work)
    try:
        screen.wait_for_prompt()
        screen.say("begin")
        screen.wait_for("process_id")
        screen.wait_for_prompt()
        screen.type("hea")
        (home.work / "go").touch()
        screen.wait_for("exited with 7")
        screen.wait(lambda: screen.lines[-1].startswith("› hea"))
        screen.type("rd\r")
        screen.wait_for("yes")
    finally:
        screen.kill()
    told = [said for said in home.model.requests[-1].messages if "exited with 7" in said.text]
    assert len(told) == 1


def test_a_chat_is_not_reset_while_a_command_runs_and_is_after_it(home: Home) -> None:
    with home.gateway():
        home.server.post_message(ADA, "server")
        started = json.loads(home.reads(1))
        session = home.session()
        assert home.process()["session"] == session
        home.asked("UPDATE routes SET updated = updated - 2000000")
        home.server.post_message(ADA, "heard")
        assert home.reads(2) == "yes"
        assert home.session() == session
        (home.work / "go").touch()
        assert "exited with 0" in home.reads(3)
        assert home.process()["id"] == started["process_id"]
        home.asked("UPDATE routes SET updated = updated - 2000000")
        home.server.post_message(ADA, "heard")
        home.reads(5)
        assert re.search("New conversation", home.texts()[3])
        assert home.session() != session


def test_the_end_of_a_command_is_told_once_though_the_gateway_is_killed_in_between(
    home: Home,
) -> None:
    with home.gateway() as process:
        home.server.post_message(ADA, "begin")
        home.reads(1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    (home.work / "go").touch()
    assert home.run("wait", home.process()["id"], "--timeout", "120").returncode == 7
    home.server.refuse = PlatformError("not now")
    with home.gateway() as process:  # it has the report, and cannot send it
        wait_until(lambda: home.asked("SELECT 1 FROM outbox WHERE text LIKE '%exited%'") != [])
        process.send_signal(signal.SIGKILL)
        process.wait()
    home.server.refuse = None
    assert len(home.texts()) == 1
    with home.gateway():
        assert "exited with 7" in home.reads(2)
        home.server.post_message(ADA, "heard")
        assert home.reads(3) == "yes"
    told = [said for said in home.model.requests[-1].messages if "exited with 7" in said.text]
    assert [said.role for said in told] == ["assistant"]


def test_reports_are_told_once_however_often_the_gateway_is_killed(home: Home) -> None:
    """The kill comes at any moment between the event and the delivery."""
    for round in range(4):
        with home.gateway() as process:
            home.server.post_message(ADA, "quick")
            before = round * 2
            wait_until(lambda before=before: len(home.texts()) > before)
            time.sleep(0.01 * round * round)
            process.send_signal(signal.SIGKILL)
            process.wait()
        with home.gateway():
            home.reads(before + 2)
    assert sum("exited with 5" in text for text in home.texts()) == 4
