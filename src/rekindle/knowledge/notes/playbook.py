"""A project's playbook: what its sessions ran, used and fixed, ready to be recalled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from rekindle.knowledge.examples.records import Example, SessionExample
from rekindle.knowledge.remedies.missing_tools import collect_missing_tools
from rekindle.knowledge.trust.observation_filter import filter_observations
from rekindle.knowledge.trust.own_text import is_vendored
from rekindle.knowledge.trust.temporary_paths import hide_values
from rekindle.knowledge.wishes.records import Wish

from .command_forms import is_everyday
from .harmless import is_constant
from .programs import (
    get_program,
    is_check,
    is_known_program,
    is_own_program,
    is_version_question,
    is_worth_telling,
    read_program,
)
from .records import (
    ArgumentUse,
    CommandForms,
    FailingForm,
    FileUse,
    Fix,
    PlaybookItem,
    PlaybookSession,
    SessionObservation,
    drop_shapes,
    hash_word,
    is_slot,
    merge_slots,
)
from .scoring import COMMAND_WEIGHTS, FILE_WEIGHTS, estimate_shift

MAX_SESSIONS = 300  # the newest ones; older ones say little about today
MAX_FORMS = 4  # per command
MAX_ARGUMENTS = 24  # per command
MAX_FIXES = 1_000
MAX_WISHES = 50
MIN_ROUTINE_SHARE = 0.4  # of the sessions with a commit
MIN_EXAMPLE_SESSIONS = 2  # with different requests
MAX_EXAMPLES = 50
MIN_CONTRADICTIONS = 2  # sessions, for a fix; and at least as many as it worked in
MIN_BROKEN_SESSIONS = 3  # the latest ones that ran a command
MIN_FAILING_SESSIONS = 2  # with different requests
MAX_WORKING_SHARE = 0.25  # of the sessions that ran what is known to fail
MAX_GREEN_SESSIONS = 3  # after which a test is red no more
MAX_RED_TEST_AGE = 30  # sessions; a test that was red long ago may be green now
MAX_PATHS = 3_000
_GITHUB = "github.com/"  # in front of the projects that are there


IsPresent = Callable[[str], bool]  # whether a file that sessions used is still there


def is_never_missing(path: str) -> bool:
    """Take every file to be there: its folder is on another machine, or nobody looks."""
    return True


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
    repository: str = ""  # `owner/name` on GitHub, if the project is there
    examples: tuple[Example, ...] = ()
    checks: tuple[str, ...] = ()  # commands that run tests or check code, the commonest first
    failing: tuple[FailingForm, ...] = ()  # that have a fix
    broken: tuple[str, ...] = ()  # commands that worked once and only fail now
    missing_tools: tuple[PlaybookItem, ...] = ()  # see `collect_missing_tools`


def build_playbook(
    observations: Iterable[SessionObservation], wishes: Iterable[Wish] = (), project: str = ""
) -> Playbook:
    """Build a playbook from the newest of a project's sessions, and from what users asked for."""
    ordered = sorted(observations, key=lambda one: (one.started, one.session))
    newest = filter_observations(ordered[-MAX_SESSIONS:])
    named = {program for one in newest for program in one.programs}

    def is_trusted(form: str, key: str) -> bool:
        program = read_program(form)
        if "/" in program and not is_known_program(program.rsplit("/", 1)[-1]):
            return _is_own_path(program)
        key = program if form == key else key
        return is_known_program(key) or hash_word(get_program(key)) in named

    sessions = tuple(
        PlaybookSession(one.session, one.started, one.words, one.branch) for one in newest
    )
    commands = tuple(_collect_commands(newest, is_trusted))
    files = tuple(_collect_files([one.files for one in newest]))
    by_commands = {use.path for one in newest for use in one.command_files}
    uses = _collect_files([(*one.files, *one.command_files) for one in newest])
    command_files = tuple(one for one in uses if one.name in by_commands)
    fixes = tuple(_collect_fixes(newest, is_trusted))
    return Playbook(
        sessions=sessions,
        commands=commands,
        files=files,
        fixes=fixes,
        paths=tuple(_collect_paths(newest)),
        routine=_find_routine(newest, lambda key: is_trusted(key, key)),
        red_tests=tuple(_collect_red_tests(newest)),
        wishes=tuple(wishes)[:MAX_WISHES],
        command_shift=estimate_shift(sessions, commands, COMMAND_WEIGHTS),
        file_shift=estimate_shift(sessions, files, FILE_WEIGHTS),
        command_files=command_files,
        command_file_shift=estimate_shift(sessions, command_files, FILE_WEIGHTS),
        repository=_spell_repository(newest, project),
        examples=tuple(_collect_examples(newest, is_trusted))[-MAX_EXAMPLES:],
        checks=tuple(_list_checks(commands)),
        failing=tuple(_collect_failing(newest, fixes)),
        broken=tuple(_find_broken_commands(newest)),
        missing_tools=tuple(collect_missing_tools(newest)),
    )


