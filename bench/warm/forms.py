"""How many examples, and in what form? What the defaults of `[warm]` are set by.

The training tasks once more, by the bare request, each warmed by what the others taught: the tasks of
every family with the same number are left out of the mining together, each number once. No task of
the test has a say. Ways that begin a task alike are run once: the model is greedy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rekindle.knowledge.render import PreludeForm
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.warm_start import WarmStartConfig

from . import agent, course, figures
from .arms import Past
from .course import Course, Row
from .model import Served
from .tasks import TRAIN, Task

FORMS: tuple[PreludeForm, ...] = ("digest", "turns", "both")
NUMBERS = (1, 3, 5, 8)
COLD = "cold"


class Way(NamedTuple):
    """How many examples at most, and in what form."""

    form: PreludeForm
    patterns: int

    @property
    def name(self) -> str:
        return f"{self.form}, {self.patterns}"


WAYS = {way.name: way for form in FORMS for number in NUMBERS for way in (Way(form, number),)}
NAMES = (COLD, *WAYS)
USUAL = Way(WarmStartConfig().format, WarmStartConfig().max_examples).name


def number_of(task: Task) -> int:
    return int(task.id[-2:])


@contextmanager
def without(ours: Course, number: int) -> Generator[Past]:
    """What the training sessions teach, without those of the tasks with this number."""
    left = {task.id for task in ours.tasks("train") if number_of(task) == number}
    kept = [row["session"] for row in course.rows(ours.recorded) if row["task"] not in left]
    templates = TemplateLibrary(ours.folder / "without" / f"{number:02}")
    with ours.store("past") as whole, ours.store(f"without-{number:02}") as part:
        part.load(whole.dump(kept))
        course.mine(part, templates)
        yield Past(part, templates, "")


def run(ours: Course, served: Served, names: Sequence[str] = NAMES) -> list[Row]:
    """Every training task in every way, where that is not done yet; all rows."""
    file = ours.folder / "forms.jsonl"
    wanted = ours.tasks("train")
    for number in range(TRAIN):
        if of_number := [task for task in wanted if number_of(task) == number]:
            with without(ours, number) as past:
                for task in of_number:
                    _task(ours, served, past, task, course.turned(names, wanted.index(task)))
    return course.rows(file)


def _task(ours: Course, served: Served, past: Past, task: Task, names: Sequence[str]) -> None:
    file = ours.folder / "forms.jsonl"
    with ours.store("forms") as store:
        for name in names:
            session = store.begin(source=course.TESTING)
            if name == COLD:
                given = past.given("cold", session, task, ours.project)
            else:
                way = WarmStartConfig(format=WAYS[name].form, max_examples=WAYS[name].patterns)
                given = past.given("warm", session, task, ours.project, way)
            if course.taken_up(file, task, name, given):
                continue
            session = course.begun(ours, store, served, task, course.TESTING, task.ask, name)
            done = asyncio.run(agent.do(store, served, session, task, ours.project, given.opening))
            row = course.row_of(task, name, session, given, done)
            course.add(file, row)
            course.say(row, len(course.rows(file)), len(ours.tasks("train")) * len(NAMES))


def table(rows: Sequence[Row], head: str) -> str:
    """The section of the results file."""
    done = figures.by_arm(rows, NAMES)
    groups = alike(done)
    shown = {_label(names): done[names[0]] for names in groups}
    (usual,) = (_label(names) for names in groups if USUAL in names)
    pairs = [(label, usual) for label in shown if label != usual]
    parts = [
        "## How many examples, in what form",
        head,
        figures.arms_of(shown),
        f"Each way less the usual one ({USUAL}), task by task:",
        figures.contrasts(shown, pairs),
        "Tasks done, by family:",
        figures.families_of(shown),
    ]
    return "\n\n".join(parts) + "\n"


def alike(done: figures.Done) -> list[list[str]]:
    """The ways, those together that began every task with the same."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, rows in done.items():
        if rows:
            signs = tuple(sorted((task, str(row["begun"])) for task, row in rows.items()))
            groups.setdefault(signs, []).append(name)
    return [*groups.values()]


def _label(names: Sequence[str]) -> str:
    """Forms, each with its numbers: `turns 1/3/5/8, both 1`."""
    numbers: dict[str, list[str]] = {}
    for name in names:
        form, _, number = name.partition(", ")
        numbers.setdefault(form, []).append(number)
    return ", ".join(f"{form} {'/'.join(given)}".strip() for form, given in numbers.items())
