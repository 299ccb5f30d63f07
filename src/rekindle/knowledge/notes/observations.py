"""Observe a session: the commands it ran, the files it used, and what fixed its failures.

An observation is small, holds no value that is not known to be harmless, and is all that learning
keeps of a session; a project's playbook is built from the observations of its sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from rekindle.judging.rules.text_patterns import split_words
from rekindle.projects import find_reported_remotes

from .calls import (
    ObservedCall,
    find_checks,
    find_red_tests,
    is_edit,
    read_command,
    read_forms,
    read_path,
)
from .command_forms import CommandForm, can_be_fixed, is_everyday
from .programs import get_program

OBSERVATION_VERSION = 3
ADVICE_MARK = "[From earlier sessions in this project]"  # before advice in the result of a call
MAX_REQUEST_CHARS = 6_000
MAX_REQUEST_WORDS = 120
MAX_LOOK_WORDS = 24
MAX_CALLS_TO_FIX = 6
MIN_SEARCH_LIKENESS = 0.5
MAX_STEPS = 3  # beside the command that was fixed
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*[A-Za-z0-9_+]")
_WORD_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PLAIN_TOKEN = re.compile(r"-{0,2}[A-Za-z]?[a-z]+(?:[-_'][a-z]+){0,4}|-{0,2}[A-Z]{2,}")
_ERROR_LINE = re.compile(
    r"(?i)error|fail|not found|denied|cannot|can't|no such|unknown|invalid|undefined|fatal|unable"
    r"|refused|missing|expected|panic|not permitted|no matches|unrecognized|must|usage|exception|warning"
)
_STOP_WORDS = split_words(
    """
    the and for that this with you can are not but have from was will all use what when should then into
    also only just like don need would make there about has its them they some more how out our now any
    see get add one please let were been being does did doing want
    """
)


class CommandUse(msgspec.Struct, array_like=True, frozen=True):
    """How often a session ran a form of a command."""

    key: str
    text: str
    folder: str
    worked: int
    failed: int


class FileUse(msgspec.Struct, array_like=True, frozen=True):
    """How often a session used a file."""

    path: str
    count: int


class Fix(msgspec.Struct, array_like=True, frozen=True):
    """A command that failed, how the failure looked, and the same command that worked soon after.

    One that is not informative differs only in values that a note does not keep; it still tells how
    often such a failure is fixed in a way that can be said.
    """

    key: str
    failed_text: str
    failed_folder: str
    kind: str
    look: tuple[int, ...]
    fixed_text: str
    fixed_folder: str
    steps: tuple[str, ...] = ()  # other commands of the line that worked, before it
    is_informative: bool = True


class SessionObservation(msgspec.Struct, array_like=True, frozen=True):
    """What learning keeps of one session."""

    session: str
    started: float
    words: tuple[int, ...]  # of the request, hashed
    commands: tuple[CommandUse, ...]
    files: tuple[FileUse, ...]
    fixes: tuple[Fix, ...]
    shell_files: tuple[str, ...] = ()  # read or searched by a command, not by a tool for files
    programs: tuple[int, ...] = ()  # programs that the user named, hashed
    remotes: tuple[str, ...] = ()  # that git named
    checks: tuple[str, ...] | None = (
        None  # keys of commands before the last commit, if there is one
    )
    red_tests: tuple[str, ...] = ()  # that failed before the session changed a file


def observe_session(
    session: str,
    started: float,
    root: str,
    request: str,
    calls: Sequence[ObservedCall],
    said: str = "",
) -> SessionObservation:
    """Observe a session that worked in the folder `root`; `said` is all that its user said."""
    commands: dict[CommandForm, list[int]] = {}
    files: dict[str, int] = {}
    shell_files: dict[str, None] = {}
    lines = [read_forms(one.call, root) for one in calls]
    for one, forms in zip(calls, lines, strict=True):
        for form in forms:
            counts = commands.setdefault(form, [0, 0])
            counts[bool(one.failed)] += 1
            if one.failed is False and is_everyday(form.key):
                shell_files.update(dict.fromkeys(form.files))
        if one.failed is False and (path := read_path(one.call, root)):
            files[path] = files.get(path, 0) + 1
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
        fixes=tuple(_find_fixes(calls, lines)),
        shell_files=tuple(path for path in shell_files if path not in files),
        programs=_find_named_programs(commands, f"{request}\n{said}"),
        remotes=tuple(_find_remotes(calls)),
        checks=find_checks(calls, lines),
        red_tests=find_red_tests(calls),
    )


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
    known = {form.text for form in lines[index]} | {fixed.text}
    added = [form.text for form in before if form.text not in known and not is_everyday(form.key)]
    return tuple(dict.fromkeys(added))[:MAX_STEPS]


def _is_informative(failed: CommandForm, fixed: CommandForm) -> bool:
    """Return whether two forms differ in more than the files and values they were run with."""
    if failed.folder != fixed.folder:
        return True
    before, after = failed.text.split(), fixed.text.split()
    changed = {*before} ^ {*after}
    if any(word[0] == "-" or "=" in word for word in changed if word not in ("-", "--")):
        return True
    if is_everyday(failed.key):
        return False
    # `go test -run X` instead of `go test`, or `gofmt -l cmd` instead of `gofmt -l ./cmd/...`
    return len(before) != len(after) or any("..." in word for word in changed)


def _find_named_programs(forms: Iterable[CommandForm], said: str) -> tuple[int, ...]:
    """Return the programs of a session that its user named, hashed."""
    words = frozenset(_NAME.findall(said))
    programs = {get_program(form.key) for form in forms}
    return tuple(sorted(hash_word(program) for program in programs if program in words))


def _find_remotes(calls: Sequence[ObservedCall]) -> Iterable[str]:
    for one in calls:
        command = read_command(one.call)
        if command and "git" in one.call.name + one.result:
            yield from find_reported_remotes(command, one.result)


def hash_request(text: str) -> tuple[int, ...]:
    """Return the hashed words of a request, so that requests can be compared and not read."""
    return tuple(sorted(hash_words(text[:MAX_REQUEST_CHARS])))[:MAX_REQUEST_WORDS]


def hash_words(text: str) -> set[int]:
    """Return the hashes of a text's words and of the parts of its compound words."""
    found: set[int] = set()
    for word in _WORD.findall(text):
        parts = _WORD_PART.findall(word)
        for part in (*parts, word) if len(parts) > 1 else (word,):
            plain = part.lower()
            if len(plain) > 2 and plain not in _STOP_WORDS:
                found.add(hash_word(plain.removesuffix("s") if len(plain) > 4 else plain))
    return found


@lru_cache(maxsize=100_000)
def hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big")


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
                for word in _WORD.findall(bare):
                    if 2 < len(word) <= 24:
                        found[hash_word(word.lower())] = None
    return tuple(list(found)[:MAX_LOOK_WORDS])
