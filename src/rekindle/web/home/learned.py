"""What was learned lately: notes that are new, and what people decided about notes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rekindle.knowledge.notes.note import RecalledNote
from rekindle.learning.notes.evidence import find_new_notes
from rekindle.learning.notes.playbooks import SHARED, load_decisions, load_playbook
from rekindle.store import Store

LEARNED_SECONDS = 7 * 86_400
MAX_PROJECTS = 20  # latest ones whose notes are read
MAX_DECISIONS = 50
MAX_PER_PROJECT = 4  # so that one project does not hide the others
KINDS_BY_WORTH = ("wish", "pitfall", "workflow", "baseline", "command", "example", "place")


class LearnedNote(NamedTuple):
    """A note that is new, or about which somebody decided."""

    project: str
    note: RecalledNote
    time: float
    what: str  # learned, added, pinned, retired, proposed, shared


class LearnedNotes(NamedTuple):
    """The newest notes, and how many more there are."""

    notes: tuple[LearnedNote, ...]
    total: int


def find_learned_notes(
    store: Store, projects: Iterable[tuple[str, float]], now: float, limit: int = 12
) -> LearnedNotes:
    """Return what was learned in the last week in projects, given with their last activity."""
    since = now - LEARNED_SECONDS
    active = [project for project, last in projects if last >= since][:MAX_PROJECTS]
    found: list[LearnedNote] = []
    total = 0
    for project in active:
        retired = load_decisions(store, project).retired
        new = [
            LearnedNote(project, one.note, one.time, "learned")
            for one in find_new_notes(load_playbook(store, project), since)
            if one.note.id not in retired
        ]
        total += len(new)
        # What was asked for and what failed says more than another file that was used.
        new.sort(
            key=lambda one: (KINDS_BY_WORTH.index(one.note.kind), -one.note.sessions, -one.time)
        )
        found += new[:MAX_PER_PROJECT]
    decided = _find_decided(store, since)
    total += len(decided)
    notes = [*decided, *sorted(found, key=lambda one: -one.time)]
    return LearnedNotes(tuple(notes[:limit]), total)


def _find_decided(store: Store, since: float) -> list[LearnedNote]:
    found: list[LearnedNote] = []
    for project, one in store.observations.find_new_decisions(since, MAX_DECISIONS):
        if one.text is not None:  # a note in somebody's words
            what = "shared" if project == SHARED else one.state
            what = "proposed" if what == "quarantined" else what
            note = RecalledNote(one.note, "wish", one.text)
            found.append(LearnedNote("" if project == SHARED else project, note, one.time, what))
    return found