def _is_own_path(program: str) -> bool:
    """Return whether a program is a file below the project's root that is not of a package."""
    is_below = program[0] not in "/~" and ".." not in program.split("/")
    return is_below and not is_vendored(program)


# ── what sessions have in common


def _collect_commands(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[PlaybookItem]:
    forms: dict[str, dict[tuple[str, str], CommandForms]] = {}
    used: dict[str, list[int]] = {}
    totals: dict[str, list[int]] = {}
    arguments: dict[str, dict[str, ArgumentUse]] = {}
    for number, one in enumerate(observations):
        for key, found in _group_arguments(one).items():
            _add_arguments(arguments.setdefault(key, {}), found, number)
        alike: dict[str, dict[tuple[str, str], CommandForms]] = {}
        for use in one.commands:
            if is_everyday(use.key) or not is_trusted(use.text, use.key):
                continue
            if not is_worth_telling(use.text):
                continue
            total = totals.setdefault(use.key, [0, 0])
            total[0] += use.worked
            total[1] += use.failed
            if not use.worked:
                continue
            sessions = used.setdefault(use.key, [])
            if not sessions or sessions[-1] != number:
                sessions.append(number)
            form = CommandForms(use.text, use.folder, 1, use.worked, use.failed)
            _add_form(alike.setdefault(use.key, {}), form)
        for key, found in alike.items():
            for form in found.values():
                _add_form(forms.setdefault(key, {}), msgspec.structs.replace(form, sessions=1))
    for key, sessions in used.items():
        joined = _join_rare_forms(forms[key].values(), {*key.split(" ")})
        known = [form for form in joined if is_worth_telling(form.text)]
        if not known:
            continue  # what each session ran is not kept
        known.sort(  # what several sessions ran alike says more than a form with slots
            key=lambda one: (
                "<path>" in (text := drop_shapes(one.text)),
                -one.sessions,
                -one.worked,
                len(text),
            )
        )
        yield PlaybookItem(
            name=key,
            sessions=tuple(sessions),
            uses=sum(totals[key]),
            worked=totals[key][0],
            failed=totals[key][1],
            forms=tuple(known[:MAX_FORMS]),
            arguments=tuple(_rank_arguments(arguments[key].values())),
        )


def _spell_repository(observations: Sequence[SessionObservation], project: str) -> str:
    """Return `owner/name` of a project on GitHub as most remotes spell it; empty if it is elsewhere."""
    if not project.startswith(_GITHUB):
        return ""
    named = (remote for one in observations for remote in one.remotes)
    spelled = Counter(remote for remote in named if remote.lower() == project)
    best = max(spelled, key=lambda remote: (spelled[remote], remote), default=project)
    return best[len(_GITHUB) :]


def _list_checks(commands: Sequence[PlaybookItem]) -> Iterable[str]:
    checks = [one for one in commands if is_check(one.forms[0].text)]
    return (one.name for one in sorted(checks, key=lambda one: (-len(one.sessions), one.name)))


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
    is_own = is_own_program(get_program(key))
    for word in words:
        option = found[-1] if found and found[-1][0] == "-" and " " not in found[-1] else ""
        if option and (is_slot(word) or word.isdigit() or (is_own and is_constant(option, word))):
            found[-1] += f" {word}"
        elif (
            word not in names
            and word.rsplit("/", 1)[-1] not in names
            and word not in ("-", "--", "env")
        ):
            found.append(word)
    return found


def _add_arguments(known: dict[str, ArgumentUse], found: Iterable[str], number: int) -> None:
    """Add the arguments of one more session; those that differ in shapes of slots are the same."""
    unique: dict[str, str] = {}
    for text in found:
        same = drop_shapes(text)
        unique[same] = merge_slots(unique.get(same, text), text)
    for same, text in unique.items():
        before = known.get(same, ArgumentUse(text, ()))
        known[same] = ArgumentUse(merge_slots(before.text, text), (*before.sessions, number))


def _rank_arguments(used: Iterable[ArgumentUse]) -> list[ArgumentUse]:
    common = [one for one in used if len(one.sessions) > 1 and not is_slot(one.text)]
    common.sort(key=lambda one: (-len(one.sessions), one.text))
    return common[:MAX_ARGUMENTS]


def _add_form(known: dict[tuple[str, str], CommandForms], form: CommandForms) -> None:
    """Add a form to one that differs at most in the shapes of its slots."""
    same = drop_shapes(form.text), form.folder
    before = known.get(same)
    known[same] = (
        form
        if before is None
        else CommandForms(
            merge_slots(before.text, form.text),
            form.folder,
            before.sessions + form.sessions,
            before.worked + form.worked,
            before.failed + form.failed,
        )
    )


def _join_rare_forms(forms: Iterable[CommandForms], names: AbstractSet[str]) -> list[CommandForms]:
    """Join forms that single sessions used: what they were run with belongs to those sessions."""
    found: dict[tuple[str, str], CommandForms] = {}
    for form in forms:
        is_shared = form.sessions > 1 and "/tmp/" not in form.text
        text = form.text if is_shared else hide_values(form.text, names)
        _add_form(found, msgspec.structs.replace(form, text=text))
    return list(found.values())


def _collect_files(uses: Sequence[Sequence[FileUse]]) -> Iterable[PlaybookItem]:
    """Yield the files that sessions used, by what each of them used, without the project's folder."""
    used: dict[str, tuple[list[int], list[int]]] = {}
    for number, files in enumerate(uses):
        for file in files:
            if file.path == ".":
                continue
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
            if is_version_question(fix.failed_text):
                continue
            if not all(is_trusted(step, step) and is_worth_telling(step) for step in fix.steps):
                continue
            identity = _drop_fix_shapes(msgspec.structs.replace(fix, look=()))
            first, sessions = known.get(identity, (fix, []))
            known[identity] = _merge_fixes(first, fix), sessions
            if not sessions or sessions[-1] != number:
                sessions.append(number)
    contradictions = _list_contradictions(observations, (fix for fix, _ in known.values()))
    newest = sorted(known.values(), key=lambda one: one[1][-1])[-MAX_FIXES:]
    for fix, sessions in newest:
        failed = contradictions[drop_shapes(fix.fixed_text), fix.fixed_folder]
        later = sum(number > sessions[-1] for number in failed)
        if later < max(MIN_CONTRADICTIONS, len(sessions)):
            yield KnownFix(fix, tuple(sessions))


def _list_contradictions(
    observations: Sequence[SessionObservation], fixes: Iterable[Fix]
) -> dict[tuple[str, str], list[int]]:
    """Return the sessions in which what fixed something only failed."""
    found: dict[tuple[str, str], list[int]] = {
        (drop_shapes(fix.fixed_text), fix.fixed_folder): [] for fix in fixes
    }
    for number, one in enumerate(observations):
        for use in one.commands:
            form = drop_shapes(use.text), use.folder
            if form in found and not use.worked:
                found[form].append(number)
    return found


def _drop_fix_shapes(fix: Fix) -> Fix:
    return msgspec.structs.replace(
        fix,
        failed_text=drop_shapes(fix.failed_text),
        fixed_text=drop_shapes(fix.fixed_text),
        steps=tuple(map(drop_shapes, fix.steps)),
    )


def _merge_fixes(first: Fix, other: Fix) -> Fix:
    """Return the first of two fixes that differ at most in the shapes of slots, without those."""
    return msgspec.structs.replace(
        first,
        failed_text=merge_slots(first.failed_text, other.failed_text),
        fixed_text=merge_slots(first.fixed_text, other.fixed_text),
        steps=tuple(map(merge_slots, first.steps, other.steps)),
    )


def _find_broken_commands(observations: Sequence[SessionObservation]) -> Iterable[str]:
    """Yield the commands that only failed in each of the latest sessions that ran them."""
    latest: dict[str, int] = {}  # the number of those sessions
    for one in observations:
        worked = {use.key for use in one.commands if use.worked}
        for key in dict.fromkeys(use.key for use in one.commands):
            latest[key] = 0 if key in worked else latest.get(key, 0) + 1
    return (key for key, sessions in latest.items() if sessions >= MIN_BROKEN_SESSIONS)


def _collect_failing(
    observations: Sequence[SessionObservation], fixes: Iterable[KnownFix]
) -> Iterable[FailingForm]:
    """Yield the forms with a fix that failed in several independent sessions and hardly ever worked."""
    fixed = {
        (drop_shapes(one.fix.failed_text), one.fix.failed_folder)
        for one in fixes
        if one.fix.is_informative
    }
    failed: dict[tuple[str, str], set[int]] = {form: set() for form in fixed}
    worked: dict[tuple[str, str], set[int]] = {form: set() for form in fixed}
    for number, one in enumerate(observations):
        for use in one.commands:
            form = drop_shapes(use.text), use.folder
            if form in fixed:
                (worked if use.worked else failed)[form].add(number)
    for form, found in failed.items():
        numbers, working = sorted(found - worked[form]), worked[form]
        if not numbers or max(working, default=-1) > numbers[-1]:
            continue  # it works again
        requests = {observations[number].words for number in numbers}
        share = len(working) / (len(working) + len(numbers))
        if len(requests) >= MIN_FAILING_SESSIONS and share <= MAX_WORKING_SHARE:
            yield FailingForm(*form, tuple(numbers))


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
    """Yield tests that were red before any change, and have not been left out by green runs since.

    One green run of the same check says little: it may have been of other tests.
    """
    red: dict[str, list[int]] = {}
    checks: dict[str, set[str]] = {}
    green: dict[str, int] = {}  # sessions since the test was red
    for number, one in enumerate(observations):
        passed = {use.key for use in one.commands if use.worked}
        for name in [name for name in red if name not in one.red_tests and checks[name] & passed]:
            green[name] += 1
            if green[name] >= MAX_GREEN_SESSIONS:
                del red[name]
        for name, check in zip(one.red_tests, one.red_checks, strict=False):
            red.setdefault(name, []).append(number)
            checks.setdefault(name, set()).add(check)
            green[name] = 0
    for name, sessions in red.items():
        yield PlaybookItem(name, tuple(sessions), len(sessions))


def _collect_examples(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[Example]:
    """Yield one of the examples of each kind that several sessions share, oldest first."""
    alike: dict[tuple[str, str], list[tuple[int, SessionExample]]] = {}
    for number, one in enumerate(observations):
        for example in one.examples:
            if is_trusted(example.form, example.key):
                found = alike.pop(example.kind, [])
                alike[example.kind] = [*found, (number, example)]
    for found in alike.values():
        numbers = tuple(dict.fromkeys(number for number, _ in found))
        asked = {example.digest for _, example in found}  # a fork repeats what its parent was asked
        if len(numbers) >= MIN_EXAMPLE_SESSIONS and len(asked) >= MIN_EXAMPLE_SESSIONS:
            best = max(found, key=lambda one: (one[1].digits, one[0]))[1]
            yield Example(best.key, best.asked, best.command, best.answer, numbers)


def list_current_red_tests(playbook: Playbook) -> list[PlaybookItem]:
    """Return the tests that were red before any change in one of the newest sessions."""
    oldest = len(playbook.sessions) - MAX_RED_TEST_AGE
    return [one for one in playbook.red_tests if one.sessions[-1] >= oldest]


def list_shared_red_tests(playbook: Playbook) -> list[PlaybookItem]:
    """Return those of the current red tests that several sessions saw."""
    return [one for one in list_current_red_tests(playbook) if len(one.sessions) > 1]


def _collect_paths(observations: Sequence[SessionObservation]) -> list[str]:
    """Return the paths of files, those of the newest sessions first."""
    found = dict.fromkeys(path for one in reversed(observations) for path in list_paths(one))
    return list(found)[:MAX_PATHS]


def list_paths(observation: SessionObservation) -> list[str]:
    """Return the paths of the files that a session used, by a tool or by a command."""
    files = (*observation.files, *observation.command_files)
    return [file.path for file in files if "." in file.path.rsplit("/", 1)[-1]]
