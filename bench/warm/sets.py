"""The sets of tasks: each has a world, tasks in families, and ways in which its tasks are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from . import handbook, second, tasks, world
from .tasks import Family, Split, Task
from .world import World

FIRST_SYSTEM = (
    "You work in the folder of the project Quayside, with tool calls, one at a time. If a call fails,"
    " read its message and call again in another way. As soon as it is done, answer in one short"
    " sentence with what was asked for.\n"
    "The program `quay`, run in the terminal, is used for tests, berths, settings, the logbook and"
    " loads."
)


class TaskSet(NamedTuple):
    """A set of tasks. `ways` says for each family to learn from how its tasks are done."""

    name: str
    project: str  # the folder of its world
    system: str
    families: Mapping[str, Family]
    ways: Mapping[str, str]
    build: Callable[[Path, str], World]

    def tasks(self, split: Split) -> list[Task]:
        """Return all tasks to learn from, or all to be tested on: family by family in turn."""
        return tasks.tasks(split, self.families)

    def build_first_message(self, task: Task) -> str:
        return handbook.build_first_message(task, self.ways)


SETS: Mapping[str, TaskSet] = {
    one.name: one
    for one in (
        TaskSet("first", "quayside", FIRST_SYSTEM, tasks.FAMILIES, handbook.WAYS, world.build),
        TaskSet(
            "second", "pressroom", second.SYSTEM, second.FAMILIES, second.WAYS, second.build_press
        ),
    )
}


def find_set(task: Task) -> TaskSet:
    """Return the set that a task belongs to: families of different sets have different names."""
    return next(one for one in SETS.values() if task.family in one.families)


def check(task: Task, place: World, answer: str) -> bool:
    """Return whether the task is done."""
    return find_set(task).families[task.family].check(task.wanted, place, answer)
