"""The second set of tasks: each is done by its way, not by a guess, and a proof can be run with it."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.warm import arms, command, proof_run
from bench.warm.model import model_server
from bench.warm.model.model_server import ServedModel
from bench.warm.proof_run import ProofRun
from bench.warm.tasks import task_sets
from bench.warm.tasks.harbour_tasks import Task
from bench.warm.tasks.harbour_world import World

from rekindle.testing import ScriptedModel
from tests.new_store import open_new_store

SECOND = task_sets.SETS["second"]
TASKS = [*SECOND.list_tasks("train"), *SECOND.list_tasks("test")]
LEARNABLE = [task for task in TASKS if task.family in SECOND.ways]


def find_way(task: Task) -> str:
    return SECOND.ways[task.family].format(**task.wanted)


def run(place: World, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, shell=True, cwd=place.work, env=place.environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("task", LEARNABLE, ids=lambda task: task.id)
def test_the_way_of_a_task_does_it(task: Task, tmp_path: Path) -> None:
    place = SECOND.build(tmp_path / "w", task.id)
    assert not task_sets.check_task(task, place, "")
    done = run(place, find_way(task))
    assert done.returncode == 0, done.stderr
    assert task_sets.check_task(task, place, f"It says: {done.stdout}")


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("bind", "python3 tools/bind.py {title}"),
        ("bind", "python3 tools/bind.py {title} --mode gilt"),
        ("stock", "python3 store/count.py {paper}"),
        ("price", "python3 tools/price.py {title} {crowns}"),
        ("order", "python3 tools/order.py {title} --copies {copies} --for {customer}"),
        ("proof", "grep {title} archive/ledgers/binders.txt"),
    ],
)
def test_a_guess_does_not(family: str, line: str, tmp_path: Path) -> None:
    task = next(one for one in LEARNABLE if one.family == family)
    place = SECOND.build(tmp_path / "w", task.id)
    done = run(place, line.format(**task.wanted))
    assert not task_sets.check_task(task, place, done.stdout)


def test_tasks_to_learn_from_and_to_be_tested_on_share_neither_wording_nor_values() -> None:
    train, test = SECOND.list_tasks("train"), SECOND.list_tasks("test")
    assert len(train) == 30
    assert len(test) == 45
    assert not {one.ask for one in train} & {one.ask for one in test}
    names = ("title", "paper", "customer")
    values = [
        {one.wanted.get(name) for one in some} - {None} for some in (train, test) for name in names
    ]
    assert all(not values[at] & values[at + 3] for at in range(3))
    assert not {*SECOND.families} & {*task_sets.SETS["first"].families}


# -- a proof


def solve(task: Task) -> dict[str, Any]:
    line = find_way(task) if task.family in SECOND.ways else "ls docs"
    call = {"name": "terminal", "arguments": {"command": line}}
    return {"user": task.ask, "steps": [{"calls": [call]}, {"text": "It says: {result}"}]}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModel]:
    monkeypatch.setattr(proof_run, "open_store", open_new_store)
    with ScriptedModel({"turns": [solve(task) for task in TASKS]}) as scripted:
        yield ServedModel(scripted.url, "scripted", 0)


@pytest.mark.slow
def test_a_course_of_the_second_set_runs_in_every_arm(
    served: ServedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(model_server, "serve_model", lambda *_: nullcontext(served))
    monkeypatch.setattr(command, "ProofRun", partial(ProofRun, root=tmp_path))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args(["run", "--tasks", "second", "--slice"]))
    made = ProofRun("1.5b", True, tmp_path, "second")
    rows = proof_run.read_rows(made.ran)
    assert {(row["task"], row["arm"]) for row in rows} == {
        (task.id, arm) for task in made.list_tasks("test") for arm in arms.ARMS
    }
    known = [row for row in rows if not row["task"].startswith("hours")]
    assert all(row["success"] for row in known)
    assert "15 training sessions, 15 of them did their task" in capsys.readouterr().out
    with made.store("past") as store:
        past = arms.TrainedStore(store, made.templates)
        task = next(one for one in made.list_tasks("test") if one.family == "order")
        given = past.build_start("warm", store.begin(), task, made.project)
    assert "ORDER_DESK=local python3 tools/order.py" in given.opening[0].text
    assert given.opening[0].text.startswith(SECOND.system)
