"""Find out whether a session made the call that does its task, whatever it answered afterwards.

A small model often makes it and then goes on calling instead of answering, so that the task is not done.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rekindle import Message

from .course import TESTING, Course, Row
from .small import is_success
from .tasks import Task


def add_right_calls(course: Course, rows: Iterable[Row]) -> list[Row]:
    """Return the rows with `right_call`: None for families that no training task was of."""
    tasks = {task.id: task for task in course.tasks("test")}
    with course.store("tests") as store:
        kept = [row for row in rows if row["task"] in tasks]
        messages = {
            row["session"]: store.messages(store.session(row["session"]))
            for row in kept
            if store.session(row["session"]).source == TESTING
        }
    ways = course.task_set.ways
    return [
        {**row, "right_call": made_right_call(tasks[row["task"]], ways, messages[row["session"]])}
        for row in kept
    ]


def made_right_call(
    task: Task, ways: Mapping[str, str], messages: Sequence[Message]
) -> bool | None:
    """Return whether a call that did not fail has every word of the way; None without a way.

    A file that the way names may also be read by the tool for files.
    """
    if task.family not in ways:
        return None
    words = set(shlex.split(ways[task.family].format(**task.wanted)))
    succeeded = {message.tool_call_id for message in messages if is_success(message)}
    return any(
        is_right_call(call.arguments, words)
        for message in messages
        for call in message.tool_calls
        if call.id in succeeded
    )


def is_right_call(arguments: object, words: set[str]) -> bool:
    """Return whether the arguments of a call are a command with these words, or a file of them."""
    if not isinstance(arguments, dict):
        return False
    given: dict[str, Any] = arguments  # pyright: ignore[reportUnknownVariableType]
    if given.get("path") in words:
        return True
    try:
        return words <= set(shlex.split(str(given.get("command", ""))))
    except ValueError:
        return False
