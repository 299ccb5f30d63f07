"""A command that is known to fail, in the real agents: stopped once if the setting asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rekindle.hooks.command import write_launcher
from rekindle.hooks.context_text import STOPPED
from rekindle.hooks.troubles import read_troubles
from rekindle.judging.call_pairing import judge_calls
from tests.hook_launcher import write_patient_launcher
from tests.waiting import wait_until

from .conftest import OpenLab
from .hook_setup import FAILING_COMMAND, FIX, open_lab_store, stop_helper, teach, warm_up
from .lab import AgentLab, AgentRun
from .programs import PACKAGES
from .test_install import Probe, is_stored, trust_hooks

MAKEFILE = "lint-shop:\n\t@echo ran >> ran.txt; echo no shop.mk; false\n"
PROMPT = f"Please go on.\nrun: {FAILING_COMMAND}\nrun: {FAILING_COMMAND}"

Prepare = Callable[..., AgentLab]


@pytest.fixture
def prepare(open_lab: OpenLab) -> Iterator[Prepare]:
    """Call it for a lab in which Rekindle was installed with settings, and a command fails."""
    labs: list[AgentLab] = []

    def prepare_one(agent: str, *settings: str) -> AgentLab:
        lab = open_lab(agent)
        labs.append(lab)
        (lab.repository / "Makefile").write_text(MAKEFILE)
        teach(lab)
        write_settings(lab, *settings)
        Probe(lab).run("install", agent, "--yes")
        write_patient_launcher(lab.rekindle_home)
        warm_up(lab.rekindle_home)
        return lab

    yield prepare_one
    for lab in labs:
        stop_helper(lab.rekindle_home)


def write_settings(lab: AgentLab, *settings: str) -> None:
    text = "\n".join(["[warm]", "control_share = 0", *settings])
    (lab.rekindle_home / "config.toml").write_text(text)


def run_twice(lab: AgentLab) -> AgentRun:
    """Let the model run the failing command twice."""
    run = lab.run(PROMPT)
    assert run.exit_code == 0, run.errors
    assert len(run.texts) == 3
    assert read_troubles(lab.rekindle_home) == []
    return run


def count_runs(lab: AgentLab) -> int:
    file: Path = lab.repository / "ran.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.parametrize("agent", PACKAGES)
def test_a_command_that_is_known_to_fail_is_stopped_once(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent, "before_call = true")
    run = run_twice(lab)
    assert count_runs(lab) == 1
    assert STOPPED not in run.texts[0]
    stopped = run.texts[1].partition(STOPPED)[2]
    assert f"`{FIX}` then worked" in stopped
    assert "no shop.mk" not in run.texts[1]
    assert run.texts[2].count(STOPPED) == 1
    assert "no shop.mk" in run.texts[2]


@pytest.mark.parametrize("agent", PACKAGES)
def test_a_stopped_call_is_judged_as_refused(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent, "before_call = true")
    run = run_twice(lab)
    wait_until(lambda: is_stored(lab, run.session))
    with open_lab_store(lab) as store:
        messages = [*store.messages(store.session(run.session))]
    outcomes = [one.outcome for one in judge_calls(run.session, messages)]
    assert outcomes == ["refused", "expected"], messages


@pytest.mark.parametrize("agent", PACKAGES)
def test_nothing_is_stopped_by_default(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent)
    run = run_twice(lab)
    assert count_runs(lab) == 2
    assert STOPPED not in run.texts[-1]


# How the model runs a command in another folder; each agent tells its hooks in another way.
ELSEWHERE = {
    "claude-code": "run: cd FOLDER\nrun: COMMAND",
    "codex": 'call: exec_command {"cmd": "COMMAND", "workdir": "FOLDER"}',
    "opencode": 'call: bash {"command": "COMMAND", "description": "x", "workdir": "FOLDER"}',
    "gemini": 'call: run_shell_command {"command": "COMMAND", "dir_path": "web"}',
    "pi": "run: cd FOLDER && COMMAND",
}


@pytest.mark.parametrize("agent", PACKAGES)
def test_a_command_in_another_folder_runs(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent, "before_call = true")
    folder = lab.repository / "web"
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    script = ELSEWHERE[agent].replace("FOLDER", str(folder)).replace("COMMAND", FAILING_COMMAND)
    run = lab.run(f"Please go on.\n{script}")
    assert (folder / "ran.txt").exists(), run.errors
    assert STOPPED not in run.texts[-1]


@pytest.mark.parametrize("setting", ["before_call = false", "enabled = false"])
def test_nothing_is_stopped_once_the_setting_is_off_again(setting: str, prepare: Prepare) -> None:
    lab = prepare("claude-code", "before_call = true")
    write_settings(lab, setting)
    run_twice(lab)
    assert count_runs(lab) == 2


def test_codex_asks_its_user_to_trust_the_new_hook_alone(prepare: Prepare) -> None:
    lab = prepare("codex")
    probe = Probe(lab)
    write_launcher(lab.rekindle_home)  # a patient one is not current
    trust_hooks(lab)
    assert "trusted" not in probe.run("doctor")
    write_settings(lab, "before_call = true")
    assert "warm.before_call is on" in probe.run("doctor", code=1)
    said = probe.run("install", "codex", "--yes")
    assert "trust" in said
    said = probe.run("doctor", code=1)
    assert "not trusted: preToolUse\n" in said
    run = lab.run(PROMPT, arguments=["--no-trust"])
    assert count_runs(lab) == 2
    assert STOPPED not in run.texts[-1]
    trust_hooks(lab, "preToolUse")
    assert "trusted" not in probe.run("doctor")
    run = lab.run(PROMPT, arguments=["--no-trust"])
    assert count_runs(lab) == 3
    assert run.texts[-1].count(STOPPED) == 1
