"""The sets of tasks: each has a world, families of tasks, and the commands that solve them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.warm.tasks import handbook, harbour_tasks, harbour_world, press_tasks
from bench.warm.tasks.harbour_tasks import Family, Split, Task
from bench.warm.tasks.harbour_world import World

FIRST_SYSTEM = (
    "You work in the folder of the project Quayside, with tool calls, one at a time. If a call fails,"
    " read its message and call again in another way. As soon as it is done, answer in one short"
    " sentence with what was asked for.\n"
    "The program `quay`, run in the terminal, is used for tests, berths, settings, the logbook and"
    " loads."
)


class TaskSet(NamedTuple):
    """A set of tasks; `ways` has the command that solves a task, for each training family."""

    name: str
    project: str  # the folder of its world
    system: str
    families: Mapping[str, Family]
    ways: Mapping[str, str]
    build: Callable[[Path, str], World]

    def list_tasks(self, split: Split) -> list[Task]:
        """Return all training or all test tasks, alternating between the families."""
        return harbour_tasks.list_tasks(split, self.families)

    def build_first_message(self, task: Task) -> str:
        return handbook.build_first_message(task, self.ways)


SETS: Mapping[str, TaskSet] = {
    one.name: one
    for one in (
        TaskSet(
            "first",
            "quayside",
            FIRST_SYSTEM,
            harbour_tasks.FAMILIES,
            handbook.WAYS,
            harbour_world.build_harbour,
        ),
        TaskSet(
            "second",
            "pressroom",
            press_tasks.SYSTEM,
            press_tasks.FAMILIES,
            press_tasks.WAYS,
            press_tasks.build_press,
        ),
    )
}


def find_set(task: Task) -> TaskSet:
    """Return the set that a task belongs to; family names are unique across sets."""
    return next(one for one in SETS.values() if task.family in one.families)


def check_task(task: Task, place: World, answer: str) -> bool:
    """Return whether the task is done."""
    return find_set(task).families[task.family].check(task.wanted, place, answer)
