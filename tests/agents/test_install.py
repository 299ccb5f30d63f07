"""`rekindle install` puts hooks into the real agents, and `uninstall` leaves no trace of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rekindle
from rekindle.hooks.command import get_launcher
from tests import command
from tests.waiting import wait_until

from .conftest import OpenLab
from .hook_setup import (
    FAILING_COMMAND,
    FIX,
    KNOWN_COMMAND,
    open_lab_store,
    set_control_share,
    stop_helper,
    teach,
    warm_up,
)
from .lab import AgentLab

# Stands in for the hook itself: keeps the events, and answers with a word that can be recognized.
PROBE = """#!{python}
import json, pathlib, sys
event = json.load(sys.stdin)
with open({events!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], event]) + "\\n")
if sys.argv[2] in ("start", "prompt", "failure"):
    name = event.get("hook_event_name")
    context = "MARKER-" + sys.argv[2]
    print(json.dumps({{"hookSpecificOutput": {{"hookEventName": name, "additionalContext": context}}}}))
"""
FAILURE_WORDS = "about a failure like this"  # how the answer to a failure begins


class Probe:
    """Rekindle in the home of an agent, with a hook that keeps what it is given."""

    def __init__(self, lab: AgentLab) -> None:
        self.lab = lab
        self.events_file = lab.rekindle_home / "events.jsonl"

    def run(self, *words: str, code: int = 0) -> str:
        theirs = self.lab.build_env()
        env = {**os.environ, **{key: theirs[key] for key in ("HOME", "PATH", "REKINDLE_HOME")}}
        done = command.run(words, env=env, cwd=self.lab.repository, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout

    def install(self, *options: str) -> None:
        self.run("install", self.lab.agent, "--yes", *options)
        launcher = get_launcher(self.lab.rekindle_home)
        assert launcher.exists()
        launcher.write_text(PROBE.format(python=sys.executable, events=str(self.events_file)))
        launcher.chmod(0o700)

    def read_events(self) -> dict[str, Any]:
        """The last event of each kind."""
        lines = self.events_file.read_text().splitlines() if self.events_file.exists() else []
        found = [json.loads(line) for line in lines]
        assert all(words[0] == self.lab.agent for words, _ in found)
        return {words[1]: event for words, event in found}


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("agent", ["claude-code", "codex", "opencode", "gemini", "pi"])
def test_the_hooks_of_an_installation_run_in_the_real_agent(agent: str, open_lab: OpenLab) -> None:
    lab = open_lab(agent)
    probe = Probe(lab)
    probe.install()
    run = lab.run("Please go on.\nrun: definitely-not-a-command")
    assert run.exit_code == 0, run.errors
    assert "MARKER-start" in run.texts[0]
    assert "MARKER-prompt" in run.texts[0]
    assert "MARKER-failure" in run.texts[1]
    # The agent does not wait for the hook of the end.
    wait_until(lambda: set(probe.read_events()) >= {"start", "prompt", "failure", "end"})
    events = probe.read_events()
    assert "Please go on." in events["prompt"]["prompt"]
    assert "definitely-not-a-command" in json.dumps(events["failure"])
    assert all(event["session_id"] and event["cwd"] for event in events.values())


# The files that people write, and those that only the agent itself writes.
CONFIGS = {
    "claude-code": ([".claude/settings.json"], [".claude.json"]),
    "codex": ([".codex/config.toml", ".codex/hooks.json"], []),
    "opencode": ([".config/opencode/plugins/rekindle.js"], [".config/opencode/opencode.json"]),
    "gemini": ([".gemini/settings.json"], []),
    "pi": ([".pi/agent/extensions/rekindle.js"], []),
}


@pytest.mark.parametrize("agent", CONFIGS)
def test_uninstall_after_a_session_leaves_the_configuration_as_it_was(
    agent: str, open_lab: OpenLab
) -> None:
    lab = open_lab(agent)
    if agent == "claude-code":
        (lab.home / ".claude").mkdir()
        (lab.home / ".claude" / "settings.json").write_text('{\n\t"model": "opus"}')
    probe = Probe(lab)
    assert lab.run("Please go on.").exit_code == 0  # agents bring older settings up to date
    before = read_files(lab.home)
    probe.install()
    assert lab.run("Please go on.").exit_code == 0
    assert probe.read_events()
    probe.run("uninstall", agent, "--yes")
    after = read_files(lab.home)
    by_people, by_agent = CONFIGS[agent]
    for name in by_people:
        assert after.get(name) == before.get(name)
    for name in by_agent:
        assert b"rekindle" not in after.get(name, b"")
    last_start = probe.read_events()["start"]
    assert lab.run("Please go on.").exit_code == 0
    # The end of the session before may still have been on its way.
    assert probe.read_events()["start"] == last_start


@pytest.mark.parametrize("agent", ["claude-code", "codex", "opencode", "gemini"])
def test_the_hooks_of_a_project_run_in_that_project_alone(agent: str, open_lab: OpenLab) -> None:
    lab = open_lab(agent)
    probe = Probe(lab)
    probe.install("--project")
    # Hooks of a project name the command, not a folder; here it leads to the probe.
    script = lab.rekindle_home / "bin" / "rekindle"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\n[ "$1" = hook ] || exit 1\nshift\nexec {get_launcher(lab.rekindle_home)} "$@"\n'
    )
    script.chmod(0o755)
    env = {"PATH": f"{script.parent}{os.pathsep}{lab.build_env()['PATH']}"}
    run = lab.run("Please go on.", env=env)
    assert "MARKER-start" in run.texts[0]
    elsewhere = lab.home / "elsewhere"
    subprocess.run(["git", "init", "-q", str(elsewhere)], check=True)
    run = lab.run("Please go on.", env=env, cwd=elsewhere)
    assert "MARKER-start" not in run.texts[0]


@pytest.mark.parametrize("agent", CONFIGS)
def test_after_install_a_session_starts_warm_and_is_kept(agent: str, open_lab: OpenLab) -> None:
    lab = open_lab(agent)
    set_control_share(lab, 0)
    teach(lab)
    Probe(lab).run("install", agent, "--yes")
    warm_up(lab.rekindle_home)
    try:
        run = lab.run(f"Please go on.\nrun: {FAILING_COMMAND}")
        assert run.exit_code == 0, run.errors
        assert f"`{KNOWN_COMMAND}`" in run.texts[0]
        failure = run.texts[1].partition(FAILURE_WORDS)[2]
        assert FAILURE_WORDS not in run.texts[0]
        assert FIX in failure
        wait_until(lambda: is_stored(lab, run.session))
    finally:
        stop_helper(lab.rekindle_home)


def is_stored(lab: AgentLab, session: str) -> bool:
    with open_lab_store(lab) as store:
        return any(one.id == session for one in store.recent(100))


def test_doctor_says_whether_the_user_has_trusted_the_hooks_of_codex(codex: AgentLab) -> None:
    probe = Probe(codex)
    probe.install()
    probe.run("install", "codex")  # the launcher of the probe is not current
    said = probe.run("doctor", code=1)
    assert "Codex skips hooks that you have not trusted" in said
    codex.run("Please go on.", arguments=["--no-trust"])
    assert "sessionStart" in said
    trust_hooks(codex)
    assert "trusted" not in probe.run("doctor")


def trust_hooks(lab: AgentLab, event: str = "") -> None:
    """Do what the user does at /hooks, for all hooks or one event: nothing else may write this."""
    program = subprocess.Popen(
        [str(lab.program), "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=lab.build_env(),
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    info = {"clientInfo": {"name": "test", "version": "1"}}
    hooks: list[Any] = []
    with program:
        requests = [("initialize", info), ("hooks/list", {"cwds": [str(lab.repository)]})]
        for number, (method, params) in enumerate(requests):
            line = json.dumps({"id": number, "method": method, "params": params})
            program.stdin.write(f"{line}\n")
            program.stdin.flush()
            for answer in map(json.loads, program.stdout):
                if answer.get("id") == number:
                    hooks = answer["result"].get("data", [{}])[0].get("hooks", [])
                    break
        program.kill()
    with (lab.home / ".codex" / "config.toml").open("a") as file:
        for hook in hooks:
            if event not in ("", hook["eventName"]):
                continue
            state = f'trusted_hash = "{hook["currentHash"]}"'
            file.write(f'\n[hooks.state."{hook["key"]}"]\n{state}\n')


def use_this_checkout(lab: AgentLab) -> None:
    """Let servers run the code under test: some agents hand on none of our environment."""
    source = Path(rekindle.__file__).parents[1]
    script = lab.rekindle_home / "rekindle"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={source} exec {command.COMMAND} "$@"\n')
    script.chmod(0o755)
    for name in CONFIGS[lab.agent][0] + CONFIGS[lab.agent][1]:
        file = lab.home / name
        file.write_text(file.read_text().replace(command.COMMAND, str(script)))


@pytest.mark.parametrize("agent", ["claude-code", "codex", "opencode", "gemini"])
def test_after_install_the_agent_offers_the_tools_of_the_mcp_server(
    agent: str, open_lab: OpenLab
) -> None:
    pytest.importorskip("rekindle.mcp")
    lab = open_lab(agent)
    teach(lab)
    Probe(lab).run("install", agent, "--yes")
    use_this_checkout(lab)
    # Some agents do not wait for their servers before the first request.
    run = lab.run("Please go on.\nrun: sleep 3")
    offered = [json.dumps(one.body.get("tools", [])) for one in run.requests]
    assert any("rekindle" in tools and "search" in tools for tools in offered), offered
    stop_helper(lab.rekindle_home)
