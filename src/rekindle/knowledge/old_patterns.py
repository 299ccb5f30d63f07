"""Convert the patterns of template files of format 2 into notes, as far as that is harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rekindle.judging.rules.evidence import Evidence
from rekindle.judging.tool_kinds import classify_tool
from rekindle.types import Message, TemplateNote, ToolCall

from .notes.command_forms import CommandForm, is_everyday, parse_command_line, relativize_path
from .notes.note import make_note_id
from .notes.programs import is_known_program
from .template_notes import describe_note

_SLOT = re.compile(r"<[a-z][\w-]{0,40}(?:[:#][\w.+#-]{0,40})?>")
_PATH_KEYS = ("path", "file_path", "filePath", "filename", "target_file")


class OldStep(NamedTuple):
    """A call of a pattern."""

    tool: str
    arguments: Mapping[str, Any]


def convert_pattern(
    kind: str, steps: Sequence[OldStep], before: OldStep | None, sessions: int
) -> TemplateNote | None:
    """Return the note for a pattern; None if it needs a value that is not known to be harmless."""
    forms = [_read_form(step) for step in steps]
    note: TemplateNote | None = None
    if before is not None and len(forms) == 1 and forms[0] and (failed := _read_form(before)):
        note = _make_note("pitfall", forms[0], failed_command=failed.text)
    elif len(forms) > 1 and all(forms):
        texts = tuple(form.text for form in forms if form)
        note = TemplateNote("", "workflow", "", command=" && ".join(texts), steps=texts)
    elif len(forms) == 1 and forms[0]:
        position = {"init": "first", "final": "last"}.get(kind, "")
        note = _make_note("command", forms[0], position=position)
    elif len(steps) == 1 and (path := _read_path(steps[0])):
        note = TemplateNote("", "place", "", path=path)
    if note is None:
        return None
    identity = (note.failed_command or "", note.command or "", note.path or "")
    id = make_note_id(note.kind, *filter(None, identity))
    return note._replace(id=id, text=describe_note(note), sessions=sessions, worked=sessions)


def _make_note(kind: Any, form: CommandForm, **more: Any) -> TemplateNote:
    return TemplateNote("", kind, "", command=form.text, folder=form.folder or None, **more)


def _read_form(step: OldStep) -> CommandForm | None:
    """Return the only command of a call, if it is one that a note may name."""
    if classify_tool(step.tool).shape != "shell":
        return None
    call = ToolCall("", step.tool, dict(step.arguments))
    command = _SLOT.sub("Value", Evidence(call, Message("tool")).command)
    forms = parse_command_line(command, "").forms
    if len(forms) != 1 or is_everyday(forms[0].key):
        return None
    is_own_script = "/" in forms[0].text.split()[0]
    return forms[0] if is_known_program(forms[0].key) or is_own_script else None


def _read_path(step: OldStep) -> str | None:
    value = next((step.arguments[key] for key in _PATH_KEYS if step.arguments.get(key)), None)
    if not isinstance(value, str) or "." not in value.rsplit("/", 1)[-1]:
        return None
    return relativize_path(value, "")
