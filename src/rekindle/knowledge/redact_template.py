"""Redact a whole template: nothing that redaction would remove is written, exported or imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rekindle.redaction.redactor import Redactor
from rekindle.types import JSON, Template, TemplateNote, replace_fields

from . import file_format
from .notes.command_forms import parse_command_line
from .notes.harmless import keep_path
from .notes.records import count_form_slots, fill_slots
from .template_notes import describe_note

_UNREDACTED_KEYS = (
    file_format.OWNER_KEY,
    file_format.DROPPED_KEY,
)  # compared by value, so a mask would break them


def redact_template(template: Template, redactor: Redactor) -> Template:
    """Return the template with all of its texts redacted."""

    def clean_text(text: str, where: str) -> str:
        return redactor.redact_text(file_format.replace_invisible(text), where)

    seed = template.seed
    return replace_fields(
        template,
        name=clean_text(template.name, "name")[:100] or template.id,
        description=clean_text(template.description, "description"),
        tags=tuple(clean_text(one, "tags") for one in template.tags),
        notes=tuple(_redact_note(one, redactor) for one in template.notes),
        seed=replace_fields(
            seed,
            system=clean_text(seed.system, "context"),
            instructions=tuple(clean_text(one, "context") for one in seed.instructions),
            markers=tuple(clean_text(one, "context") for one in seed.markers),
        ),
        scan={
            name: one if name in _UNREDACTED_KEYS else _redact_value(one, redactor, "scan")
            for name, one in template.scan.items()
        },
    )


def count_slots(template: Template) -> int:
    """Count the values that were left out of the notes because they are not known to be harmless."""
    return sum(count_form_slots(f"{note.failed_command} {note.command}") for note in template.notes)


def clean_foreign_note(note: TemplateNote) -> TemplateNote | None:
    """Reduce a note that somebody else wrote to what a note of our own would say, or drop it.

    What it names is read again with our rules, and its statement is made from that. Only the words of
    wishes and examples stay as they are; somebody has to read them before they are used.
    """
    if note.kind in ("wish", "baseline"):
        return note
    command = failed = None
    if note.command is not None and (command := _clean_command(note.command)) is None:
        return None
    if note.failed_command is not None:
        failed = _clean_command(note.failed_command)
    folder = keep_path(note.folder) if note.folder else None
    path = keep_path(note.path) if note.path else None
    steps = tuple(step for step in map(_clean_command, note.steps) if step)
    if (note.path and not path) or (note.folder and not folder) or len(steps) != len(note.steps):
        return None
    reduced = note._replace(
        command=command, failed_command=failed, folder=folder, path=path, steps=steps
    )
    text = describe_note(reduced._replace(text=""))
    return reduced._replace(text=text) if text else None


def _clean_command(command: str) -> str | None:
    line = parse_command_line(fill_slots(command), "")
    texts = [
        f"cd {form.folder} && {form.text}" if form.folder else form.text for form in line.forms
    ]
    return " && ".join(texts) or None


def _redact_note(note: TemplateNote, redactor: Redactor) -> TemplateNote:
    def clean_text(text: str) -> str:
        return redactor.redact_text(file_format.replace_invisible(text), "notes")

    fields = {
        name: clean_text(value)
        for name, value in note._asdict().items()
        if isinstance(value, str) and name != "id"
    }
    return replace_fields(note, **fields, steps=tuple(map(clean_text, note.steps)))


def _redact_value(value: JSON, redactor: Redactor, where: str) -> JSON:
    return redactor.redact_value(_replace_all_invisible(value), where)


def _replace_all_invisible(value: JSON) -> JSON:
    if isinstance(value, str):
        return file_format.replace_invisible(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, JSON]", value)
        return {
            file_format.replace_invisible(name): _replace_all_invisible(one)
            for name, one in fields.items()
        }
    if isinstance(value, (list, tuple)):
        return [_replace_all_invisible(one) for one in cast("list[JSON]", value)]
    return value
