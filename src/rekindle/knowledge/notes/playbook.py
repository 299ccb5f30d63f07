"""A project's playbook: what its sessions ran, used and fixed, ready to be recalled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from rekindle.knowledge.wishes.records import Wish

from .programs import get_program, is_known_program, is_worth_telling
from .records import (
    ArgumentUse,
    CommandForms,
    FileUse,
    Fix,
    PlaybookItem,
    PlaybookSession,
    SessionObservation,
    hash_word,
)
from .scoring import COMMAND_WEIGHTS, FILE_WEIGHTS, estimate_shift

MAX_SESSIONS = 300  # the newest ones; older ones say little about today
MAX_FORMS = 4  # per command
MAX_ARGUMENTS = 12  # per command
MAX_FIXES = 1_000
MAX_WISHES = 50
MIN_ROUTINE_SHARE = 0.4  # of the sessions with a commit
MAX_RED_TEST_AGE = 30  # sessions; a test that was red long ago may be green now
MAX_PATHS = 3_000


class KnownFix(msgspec.Struct, array_like=True, frozen=True):
    """A failure and its fix, seen in one or more sessions."""

    fix: Fix
    sessions: tuple[int, ...]


class Routine(msgspec.Struct, array_like=True, frozen=True):
    """Commands that sessions ran before a commit, in their usual order."""

    commands: tuple[str, ...]
    sessions: tuple[int, ...]  # with a commit and with all of these commands
    commits: int  # sessions with a commit


class Playbook(msgspec.Struct, array_like=True, frozen=True):
    """Everything that is recalled in a project."""

    sessions: tuple[PlaybookSession, ...] = ()
    commands: tuple[PlaybookItem, ...] = ()
    files: tuple[PlaybookItem, ...] = ()
    fixes: tuple[KnownFix, ...] = ()
    paths: tuple[str, ...] = ()  # every file that a session used, by a tool or by a command
    routine: Routine | None = None
    red_tests: tuple[PlaybookItem, ...] = ()
    wishes: tuple[Wish, ...] = ()
    command_shift: float = 0.0  # of the estimates for this project, see `estimate_shift`
    file_shift: float = 0.0
    command_files: tuple[PlaybookItem, ...] = ()  # that commands and patches used, with all uses
    command_file_shift: float = 0.0


def build_playbook(
    observations: Iterable[SessionObservation], wishes: Iterable[Wish] = ()
) -> Playbook:
    """Build a playbook from the newest of a project's sessions, and from what users asked for."""
    ordered = sorted(observations, key=lambda one: (one.started, one.session))
    newest = _drop_echoes(ordered[-MAX_SESSIONS:])
    named = {program for one in newest for program in one.programs}

    def is_trusted(form: str, key: str) -> bool:
        own = form.split()[0]
        return is_known_program(key) or "/" in own or hash_word(get_program(key)) in named

    sessions = tuple(PlaybookSession(one.session, one.started, one.words) for one in newest)
    commands = tuple(_collect_commands(newest, is_trusted))
    files = tuple(_collect_files([one.files for one in newest]))
    by_commands = {use.path for one in newest for use in one.command_files}
    uses = _collect_files([(*one.files, *one.command_files) for one in newest])
    command_files = tuple(one for one in uses if one.name in by_commands)
    return Playbook(
        sessions=sessions,
        commands=commands,
        files=files,
        fixes=tuple(_collect_fixes(newest, is_trusted)),
        paths=tuple(_collect_paths(newest)),
        routine=_find_routine(newest, lambda key: is_trusted(key, key)),
        red_tests=tuple(_collect_red_tests(newest)),
        wishes=tuple(wishes)[:MAX_WISHES],
        command_shift=estimate_shift(sessions, commands, COMMAND_WEIGHTS),
        file_shift=estimate_shift(sessions, files, FILE_WEIGHTS),
        command_files=command_files,
        command_file_shift=estimate_shift(sessions, command_files, FILE_WEIGHTS),
    )


def _drop_echoes(observations: Sequence[SessionObservation]) -> list[SessionObservation]:
    """Drop what only follows texts of strangers: no session ran it without having read its name."""
    vouched = {
        use.text for one in observations for use in one.commands if use.text not in one.echoes
    }
    dropped = {text for one in observations for text in one.echoes} - vouched
    return [_leave_out_forms(one, dropped) if one.echoes else one for one in observations]


