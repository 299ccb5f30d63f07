"""Recall what a session is likely to need, at its start."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.common_words import get_stem, is_common_word
from rekindle.knowledge.examples.made_up import MADE_UP_VALUES, list_runs
from rekindle.knowledge.examples.records import Example
from rekindle.knowledge.tokens import estimate_text_tokens

from .note import (
    NO_DECISIONS,
    NoteDecisions,
    Recall,
    RecalledNote,
    count_sessions,
    describe_command,
    describe_command_files,
    describe_example,
    describe_file,
    describe_fix,
    describe_missing_tool,
    describe_red_test,
    describe_routine,
    describe_wish,
    list_notes,
)
from .playbook import (
    IsPresent,
    KnownFix,
    Playbook,
    is_never_missing,
    list_shared_red_tests,
)
from .programs import is_subcommand_hidden
from .records import STOP_WORDS, Fix, PlaybookItem, drop_shapes, hash_words, is_slot
from .scoring import (
    COMMAND_WEIGHTS,
    FILE_WEIGHTS,
    MIN_EARLIER_SESSIONS,
    Features,
    Scorer,
    Weights,
    add_name_words,
    compute_logit,
    compute_probability,
)

MAX_START_TOKENS = 600
MAX_COMMANDS = 14
MAX_FILES = 14
MAX_COMMAND_FILES = 8  # told in one note
MAX_WISHES = 5
MAX_FIXES = 3
MAX_RED_TESTS = 4
MAX_CHECKS = 2  # told where no likely command is one
MIN_CHECK_SESSIONS, MIN_CHECK_SHARE = 3, 0.1  # of those before
MIN_FIX_SESSIONS = 2  # with different requests or commands: a fork repeats what its parent did
MIN_FIX_SHARE = 0.05  # of the sessions with its command, unless the request speaks of it
# A session needs few commands and many files, so that files are told that are less likely.
MIN_COMMAND_PROBABILITY = 0.4
MIN_FILE_PROBABILITY = 0.17
# After few sessions the estimates are too high of files that neither request nor branch speak for.
EARLY_FILE_PROBABILITY = 0.13  # on top of that before the first session, and less after each
SESSIONS_FOR_ESTIMATES = 40  # from here on nothing is added
LEAST_ITEMS = 2  # told where nothing is likely: the likeliest commands and files
MIN_COMMAND_FILE_PROBABILITY = 0.25  # these estimates are less certain
MIN_EARLY_PROBABILITY = 0.2  # of a command where no other is likelier, or with few sessions
MIN_NAMED_PROBABILITY = 0.15  # if the request or its branch names it
MIN_EXAMPLE_WORDS = 2  # that a request shares with that of an example
MIN_FITTING_SHARE = 0.35  # of sessions with a similar request, for a command that is seldom used
_ASKING_WORDS = split_words("who whose where which why how many much tell show give please")
KIND_ORDER = ("wish", "command", "example", "workflow", "pitfall", "baseline", "place")


class _Limits(NamedTuple):
    """Which items are told: how estimates are made, how many, and how well they must fit instead."""

    weights: Weights
    probability: float
    shift: float
    most: int
    fitting_share: float = 2.0  # of the sessions with a similar request; more than 1 for never
    early: float = 0.0  # how much likelier they must be if not even the branch speaks for them
    is_present: IsPresent = is_never_missing


class _Candidate(NamedTuple):
    probability: float
    item: PlaybookItem
    is_named: bool = False


def recall_start(
    playbook: Playbook,
    request: str,
    decisions: NoteDecisions = NO_DECISIONS,
    known: AbstractSet[str] = frozenset(),
    branch: Sequence[int] = (),
    is_present: IsPresent = is_never_missing,
) -> Recall:
    """Recall what a session with this request is likely to need, without the notes it has already.

    Those are `known` by their ids. `branch` is that of its folder, see `hash_branch`. Files that are
    not present are not told.
    """
    hidden = known | decisions.retired
    shared = [note for note in decisions.shared if note.id not in hidden]
    added = [note for note in decisions.added if note.id not in hidden]
    learned = choose_start_notes(playbook, request, decisions, known, branch, is_present)
    notes = [*shared, *added, *map(decisions.reword, learned)]
    return render_start(playbook, notes, {note.id for note in shared})


def choose_start_notes(
    playbook: Playbook,
    request: str,
    decisions: NoteDecisions = NO_DECISIONS,
    known: AbstractSet[str] = frozenset(),
    branch: Sequence[int] = (),
    is_present: IsPresent = is_never_missing,
) -> list[RecalledNote]:
    """Return the learned notes that a session with this request is likely to need, the best first."""
    if not playbook.sessions:
        return []
    scorer = Scorer(playbook.sessions, hash_words(request), request, branch)
    likely = _choose_commands(scorer, playbook)
    commands = [*likely, *_choose_checks(playbook, likely)]
    files = _choose_files(scorer, playbook, is_present)
    others = _choose_command_files(scorer, playbook, is_present, {one.item.name for one in files})
    if not (commands or files or others):
        commands, files = _choose_likeliest(scorer, playbook, is_present)
    if not (commands or files or others):
        ranked = _choose_command_files(scorer, playbook, is_present, probability=0)
        others = [one for one in ranked if len(one.sessions) > 1][:LEAST_ITEMS]
    told = {one.item.name for one in commands}
    routine = (
        playbook.routine
        if playbook.routine and told.issuperset(playbook.routine.commands)
        else None
    )
    notes = [
        *map(describe_wish, playbook.wishes[:MAX_WISHES]),
        *(_describe_command(one.item, playbook, scorer, decisions) for one in commands),
        *_find_example(playbook, request),
        *([describe_routine(routine, playbook)] if routine else []),
        *(describe_fix(one, playbook) for one in _find_common_fixes(playbook, told, request)),
        *(describe_missing_tool(one, playbook) for one in playbook.missing_tools[-1:]),
        *(describe_red_test(one, playbook) for one in _find_red_tests(playbook)),
        *(describe_file(one.item, playbook) for one in files),
    ]
    if others:
        notes.append(describe_command_files(others, playbook))
    missing = decisions.pinned - {note.id for note in notes}
    pinned = [note for note in (list_notes(playbook) if missing else ()) if note.id in missing]
    excluded = decisions.retired | known
    notes = [note for note in [*pinned, *notes] if note.id not in excluded]
    notes.sort(key=lambda note: (KIND_ORDER.index(note.kind), note.id not in decisions.pinned))
    return notes


def _describe_command(
    item: PlaybookItem, playbook: Playbook, scorer: Scorer, decisions: NoteDecisions
) -> RecalledNote:
    """Describe a command with the arguments that fit the session, unless its words were chosen."""
    note = describe_command(item, playbook)
    if note.id in decisions.reworded:
        return note
    return describe_command(scorer.rank_arguments(item), playbook)


def _choose_commands(scorer: Scorer, playbook: Playbook) -> list[_Candidate]:
    """Return the commands that are likely; where none is, those that may be."""
    commands = _list_told_commands(playbook)
    described = scorer.describe_items(add_name_words(commands))
    limits = _Limits(
        COMMAND_WEIGHTS,
        MIN_COMMAND_PROBABILITY,
        playbook.command_shift,
        MAX_COMMANDS,
        MIN_FITTING_SHARE,
    )
    chosen = _choose_items(described, commands, limits)
    if chosen and len(playbook.sessions) >= MIN_EARLIER_SESSIONS:
        return chosen
    return _choose_items(described, commands, limits._replace(probability=MIN_EARLY_PROBABILITY))


def _choose_files(scorer: Scorer, playbook: Playbook, is_present: IsPresent) -> list[_Candidate]:
    """Return the files that are likely to be used by tools for files."""
    limits = _Limits(
        FILE_WEIGHTS,
        MIN_FILE_PROBABILITY,
        playbook.file_shift,
        MAX_FILES,
        early=EARLY_FILE_PROBABILITY * _get_uncertainty(playbook),
        is_present=is_present,
    )
    described = scorer.describe_items(add_name_words(playbook.files))
    return _choose_items(described, playbook.files, limits)


def _choose_command_files(
    scorer: Scorer,
    playbook: Playbook,
    is_present: IsPresent,
    told: AbstractSet[str] = frozenset(),
    probability: float = MIN_COMMAND_FILE_PROBABILITY,
) -> list[PlaybookItem]:
    """Return the files that are likely to be used by commands, without those that are told anyway."""
    limits = _Limits(
        FILE_WEIGHTS,
        probability,
        playbook.command_file_shift,
        MAX_FILES,
        is_present=is_present,
    )
    described = scorer.describe_items(add_name_words(playbook.command_files))
    likely = _choose_items(described, playbook.command_files, limits)
    return [one.item for one in likely if one.item.name not in told][:MAX_COMMAND_FILES]


def _choose_checks(playbook: Playbook, likely: Sequence[_Candidate]) -> list[_Candidate]:
    """Return how sessions test their work, which few need but none should have to find out."""
    if any(one.item.name in playbook.checks for one in likely):
        return []
    told = {one.name: one for one in _list_told_commands(playbook)}
    checks = [told[name] for name in playbook.checks if name in told]
    least = max(MIN_CHECK_SESSIONS, MIN_CHECK_SHARE * len(playbook.sessions))
    usual = [one for one in checks if len(one.sessions) >= least]
    return [_Candidate(0.0, one) for one in usual[:MAX_CHECKS]]


def _list_told_commands(playbook: Playbook) -> list[PlaybookItem]:
    """Return the commands that mostly work, still do, and of which it is known what they do."""
    return [
        one
        for one in playbook.commands
        if one.worked >= one.failed
        and one.name not in playbook.broken
        and not all(is_subcommand_hidden(form.text) for form in one.forms)
    ]


def _find_example(playbook: Playbook, request: str) -> list[RecalledNote]:
    """Return the example whose request is most like this one, if one is."""
    stems = _list_stems(request)
    fitting: list[tuple[int, int, Example]] = []
    for number, one in enumerate(playbook.examples):
        named = _list_stems(one.key) & stems
        common = len(named | (_list_stems(one.asked) & stems))
        if common >= MIN_EXAMPLE_WORDS or any(not is_common_word(word) for word in named):
            fitting.append((common, number, one))
    return [describe_example(max(fitting)[-1], playbook)] if fitting else []


def _list_stems(text: str) -> set[str]:
    """Return the stems of the words of a text that say what it is about."""
    words = (word.casefold() for word in list_runs(text) if word not in MADE_UP_VALUES)
    told = (word for word in words if len(word) > 2 and word not in STOP_WORDS | _ASKING_WORDS)
    return {*map(get_stem, told)}


def _get_uncertainty(playbook: Playbook) -> float:
    """Return how little is known: 1 before the first session, and 0 after enough of them."""
    return max(0.0, 1 - len(playbook.sessions) / SESSIONS_FOR_ESTIMATES)


def _choose_likeliest(
    scorer: Scorer, playbook: Playbook, is_present: IsPresent
) -> tuple[list[_Candidate], list[_Candidate]]:
    """Return the likeliest commands and files that several sessions used, however unlikely they are."""

    def rank(items: Sequence[PlaybookItem], weights: Weights, shift: float) -> list[_Candidate]:
        described = scorer.describe_items(add_name_words(items))
        found = _choose_items(described, items, _Limits(weights, 0.0, shift, len(items)))
        return [one for one in found if len(one.item.sessions) > 1]

    commands = rank(_list_told_commands(playbook), COMMAND_WEIGHTS, playbook.command_shift)[
        :LEAST_ITEMS
    ]
    ranked = rank(playbook.files, FILE_WEIGHTS, playbook.file_shift)
    files = [*islice((one for one in ranked if is_present(one.item.name)), LEAST_ITEMS)]
    best = sorted((*commands, *files), key=lambda one: -one.probability)[:LEAST_ITEMS]
    return [one for one in commands if one in best], [one for one in files if one in best]


def _find_common_fixes(
    playbook: Playbook, likely: AbstractSet[str], request: str
) -> list[KnownFix]:
    """Return the fixes of likely commands that several independent sessions needed, the latest first.

    One that few sessions with the command needed is told only if the request speaks of it.
    """
    asked = hash_words(request)
    used = {one.name: len(one.sessions) for one in playbook.commands}
    groups: dict[tuple[object, ...], list[KnownFix]] = {}
    for one in playbook.fixes:
        if one.fix.is_informative and one.fix.key in likely:
            groups.setdefault(_describe_change(one.fix), []).append(one)
    common: list[KnownFix] = []
    for fixes in groups.values():
        times = {
            (playbook.sessions[number].words, drop_shapes(one.fix.failed_text))
            for one in fixes
            for number in one.sessions
        }
        if len(times) >= MIN_FIX_SESSIONS:
            latest = max(fixes, key=lambda one: one.sessions[-1])
            sessions = sorted({number for one in fixes for number in one.sessions})
            is_frequent = len(sessions) >= MIN_FIX_SHARE * used.get(latest.fix.key, 0)
            if is_frequent or not asked.isdisjoint(_hash_own_words(latest.fix)):
                common.append(KnownFix(latest.fix, tuple(sessions)))
    shortest = [
        one for one in common if not any(_is_shorter(other.fix, one.fix) for other in common)
    ]
    return sorted(shortest, key=lambda one: -one.sessions[-1])[:MAX_FIXES]


def _hash_own_words(fix: Fix) -> set[int]:
    """Return the hashed words of a fix that its command alone has not."""
    words = " ".join((fix.failed_text, *fix.steps, fix.fixed_text)).split()
    return hash_words(" ".join(word for word in words if not is_slot(word))) - hash_words(fix.key)


def _is_shorter(fix: Fix, other: Fix) -> bool:
    """Return whether a fix is the same as another, with fewer steps before it."""
    same = (fix.failed_text, fix.fixed_text) == (other.failed_text, other.fixed_text)
    return same and {*fix.steps} < {*other.steps}


def _describe_change(fix: Fix) -> tuple[object, ...]:
    """Return what fixes have in common that change a command in the same way, whatever it ran on."""
    failed, fixed = drop_shapes(fix.failed_text), drop_shapes(fix.fixed_text)
    added = {*fixed.split()} - {*failed.split()}
    options = frozenset(word for word in added if word[0] == "-" or "=" in word)
    if options and not fix.steps and fix.fixed_folder == fix.failed_folder:
        return fix.key, options
    return fix.key, failed, fixed, fix.fixed_folder, tuple(map(drop_shapes, fix.steps))


def _find_red_tests(playbook: Playbook) -> list[PlaybookItem]:
    """Return the tests that were red before any change in several sessions, the latest first."""
    common = list_shared_red_tests(playbook)
    return sorted(common, key=lambda one: (-one.sessions[-1], one.name))[:MAX_RED_TESTS]


def _choose_items(
    described: Sequence[Features], items: Sequence[PlaybookItem], limits: _Limits
) -> list[_Candidate]:
    """Return the items that the session will probably use: named ones first, then the likeliest."""
    likely: list[_Candidate] = []
    for item, features in zip(items, described, strict=True):
        probability = compute_probability(compute_logit(features, limits.weights) + limits.shift)
        is_named = bool(features.is_named or features.names_branch)
        unsure = 0.0 if features.on_branch > 0 else limits.early
        least = MIN_NAMED_PROBABILITY if is_named else limits.probability + unsure
        is_likely = probability >= least or features.fitting_share >= limits.fitting_share
        if is_likely and limits.is_present(item.name):
            likely.append(_Candidate(probability, item, is_named))
    likely.sort(key=lambda one: (not one.is_named, -one.probability, one.item.name))
    return likely[: limits.most]


def render_start(
    playbook: Playbook, notes: Sequence[RecalledNote], shared: AbstractSet[str] = frozenset()
) -> Recall:
    """Render what is told at the start: as many of the notes as there is room for.

    `shared` are the ids of those that come from other projects.
    """
    if not notes:
        return Recall()
    before = len(playbook.sessions)
    lines = [f"From {count_sessions(before)} in this project before:"] if before else []
    kept: list[RecalledNote] = []
    tokens = estimate_text_tokens("\n".join(lines))
    headings = {
        "shared": "Shared from other projects:",
        "wish": "What people asked for:",
        "command": "Commands that worked here:",
        "example": "What was asked, and what was done:",
        "workflow": "What sessions do in turn:",
        "pitfall": "What failed, and what worked instead:",
        "baseline": "Tests that are red anyway:",
        "place": "Files such sessions used:",
    }
    for note in notes:
        heading = headings.pop("shared" if note.id in shared else note.kind, None)
        added = [heading, f"- {note.text}"] if heading else [f"- {note.text}"]
        cost = sum(estimate_text_tokens(line) + 1 for line in added)
        if tokens + cost > MAX_START_TOKENS:
            break
        lines += added
        kept.append(note)
        tokens += cost
    text = "\n".join(lines)
    return Recall(text, estimate_text_tokens(text), tuple(kept))
