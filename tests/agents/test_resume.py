"""`rekindle resume` with the real agents: their history goes on, in their own agent and in another."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, ToolCall, open_store
from tests import command
from tests.acceptance.terminals import Terminal

from .conftest import OpenLab
from .lab import AgentLab, AgentRun
from .test_restore import delete_sessions, store_session

AGENTS = ("claude-code", "codex", "opencode", "pi")


@pytest.fixture(params=AGENTS)
def lab(request: pytest.FixtureRequest, open_lab: OpenLab) -> AgentLab:
    return open_lab(request.param)


def build_env(lab: AgentLab) -> dict[str, str]:
    return {**os.environ, **lab.build_env()}


def resume(lab: AgentLab, *words: str) -> Any:
    """Return what `rekindle resume --json` says, having prepared everything."""
    done = command.run(
        ["resume", *words, "--json"],
        env=build_env(lab),
        cwd=lab.home,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_rekindle(lab: AgentLab, *words: str) -> Any:
    done = command.run(
        [*words, "--json"], env=build_env(lab), cwd=lab.home, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def go_on(lab: AgentLab, plan: Any) -> AgentRun:
    """Run what was printed up to the agent itself, and then the agent with a prompt."""
    *before, last = plan["shell"].split(" && ")
    assert shlex.split(last) == plan["command"]
    if len(before) > 1:  # what stands between the change of folder and the agent
        script = " && ".join(before)
        subprocess.run(["sh", "-c", script], env=build_env(lab), check=True, capture_output=True)
    model = ["--model", "scripted/scripted"] if lab.agent == "opencode" else []
    run = lab.run("And now?", resume=plan["id"], arguments=model, cwd=Path(plan["folder"]))
    assert run.exit_code == 0, run.errors
    assert "And now?" in run.texts[-1]
    return run


def test_a_deleted_session_goes_on_in_its_own_agent(lab: AgentLab) -> None:
    first = lab.run("Remember the heron.\nrun: expr 40000 + 2")
    assert first.exit_code == 0, first.errors
    run_rekindle(lab, "import")
    (session,) = run_rekindle(lab, "sessions", "list")
    assert resume(lab, session["id"])["written"] is None  # the agent still has it
    delete_sessions(lab)
    plan = resume(lab, session["id"])
    assert (plan["id"], plan["folder"]) == (session["id"], str(lab.repository))
    text = go_on(lab, plan).texts[-1]
    assert "Remember the heron." in text
    assert "40002" in text
    again = run_rekindle(lab, "import")
    assert (again["messages"], again["damaged"]) == (2, 0)  # only what is new
    (session,) = run_rekindle(lab, "sessions", "list")
    assert session["message_count"] == 6


def test_a_session_of_another_agent_is_handed_over_and_stays_linked(lab: AgentLab) -> None:
    source = "codex" if lab.agent == "claude-code" else "claude-code"
    calls = [ToolCall("call_a", "WebSearch", {"query": "herons"})]
    id = store_session(
        lab,
        source,
        Message("user", "Find herons."),
        Message("assistant", "I look.", calls),
        Message("tool", "forty herons", tool_call_id="call_a"),
        Message("user", "Thanks."),
        Message("assistant", "You are welcome."),
    )
    plan = resume(lab, id, "--in", lab.agent)
    assert plan["id"] != id
    text = go_on(lab, plan).texts[-1]
    for words in ("Find herons.", "I look.", "WebSearch", "forty herons", "You are welcome."):
        assert words in text
    imported = run_rekindle(lab, "import")
    assert (imported["messages"], imported["damaged"]) == (2, 0)  # only the new prompt and answer
    sessions = {one["id"]: one for one in run_rekindle(lab, "sessions", "list")}
    assert sessions.keys() == {id, plan["id"]}
    copy = sessions[plan["id"]]
    assert (copy["source"], copy["parent"]) == (lab.agent, id)
    title = {"codex": "Codex", "claude-code": "Claude Code"}[source]
    assert copy["title"] == f"Find herons. (from {title})"
    again = resume(lab, id, "--in", lab.agent)  # the agent has it now
    assert (again["id"], again["written"]) == (plan["id"], None)


def test_the_agent_takes_the_place_of_the_command_on_a_terminal(open_lab: OpenLab) -> None:
    lab = open_lab("pi")
    messages = (Message("user", "Find herons."), Message("assistant", "There are forty herons."))
    id = store_session(lab, "codex", *messages)
    terminal = Terminal(["resume", id, "--in", "pi"], build_env(lab), lab.home)
    try:
        terminal.wait_for("There are forty herons.")
        terminal.type("And now?\r")
        terminal.wait_for("All done.")
    finally:
        terminal.kill()
    assert "There are forty herons." in lab.model.requests[-1].text


def test_a_fork_in_the_store_goes_on_in_the_agent_beside_its_origin(lab: AgentLab) -> None:
    first = lab.run("Remember the heron.")
    assert first.exit_code == 0, first.errors
    run_rekindle(lab, "import")
    (session,) = run_rekindle(lab, "sessions", "list")
    with open_store(lab.rekindle_home / "sessions.db") as store:
        fork = store.fork(session["id"])
    plan = resume(lab, fork.id)
    assert plan["id"] != session["id"]
    assert "Remember the heron." in go_on(lab, plan).texts[-1]
    again = lab.run("Still there?", resume=session["id"])
    assert "And now?" not in again.texts[-1]
    assert "Remember the heron." in again.texts[-1]
