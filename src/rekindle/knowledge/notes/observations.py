"""Observe a session: the commands it ran, the files it used, and what fixed its failures.

An observation is small, holds no value that is not known to be harmless, and is all that learning
keeps of a session; a project's playbook is built from the observations of its sessions.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rekindle.knowledge.examples.examples import find_examples
from rekindle.knowledge.remedies.missing_tools import find_missing_tools, hash_available_tools
from rekindle.knowledge.trust.foreign_text import ForeignText
from rekindle.knowledge.trust.inputs import ModelInput
from rekindle.knowledge.trust.own_text import is_packaged
from rekindle.knowledge.trust.said_secrets import hide_said_secrets
from rekindle.knowledge.trust.said_words import extract_vouching_text
from rekindle.knowledge.trust.session_files import list_created_files, list_read_files
from rekindle.knowledge.trust.temporary_paths import hide_values
from rekindle.knowledge.wishes.wishes import UserTurn, find_wishes
from rekindle.projects import find_reported_remotes

from .calls import (
    FailedTest,
    ObservedCall,
    find_checks,
    find_red_tests,
    is_edit,
    list_command_files,
    read_command,
    read_forms,
    read_path,
)
from .command_forms import (
    CommandForm,
    can_be_fixed,
    is_everyday,
)
from .programs import get_program
from .records import (
    ADVICE_MARK,
    WORD,
    CommandUse,
    FileUse,
    Fix,
    SessionObservation,
    drop_shapes,
    hash_branch,
    hash_request,
    hash_word,
    join_folder,
)

MAX_LOOK_WORDS = 24
MAX_CALLS_TO_FIX = 6
MIN_SEARCH_LIKENESS = 0.5
MAX_STEPS = 3  # beside the command that was fixed
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*[A-Za-z0-9_+]")
_PLAIN_TOKEN = re.compile(r"-{0,2}[A-Za-z]?[a-z]+(?:[-_'][a-z]+){0,4}|-{0,2}[A-Z]{2,}")
_ERROR_LINE = re.compile(
    r"(?i)error|fail|not found|denied|cannot|can't|no such|unknown|invalid|undefined|fatal|unable"
    r"|refused|missing|expected|panic|not permitted|no matches|unrecognized|must|usage|exception|warning"
)


def observe_session(
    session: str,
    started: float,
    root: str,
    request: str,
    calls: Sequence[ObservedCall],
    turns: Sequence[UserTurn] = (),
    branch: str | None = None,
    answers: Mapping[int, str] = MappingProxyType({}),
    inputs: Sequence[ModelInput] = (),
) -> SessionObservation:
    """Observe a session that worked in the folder `root`.

    `turns` is what its user said, `answers` what the agent answered, by the position of the turn, and
    `inputs` what else its model read.
    """
    said = "\n".join([request, *(one.text for one in turns)])
    lines = hide_said_secrets([read_forms(one.call, root) for one in calls], said)
    suspicion = _find_suspicion(calls, lines, root, turns, inputs)
    commands, files, command_files = _count_uses(calls, lines, root)
    return SessionObservation(
        session=session,
        started=started,
        words=hash_request(request),
        commands=tuple(
            CommandUse(form.key, form.text, form.folder, *counts)
            for form, counts in commands.items()
            if not is_everyday(form.key)
        ),
        files=tuple(FileUse(path, count) for path, count in files.items()),
        fixes=tuple(_hide_foreign_failure(one, suspicion) for one in _find_fixes(calls, lines)),
        command_files=tuple(
            FileUse(path, count)
            for path, count in command_files.items()
            if path not in files and not is_packaged(path)
        ),
        programs=_find_named_programs(calls, lines, turns),
        remotes=tuple(_find_remotes(calls)),
        checks=find_checks(calls, lines),
        red_tests=tuple(one.name for one in suspicion.red_tests),
        red_checks=tuple(one.check for one in suspicion.red_tests),
        wishes=find_wishes(turns),
        echoes=tuple(suspicion.echoes),
        branch=hash_branch(branch),
        examples=find_examples(calls, lines, turns, answers),
        missing=find_missing_tools(calls),
        available=hash_available_tools(calls),
    )


def _count_uses(
    calls: Sequence[ObservedCall], lines: Sequence[tuple[CommandForm, ...]], root: str
) -> tuple[dict[CommandForm, list[int]], Counter[str], Counter[str]]:
    """Count how often each form worked and failed, and each file was used by tools and by commands."""
    commands: dict[CommandForm, list[int]] = {}
    files: Counter[str] = Counter()
    command_files: Counter[str] = Counter()
    for one, forms in zip(calls, lines, strict=True):
        for form in () if one.is_prevented else forms:
            counts = commands.setdefault(form, [0, 0])
            counts[bool(one.failed)] += 1
        if one.failed is not False:
            continue
        if (path := read_path(one.call, root)) is None:
            command_files.update(list_command_files(one.call, forms, root))
        elif not is_packaged(path):
            files[path] += 1
    return commands, files, command_files


class _Suspicion(NamedTuple):
    """What a session ran or saw fail that may follow what a stranger wrote."""

    echoes: Mapping[str, None]  # forms without shapes, with their folder if that is foreign
    foreign: ForeignText  # at the end of the session
    red_tests: Sequence[FailedTest]  # whose names no stranger wrote


def _find_suspicion(
    calls: Sequence[ObservedCall],
    lines: Sequence[tuple[CommandForm, ...]],
    root: str,
    turns: Sequence[UserTurn],
    inputs: Sequence[ModelInput],
) -> _Suspicion:
    """Read a session in order, and find what may follow what a stranger wrote."""
    foreign = ForeignText(root=root)
    clean: set[str] = set()
    echoes: dict[str, None] = {}
    changed: set[str] = set()
    red_tests: list[FailedTest] = []
    found = find_red_tests(calls, lines)
    coming, saying = deque(inputs), deque(turns)
    for number, (one, forms) in enumerate(zip(calls, lines, strict=True)):
        while coming and coming[0].before <= number:
            foreign.add_input(coming.popleft())
        while saying and saying[0].position <= one.turn:
            foreign.add_said(extract_vouching_text(saying.popleft().text))
        for text, folder in ((drop_shapes(form.text), form.folder) for form in forms):
            placed = join_folder(text, folder)
            if placed in clean or text in echoes:
                continue
            if foreign.is_echo(text, folder):
                echoes[text] = None
            elif foreign.is_foreign_folder(folder):
                echoes[placed] = None
            else:
                clean.add(placed)
                foreign.add_command(text, folder)
        red_tests += (red for red in found if red.call == number and not foreign.has_name(red.name))
        created = list_created_files(one.call, root)
        read = list_read_files(one.call, forms, root)
        foreign.add_created_files(created)
        if one.failed is False:
            foreign.add_files(read)
        changed.update(created, read if is_edit(one) else ())
        foreign.add_result(one.call, one.result, is_unchanged=changed.isdisjoint(read))
    return _Suspicion(echoes, foreign, red_tests)


def _hide_foreign_failure(fix: Fix, suspicion: _Suspicion) -> Fix:
    """Return a fix without the files of the failed command if a stranger may have named one."""
    if drop_shapes(fix.failed_text) not in suspicion.echoes:
        return fix
    hidden = hide_values(fix.failed_text, {*fix.key.split(" ")})
    if suspicion.foreign.is_echo(drop_shapes(hidden), fix.failed_folder):
        return fix  # which is left out with the command
    return msgspec.structs.replace(fix, failed_text=hidden)


def _find_fixes(
    calls: Sequence[ObservedCall], lines: Sequence[tuple[CommandForm, ...]]
) -> Iterable[Fix]:
    for index, one in enumerate(calls):
        keys = {form.key for form in lines[index] if can_be_fixed(form.key)} if one.failed else None
        fixing = _find_fixing_call(calls, lines, index, keys) if keys else None
        if fixing is None:
            continue
        fixed = next(form for form in lines[fixing] if keys and form.key in keys)
        failed = next(form for form in lines[index] if form.key == fixed.key)
        steps = _list_steps(calls, lines, index, fixing, fixed)
        if calls[fixing].call.arguments == one.call.arguments and not steps:
            continue  # something else fixed it, such as an edit
        yield Fix(
            key=failed.key,
            failed_text=failed.text,
            failed_folder=failed.folder,
            kind=one.error_kind,
            look=describe_look(one.result),
            fixed_text=fixed.text,
            fixed_folder=fixed.folder,
            steps=steps,
            is_informative=_is_informative(failed, fixed) or bool(steps),
        )


def _find_fixing_call(
    calls: Sequence[ObservedCall],
    lines: Sequence[tuple[CommandForm, ...]],
    index: int,
    keys: set[str],
) -> int | None:
    """Return the call soon after a failed one that ran the same command, most alike, and worked.

    One that everybody uses for many things at once, such as a search, must be much alike.
    """
    words = {*read_command(calls[index].call).split()}
    best, most_alike = None, 0.0
    for later in range(index + 1, min(index + 1 + MAX_CALLS_TO_FIX, len(calls))):
        if calls[later].failed is not False:
            continue
        common = [form.key for form in lines[later] if form.key in keys]
        if not common:
            continue
        others = {*read_command(calls[later].call).split()}
        alike = len(words & others) / len(words | others)
        least = MIN_SEARCH_LIKENESS if all(map(is_everyday, common)) else 0.0
        if alike >= least and (best is None or alike > most_alike):
            best, most_alike = later, alike
    return best


def _list_steps(
    calls: Sequence[ObservedCall],
    lines: Sequence[tuple[CommandForm, ...]],
    index: int,
    fixing: int,
    fixed: CommandForm,
) -> tuple[str, ...]:
    """Return the other commands that worked between a failed one and its fix, if nothing was edited."""
    before = list(lines[fixing][: lines[fixing].index(fixed)])
    between = calls[index + 1 : fixing]
    if not any(map(is_edit, between)):
        worked = (
            form
            for one, forms in zip(between, lines[index + 1 : fixing], strict=True)
            for form in forms
            if one.failed is False
        )
        before = [*worked, *before]
    known = {drop_shapes(form.text) for form in (*lines[index], fixed)}
    added: dict[str, str] = {}
    for form in before:
        text = drop_shapes(form.text)
        if text not in known and not is_everyday(form.key):
            added.setdefault(text, form.text)
    return tuple(added.values())[:MAX_STEPS]


def _is_informative(failed: CommandForm, fixed: CommandForm) -> bool:
    """Return whether two forms differ in more than the files and values they were run with."""
    if failed.folder != fixed.folder:
        return True
    before, after = drop_shapes(failed.text).split(), drop_shapes(fixed.text).split()
    changed = {*before} ^ {*after}
    if any(word[0] == "-" or "=" in word for word in changed if word not in ("-", "--")):
        return True
    if is_everyday(failed.key):
        return False
    # `go test -run X` instead of `go test`, or `gofmt -l cmd` instead of `gofmt -l ./cmd/...`
    return len(before) != len(after) or any("..." in word for word in changed)


def _find_named_programs(
    calls: Sequence[ObservedCall],
    lines: Sequence[tuple[CommandForm, ...]],
    turns: Sequence[UserTurn],
) -> tuple[int, ...]:
    """Return the programs of a session that its user named before it ran them, hashed."""
    words: set[str] = set()
    programs: set[str] = set()
    saying = deque(turns)
    for one, forms in zip(calls, lines, strict=True):
        while saying and saying[0].position <= one.turn:
            words.update(_NAME.findall(extract_vouching_text(saying.popleft().text)))
        programs.update(words & {get_program(form.key) for form in forms})
    return tuple(sorted(map(hash_word, programs)))


def _find_remotes(calls: Sequence[ObservedCall]) -> Iterable[str]:
    for one in calls:
        command = read_command(one.call)
        if command and "git" in one.call.name + one.result:
            yield from find_reported_remotes(command, one.result)


def describe_look(result: str) -> tuple[int, ...]:
    """Return the hashed words of the lines in which a result reports its failure.

    Paths, names of tests and other names say where it failed, not how.
    """
    result = result.partition(ADVICE_MARK)[0]
    lines = [line for line in result[-6_000:].splitlines() if _ERROR_LINE.search(line[:400])]
    chosen = [*lines[:2], *lines[-3:]] or result.splitlines()[-3:]
    found: dict[int, None] = {}
    for line in chosen:
        for token in line[:400].split():
            bare = token.strip("\"'`()[]{},;:.!")
            if _PLAIN_TOKEN.fullmatch(bare):
                for word in WORD.findall(bare):
                    if 2 < len(word) <= 24:
                        found[hash_word(word.lower())] = None
    return tuple(list(found)[:MAX_LOOK_WORDS])
