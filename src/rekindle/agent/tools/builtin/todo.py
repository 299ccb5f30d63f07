"""`todo`: a short list of what is to be done, kept for the session."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

from rekindle.agent.tools.tool import Tool, ToolContext, schema
from rekindle.types import JSON

MAX_ENTRIES = 50
MAX_CHARACTERS = 500
NOTE = "todo"
_SIGNS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]", "cancelled": "[-]"}


def _todo(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    notes: MutableMapping[str, JSON] = {} if context.notes is None else context.notes
    if "entries" in arguments:
        notes[NOTE] = [dict(entry) for entry in arguments["entries"]]
    return _shown(notes.get(NOTE, ()))


def _shown(entries: Sequence[Mapping[str, JSON]]) -> str:
    if not entries:
        return "the list is empty"
    lines = [
        f"{number}. {_SIGNS[entry.get('status', 'pending')]} {entry['content']}"
        for number, entry in enumerate(entries, 1)
    ]
    done = sum(entry.get("status") in ("done", "cancelled") for entry in entries)
    return "\n".join([*lines, f"{done} of {len(entries)} done"])


def _missing(context: ToolContext) -> str | None:
    return None if context.notes is not None else "this session keeps no notes"


TODO = Tool(
    name="todo",
    toolset="planning",
    description=(
        "Your list of what is to be done in this session. With entries the whole list is replaced;"
        " without, it is shown. Keep one entry in progress, and set it to done when it is."
    ),
    parameters=schema(
        entries={
            "type": "array",
            "maxItems": MAX_ENTRIES,
            "items": schema(
                "content",
                content={"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS},
                status={"type": "string", "enum": list(_SIGNS)},
            ),
        },
    ),
    handler=_todo,
    missing=_missing,
    emoji="📋",
    seconds=5,
)
