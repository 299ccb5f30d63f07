"""The tasks of the proof: a right solution by the real program passes, a wrong one does not."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from bench.warm.tasks import harbour_world
from bench.warm.tasks.harbour_tasks import FAMILIES, Task, list_tasks
from bench.warm.tasks.harbour_world import World

from tests.cases import check_each
from tests.unit.bench_warm.solving import words_for

ALL = [*list_tasks("train"), *list_tasks("test")]
PROGRAM = compile(harbour_world.PROGRAM.read_text(), "quay", "exec")


def quay(place: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program in this process: to start one for each task would take most of the time."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.dict(os.environ, place.environment),
        patch.object(sys, "argv", ["quay", *words]),
        chdir(place.work),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            exec(PROGRAM, {"__name__": "__main__"})
        except SystemExit as left:
            code = int(left.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def start_quay(place: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program as an agent does."""
    return subprocess.run(
        [str(place.root / "bin" / "quay"), *words],
        env=place.environment,
        cwd=place.work,
        capture_output=True,
        text=True,
    )


def solve(task: Task, place: World) -> str:
    """Do the task as a person would who knows the way; what came back is the answer."""
    if task.family != "papers":
        done = quay(place, *words_for(task))
        assert done.returncode == 0, done.stderr
        return done.stdout
    wanted, docs = task.wanted, place.work / "docs"
    if wanted["kind"] == "write":
        (docs / f"{wanted['name']}.txt").write_text(wanted["text"])
        return "Written."
    if wanted["kind"] == "price":
        text = (docs / "prices.txt").read_text()
        new = rf"{wanted['item']} = {wanted['price']}"
        (docs / "prices.txt").write_text(re.sub(rf"{wanted['item']} = \d+", new, text))
        return "Changed."
    lines = (docs / "crew.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(wanted["crew"]))


@check_each("task", ALL, ids=lambda task: task.id)
def test_the_check_takes_a_right_solution_and_refuses_an_untouched_world(
    task: Task, tmp_path: Path
) -> None:
    place = harbour_world.build_harbour(tmp_path / task.id, task.id)
    assert not task.check(place, "")
    assert not task.check(place, f"Done: {task.ask}")
    assert task.check(place, solve(task, place))


@check_each("task", ALL, ids=lambda task: task.id)
def test_the_check_refuses_the_solution_of_another_task(task: Task, tmp_path: Path) -> None:
    other = next(
        one
        for one in ALL
        if one.family == task.family
        and one.wanted.get("kind") == task.wanted.get("kind")
        and not set(one.wanted.values()) & set(task.wanted.values()) - {task.wanted.get("kind")}
    )
    place = harbour_world.build_harbour(tmp_path / task.id, other.id)
    told = solve(other, place)
    answer = {"prove": other.wanted.get("held"), "berth": other.wanted.get("value")}
    assert not task.check(place, answer.get(task.family) or told)


@pytest.mark.parametrize("family", ["knob", "log", "load"])
def test_a_second_deed_beside_the_right_one_is_refused(family: str, tmp_path: Path) -> None:
    ours, other = [task for task in ALL if task.family == family][:2]
    place = harbour_world.build_harbour(tmp_path / "w", ours.id)
    solve(ours, place)
    words = words_for(ours._replace(wanted={**other.wanted, "day": ours.wanted.get("day", "")}))
    assert quay(place, *words).returncode == 0
    assert not ours.check(place, "Done.")


def test_a_setting_that_was_only_shown_is_not_set(tmp_path: Path) -> None:
    task = next(task for task in ALL if task.family == "knob")
    place = harbour_world.build_harbour(tmp_path / task.id, task.id)
    assert "nothing is changed" in quay(place, *words_for(task)[:-1]).stdout
    assert not task.check(place, "It is set.")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["tests", "tides"], "choose from"),
        (["prove", "tides"], "--lane"),
        (["prove", "src/tides.py", "--lane", "dry"], "its name alone"),
        (["prove", "tides", "--lane", "wet"], "use --lane dry"),
        (["berth", "show", "417"], "like B-0007"),
        (["knob", "tide_offset=5"], "tide.offset"),
        (["knob", "tide.offset=5"], "like 5min"),
        (["log", "--day", "2025-03-03", "--say", "x"], "like 09JAN24"),
        (["load", "Marigold", "salt", "--kg", "5"], "MARIGOLD"),
        (["load", "MARIGOLD", "salt"], "--kg"),
    ],
)
def test_a_wrong_way_fails_with_a_hint_at_the_right_one(
    words: list[str], hint: str, tmp_path: Path
) -> None:
    done = quay(harbour_world.build_harbour(tmp_path / "w", "x"), *words)
    assert done.returncode == 2
    assert hint in done.stderr


@pytest.mark.parametrize("verb", ["prove", "berth", "knob", "log", "load"])
def test_help_is_to_be_had(verb: str, tmp_path: Path) -> None:
    place = harbour_world.build_harbour(tmp_path / "w", "x")
    done = quay(place, verb, "--help")
    assert done.returncode == 0
    assert "usage: quay " + verb in done.stdout


def test_the_program_stands_in_the_world_and_does_the_same_there(tmp_path: Path) -> None:
    for number, words in enumerate((["load", "MARIGOLD", "salt", "--kg", "5"], ["prove", "tides"])):
        here, there = (
            harbour_world.build_harbour(tmp_path / f"{number}{one}", "x") for one in "ab"
        )
        done, started = quay(here, *words), start_quay(there, *words)
        assert (done.returncode, done.stdout, done.stderr) == (
            started.returncode,
            started.stdout,
            started.stderr,
        )
        assert (here.books / "loads.csv").read_bytes() == (there.books / "loads.csv").read_bytes()


def test_there_are_enough_tasks_and_one_family_is_never_learned_from() -> None:
    count = Counter((task.family, task.split) for task in ALL)
    assert len(ALL) >= 60
    assert len(FAMILIES) == 6
    assert all(
        sum(n for (name, _), n in count.items() if name == family) >= 10 for family in FAMILIES
    )
    unlearned = [name for name in FAMILIES if not count[name, "train"]]
    assert unlearned == ["papers"]


def test_no_task_is_asked_twice_and_train_and_test_share_no_wording() -> None:
    assert len({task.ask for task in ALL}) == len(ALL)
    assert len({task.id for task in ALL}) == len(ALL)


def test_a_world_follows_from_its_seed_alone(tmp_path: Path) -> None:
    one, two = (
        harbour_world.build_harbour(tmp_path / "a", "seed"),
        harbour_world.build_harbour(tmp_path / "b", "seed"),
    )
    other = harbour_world.build_harbour(tmp_path / "c", "another")

    def content(place: World) -> dict[str, bytes]:
        files = (path for path in place.root.rglob("*") if path.is_file())
        return {str(path.relative_to(place.root)): path.read_bytes() for path in files}

    assert content(one) == content(two)
    assert content(one) != content(other)
