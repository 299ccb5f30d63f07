"""Try proposals on the history of a project: replay it with and without each of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rekindle.knowledge.distill.verdicts import (
    Outcome,
    Verdict,
    compare_scores,
    count_repeats,
    judge_rewording,
    judge_wish,
)
from rekindle.knowledge.notes.note import NoteDecisions, NoteOrigin, RecalledNote
from rekindle.knowledge.notes.replay import NOTES
from rekindle.learning.notes.playbooks import load_decisions
from rekindle.learning.notes.replay import replay_projects
from rekindle.parallel import SERIAL, ChunkMapper
from rekindle.store import Store

from .material import Progress, ProjectHistory

_OUTCOMES: tuple[Outcome, ...] = ("won", "did not win", "no evidence")


class TriedProposal(NamedTuple):
    """A proposal in quarantine, where it comes from, and how it did."""

    note: RecalledNote
    origin: NoteOrigin
    verdict: Verdict


def try_proposals(
    store: Store,
    history: ProjectHistory,
    *,
    progress: Progress | None = None,
    mapper: ChunkMapper = SERIAL,
    home: Path | None = None,
) -> list[TriedProposal]:
    """Replay the history of a project with each of the proposals that wait there, and without.

    Those that won come first.
    """
    decisions = load_decisions(store, history.project)
    waiting = {
        note: decisions.origins[note.id]
        for note in decisions.waiting
        if note.id in decisions.origins
    }
    if not waiting:
        return []
    results = replay_projects(
        store,
        history.project,
        progress=progress,
        mapper=mapper,
        home=home,
        variants={note.id: _accept_proposal(note, origin) for note, origin in waiting.items()},
    )
    scores = {one.name: one.scores for one in results}
    tried: list[TriedProposal] = []
    for note, origin in waiting.items():
        compared = compare_scores(scores[NOTES], scores[note.id])
        if origin.note:
            verdict = judge_rewording(compared)
        else:
            repeats = count_repeats(note.text, history.observations, history.sentences)
            verdict = judge_wish(repeats, compared)
        tried.append(TriedProposal(note, origin, verdict))
    return sorted(tried, key=lambda one: _OUTCOMES.index(one.verdict.outcome))


def _accept_proposal(note: RecalledNote, origin: NoteOrigin) -> NoteDecisions:
    if origin.note:
        return NoteDecisions(reworded={origin.note: note})
    return NoteDecisions(added=(note,))
