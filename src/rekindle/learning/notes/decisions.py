"""What people decide about the notes of a project: to add, edit, pin, retire, share or accept them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.knowledge.notes.note import (
    NoteDecisions,
    RecalledNote,
    create_note,
    list_notes,
)
from rekindle.store import Store
from rekindle.store.learning.observations import NoteDecision

from .playbooks import delete_share, encode_origin, load_decisions, load_playbook, share_note
from .typed_text import TypedText, clean_typed_text

_WRITTEN_STATES = ("added", "quarantined")  # of notes that somebody wrote for this project
_TOLD_STATES = ("active", "pinned", "added")


class ProjectNotes(NamedTuple):
    """The notes of a project, and what people decided about them."""

    project: str
    notes: Sequence[RecalledNote]
    decisions: NoteDecisions

    def get_state(self, note: RecalledNote) -> str:
        """Return the state of a note: active, pinned, retired, added, shared or quarantined."""
        if note.id in self.decisions.retired:
            return "retired"
        if note in self.decisions.waiting:
            return "quarantined"
        if note in (*self.decisions.added, *self.decisions.reworded.values()):
            return "added"
        if note in self.decisions.shared:
            return "shared"
        return "pinned" if note.id in self.decisions.pinned else "active"

    def find(self, id: str) -> RecalledNote:
        """Return the note with this id or prefix of an id."""
        found = {note.id: note for note in self.notes if note.id.startswith(id)}
        if not found:
            raise NotFound(
                f"Note not found: {id!r:.40}. List notes with `rekindle warm notes list`."
            )
        if len(found) > 1:
            raise AmbiguousName(f"{id!r:.40} is ambiguous: {', '.join([*found][:5])}")
        return found[id] if id in found else next(iter(found.values()))

    def is_told_elsewhere(self, note: RecalledNote) -> bool:
        """Return whether this project shares a note with all others."""
        return note.id in self.decisions.told_elsewhere

    def may_share(self, note: RecalledNote) -> bool:
        """Return whether a note can be told in other projects, because it is told in this one."""
        return self.get_state(note) in _TOLD_STATES


class WrittenNote(NamedTuple):
    """A note as it was saved in a person's own words, and whether it is new."""

    note: RecalledNote
    is_new: bool
    words: TypedText


def load_project_notes(store: Store, project: str) -> ProjectNotes:
    """Load the notes of a project: written ones first, then those that were learned."""
    decisions = load_decisions(store, project)
    proposed = (*decisions.reworded.values(), *decisions.waiting)
    written = (*decisions.added, *proposed, *decisions.shared)
    return ProjectNotes(project, [*written, *list_notes(load_playbook(store, project))], decisions)


def add_note(store: Store, project: str, text: str, now: float) -> WrittenNote:
    """Add a note in a person's own words, without secrets; every session of the project is told."""
    return _add_words(store, project, clean_typed_text(text), now)


def _add_words(store: Store, project: str, words: TypedText, now: float) -> WrittenNote:
    note = create_note(words.text, "")
    is_new = all(one.id != note.id for one in load_decisions(store, project).added)
    if is_new:
        _save_decision(store, project, NoteDecision(note.id, "added", note.text, now))
    return WrittenNote(note, is_new, words)


def edit_note(
    store: Store, known: ProjectNotes, note: RecalledNote, text: str, now: float
) -> WrittenNote:
    """Replace a note by one in a person's own words, also where it is shared.

    A learned one is retired.
    """
    words = clean_typed_text(text)
    retire_note(store, known, note, now)
    written = _add_words(store, known.project, words, now)
    if known.is_told_elsewhere(note):
        share_note(store, known.project, written.note, now)
    return written


def pin_note(store: Store, known: ProjectNotes, note: RecalledNote, now: float) -> None:
    """Tell a note at every start; those that people wrote are always told."""
    if known.get_state(note) not in (*_WRITTEN_STATES, "shared"):
        _save_decision(store, known.project, NoteDecision(note.id, "pinned", None, now))


def retire_note(store: Store, known: ProjectNotes, note: RecalledNote, now: float) -> None:
    """Never tell a note again, in no project if this one shares it.

    One that was written for this project is deleted; one that a model proposed is kept out of sight, so
    that it is not proposed again.
    """
    if known.is_told_elsewhere(note):
        delete_share(store, known.project, note)
    if known.get_state(note) not in _WRITTEN_STATES:
        _save_decision(store, known.project, NoteDecision(note.id, "retired", None, now))
    elif note.id in known.decisions.origins:
        _save_decision(store, known.project, _build_decision(known, note, "retired", now))
    else:
        store.observations.delete_decision(known.project, note.id)


def reset_note(store: Store, known: ProjectNotes, note: RecalledNote) -> None:
    """Forget what was decided about a note."""
    store.observations.delete_decision(known.project, note.id)


def accept_note(store: Store, known: ProjectNotes, note: RecalledNote, now: float) -> None:
    """Tell sessions a note that an agent or a model proposed."""
    if known.get_state(note) != "quarantined":
        raise InvalidInput(f"note {note.id}: expected a quarantined note")
    _save_decision(store, known.project, _build_decision(known, note, "added", now))


def _build_decision(
    known: ProjectNotes, note: RecalledNote, state: str, now: float
) -> NoteDecision:
    origin = encode_origin(known.decisions.origins.get(note.id))
    return NoteDecision(note.id, state, note.text, now, origin)


def share_with_projects(store: Store, known: ProjectNotes, note: RecalledNote, now: float) -> None:
    """Tell a note of this project in all others."""
    if not known.may_share(note):
        raise InvalidInput(f"note {note.id}: expected a note that is recalled in this project")
    share_note(store, known.project, note, now)


def stop_sharing(store: Store, known: ProjectNotes, note: RecalledNote) -> None:
    """Tell a shared note in no other project any more."""
    if not (known.is_told_elsewhere(note) or note in known.decisions.shared):
        raise InvalidInput(f"note {note.id}: expected a note that is shared")
    delete_share(store, known.project, note)


def _save_decision(store: Store, project: str, decision: NoteDecision) -> None:
    store.observations.save_decision(project, decision)
