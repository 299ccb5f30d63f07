"""What a person adds to a request the first time: how it is done here.

Only tasks to learn from come with it, so that there is something to be learned; a task of the test is
the bare request. It stands in a block of its own, as something pasted would.
"""

from __future__ import annotations

from collections.abc import Mapping

from .tasks import Task

WAYS: Mapping[str, str] = {
    "prove": "quay prove {module} --lane dry",
    "berth": "quay berth show {tag}",
    "knob": "quay knob {knob}={value} --write",
    "log": "quay log --day {day} --say '{note}'",
    "load": "quay load {ship} {goods} --kg {kg}",
}


def build_first_message(task: Task, ways: Mapping[str, str] = WAYS) -> str:
    """Return the first message: a task to learn from comes with the way it is done."""
    if task.split == "test":
        return task.ask
    way = ways[task.family].format(**task.wanted)
    return f"{task.ask}\n\nWe do it like this:\n```\n{way}\n```"
