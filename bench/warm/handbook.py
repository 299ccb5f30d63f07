"""What a person adds to a request the first time: the lines of the project's handbook about it.

Only tasks to learn from come with them, so that there is something to be learned. They say how a
thing is done here, with other values than those of any task; a task of the test is the bare request.
"""

from __future__ import annotations

from collections.abc import Mapping

from .tasks import Task

LINES: Mapping[str, str] = {
    "prove": (
        "Tests of a module are run with `quay prove`, the name of the module alone, and"
        " `--lane dry`. It prints how many tests held (these pass) and how many broke."
    ),
    "berth": (
        "What is known of a berth is shown by `quay berth show` with its tag. A tag is B, a dash and"
        " the number in four digits: berth 7 has the tag B-0007. The answer stands in the output."
    ),
    "knob": (
        "A setting is changed with `quay knob` and KNOB=VALUE, and `--write` behind it. The two words"
        " of a knob are joined by a dot, minutes are written like 5min."
    ),
    "log": (
        "A note is filed with `quay log`, `--day` and the day, `--say` and the note in quotes. A day"
        " is two digits, three capital letters of the month, two digits of the year: the 9th of"
        " January 2024 is 09JAN24."
    ),
    "load": (
        "A load is booked with `quay load`, the ship in capital letters, the goods, and `--kg` with"
        " whole kilograms. A tonne has 1000 of them."
    ),
}


def first_message(task: Task) -> str:
    """What the user says at first: a task to learn from comes with the handbook's lines."""
    if task.split == "test":
        return task.ask
    return f"{task.ask}\n\nFrom our handbook:\n```\n{LINES[task.family]}\n```"
