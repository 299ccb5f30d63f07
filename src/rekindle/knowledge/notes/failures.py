"""Recall what to do about a call that failed, or that is known to fail: how it was fixed before.

After a failure, a note is told only if it would have named the fix of enough earlier failures of the
same command: the fixes of a project are the backtest of each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rekindle.knowledge.remedies.missing_paths import (
    is_elsewhere,
    suggest_folder,
    suggest_paths,
)
from rekindle.knowledge.remedies.remedies import (
    GH_REPOSITORY,
    MISSING_PROGRAM,
    PLACE_RULES,
    REPOSITORY_SLOT,
    find_missing_program,
    find_remedy,
)
from rekindle.knowledge.tokens import estimate_text_tokens
from rekindle.types import Message, ToolCall

from .calls import INTERRUPTED, list_red_tests, read_command, read_forms
from .command_forms import (
    CommandForm,
    can_be_fixed,
    is_everyday,
    is_everyday_run,
)
from .note import (
    NO_DECISIONS,
    NoteDecisions,
    Recall,
    RecalledNote,
    describe_command,
    describe_fix,
    describe_form,
    describe_red_test,
    make_note_id,
)
from .observations import describe_look
from .playbook import IsPresent, KnownFix, Playbook, is_never_missing, list_shared_red_tests
from .records import Fix, drop_shapes, is_slot

MAX_FAILURE_TOKENS = 120
MAX_FAILURE_NOTES = 2
MIN_FOREIGN_LIKENESS = 0.6  # of the failure of another command
MIN_HIT_RATE = 0.35  # of a note on earlier failures
FIX_BONUS = 0.25  # in the order of notes: what failed and was fixed says more than what works
PRIOR_FAILURES = 1.0  # that a note is taken to have missed before it was tried
BASE_WEIGHT = 0.25  # of a failure that looks different
_HEADING = "In earlier sessions here:"
_RULE_HEADING = "What usually helps:"
# The command was called in a wrong way or in a wrong place; a red test is neither.
_USAGE_ERROR = re.compile(
    r"(?i)unknown (?:flag|option|command|argument|shorthand)|unrecognized|invalid (?:option|argument)"
    r"|invalid flag|unexpected argument|usage:|not found|no such (?:file|option|command)|cannot find"
    r"|missing (?:script|argument)|no go files|no tests? (?:found|ran)|not permitted|permission denied"
    r"|not a git repo"
)
_HELP = re.compile(r"(?im)^\s{0,8}usage:\s+\S+ .*\n(?:.*\n){0,12}.*--")
# A server answered, so that the command was called in the right way.
_SERVER_ERROR = re.compile(r"(?i)\bhttp[ /]{0,2}[45]\d\d\b|\"status\": ?\"?[45]\d\d")
# A program that runs others, or has subcommands, does not know the next word.
_UNKNOWN_SUBCOMMAND = re.compile(
    r"(?i)unrecogni[sz]ed (?:sub)?command|(?:unknown|no such|invalid|unsupported) (?:sub)?command"
    r"|is not an? (?:\S{1,40} )?(?:sub)?command"
)
# A request to an API; with a field it changes something, unless it says otherwise.
_API_COMMANDS = ("gh api ", "glab api ")
_METHOD = re.compile(r"(?:^| )(?:--method|-X)[ =]?(\S+)")
_HAS_FIELDS = re.compile(r" (?:-[fF]|--field|--raw-field|--input)\b")
# Parts of a command that is not about the project's own repository.
_OTHER_REPOSITORIES = ("://", "git@", "submodule")


class _Suggestion(NamedTuple):
    """A note that could be told, the words that it adds, and how likely they are to be the fix."""

    note: RecalledNote
    words: frozenset[str]
    likelihood: float
    source: KnownFix | None = None
    is_backtested: bool = True


class _EarlierFailure(NamedTuple):
    known: KnownFix
    weight: float
    words: frozenset[str]


class _Failure(NamedTuple):
    """A failed call as it is compared with earlier ones."""

    forms: Sequence[CommandForm]
    look: frozenset[int]
    words: frozenset[str]
    missing: str | None  # the program that the shell did not find


def recall_failure(
    playbook: Playbook,
    root: str,
    call: ToolCall,
    result: str,
    decisions: NoteDecisions = NO_DECISIONS,
    is_present: IsPresent = is_never_missing,
) -> Recall:
    """Recall how a failure like this one was fixed here before; nothing if it is a new one.

    Files that are not present are not suggested.
    """
    notes = choose_failure_notes(playbook, root, call, result, decisions, is_present)
    return render_failure([*map(decisions.reword, notes)])


def choose_failure_notes(
    playbook: Playbook,
    root: str,
    call: ToolCall,
    result: str,
    decisions: NoteDecisions = NO_DECISIONS,
    is_present: IsPresent = is_never_missing,
) -> list[RecalledNote]:
    """Return the notes that may help with a failed call, the best first."""
    from rekindle.judging.judge import judge_call  # a chat that never fails need not load it

    verdict = judge_call(call, Message("tool", result))
    if verdict.outcome == "refused" or verdict.error_kind == INTERRUPTED:
        return []  # nothing is wrong with the command
    forms = read_forms(call, root)
    words = frozenset(word for form in forms for word in form.text.split())
    missing = find_missing_program(result)
    failure = _Failure(forms, frozenset(describe_look(result)), words, missing)
    folders = suggest_folder(playbook, root, call, result, is_present)
    ways = _suggest_program(playbook, result)
    notes = [
        *_recall_red_tests(playbook, result),
        *suggest_paths(playbook, root, call, result, is_present),
        *folders,
        *ways,
        *_suggest_without_wrapper(playbook, failure, result),
    ]
    if not list_red_tests(result):  # which says nothing against the command
        notes += _choose_notes(playbook, failure, is_usage_error(result), bool(folders))
        is_placed = any(note.kind in ("place", "command") for note in notes)
        known = (*PLACE_RULES, MISSING_PROGRAM) if ways else PLACE_RULES if is_placed else ()
        notes += _apply_rule(playbook, call, result, known)
    unique = {note.text: note for note in notes if note.id not in decisions.retired}
    return list(unique.values())[:MAX_FAILURE_NOTES]


def is_usage_error(result: str) -> bool:
    """Return whether a result says that the command was called in a wrong way, but not in which one."""
    end = result[-4_000:]
    if _SERVER_ERROR.search(end) or _HELP.search(end):
        return False  # the program says itself what it expects
    return _USAGE_ERROR.search(end) is not None


# ── what to say, and would it have helped?


def _choose_notes(
    playbook: Playbook, failure: _Failure, usage_error: bool, has_folder: bool
) -> list[RecalledNote]:
    """Return the notes that would have named the fixes of enough earlier failures, the best first.

    With `has_folder`, the folder to go to is known better than by what fixed another failure.
    """
    keys = {form.key for form in failure.forms if can_be_fixed(form.key)}
    earlier = [one for one in playbook.fixes if one.fix.key in keys]
    backtest = [
        _EarlierFailure(one, _weigh_failure(one, failure), list_new_words(one.fix))
        for one in earlier
    ]
    usual_rate = _estimate_form_rate(playbook)
    scored: list[tuple[float, _Suggestion]] = []
    for one in _iter_suggestions(playbook, failure, keys, usage_error):
        if has_folder and one.source and one.words == frozenset((one.source.fix.fixed_folder,)):
            continue
        prior = 0.0 if one.source else usual_rate
        rate = one.likelihood
        if one.is_backtested:
            rate = max(rate, _estimate_hit_rate(one, backtest, prior))
        if rate >= MIN_HIT_RATE:
            scored.append((rate + (FIX_BONUS if one.source else 0.0), one))
    scored.sort(key=lambda one: (-one[0], one[1].note.text))
    chosen: list[RecalledNote] = []
    told: set[str] = set()
    commands: set[str | None] = set()
    for _, one in scored:
        if not (one.words <= told or one.note.command in commands):  # says something new
            commands.add(one.note.command)
            chosen.append(one.note)
            told |= one.words
    return chosen


def _iter_suggestions(
    playbook: Playbook, failure: _Failure, keys: set[str], usage_error: bool
) -> Iterator[_Suggestion]:
    for one in playbook.fixes:
        words = list_new_words(one.fix) - failure.words
        if not words or not (one.fix.is_informative or one.fix.steps):
            continue
        look = _compare_looks(one.fix, failure)
        if one.fix.key in keys:
            usual = not is_everyday(one.fix.key)
            yield _Suggestion(describe_fix(one, playbook), words, look, one, usual)
        elif look >= MIN_FOREIGN_LIKENESS and _has_setting(words) and _can_fit(one.fix, failure):
            yield _Suggestion(describe_fix(one, playbook), words, look, one, False)
    known = {drop_shapes(form.text) for form in failure.forms}
    methods = {_read_method(form.text) for form in failure.forms}
    usage_error = usage_error and len(keys) == 1  # else nobody knows which of the commands it was
    for item in playbook.commands:
        if item.name not in keys or is_everyday(item.name) or is_everyday_run(item.name):
            continue
        never_worked = known.isdisjoint(drop_shapes(form.text) for form in item.forms)
        added = {
            form: words
            for form in item.forms
            if form.sessions > 1
            and _read_method(form.text) in methods  # another one does something else
            and (words := _list_words(form.text) - failure.words)
        }
        if usage_error and never_worked and added:
            # It never worked like this; nobody knows which of the usual ways is meant.
            words = frozenset[str]().union(*added.values())
            yield _Suggestion(describe_command(item, playbook), words, 0.5)
            continue
        for form, words in added.items():
            yield _Suggestion(describe_form(form), words, 0.0)


def _read_method(form: str) -> str:
    """Return the method of a request to an API; empty for other commands."""
    if not form.startswith(_API_COMMANDS):
        return ""
    named = _METHOD.search(form)
    return named[1].upper() if named else "POST" if _HAS_FIELDS.search(form) else "GET"


def _can_fit(fix: Fix, failure: _Failure) -> bool:
    """Return whether the fix of another command may help: not if another program was not found."""
    if failure.missing:
        return failure.missing in fix.failed_text.split()
    return bool(failure.forms)


def _has_setting(words: frozenset[str]) -> bool:
    """Return whether a fix sets a variable, which may help other commands as well."""
    return any("=" in word and word[0] != "-" for word in words)


def _estimate_form_rate(playbook: Playbook) -> float:
    """Return the share of all earlier failures whose fix the commonest forms would have named."""
    forms = {
        item.name: [_list_words(form.text) for form in item.forms if form.sessions > 2]
        for item in playbook.commands
    }
    hits = total = 0
    for one in playbook.fixes:
        new = list_new_words(one.fix)
        known = {*one.fix.failed_text.split()}
        total += 1
        hits += any(
            (words - known) & new for words in forms.get(one.fix.key, [])[:MAX_FAILURE_NOTES]
        )
    return hits / (total + PRIOR_FAILURES)


def _estimate_hit_rate(
    suggestion: _Suggestion, backtest: Sequence[_EarlierFailure], prior: float
) -> float:
    """Return the share of earlier failures whose fix the suggestion would have named."""
    hits = total = 0.0
    for one in backtest:
        if one.known is suggestion.source and len(one.known.sessions) == 1:
            continue
        total += one.weight
        hits += one.weight if suggestion.words & one.words else 0.0
    return (hits + prior * PRIOR_FAILURES) / (total + PRIOR_FAILURES)


def list_new_words(fix: Fix) -> frozenset[str]:
    """Return the words of a fix that the failed command does not have, without slots."""
    after = {word for text in (fix.fixed_text, *fix.steps) for word in _list_words(text)}
    if fix.fixed_folder != fix.failed_folder:
        after.add(fix.fixed_folder)
    return frozenset(after - {*fix.failed_text.split()})


def _list_words(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split() if len(word) > 1 and not is_slot(word))


def _weigh_failure(known: KnownFix, failure: _Failure) -> float:
    return (BASE_WEIGHT + _compare_looks(known.fix, failure)) * len(known.sessions)


def _compare_looks(fix: Fix, failure: _Failure) -> float:
    """Return how similar two failures of a command look."""
    theirs = frozenset(fix.look)
    union = len(failure.look | theirs)
    return len(failure.look & theirs) / union if union else 0.0


# ── tests that are red anyway


def _recall_red_tests(playbook: Playbook, result: str) -> list[RecalledNote]:
    """Return which of the failed tests were red in earlier sessions before any change."""
    red = {one.name: one for one in list_shared_red_tests(playbook)}
    known = [red[name] for name in list_red_tests(result) if name in red]
    return [describe_red_test(one, playbook) for one in known[:1]]


def _suggest_program(playbook: Playbook, result: str) -> list[RecalledNote]:
    """Return how sessions here ran a program that was not found."""
    missing = find_missing_program(result)
    if missing is None:
        return []
    ways = [
        form
        for item in playbook.commands
        for form in item.forms
        if any(word.rsplit("/", 1)[-1] == missing for word in form.text.split())
        and form.text.split()[0] != missing
    ]
    ways.sort(key=lambda form: (-form.sessions, form.text))
    return [describe_form(form) for form in ways[:1]]


def _suggest_without_wrapper(
    playbook: Playbook, failure: _Failure, result: str
) -> list[RecalledNote]:
    """Return the command itself, if it worked here, when a program in front of it cannot run it."""
    if not _UNKNOWN_SUBCOMMAND.search(result[-4_000:]):
        return []
    wrapped = {drop_shapes(form.text).partition(" ")[2] for form in failure.forms}
    ways = [
        form
        for item in playbook.commands
        for form in item.forms
        if form.worked and drop_shapes(form.text) in wrapped
    ]
    ways.sort(key=lambda form: (-form.sessions, form.text))
    return [describe_form(form) for form in ways[:1]]


def _apply_rule(
    playbook: Playbook, call: ToolCall, result: str, known_better: Collection[str]
) -> list[RecalledNote]:
    """Return what helps with such a failure in every project; nothing where nothing was learned.

    Of what the rules `known_better` are about, earlier sessions of the project know more.
    """
    command = read_command(call)
    if not playbook.sessions or not command:
        return []
    found = find_remedy(command, result)
    if found is None:
        return []
    name, advice = found
    if name in known_better:
        return []
    if name == GH_REPOSITORY and (known := _find_repository(playbook)):
        text = f"This project is `{known}` on GitHub."
        return [RecalledNote(make_note_id("rule", name, known), "pitfall", text)]
    if playbook.repository and not any(part in command for part in _OTHER_REPOSITORIES):
        advice = advice.replace(REPOSITORY_SLOT, playbook.repository)
    return [RecalledNote(make_note_id("rule", name), "pitfall", advice)]


def _find_repository(playbook: Playbook) -> str:
    """Return the repository on GitHub that the project is, or that most sessions named successfully."""
    if playbook.repository:
        return playbook.repository
    sessions: dict[str, int] = {}
    for form in (form for item in playbook.commands for form in item.forms):
        words = form.text.replace("=", " ").split()
        named = (after for word, after in pairwise(words) if word in ("--repo", "-R"))
        for name in named if form.worked and words[0] == "gh" else ():
            if name.count("/") == 1:
                sessions[name] = sessions.get(name, 0) + form.sessions
    return max(sessions, key=lambda name: (sessions[name], name), default="")


# ── before a call


def recall_call(
    playbook: Playbook, root: str, call: ToolCall, decisions: NoteDecisions = NO_DECISIONS
) -> Recall:
    """Recall that a call is known to fail, and what worked instead; nothing about any other call."""
    notes = choose_call_notes(playbook, root, call, decisions)
    return render_failure([*map(decisions.reword, notes)])


def choose_call_notes(
    playbook: Playbook, root: str, call: ToolCall, decisions: NoteDecisions = NO_DECISIONS
) -> list[RecalledNote]:
    """Return the note about the first command of a call that is known to fail, if one is."""
    failing = {(one.text, one.folder) for one in playbook.failing}
    if not failing or is_elsewhere(call, root):
        return []
    forms = read_forms(call, root)
    words = {word for form in forms for word in form.text.split()}
    for form in forms:
        known = drop_shapes(form.text), form.folder
        for one in _list_fixes(playbook, *known) if known in failing else ():
            note = describe_fix(one, playbook)
            # With the words of the fix, the call does already what helped.
            if not list_new_words(one.fix) <= words and note.id not in decisions.retired:
                return [note]
    return []


def _list_fixes(playbook: Playbook, text: str, folder: str) -> list[KnownFix]:
    """Return what fixed a form that is known to fail, what most sessions did first."""
    found = [
        one
        for one in playbook.fixes
        if one.fix.is_informative
        and (drop_shapes(one.fix.failed_text), one.fix.failed_folder) == (text, folder)
    ]
    return sorted(found, key=lambda one: (-len(one.sessions), -one.sessions[-1]))


# ── what is said


def render_failure(notes: Sequence[RecalledNote]) -> Recall:
    """Render what is told at a failure: the notes that there is room for."""
    kept: list[RecalledNote] = []
    lines: list[str] = []
    for note in notes:
        is_rule = note.kind == "pitfall" and not note.sessions  # and nothing that happened here
        heading = _RULE_HEADING if is_rule else _HEADING
        added = [f"- {note.text}"] if heading in lines else [heading, f"- {note.text}"]
        if estimate_text_tokens("\n".join([*lines, *added])) <= MAX_FAILURE_TOKENS:
            kept.append(note)
            lines += added
    text = "\n".join(lines)
    return Recall(text, estimate_text_tokens(text), tuple(kept))
