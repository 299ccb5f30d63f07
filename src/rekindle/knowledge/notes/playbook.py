"""A project's playbook: what its sessions ran, used and fixed, ready to be recalled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import msgspec

from .observations import Fix, FollowUp, SessionObservation, hash_word
from .programs import get_program, is_known_program

MAX_SESSIONS = 300  # the newest ones; older ones say little about today
MAX_FORMS = 4  # per command
MAX_PATHS = 3_000


class PlaybookSession(msgspec.Struct, array_like=True, frozen=True):
    """A session that the playbook was learned from."""

    id: str
    started: float
    words: tuple[int, ...]


class CommandForms(msgspec.Struct, array_like=True, frozen=True):
    """A form of a command: its text and folder, and how often it worked and failed."""

    text: str
    folder: str
    sessions: int
    worked: int
    failed: int


class PlaybookItem(msgspec.Struct, array_like=True, frozen=True):
    """A command or a file, and the numbers of the sessions that used it, oldest first."""

    name: str
    sessions: tuple[int, ...]
    uses: int
    worked: int = 0
    failed: int = 0
    forms: tuple[CommandForms, ...] = ()


class KnownFix(msgspec.Struct, array_like=True, frozen=True):
    """A failure and its fix, seen in one or more sessions."""

    fix: Fix
    sessions: tuple[int, ...]


class KnownFollowUp(msgspec.Struct, array_like=True, frozen=True):
    """A command that worked after another one failed, in some of the sessions where that failed."""

    follow_up: FollowUp
    sessions: int
    failed_sessions: int


class Playbook(msgspec.Struct, array_like=True, frozen=True):
    """Everything that is recalled in a project."""

    sessions: tuple[PlaybookSession, ...] = ()
    commands: tuple[PlaybookItem, ...] = ()
    files: tuple[PlaybookItem, ...] = ()
    fixes: tuple[KnownFix, ...] = ()
    follow_ups: tuple[KnownFollowUp, ...] = ()
    paths: tuple[str, ...] = ()  # every file that a session used, by a tool or by a command


def build_playbook(observations: Iterable[SessionObservation]) -> Playbook:
    """Build a playbook from the newest of a project's sessions."""
    newest = sorted(observations, key=lambda one: (one.started, one.session))[-MAX_SESSIONS:]
    named = {program for one in newest for program in one.programs}

    def is_trusted(form: str, key: str) -> bool:
        own = form.split()[0]
        return is_known_program(key) or "/" in own or hash_word(get_program(key)) in named

    return Playbook(
        sessions=tuple(PlaybookSession(one.session, one.started, one.words) for one in newest),
        commands=tuple(_collect_commands(newest, is_trusted)),
        files=tuple(_collect_files(newest)),
        fixes=tuple(_collect_fixes(newest, is_trusted)),
        follow_ups=tuple(_collect_follow_ups(newest, is_trusted)),
        paths=tuple(_collect_paths(newest)),
    )


def _collect_commands(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[PlaybookItem]:
    forms: dict[str, dict[tuple[str, str], list[int]]] = {}
    used: dict[str, list[int]] = {}
    totals: dict[str, list[int]] = {}
    for number, one in enumerate(observations):
        for use in one.commands:
            if not is_trusted(use.text, use.key):
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
        forms[key] = _join_rare_forms(forms[key])
        ranked = sorted(  # what several sessions ran alike says more than a form with slots
            forms[key].items(),
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
        )


def _join_rare_forms(
    forms: dict[tuple[str, str], list[int]],
) -> dict[tuple[str, str], list[int]]:
    """Join forms that single sessions used: what they were run with belongs to those sessions."""
    found: dict[tuple[str, str], list[int]] = {}
    for (text, folder), counts in forms.items():
        shown = (text if counts[0] > 1 and "/tmp/" not in text else _hide_paths(text), folder)
        total = found.setdefault(shown, [0, 0, 0])
        for index, count in enumerate(counts):
            total[index] += count
    return found


def _hide_paths(text: str) -> str:
    program, *words = text.split(" ")
    hidden = ["<path>" if "/" in one or "." in one.strip(".") else one for one in words]
    kept = [
        one if one in ("./...", ".") or one[0] == "-" or "=" in one else hide
        for one, hide in zip(words, hidden, strict=True)
    ]
    return " ".join([program, *(one for one, _ in groupby(kept) if one)])


def _collect_files(observations: Sequence[SessionObservation]) -> Iterable[PlaybookItem]:
    used: dict[str, tuple[list[int], list[int]]] = {}
    for number, one in enumerate(observations):
        for file in one.files:
            sessions, counts = used.setdefault(file.path, ([], []))
            sessions.append(number)
            counts.append(file.count)
    for path, (sessions, counts) in used.items():
        yield PlaybookItem(path, tuple(sessions), sum(counts), worked=sum(counts))


def _collect_fixes(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[KnownFix]:
    known: dict[tuple[str, ...], tuple[Fix, list[int]]] = {}
    for number, one in enumerate(observations):
        for fix in one.fixes:
            if not is_trusted(fix.fixed_text, fix.fixed_key):
                continue
            identity = (
                fix.failed_text, fix.failed_folder, fix.fixed_text, fix.fixed_folder, fix.kind,
            )  # fmt: skip
            _, sessions = known.setdefault(identity, (fix, []))
            if not sessions or sessions[-1] != number:
                sessions.append(number)
    for fix, sessions in known.values():
        yield KnownFix(fix, tuple(sessions))


def _collect_follow_ups(
    observations: Sequence[SessionObservation], is_trusted: Callable[[str, str], bool]
) -> Iterable[KnownFollowUp]:
    failed = Counter(key for one in observations for key in one.failed_keys)
    seen = Counter(each for one in observations for each in one.follow_ups)
    for follow_up, sessions in seen.items():
        if sessions > 1 and is_trusted(follow_up.text, follow_up.key):
            yield KnownFollowUp(follow_up, sessions, failed[follow_up.failed_key])


def _collect_paths(observations: Sequence[SessionObservation]) -> list[str]:
    """Return the paths of files, those of the newest sessions first."""
    found = dict.fromkeys(path for one in reversed(observations) for path in list_paths(one))
    return list(found)[:MAX_PATHS]


def list_paths(observation: SessionObservation) -> list[str]:
    """Return the paths of the files that a session used, by a tool or by a command."""
    paths = (*(file.path for file in observation.files), *observation.shell_files)
    return [path for path in paths if "." in path.rsplit("/", 1)[-1]]
