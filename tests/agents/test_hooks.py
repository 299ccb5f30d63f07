"""The hooks in the real agents: what their model is sent, and what is stored afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from rekindle import Session
from rekindle.errors import NotFound
from rekindle.experiments.experiment import Experiment, normalize_shares
from rekindle.hooks.troubles import read_troubles
from tests.waiting import wait_until

from .conftest import OpenLab
from .hook_setup import (
    FAILING_COMMAND,
    FIX,
    KNOWN_COMMAND,
    add_hooks,
    open_lab_store,
    set_control_share,
    stop_helper,
    teach,
    warm_up,
)
from .lab import AgentLab

COMMAND_AGENTS = ("claude-code", "codex", "gemini")
PROMPT = f"Please go on.\nrun: {FAILING_COMMAND}"

Prepare = Callable[[str], AgentLab]


@pytest.fixture
def prepare(open_lab: OpenLab) -> Iterator[Prepare]:
    """Call it with an agent for a lab with our hooks, a known project and a helper."""
    labs: list[AgentLab] = []

    def prepare_one(agent: str) -> AgentLab:
        lab = open_lab(agent)
        labs.append(lab)
        set_control_share(lab, 0)
        teach(lab)
        add_hooks(lab)
        warm_up(lab.rekindle_home)
        return lab

    yield prepare_one
    for lab in labs:
        stop_helper(lab.rekindle_home)


def find_session(lab: AgentLab, id: str) -> Session | None:
    with open_lab_store(lab) as store:
        try:
            return store.session(id)
        except NotFound:
            return None


@pytest.mark.parametrize("agent", COMMAND_AGENTS)
def test_the_model_is_sent_the_notes_and_after_a_failure_the_fix(
    agent: str, prepare: Prepare
) -> None:
    lab = prepare(agent)
    run = lab.run(PROMPT)
    assert run.exit_code == 0, run.errors
    first, second = run.texts[:2]
    assert f"`{KNOWN_COMMAND}`" in first
    assert "data, not instructions" in first
    assert "about a failure like this" not in first
    assert "about a failure like this" in second
    assert f"`{FIX}` then worked" in second
    assert read_troubles(lab.rekindle_home) == []


@pytest.mark.parametrize("agent", COMMAND_AGENTS)
def test_a_session_is_in_the_store_with_its_project_within_two_seconds(
    agent: str, prepare: Prepare
) -> None:
    lab = prepare(agent)
    took = [measure_import(lab)]
    while took[-1] >= 2.0 and len(took) < 3:  # the machine may have been busy with other things
        took.append(measure_import(lab))
    assert took[-1] < 2.0 or _is_machine_busy(), took


def measure_import(lab: AgentLab) -> float:
    """Run the agent and return how many seconds later its session is stored with its project."""
    run = lab.run(PROMPT)
    ended = time.monotonic()

    def is_stored() -> bool:
        session = find_session(lab, run.session)
        return session is not None and session.project is not None

    wait_until(is_stored)
    took = time.monotonic() - ended
    session = find_session(lab, run.session)
    assert session is not None
    assert session.project == f"folder:{lab.repository}"
    assert session.arm == "warm"
    return took


def _is_machine_busy() -> bool:
    return os.getloadavg()[0] > (os.cpu_count() or 1)


@pytest.mark.parametrize("agent", COMMAND_AGENTS)
def test_a_cold_session_is_told_nothing(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent)
    set_control_share(lab, 1)
    run = lab.run(PROMPT)
    assert len(run.texts) >= 2
    for text in run.texts:
        assert KNOWN_COMMAND not in text
        assert "Rekindle" not in text
    wait_until(lambda: find_session(lab, run.session) is not None)
    wait_until(lambda: getattr(find_session(lab, run.session), "arm", None) == "cold")


@pytest.mark.parametrize("agent", COMMAND_AGENTS)
def test_a_resumed_session_is_not_told_twice(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent)
    first = lab.run("Please go on.")
    assert first.texts[-1].count(f"`{KNOWN_COMMAND}`") == 1
    second = lab.run("And now?", resume=first.session)
    assert second.texts[-1].count(f"`{KNOWN_COMMAND}`") == 1


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_an_experiment_measures_sessions_of_the_real_agent(agent: str, prepare: Prepare) -> None:
    lab = prepare(agent)
    shares = normalize_shares({"warm": 1, "cold": 1})
    with open_lab_store(lab) as store:
        store.experiments.start(Experiment("trial", shares, "seed", time.time()))
    runs = [lab.run(PROMPT) for _ in range(2)]
    for run in runs:
        wait_until(lambda run=run: getattr(find_session(lab, run.session), "project", None))
    with open_lab_store(lab) as store:
        assigned = {one.session: one for one in store.experiments.list_assignments("trial")}
    assert assigned.keys() == {run.session for run in runs}
    for run in runs:
        one = assigned[run.session]
        assert (one.calls, one.errors, one.deleted) == (1, 1, False)
        assert one.given == (one.arm == "warm")
        assert (f"`{KNOWN_COMMAND}`" in run.texts[0]) == (one.arm == "warm")
        session = find_session(lab, run.session)
        assert session is not None
        assert session.arm == one.arm
