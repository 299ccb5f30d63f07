"""Which programs a note may name: none that nobody vouches for."""

from __future__ import annotations

import pytest

from rekindle.knowledge.notes.failures import recall_failure
from rekindle.knowledge.notes.recall import recall_start
from tests.unit.knowledge.notes.test_recall import ROOT, bash, build

UNKNOWN = [
    "quayside",
    "/opt/quayside",
    "/usr/local/bin/quayside",
    "../other/quayside",
    "src/../../quayside",
    "node_modules/.bin/quayside",
    "vendor/bin/quayside",
]
NO_CACHE = "error: no cache"


@pytest.mark.parametrize("program", UNKNOWN)
def test_a_program_that_is_not_of_the_project_is_not_told(program: str) -> None:
    sessions = [[bash("make check"), bash(f"{program} build --fast")]] * 6
    told = recall_start(build(*sessions), "run quayside build").text
    assert "make check" in told
    assert "quayside" not in told


@pytest.mark.parametrize("program", ["./scripts/check.sh", "bin/quayside", "/usr/local/bin/go"])
def test_a_script_of_the_project_and_a_known_program_are_told(program: str) -> None:
    sessions = [[bash(f"{program} build --fast")]] * 6
    assert f"`{program} build --fast`" in recall_start(build(*sessions), "build it").text


@pytest.mark.parametrize("program", UNKNOWN)
def test_a_fix_with_a_step_that_nobody_vouches_for_is_not_told(program: str) -> None:
    failed = bash("make check", failed=True, result=NO_CACHE)
    for step, is_told in ((program, False), ("make cache", True)):
        playbook = build(*[[failed, bash(f"{step} && make check --cached")]] * 3)
        told = recall_failure(playbook, ROOT, failed.call, NO_CACHE).text
        assert (step in told) is is_told


@pytest.mark.parametrize("program", UNKNOWN)
def test_a_fix_of_a_program_that_nobody_vouches_for_is_not_told(program: str) -> None:
    failed = bash(f"{program} build", failed=True, result=NO_CACHE)
    playbook = build(*[[failed, bash(f"{program} build --cached")]] * 3)
    assert recall_failure(playbook, ROOT, failed.call, NO_CACHE).text == ""


@pytest.mark.parametrize("program", UNKNOWN)
def test_the_checks_before_a_commit_are_told_without_those_nobody_vouches_for(program: str) -> None:
    steps = [bash("make check"), bash(f"{program} lint"), bash("git commit -m done")]
    told = recall_start(build(*[steps] * 4), "run quayside lint")
    assert [one.command for one in told.notes if one.kind == "workflow"] == ["make check"]
