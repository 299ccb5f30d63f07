"""`todo`: a short task list, kept for the session."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.types import JSON

MAX_ENTRIES = 50
MAX_CHARACTERS = 500
NOTES_KEY = "todo"
_STATUS_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]", "cancelled": "[-]"}


def _handle_todo(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    notes: MutableMapping[str, JSON] = {} if context.notes is None else context.notes
    if "entries" in arguments:
        notes[NOTES_KEY] = [dict(entry) for entry in arguments["entries"]]
    return _format_entries(notes.get(NOTES_KEY, ()))


def _format_entries(entries: Sequence[Mapping[str, JSON]]) -> str:
    if not entries:
        return "the list is empty"
    lines = [
        f"{number}. {_STATUS_MARKS[entry.get('status', 'pending')]} {entry['content']}"
        for number, entry in enumerate(entries, 1)
    ]
    done = sum(entry.get("status") in ("done", "cancelled") for entry in entries)
    return "\n".join([*lines, f"{done} of {len(entries)} done"])


def _find_missing(context: ToolContext) -> str | None:
    return None if context.notes is not None else "this session has no notes"


TODO = Tool(
    name="todo",
    toolset="planning",
    description=(
        "Your task list for this session. With entries, the whole list is replaced; without, it is"
        " shown. Keep one entry in_progress, and mark it done when finished."
    ),
    parameters=build_schema(
        entries={
            "type": "array",
            "maxItems": MAX_ENTRIES,
            "items": build_schema(
                "content",
                content={"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS},
                status={"type": "string", "enum": list(_STATUS_MARKS)},
            ),
        },
    ),
    handler=_handle_todo,
    missing=_find_missing,
    emoji="📋",
    seconds=5,
)
