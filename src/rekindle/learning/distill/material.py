"""Collect from the store what a model may be given of a project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rekindle.errors import NotFound
from rekindle.knowledge.distill.proposals import Material, can_be_reworded, list_programs
from rekindle.knowledge.distill.sentences import (
    UserSentence,
    choose_sentences,
    matches_sentence,
    pick_sentences,
)
from rekindle.knowledge.notes.note import RecalledNote, list_code, list_notes, split_evidence
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.knowledge.notes.records import SessionObservation
from rekindle.knowledge.wishes.wishes import UserTurn, Vocabulary
from rekindle.learning.notes.learner import build_vocabulary, is_said, load_observations
from rekindle.learning.notes.playbooks import load_decisions, load_playbook
from rekindle.learning.verdicts.session_readers import StoreReader
from rekindle.redaction.redactor import Redactor
from rekindle.store import Store
from rekindle.store.learning.observations import NoteDecision

Progress = Callable[[int, int], None]


class ProjectHistory(NamedTuple):
    """The sessions of a project, and the sentences of their users that may hold wishes."""

    project: str
    observations: Sequence[SessionObservation]
    sentences: Sequence[UserSentence]
    vocabulary: Vocabulary


def load_history(
    store: Store, project: str, redactor: Redactor, progress: Progress
) -> ProjectHistory:
    """Read what users said in the sessions that the notes of a project are learned from."""
    observations = load_observations(store, project)
    vocabulary = build_vocabulary(observations)
    found = store.find_sessions([one.session for one in observations])
    sentences: list[UserSentence] = []
    for number, one in enumerate(observations):
        session = found.get(one.session)
        if session is not None and not session.parent:  # else it is an agent that asks
            turns = _load_turns(store, one.session)
            sentences += (
                UserSentence(one.session, one.started, one.words, each.text, each.is_standing)
                for each in pick_sentences(turns, vocabulary, redactor)
            )
        progress(number + 1, len(observations))
    return ProjectHistory(project, observations, sentences, vocabulary)


def _load_turns(store: Store, session: str) -> list[UserTurn]:
    try:
        messages = StoreReader(store).iter_messages(session)
        return [UserTurn(one.position or 0, one.text) for one in messages if is_said(one)]
    except NotFound:
        return []  # deleted meanwhile


def choose_material(store: Store, history: ProjectHistory, limit: int) -> Material:
    """Choose what a model gets: at most `limit` notes and as many sentences, without what is settled.

    Settled is what was proposed before, whatever became of it, and what is a wish already.
    """
    playbook = load_playbook(store, history.project)
    decided = store.observations.load_decisions(history.project)
    retired = load_decisions(store, history.project).retired
    known = [one.text for one in decided if one.text] + [one.text for one in playbook.wishes]
    notes = [one for one in _list_rewordable(playbook, decided) if one.id not in retired]
    fresh = [
        one
        for one in history.sentences
        if not any(matches_sentence(text, one.text) for text in known)
    ]
    chosen = choose_sentences(fresh, limit)
    return Material(
        notes={one.id: one for one in notes[:limit]},
        sentences={f"s{number}": one for number, one in enumerate(chosen, 1)},
        programs=list_programs(playbook),
        vocabulary=history.vocabulary,
        known=known,
    )


def _list_rewordable(playbook: Playbook, decided: Sequence[NoteDecision]) -> list[RecalledNote]:
    """Return the notes that have words to change, without those that a model reworded before."""
    names = {tuple(list_code(one.text)) for one in decided if one.text and one.origin}
    return [
        note
        for note in list_notes(playbook)
        if can_be_reworded(note) and tuple(list_code(split_evidence(note.text)[0])) not in names
    ]
