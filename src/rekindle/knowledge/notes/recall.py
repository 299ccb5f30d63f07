"""Recall what a session is likely to need, at its start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.knowledge.tokens import estimate_text_tokens

from .note import (
    NO_DECISIONS,
    NoteDecisions,
    Recall,
    RecalledNote,
    count_sessions,
    describe_command,
    describe_file,
    describe_fix,
    describe_red_test,
    describe_routine,
    list_notes,
)
from .playbook import KnownFix, Playbook, PlaybookItem
from .scoring import Scorer, Weights, estimate_probability

MAX_START_TOKENS = 600
MAX_COMMANDS = 14
MAX_FILES = 14
MAX_FIXES = 3
MAX_RED_TESTS = 4
MIN_FIX_SESSIONS = 2  # with different requests: a fork repeats what its parent did
MIN_COMMAND_PROBABILITY = 0.15
MIN_FILE_PROBABILITY = 0.09
COMMAND_WEIGHTS = Weights(0.934, 1.321, -0.061, 0.244, 1.768, -0.284, 0.258)
FILE_WEIGHTS = Weights(-0.805, 0.602, 0.778, 0.48, 2.362, 0.591, 0.083)
_KIND_ORDER = ("wish", "command", "workflow", "pitfall", "baseline", "place")


class _Candidate(NamedTuple):
    probability: float
    item: PlaybookItem


def recall_start(
    playbook: Playbook, request: str, decisions: NoteDecisions = NO_DECISIONS
) -> Recall:
    """Recall what a session with this request is likely to need."""
    if not playbook.sessions:
        return _render_start(playbook, decisions.added)
    scorer = Scorer(playbook, request)
    commands = _choose_items(
        scorer, playbook.commands, COMMAND_WEIGHTS, MIN_COMMAND_PROBABILITY, MAX_COMMANDS
    )
    files = _choose_items(scorer, playbook.files, FILE_WEIGHTS, MIN_FILE_PROBABILITY, MAX_FILES)
    notes = [
        *(describe_command(one.item, playbook) for one in commands),
        *([describe_routine(playbook.routine, playbook)] if playbook.routine else []),
        *(describe_fix(one, playbook) for one in _find_common_fixes(playbook)),
        *(describe_red_test(one, playbook) for one in _find_red_tests(playbook)),
        *(describe_file(one.item, playbook) for one in files),
    ]
    known = {note.id for note in notes}
    pinned = [
        note
        for note in (list_notes(playbook) if decisions.pinned - known else ())
        if note.id in decisions.pinned - known
    ]
    notes = [note for note in [*pinned, *notes] if note.id not in decisions.retired]
    notes.sort(key=lambda note: (_KIND_ORDER.index(note.kind), note.id not in decisions.pinned))
    return _render_start(playbook, [*decisions.added, *notes])


def _find_common_fixes(playbook: Playbook) -> list[KnownFix]:
    """Return the fixes that several independent sessions needed, the latest first."""

    def count_requests(one: KnownFix) -> int:
        return len({playbook.sessions[number].words for number in one.sessions})

    common = [
        one
        for one in playbook.fixes
        if one.fix.is_informative and count_requests(one) >= MIN_FIX_SESSIONS
    ]
    return sorted(common, key=lambda one: -one.sessions[-1])[:MAX_FIXES]


def _find_red_tests(playbook: Playbook) -> list[PlaybookItem]:
    """Return the tests that were red before any change in several sessions, the latest first."""
    common = [one for one in playbook.red_tests if len(one.sessions) > 1]
    return sorted(common, key=lambda one: (-one.sessions[-1], one.name))[:MAX_RED_TESTS]


def _choose_items(
    scorer: Scorer, items: Sequence[PlaybookItem], weights: Weights, minimum: float, limit: int
) -> list[_Candidate]:
    scored = [
        _Candidate(estimate_probability(features, weights), item)
        for item, features in zip(items, scorer.describe_items(items), strict=True)
    ]
    likely = [one for one in scored if one.probability >= minimum]
    return sorted(likely, key=lambda one: (-one.probability, one.item.name))[:limit]


def _render_start(playbook: Playbook, notes: Sequence[RecalledNote]) -> Recall:
    if not notes:
        return Recall()
    lines = [f"From {count_sessions(len(playbook.sessions))} in this project before:"]
    kept: list[RecalledNote] = []
    tokens = estimate_text_tokens(lines[0])
    headings = {
        "wish": "What people here want:",
        "command": "Commands that worked here:",
        "workflow": "What sessions do in turn:",
        "pitfall": "What failed, and what worked instead:",
        "baseline": "Tests that are red anyway:",
        "place": "Files such sessions used:",
    }
    for note in notes:
        heading = headings.pop(note.kind, None)
        added = [heading, f"- {note.text}"] if heading else [f"- {note.text}"]
        cost = sum(estimate_text_tokens(line) + 1 for line in added)
        if tokens + cost > MAX_START_TOKENS:
            break
        lines += added
        kept.append(note)
        tokens += cost
    text = "\n".join(lines)
    return Recall(text, estimate_text_tokens(text), tuple(kept))
