"""Turn what sessions did into the notes of a template.

The notes come from observations, which hold no value that is not known to be harmless, and name only
programs that a playbook would name. Sessions that continue each other count once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from rekindle.types import NotePosition, TemplateNote

from .notes.note import (
    RecalledNote,
    describe_command,
    describe_file,
    describe_fix,
    describe_red_test,
    describe_routine,
    make_note_id,
)
from .notes.playbook import Playbook, build_playbook, list_current_red_tests
from .notes.records import SessionObservation, hash_words

_EXTRA_SESSIONS = {
    "wish": 1_000,
    "example": 20,
    "pitfall": 6,
    "workflow": 2,
    "baseline": 2,
}  # worth of a kind
_WORD_WEIGHT = 3.0


def build_notes(
    observations: Sequence[SessionObservation], project: str | None, min_sessions: int
) -> list[TemplateNote]:
    """Return what at least so many of a project's sessions share, the most useful first."""
    playbook = build_playbook(observations)
    notes = [
        *_iter_commands(playbook, observations),
        *_iter_pitfalls(playbook),
        *_iter_workflows(playbook),
        *(
            convert_note(describe_red_test(one, playbook))
            for one in list_current_red_tests(playbook)
        ),
        *(convert_note(describe_file(one, playbook)) for one in playbook.files),
    ]
    shared = [note._replace(project=project) for note in notes if note.sessions >= min_sessions]
    return rank_notes(shared)


def join_observations(family: Sequence[SessionObservation]) -> SessionObservation:
    """Join the observations of sessions that continue each other into one."""
    first, *rest = sorted(family, key=lambda one: (one.started, one.session))
    if not rest:
        return first

    joined: dict[str, Any] = {"started": rest[-1].started}
    for name in first.__struct_fields__:
        found = [getattr(one, name) for one in (first, *rest)]
        if name != "words" and any(isinstance(values, tuple) for values in found):
            every = (value for values in found for value in values or ())
            joined[name] = tuple(dict.fromkeys(every))
    return msgspec.structs.replace(first, **joined)


def rank_notes(notes: Iterable[TemplateNote], request: str = "") -> list[TemplateNote]:
    """Return notes by how useful they should be: what fails, what many sessions did, what was asked."""
    words = hash_words(request) if request else set[int]()

    def get_worth(note: TemplateNote) -> float:
        common = len(words & hash_named_words(note.command, note.path, note.asked))
        return (
            note.sessions
            + _EXTRA_SESSIONS.get(note.kind, 0)
            + _WORD_WEIGHT * common * max(note.sessions, 1)
        )

    return sorted(notes, key=lambda note: (-get_worth(note), note.kind, note.id))


@lru_cache(maxsize=20_000)
def hash_named_words(command: str | None, path: str | None, asked: str) -> frozenset[int]:
    """Return the hashed words of what a note names, to compare with those of a request."""
    return frozenset(hash_words(f"{command or ''} {path or ''} {asked}"))


def describe_note(note: TemplateNote) -> str:
    """Return the statement of a note that names commands or files; other notes have their own text."""
    command = _format_command(note.command or "", note.folder)
    if note.kind == "pitfall" and note.failed_command:
        return f"`{note.failed_command}` failed; `{command}` then worked."
    if note.kind == "workflow" and note.steps:
        steps = ", then ".join(f"`{step}`" for step in note.steps)
        return f"Before a commit: {steps}" if note.position == "last" else steps
    if note.kind == "command" and note.command:
        place = {"first": ", usually first", "last": ", usually last"}.get(note.position, "")
        return f"`{command}`{place}"
    if note.kind == "place" and note.path:
        return f"`{note.path}`"
    if note.kind == "example" and note.command and note.asked:
        return f"Asked “{note.asked}”: `{command}`"
    return note.text


def merge_notes(notes: Iterable[TemplateNote]) -> list[TemplateNote]:
    """Merge equal notes of several templates, adding up their evidence."""
    found: dict[str, TemplateNote] = {}
    for note in notes:
        known = found.get(note.id)
        if known is not None:
            note = known._replace(
                sessions=known.sessions + note.sessions,
                worked=known.worked + note.worked,
                failed=known.failed + note.failed,
                last=max(known.last, note.last),
            )
        found[note.id] = note
    return rank_notes(found.values())


def create_example(asked: str, command: str, folder: str | None, answer: str) -> TemplateNote:
    """Create the note of a turn: a request that one command and this answer closed."""
    note = TemplateNote(
        id=make_note_id("example", asked, command),
        kind="example",
        text="",
        command=command,
        folder=folder,
        asked=asked,
        answer=answer,
        sessions=1,
        worked=1,
    )
    return note._replace(text=describe_note(note))


def _iter_commands(
    playbook: Playbook, observations: Sequence[SessionObservation]
) -> Iterator[TemplateNote]:
    first: Counter[str] = Counter()
    last: Counter[str] = Counter()
    for one in observations:
        keys = [use.key for use in one.commands if use.worked]
        if len(keys) > 1:
            first.update(keys[:1])
            last.update(keys[-1:])
    for item in playbook.commands:
        if not item.forms or not item.sessions:
            continue
        most = len(item.sessions) / 2
        position: NotePosition = (
            "first" if first[item.name] > most else "last" if last[item.name] > most else ""
        )
        yield convert_note(describe_command(item, playbook), position=position)


def _iter_pitfalls(playbook: Playbook) -> Iterator[TemplateNote]:
    for known in playbook.fixes:
        if known.fix.is_informative:
            found = describe_fix(known, playbook)
            yield convert_note(found, failed_command=known.fix.failed_text)


def _iter_workflows(playbook: Playbook) -> Iterator[TemplateNote]:
    if playbook.routine is not None:
        note = describe_routine(playbook.routine, playbook)
        yield convert_note(note, steps=playbook.routine.commands, position="last")


def convert_note(note: RecalledNote, **more: Any) -> TemplateNote:
    """Return a recalled note as templates have them; `more` are fields that it has not."""
    fields: dict[str, Any] = {
        name: getattr(note, name) for name in note.__struct_fields__ if name in TemplateNote._fields
    }
    converted = TemplateNote(**fields)._replace(**more)
    return converted._replace(text=describe_note(converted))


def _format_command(text: str, folder: str | None) -> str:
    return f"cd {folder} && {text}" if folder else text
