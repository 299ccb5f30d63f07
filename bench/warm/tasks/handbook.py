"""The hint that a person adds to a request the first time: how it is done here.

Only training tasks have one, so that there is something to learn; a test task is the bare request. The
hint is a separate block, like pasted text.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.warm.tasks.harbour_tasks import Task

WAYS: Mapping[str, str] = {
    "prove": "quay prove {module} --lane dry",
    "berth": "quay berth show {tag}",
    "knob": "quay knob {knob}={value} --write",
    "log": "quay log --day {day} --say '{note}'",
    "load": "quay load {ship} {goods} --kg {kg}",
}


def build_first_message(task: Task, ways: Mapping[str, str] = WAYS) -> str:
    """Return the first message; a training task includes the command that solves it."""
    if task.split == "test":
        return task.ask
    way = ways[task.family].format(**task.wanted)
    return f"{task.ask}\n\nWe do it like this:\n```\n{way}\n```"
