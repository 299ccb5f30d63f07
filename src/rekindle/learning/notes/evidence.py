"""The evidence for notes: sessions that support them, sessions that contradict them, and since when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rekindle.knowledge.notes.note import (
    RecalledNote,
    describe_command,
    describe_example,
    describe_file,
    describe_fix,
    describe_red_test,
    describe_routine,
    describe_wish,
)
from rekindle.knowledge.notes.playbook import MAX_SESSIONS, Playbook
from rekindle.knowledge.notes.records import SessionObservation

Contradicts = Callable[[SessionObservation], bool]

MIN_SHARED_SESSIONS = 2  # that make a note of a command, a file or a red test
_UNSETTLED_SHARE = 5  # a note whose evidence begins in the first fifth of a full window is older


class NoteEvidence(NamedTuple):
    """Sessions that support a note and that contradict it, newest first."""

    supporting: tuple[str, ...] = ()
    contradicting: tuple[str, ...] = ()


class NewNote(NamedTuple):
    """A note, and the time of the session since which there is enough evidence for it."""

    note: RecalledNote
    time: float


class _NoteSource(NamedTuple):
    note: RecalledNote
    supporting: tuple[str, ...]  # newest first
    numbers: tuple[int, ...]  # of these sessions in the playbook, oldest first
    minimum: int  # number of sessions that make it a note
    contradicts: Contradicts


def find_evidence(
    playbook: Playbook, observations: Sequence[SessionObservation], note: str
) -> NoteEvidence:
    """Return the evidence for a note that was learned; none for one that somebody wrote."""
    found = next((one for one in _iter_notes(playbook) if one.note.id == note), None)
    if found is None:
        return NoteEvidence()
    ordered = sorted(observations, key=lambda one: -one.started)
    against = (one.session for one in ordered if found.contradicts(one))
    supporting = set(found.supporting)
    return NoteEvidence(found.supporting, tuple(id for id in against if id not in supporting))


def find_new_notes(playbook: Playbook, since: float) -> list[NewNote]:
    """Return the notes for which there is enough evidence only since a time, newest first."""
    is_full = len(playbook.sessions) >= MAX_SESSIONS  # then earlier sessions are not known any more
    settled = len(playbook.sessions) // _UNSETTLED_SHARE if is_full else 0
    found: list[NewNote] = []
    for one in _iter_notes(playbook):
        if len(one.numbers) < one.minimum:
            continue
        number = one.numbers[one.minimum - 1]
        began = playbook.sessions[number].started
        if began >= since and number >= settled:
            found.append(NewNote(one.note, began))
    return sorted(found, key=lambda one: -one.time)


def _iter_notes(playbook: Playbook) -> Iterator[_NoteSource]:
    numbers = {one.id: number for number, one in enumerate(playbook.sessions)}

    def build(
        note: RecalledNote,
        sessions: Sequence[int],
        minimum: int,
        contradicts: Contradicts = lambda one: False,
    ) -> _NoteSource:
        ids = tuple(playbook.sessions[number].id for number in reversed(sessions))
        return _NoteSource(note, ids, tuple(sessions), minimum, contradicts)

    for wish in playbook.wishes:
        known = sorted(numbers[id] for id in wish.sessions if id in numbers)
        yield build(describe_wish(wish), known, 1)._replace(supporting=wish.sessions)
    for item in playbook.commands:
        fails = _build_failure_check(key=item.name)
        yield build(describe_command(item, playbook), item.sessions, MIN_SHARED_SESSIONS, fails)
    for example in playbook.examples:
        fails = _build_failure_check(key=example.key)
        note = describe_example(example, playbook)
        yield build(note, example.sessions, MIN_SHARED_SESSIONS, fails)
    for known_fix in playbook.fixes:
        if known_fix.fix.is_informative:
            fails = _build_failure_check(text=known_fix.fix.fixed_text)
            yield build(describe_fix(known_fix, playbook), known_fix.sessions, 1, fails)
    if playbook.routine:
        commands = frozenset(playbook.routine.commands)
        yield build(
            describe_routine(playbook.routine, playbook),
            playbook.routine.sessions,
            MIN_SHARED_SESSIONS,
            lambda one: one.checks is not None and not commands.issubset(one.checks),
        )
    for item in playbook.red_tests:
        yield build(describe_red_test(item, playbook), item.sessions, MIN_SHARED_SESSIONS)
    for item in playbook.files:
        yield build(describe_file(item, playbook), item.sessions, MIN_SHARED_SESSIONS)


def _build_failure_check(*, key: str = "", text: str = "") -> Contradicts:
    """Return what tells whether a command only failed in a session."""

    def only_fails(one: SessionObservation) -> bool:
        uses = [use for use in one.commands if use.key == key or use.text == text]
        return any(use.failed for use in uses) and not any(use.worked for use in uses)

    return only_fails
