"""Checks whether a session made the call that solves its task, whatever it answered afterwards.

A small model often makes this call but then continues to call instead of answering.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.warm.model.small_model import is_success
from bench.warm.proof_run import TESTING, ProofRun, Row
from bench.warm.tasks.harbour_tasks import Task
from rekindle import Message


def add_right_calls(proof: ProofRun, rows: Iterable[Row]) -> list[Row]:
    """Return the rows with `right_call`: None for families without training tasks."""
    tasks = {task.id: task for task in proof.list_tasks("test")}
    with proof.store("tests") as store:
        kept = [row for row in rows if row["task"] in tasks]
        messages = {
            row["session"]: store.messages(store.session(row["session"]))
            for row in kept
            if store.session(row["session"]).source == TESTING
        }
    ways = proof.task_set.ways
    return [
        {**row, "right_call": has_right_call(tasks[row["task"]], ways, messages[row["session"]])}
        for row in kept
    ]


def has_right_call(task: Task, ways: Mapping[str, str], messages: Sequence[Message]) -> bool | None:
    """Return whether a successful call has every word of the handbook line; None without a line.

    A file that the line names may also be read with the file tool.
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
    """Return whether a call runs a command with all these words, or reads one of these files."""
    if not isinstance(arguments, dict):
        return False
    given: dict[str, Any] = arguments  # pyright: ignore[reportUnknownVariableType]
    if given.get("path") in words:
        return True
    try:
        return words <= set(shlex.split(str(given.get("command", ""))))
    except ValueError:
        return False
