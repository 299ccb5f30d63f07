"""The notes of a project as its page shows them, and what people can decide about each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.knowledge.notes.note import RecalledNote
from rekindle.knowledge.skill import SECTION_TITLES
from rekindle.learning.notes import decisions
from rekindle.learning.notes.decisions import ProjectNotes, load_project_notes
from rekindle.learning.notes.evidence import find_evidence
from rekindle.learning.notes.learner import load_observations
from rekindle.learning.notes.playbooks import load_playbook
from rekindle.store import Store
from rekindle.types import Session

MAX_NOTES = 12  # of a kind, unless all are asked for
MAX_ALL_NOTES = 500
MAX_EVIDENCE = 20  # sessions
ACTIONS = ("add", "edit", "pin", "retire", "reset", "share", "unshare", "accept")


class ShownNote(NamedTuple):
    """A note with its state and what can be decided about it."""

    note: RecalledNote
    state: str
    actions: tuple[str, ...]


class NoteSection(NamedTuple):
    """The notes of one kind."""

    kind: str
    title: str
    notes: tuple[ShownNote, ...]
    total: int


class NoteDetails(NamedTuple):
    """One note with the sessions behind it."""

    shown: ShownNote
    supporting: tuple[Session, ...]
    supporting_total: int
    contradicting: tuple[Session, ...]
    contradicting_total: int
    names: dict[str, str]


def build_sections(known: ProjectNotes, only: str = "", state: str = "") -> list[NoteSection]:
    """Return the notes by kind; all of one kind or in one state, if it is named."""
    sections: list[NoteSection] = []
    for kind, title in {"waiting": "Proposed by agents", **SECTION_TITLES}.items():
        notes = [one for one in known.notes if _get_section(known, one) == kind]
        if state:
            notes = [one for one in notes if known.get_state(one) == state]
        if not notes or (only and only != kind):
            continue
        limit = MAX_ALL_NOTES if only or state else MAX_NOTES
        # What people decided comes first, and retired notes last.
        ranked = sorted(notes, key=lambda one: _STATE_ORDER.index(known.get_state(one)))
        shown = tuple(_show_note(known, one) for one in ranked[:limit])
        sections.append(NoteSection(kind, title, shown, len(notes)))
    return sections


_STATE_ORDER = ("quarantined", "added", "shared", "pinned", "active", "retired")


def _get_section(known: ProjectNotes, note: RecalledNote) -> str:
    return "waiting" if known.get_state(note) == "quarantined" else note.kind


def _show_note(known: ProjectNotes, note: RecalledNote) -> ShownNote:
    state = known.get_state(note)
    actions = {
        "active": ("pin", "edit", "share", "retire"),
        "pinned": ("reset", "edit", "share", "retire"),
        "added": ("edit", "share", "retire"),
        "shared": ("unshare", "retire"),
        "quarantined": ("accept", "edit", "retire"),
        "retired": ("reset",),
    }[state]
    if known.is_told_elsewhere(note):
        actions = tuple("unshare" if one == "share" else one for one in actions)
    return ShownNote(note, state, actions)


def count_states(known: ProjectNotes) -> dict[str, int]:
    """Count the notes in each state."""
    found = [known.get_state(one) for one in known.notes]
    return {state: found.count(state) for state in _STATE_ORDER if state in found}


def load_note_details(store: Store, known: ProjectNotes, id: str) -> NoteDetails:
    """Load one note with the sessions that support it and those that contradict it."""
    note = known.find(id)
    playbook = load_playbook(store, known.project)
    evidence = find_evidence(playbook, load_observations(store, known.project), note.id)
    chosen = [*evidence.supporting[:MAX_EVIDENCE], *evidence.contradicting[:MAX_EVIDENCE]]
    sessions = store.find_sessions(chosen)
    return NoteDetails(
        shown=_show_note(known, note),
        supporting=_pick_sessions(sessions, evidence.supporting[:MAX_EVIDENCE]),
        supporting_total=len(evidence.supporting),
        contradicting=_pick_sessions(sessions, evidence.contradicting[:MAX_EVIDENCE]),
        contradicting_total=len(evidence.contradicting),
        names=store.load_names([*sessions.values()]),
    )


def _pick_sessions(sessions: dict[str, Session], ids: Sequence[str]) -> tuple[Session, ...]:
    return tuple(sessions[id] for id in ids if id in sessions)


def apply_decision(store: Store, project: str, action: str, id: str, text: str, now: float) -> None:
    """Carry out what a person decided; the same as the commands of `rekindle warm notes`."""
    if action == "add":
        decisions.add_note(store, project, text, now)
        return
    if action not in ACTIONS:
        raise InvalidInput(f"action: expected one of {', '.join(ACTIONS)}")
    known = load_project_notes(store, project)
    note = known.find(id)
    if action == "edit":
        decisions.edit_note(store, known, note, text, now)
    elif action == "pin":
        decisions.pin_note(store, known, note, now)
    elif action == "retire":
        decisions.retire_note(store, known, note, now)
    elif action == "reset":
        decisions.reset_note(store, known, note)
    elif action == "share":
        decisions.share_with_projects(store, known, note, now)
    elif action == "unshare":
        decisions.stop_sharing(store, known, note)
    else:
        decisions.accept_note(store, known, note, now)
