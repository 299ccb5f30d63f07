"""Recall notes from a playbook: at the start of a session, and when a call failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from rekindle.knowledge.tokens import estimate_text_tokens
from rekindle.types import ToolCall

from .command_forms import CommandForm
from .note import (
    NoteDecisions,
    RecalledNote,
    count_sessions,
    describe_command,
    describe_file,
    describe_fix,
    describe_follow_up,
    describe_form,
    list_notes,
    make_note_id,
)
from .observations import describe_look, read_forms, read_path
from .playbook import KnownFix, Playbook, PlaybookItem
from .scoring import Scorer, Weights, estimate_probability

MAX_START_TOKENS = 600
MAX_FAILURE_TOKENS = 120
MAX_COMMANDS = 14
MAX_FILES = 12
MAX_FIXES = 3
MAX_FAILURE_NOTES = 2
MIN_FIX_SESSIONS = 2  # with different requests: a fork repeats what its parent did
MIN_COMMAND_PROBABILITY = 0.12
MIN_FILE_PROBABILITY = 0.15
MIN_LOOK_SIMILARITY = 0.45
MIN_FOLLOW_UP_SHARE, MIN_FOLLOW_UPS = 0.4, 3  # of the sessions in which the command failed
COMMAND_WEIGHTS = Weights(1.354, 1.499, 0.34, 0.351, 2.143, -0.512, 0.099)
FILE_WEIGHTS = Weights(-0.261, 0.908, 0.753, 0.422, 1.908, 0.816, 0.15)
_FAILURE_HEADING = "In earlier sessions here:"
# The command was called in a wrong way or in a wrong place; a red test is neither.
_USAGE_ERROR = re.compile(
    r"(?i)unknown (?:flag|option|command|argument|shorthand)|unrecognized|invalid (?:option|argument)"
    r"|invalid flag|unexpected argument|usage:|not found|no such (?:file|option|command)|cannot find"
    r"|missing (?:script|argument)|no go files|no tests? (?:found|ran)|not permitted|permission denied"
    r"|not a git repo"
)
_MISSING_FILE = re.compile(
    r"(?i)no such file|does not exist|not found|cannot find|can't open|no matches found"
    r"|did not match any"
)


_KIND_ORDER = ("wish", "command", "pitfall", "place")
NO_DECISIONS = NoteDecisions()


class Recall(msgspec.Struct, frozen=True):
    """What an agent is told: exactly this text, and the notes in it."""

    text: str = ""
    tokens: int = 0
    notes: tuple[RecalledNote, ...] = ()


class _Candidate(NamedTuple):
    probability: float
    item: PlaybookItem


def recall_start(
    playbook: Playbook,
    request: str,
    decisions: NoteDecisions = NO_DECISIONS,
    known: AbstractSet[str] = frozenset(),
) -> Recall:
    """Recall what a session with this request is likely to need, without the notes it has already.

    Those are `known` by their ids.
    """
    added = [note for note in decisions.added if note.id not in known]
    if not playbook.sessions:
        return _render_start(playbook, added)
    scorer = Scorer(playbook, request)
    commands = _choose_items(
        scorer, playbook.commands, COMMAND_WEIGHTS, MIN_COMMAND_PROBABILITY, MAX_COMMANDS
    )
    files = _choose_items(scorer, playbook.files, FILE_WEIGHTS, MIN_FILE_PROBABILITY, MAX_FILES)
    notes = [
        *(describe_command(one.item, playbook) for one in commands),
        *(describe_fix(one, playbook) for one in _find_common_fixes(playbook)),
        *(describe_file(one.item, playbook) for one in files),
    ]
    missing = decisions.pinned - {note.id for note in notes}
    pinned = [note for note in (list_notes(playbook) if missing else ()) if note.id in missing]
    excluded = decisions.retired | known
    notes = [note for note in [*pinned, *notes] if note.id not in excluded]
    notes.sort(key=lambda note: (_KIND_ORDER.index(note.kind), note.id not in decisions.pinned))
    return _render_start(playbook, [*added, *notes])


def _find_common_fixes(playbook: Playbook) -> list[KnownFix]:
    """Return the fixes that several independent sessions needed, the latest first."""

    def count_requests(one: KnownFix) -> int:
        return len({playbook.sessions[number].words for number in one.sessions})

    common = [one for one in playbook.fixes if count_requests(one) >= MIN_FIX_SESSIONS]
    return sorted(common, key=lambda one: -one.sessions[-1])[:MAX_FIXES]


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
        "pitfall": "What failed, and what worked instead:",
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


def recall_failure(
    playbook: Playbook,
    root: str,
    call: ToolCall,
    result: str,
    decisions: NoteDecisions = NO_DECISIONS,
) -> Recall:
    """Recall how a failure like this one was fixed here before; nothing if it is a new one."""
    forms = read_forms(call, root)
    look = frozenset(describe_look(result))
    scored = [(_score_fix(one, forms, look), one) for one in playbook.fixes]
    likely = sorted(
        (pair for pair in scored if pair[0] >= MIN_LOOK_SIMILARITY), key=lambda pair: -pair[0]
    )
    notes = [describe_fix(one, playbook) for _, one in likely]
    notes += suggest_paths(playbook, root, call, result)
    if not notes:
        notes = _recall_follow_ups(playbook, forms)[:1]
        if _USAGE_ERROR.search(result[-4_000:]):
            notes += _recall_forms(playbook, forms)
    notes = [note for note in notes if note.id not in decisions.retired]
    return _render_failure(notes[:MAX_FAILURE_NOTES])


def suggest_paths(playbook: Playbook, root: str, call: ToolCall, result: str) -> list[RecalledNote]:
    """Return known files with a name like that of the one that was not found."""
    if _MISSING_FILE.search(result[-4_000:]) is None:
        return []
    named = [path for form in read_forms(call, root) for path in form.files]
    if (path := read_path(call, root)) is not None:
        named.append(path)
    known = frozenset(playbook.paths)
    missing = [path for path in named if path not in known and path in result]
    found: list[RecalledNote] = []
    for path in missing[:2]:
        for similar in _find_similar_paths(path, playbook.paths):
            text = f"`{path}` does not exist; earlier sessions used `{similar}`."
            found.append(RecalledNote(make_note_id("place", similar), "place", text, path=similar))
    return found


def _find_similar_paths(path: str, known: Sequence[str]) -> list[str]:
    """Return files with the same name elsewhere, or else with a similar name in the same folder."""
    folder, _, name = path.rpartition("/")
    same = [one for one in known if one.rpartition("/")[2] == name]
    if same:
        return same[:2]
    beside = {one.rpartition("/")[2]: one for one in known if one.rpartition("/")[0] == folder}
    return [beside[one] for one in get_close_matches(name, beside, n=2, cutoff=0.6)]


def _score_fix(known: KnownFix, forms: Sequence[CommandForm], look: frozenset[int]) -> float:
    """Return how much a failure looks like one that was fixed; 0 if another command failed."""
    fix = known.fix
    same = next((form for form in forms if form.key == fix.key), None)
    if same is None or same.text == fix.fixed_text:
        return 0.0
    theirs = frozenset(fix.look)
    union = len(look | theirs)
    similarity = len(look & theirs) / union if union else 0.0
    return similarity + (0.2 if same.text == fix.failed_text else 0.0)


def _recall_follow_ups(playbook: Playbook, forms: Sequence[CommandForm]) -> list[RecalledNote]:
    """Return what sessions ran with success after the same command had failed, the commonest first."""
    keys, texts = {form.key for form in forms}, {form.text for form in forms}
    common = [
        one
        for one in playbook.follow_ups
        if one.follow_up.failed_key in keys
        and one.follow_up.text not in texts
        and one.sessions >= max(MIN_FOLLOW_UPS, MIN_FOLLOW_UP_SHARE * one.failed_sessions)
    ]
    common.sort(key=lambda one: (-one.sessions, one.follow_up.text))
    return [describe_follow_up(one) for one in common]


def _recall_forms(playbook: Playbook, forms: Sequence[CommandForm]) -> list[RecalledNote]:
    """Return forms that worked of a command whose failed form never did.

    A form that is known to work failed for another reason, such as a red test: then there is nothing
    to say about the command.
    """
    commands = {item.name: item for item in playbook.commands}
    found: list[RecalledNote] = []
    for form in forms:
        item = commands.get(form.key)
        if item is None or any(known.text == form.text for known in item.forms):
            continue
        found += [describe_form(known) for known in item.forms if known.sessions > 1]
    return sorted(found, key=lambda note: -note.sessions)


def _render_failure(notes: Sequence[RecalledNote]) -> Recall:
    kept: list[RecalledNote] = []
    tokens = estimate_text_tokens(_FAILURE_HEADING)
    for note in notes:
        cost = estimate_text_tokens(note.text) + 2
        if tokens + cost <= MAX_FAILURE_TOKENS:
            kept.append(note)
            tokens += cost
    text = "\n".join([_FAILURE_HEADING, *(f"- {note.text}" for note in kept)])
    return Recall(text, estimate_text_tokens(text), tuple(kept)) if kept else Recall()