def _leave_out_forms(observation: SessionObservation, dropped: set[str]) -> SessionObservation:
    commands = tuple(use for use in observation.commands if use.text not in dropped)
    keys = {use.key for use in commands}
    fixes = (one for one in observation.fixes if dropped.isdisjoint((one.fixed_text, *one.steps)))
    checks = observation.checks
    return msgspec.structs.replace(
        observation,
        commands=commands,
        fixes=tuple(fixes),
        checks=None if checks is None else tuple(key for key in checks if key in keys),
    )


def _collect_commands(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[PlaybookItem]:
    forms: dict[str, dict[tuple[str, str], list[int]]] = {}
    used: dict[str, list[int]] = {}
    totals: dict[str, list[int]] = {}
    arguments: dict[str, Counter[str]] = {}
    for number, one in enumerate(observations):
        for key, found in _group_arguments(one).items():
            arguments.setdefault(key, Counter()).update(found)
        for use in one.commands:
            if not is_trusted(use.text, use.key) or not is_worth_telling(use.text):
                continue
            total = totals.setdefault(use.key, [0, 0])
            total[0] += use.worked
            total[1] += use.failed
            if not use.worked:
                continue
            sessions = used.setdefault(use.key, [])
            if not sessions or sessions[-1] != number:
                sessions.append(number)
            counts = forms.setdefault(use.key, {}).setdefault((use.text, use.folder), [0, 0, 0])
            counts[0] += 1
            counts[1] += use.worked
            counts[2] += use.failed
    for key, sessions in used.items():
        joined = _join_rare_forms(forms[key], {*key.split(" ")})
        known = {one: counts for one, counts in joined.items() if is_worth_telling(one[0])}
        if not known:
            continue  # what each session ran is not kept
        ranked = sorted(  # what several sessions ran alike says more than a form with slots
            known.items(),
            key=lambda one: ("<path>" in one[0][0], -one[1][0], -one[1][1], len(one[0][0])),
        )
        yield PlaybookItem(
            name=key,
            sessions=tuple(sessions),
            uses=sum(totals[key]),
            worked=totals[key][0],
            failed=totals[key][1],
            forms=tuple(
                CommandForms(text, folder, *counts) for (text, folder), counts in ranked[:MAX_FORMS]
            ),
            arguments=tuple(_rank_arguments(arguments[key])),
        )


def _group_arguments(observation: SessionObservation) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for use in observation.commands:
        if use.worked:
            found.setdefault(use.key, set()).update(split_arguments(use.text, use.key))
    return found


def split_arguments(text: str, key: str) -> list[str]:
    """Return the arguments of a form, each option with the slot behind it, without its subcommands."""
    words = text.split(" ")
    found: list[str] = []
    names = set(key.split(" "))
    for word in words:
        if word[0] == "<" and found and found[-1][0] == "-" and " " not in found[-1]:
            found[-1] += f" {word}"
        elif (
            word not in names
            and word.rsplit("/", 1)[-1] not in names
            and word not in ("-", "--", "env")
        ):
            found.append(word)
    return found


def _rank_arguments(used: Counter[str]) -> list[ArgumentUse]:
    common = [one for one in used.items() if one[1] > 1 and one[0][0] != "<"]
    common.sort(key=lambda one: (-one[1], one[0]))
    return [ArgumentUse(text, sessions) for text, sessions in common[:MAX_ARGUMENTS]]


def _join_rare_forms(
    forms: dict[tuple[str, str], list[int]], names: AbstractSet[str]
) -> dict[tuple[str, str], list[int]]:
    """Join forms that single sessions used: what they were run with belongs to those sessions."""
    found: dict[tuple[str, str], list[int]] = {}
    for (text, folder), counts in forms.items():
        shown = (
            text if counts[0] > 1 and "/tmp/" not in text else _hide_values(text, names),
            folder,
        )
        total = found.setdefault(shown, [0, 0, 0])
        for index, count in enumerate(counts):
            total[index] += count
    return found


def _hide_values(text: str, names: AbstractSet[str]) -> str:
    """Return a form with slots for its paths and numbers; `names` are of the command itself."""
    program, *words = text.split(" ")

    def hide(word: str) -> str:
        if word in ("./...", ".") or word[0] == "-" or "=" in word or word in names:
            return word
        if "/" in word or "." in word.strip("."):
            return "<path>"
        return "<value>" if word.isdigit() else word

    kept = list[str]()
    for word in map(hide, words):
        if word and not (word == "<path>" and kept[-1:] == ["<path>"]):
            kept.append(word)
    return " ".join([program, *kept])


def _collect_files(uses: Sequence[Sequence[FileUse]]) -> Iterable[PlaybookItem]:
    """Yield the files that sessions used, by what each of them used."""
    used: dict[str, tuple[list[int], list[int]]] = {}
    for number, files in enumerate(uses):
        for file in files:
            sessions, counts = used.setdefault(file.path, ([], []))
            sessions.append(number)
            counts.append(file.count)
    for path, (sessions, counts) in used.items():
        yield PlaybookItem(path, tuple(sessions), sum(counts), worked=sum(counts))


def _collect_fixes(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[KnownFix]:
    known: dict[Fix, tuple[Fix, list[int]]] = {}
    for number, one in enumerate(observations):
        for fix in one.fixes:
            if not is_trusted(fix.fixed_text, fix.key) or not is_worth_telling(fix.fixed_text):
                continue
            if not all(is_trusted(step, step) and is_worth_telling(step) for step in fix.steps):
                continue
            identity = msgspec.structs.replace(fix, look=())
            _, sessions = known.setdefault(identity, (fix, []))
            if not sessions or sessions[-1] != number:
                sessions.append(number)
    newest = sorted(known.values(), key=lambda one: one[1][-1])[-MAX_FIXES:]
    for fix, sessions in newest:
        yield KnownFix(fix, tuple(sessions))


def _find_routine(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str], bool]
) -> Routine | None:
    """Return the commands that many sessions with a commit ran before it, all of them together."""
    committed = {number: one.checks for number, one in enumerate(observations) if one.checks}
    commits = sum(one.checks is not None for one in observations)
    counts = Counter(key for checks in committed.values() for key in checks)
    least = max(2, MIN_ROUTINE_SHARE * commits)
    common = {key for key, times in counts.items() if times >= least and is_trusted(key)}

    def find_rank(key: str) -> float:
        places = [checks.index(key) / len(checks) for checks in committed.values() if key in checks]
        return sum(places) / len(places)

    rarest_last = sorted(common, key=lambda key: (-counts[key], key))
    while rarest_last:
        kept = {*rarest_last}
        sessions = tuple(number for number, checks in committed.items() if kept <= {*checks})
        if len(sessions) >= least:
            commands = tuple(sorted(kept, key=lambda key: (find_rank(key), key)))
            return Routine(commands, sessions, commits)
        rarest_last.pop()
    return None


def _collect_red_tests(observations: Sequence[SessionObservation]) -> Iterable[PlaybookItem]:
    """Yield tests that were red before any change."""
    red: dict[str, list[int]] = {}
    for number, one in enumerate(observations):
        for name in one.red_tests:
            red.setdefault(name, []).append(number)
    for name, sessions in red.items():
        yield PlaybookItem(name, tuple(sessions), len(sessions))


def list_current_red_tests(playbook: Playbook) -> list[PlaybookItem]:
    """Return the tests that were red before any change in one of the newest sessions."""
    oldest = len(playbook.sessions) - MAX_RED_TEST_AGE
    return [one for one in playbook.red_tests if one.sessions[-1] >= oldest]


def _collect_paths(observations: Sequence[SessionObservation]) -> list[str]:
    """Return the paths of files, those of the newest sessions first."""
    found = dict.fromkeys(path for one in reversed(observations) for path in list_paths(one))
    return list(found)[:MAX_PATHS]


def list_paths(observation: SessionObservation) -> list[str]:
    """Return the paths of the files that a session used, by a tool or by a command."""
    files = (*observation.files, *observation.command_files)
    return [file.path for file in files if "." in file.path.rsplit("/", 1)[-1]]
