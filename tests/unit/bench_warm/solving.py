"""Right solutions of the tasks, written by hand."""

from __future__ import annotations

from bench.warm.tasks.harbour_tasks import Task


def words_for(task: Task) -> list[str]:
    """The right words for the program."""
    wanted = task.wanted
    match task.family:
        case "prove":
            return ["prove", wanted["module"], "--lane", "dry"]
        case "berth":
            return ["berth", "show", wanted["tag"]]
        case "knob":
            return ["knob", f"{wanted['knob']}={wanted['value']}", "--write"]
        case "log":
            return ["log", "--day", wanted["day"], "--say", wanted["note"]]
        case _:
            return ["load", wanted["ship"], wanted["goods"], "--kg", wanted["kg"]]
