"""Work for the tests of mappers: functions that a worker can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """A number to double, and a folder to leave traces in."""

    number: int
    folder: str


def double(step: Step) -> tuple[int, int]:
    """Return the double and the process that computed it."""
    leave_trace(step)
    return step.number * 2, os.getpid()


def die_once(step: Step) -> int:
    """Kill the process at the third step, the first time that it comes there."""
    traces = leave_trace(step)
    if step.number == 2 and traces == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return step.number * 2


def die_always(step: Step) -> int:
    """Kill the process at the third step."""
    if step.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return step.number * 2


def fail(step: Step) -> int:
    """Fail at the third step."""
    if step.number == 2:
        raise ValueError("two is\nnot allowed")
    return leave_trace(step)


def print_and_double(step: Step) -> int:
    """Write to stdout, where the answers go."""
    print("hello " * 50)
    os.write(1, b"and more\n")
    return step.number * 2


def leave_trace(step: Step) -> int:
    """Count how often a step was begun."""
    name = Path(step.folder) / f"step-{step.number}"
    with open(name, "a", encoding="ascii") as file:
        file.write("x")
    return len(name.read_text(encoding="ascii"))
