"""Describe the contents of a playbook as notes: one statement each, with its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from rekindle.errors import InvalidInput
from rekindle.knowledge.examples.records import Example
from rekindle.knowledge.wishes.records import Wish

from .command_forms import is_everyday_run
from .harmless import is_own_command, is_plain_value
from .playbook import KnownFix, Playbook, Routine, list_current_red_tests
from .records import CommandForms, PlaybookItem, count_form_slots, drop_shapes, make_up_values

MAX_VARIANTS = 6
MAX_FILE_VARIANTS = 2
MIN_ARGUMENT_SHARE = 0.03  # of the sessions that used the command

MAX_MADE_UP_VALUES = 4  # in one command
MAX_NOTE_CHARS = 400  # of a note in somebody's own words
CODE = re.compile(r"`[^`]*`")
_TEMPORARY = re.compile(r"(?<![\w.-])/(?:var/|private/)*tmp\b")
_BRACKETS = re.compile(r" \(([^()`]*+)\)")


class RecalledNote(msgspec.Struct, frozen=True):
    """A note as an agent is told it, with the evidence for it."""

    id: str
    kind: str
    text: str
    command: str | None = None
    folder: str | None = None
    path: str | None = None
    sessions: int = 0
    worked: int = 0
    failed: int = 0
    last: str = ""
    asked: str = ""  # of an example, as is the answer
    answer: str = ""

    @property
    def mostly_fails(self) -> bool:
        """Return whether this is a command that failed more often than it worked."""
        return self.kind == "command" and self.failed > self.worked


class Recall(msgspec.Struct, frozen=True):
    """What an agent is told: exactly this text, and the notes in it."""

    text: str = ""
    tokens: int = 0
    notes: tuple[RecalledNote, ...] = ()


class NoteOrigin(msgspec.Struct, frozen=True):
    """Where a note comes from that a model proposed: the model, the day, and what it was made of."""

    model: str
    day: str
    kind: str = "wish"
    note: str = ""  # the id of the one that it rewords
    sessions: tuple[str, ...] = ()  # in which users said so


class ShareOrigin(msgspec.Struct, frozen=True):
    """Where a shared note comes from: the project, and the note there with its kind and evidence."""

    project: str
    shared: str  # the id of the note there
    kind: str
    sessions: int = 0


class NoteDecisions(NamedTuple):
    """What people decided about the notes of a project."""

    pinned: frozenset[str] = frozenset()  # ids: always told
    retired: frozenset[str] = frozenset()  # ids: never told
    added: tuple[RecalledNote, ...] = ()
    waiting: tuple[RecalledNote, ...] = ()  # proposed by an agent or model: not told until accepted
    shared: tuple[RecalledNote, ...] = ()  # of other projects, told in all
    reworded: Mapping[str, RecalledNote] = {}  # what is told in place of notes, by their ids
    told_elsewhere: frozenset[str] = frozenset()  # ids of notes that are shared with all projects
    origins: Mapping[str, NoteOrigin] = {}  # of what models proposed, also of retired notes, by id

    def reword(self, note: RecalledNote) -> RecalledNote:
        """Return a note in the words that were accepted for it, while it names the same."""
        found = self.reworded.get(note.id)
        statement, evidence = split_evidence(note.text)
        if found is None or list_code(found.text) != list_code(statement):
            return note
        text = found.text.rstrip(".")
        return msgspec.structs.replace(note, text=f"{text} ({evidence})" if evidence else text)


NO_DECISIONS = NoteDecisions()


def make_note_id(kind: str, *identity: str) -> str:
    """Return the short id of a note, equal for the same statement."""
    text = "\0".join((kind, *identity)).encode()
    return blake2b(text, digest_size=4).hexdigest()


def clean_note_text(text: str) -> str:
    """Return the text of a note on one line; raise `InvalidInput` if it is empty or too long."""
    words = "".join(char for char in " ".join(text.split()) if char.isprintable())
    if not 0 < len(words) <= MAX_NOTE_CHARS:
        raise InvalidInput(f"text: expected 1 to {MAX_NOTE_CHARS} characters")
    return words


def list_code(text: str) -> list[str]:
    """Return what a text has between backticks, in order."""
    return CODE.findall(text)


def split_evidence(text: str) -> tuple[str, str]:
    """Return the text of a note without the evidence in it, and the evidence."""
    found = next((one for one in _BRACKETS.finditer(text) if "session" in one[1]), None)
    return (text[: found.start()] + text[found.end() :], found[1]) if found else (text, "")


def create_note(text: str, day: str) -> RecalledNote:
    """Create a note that a person wrote."""
    return RecalledNote(make_note_id("wish", text), "wish", text, last=day)


def list_notes(playbook: Playbook) -> Iterator[RecalledNote]:
    """Yield every note of a playbook, of each kind those that most sessions share first."""
    yield from map(describe_wish, playbook.wishes)
    for item in _rank_items(playbook.commands):
        yield describe_command(item, playbook)
    fixes: dict[str, RecalledNote] = {}  # those that differ only in the shapes of values are one
    for known in sorted(playbook.fixes, key=lambda one: -len(one.sessions)):
        if known.fix.is_informative:
            note = describe_fix(known, playbook)
            fixes.setdefault(note.id, note)
    yield from fixes.values()
    for item in _rank_items(playbook.missing_tools):
        yield describe_missing_tool(item, playbook)
    for example in sorted(playbook.examples, key=lambda one: -len(one.sessions)):
        yield describe_example(example, playbook)
    if playbook.routine:
        yield describe_routine(playbook.routine, playbook)
    for item in _rank_items(tuple(list_current_red_tests(playbook))):
        yield describe_red_test(item, playbook)
    for item in _rank_items(playbook.files):
        yield describe_file(item, playbook)


def _rank_items(items: tuple[PlaybookItem, ...]) -> list[PlaybookItem]:
    shared = [one for one in items if len(one.sessions) > 1]
    return sorted(shared, key=lambda one: (-len(one.sessions), one.name))


def describe_command(item: PlaybookItem, playbook: Playbook) -> RecalledNote:
    """Describe a command that works."""
    form = item.forms[0]
    command = _format_command(form.text, form.folder)
    rate = f", failed {item.failed} of {item.worked + item.failed} times" if item.failed else ""
    also = ", ".join(f"`{one}`" for one in list_variants(item))
    shown = f"`{command}`{describe_slots(form.text, form.folder)}"
    return RecalledNote(
        id=make_note_id("command", item.name),
        kind="command",
        text=f"{shown} ({count_sessions(len(item.sessions))}{rate})"
        + (f", also with {also}" if also else ""),
        command=form.text,
        folder=form.folder or None,
        sessions=len(item.sessions),
        worked=item.worked,
        failed=item.failed,
        last=_format_day(playbook, item.sessions[-1]),
    )


def describe_slots(command: str, folder: str | None) -> str:
    """Show by made-up values how a command is meant that only this project has.

    Small models write a slot as it stands, or leave it out; a value they replace.
    """
    if not is_own_command(command) or not 0 < count_form_slots(command) <= MAX_MADE_UP_VALUES:
        return ""
    if "<path>" in command or "<option>" in command:
        return ""
    return f", such as `{_format_command(make_up_values(command), folder)}`"


def describe_wish(wish: Wish) -> RecalledNote:
    """Describe what users asked for, in their words."""
    return RecalledNote(
        id=make_note_id("wish", wish.text),
        kind="wish",
        text=f"“{wish.text}” ({count_sessions(len(wish.sessions))})",
        sessions=len(wish.sessions),
        last=datetime.fromtimestamp(wish.last, UTC).date().isoformat(),
    )


def list_variants(item: PlaybookItem) -> list[str]:
    """Return arguments that several sessions gave to a command, other than those of its first form.

    What else sessions do with a command that everybody knows, behind a program that runs it, is no news.
    """
    if is_everyday_run(item.name):
        return []
    shown = item.forms[0].text
    least = max(2, MIN_ARGUMENT_SHARE * len(item.sessions))
    words = {*shown.split()}
    found = [
        one.text
        for one in item.arguments
        if len(one.sessions) >= least
        and one.text.split()[0] not in words
        and not is_plain_value(one.text)
        and not _TEMPORARY.search(one.text)  # which no other session has
    ]
    files = [one for one in found if "." in one.rsplit("/", 1)[-1].strip(".") and one[0] != "-"]
    return [one for one in found if one not in files[MAX_FILE_VARIANTS:]][:MAX_VARIANTS]


def describe_file(item: PlaybookItem, playbook: Playbook) -> RecalledNote:
    """Describe a file that sessions use."""
    return RecalledNote(
        id=make_note_id("place", item.name),
        kind="place",
        text=f"`{item.name}` ({count_sessions(len(item.sessions))})",
        path=item.name,
        sessions=len(item.sessions),
        worked=item.worked,
        last=_format_day(playbook, item.sessions[-1]),
    )


def describe_command_files(items: Sequence[PlaybookItem], playbook: Playbook) -> RecalledNote:
    """Describe files that sessions read or change by commands, in one note."""
    names = ", ".join(f"`{one.name}`" for one in items)
    sessions = {number for one in items for number in one.sessions}
    return RecalledNote(
        id=make_note_id("place", "by commands"),
        kind="place",
        text=f"used by shell commands: {names} ({count_sessions(len(sessions))})",
        sessions=len(sessions),
        worked=sum(one.worked for one in items),
        last=_format_day(playbook, max(sessions)),
    )


def describe_fix(known: KnownFix, playbook: Playbook) -> RecalledNote:
    """Describe a failure and what worked instead."""
    fix = known.fix
    folder = fix.fixed_folder if fix.fixed_folder != fix.failed_folder else ""
    fixed = " && ".join((*fix.steps, fix.fixed_text))
    return RecalledNote(
        id=make_note_id("pitfall", drop_shapes(fix.failed_text), drop_shapes(fixed)),
        kind="pitfall",
        text=f"`{fix.failed_text}` failed; `{_format_command(fixed, folder)}` then worked "
        f"({count_sessions(len(known.sessions))}).",
        command=fixed,
        folder=fix.fixed_folder or None,
        sessions=len(known.sessions),
        worked=len(known.sessions),
        last=_format_day(playbook, known.sessions[-1]),
    )


def describe_example(example: Example, playbook: Playbook) -> RecalledNote:
    """Describe what was asked, and the command that closed it."""
    count = len(example.sessions)
    return RecalledNote(
        id=make_note_id("example", *example.kind),
        kind="example",
        text=f"Asked “{example.asked}”: `{example.command}` ({count_sessions(count)})",
        command=example.command,
        sessions=count,
        worked=count,
        last=_format_day(playbook, example.sessions[-1]),
        asked=example.asked,
        answer=example.answer,
    )


def describe_routine(routine: Routine, playbook: Playbook) -> RecalledNote:
    """Describe the commands that sessions run before a commit."""
    commands = ", ".join(f"`{one}`" for one in routine.commands)
    return RecalledNote(
        id=make_note_id("workflow", *routine.commands),
        kind="workflow",
        text=f"Before a commit: {commands} (all of them in {len(routine.sessions)} of "
        f"{count_sessions(routine.commits)} with a commit)",
        command=" && ".join(routine.commands),
        sessions=len(routine.sessions),
        worked=len(routine.sessions),
        last=_format_day(playbook, routine.sessions[-1]),
    )


def describe_red_test(item: PlaybookItem, playbook: Playbook) -> RecalledNote:
    """Describe a test that is red without any change."""
    last = _format_day(playbook, item.sessions[-1])
    return RecalledNote(
        id=make_note_id("baseline", item.name),
        kind="baseline",
        text=f"`{item.name}` failed before any change "
        f"({count_sessions(len(item.sessions))}, last on {last})",
        sessions=len(item.sessions),
        failed=len(item.sessions),
        last=last,
    )


def describe_missing_tool(item: PlaybookItem, playbook: Playbook) -> RecalledNote:
    """Describe a skill, an agent or a tool that sessions asked for and that does not exist."""
    kind, _, name = item.name.partition(" ")
    return RecalledNote(
        id=make_note_id("pitfall", item.name),
        kind="pitfall",
        text=f"There is no {kind} `{name}` here ({count_sessions(len(item.sessions))} asked for it).",
        sessions=len(item.sessions),
        failed=len(item.sessions),
        last=_format_day(playbook, item.sessions[-1]),
    )


def describe_form(form: CommandForms) -> RecalledNote:
    """Describe a form of a command that worked."""
    return RecalledNote(
        id=make_note_id("command", drop_shapes(form.text)),
        kind="command",
        text=f"`{_format_command(form.text, form.folder)}` worked ({count_sessions(form.sessions)}).",
        command=form.text,
        folder=form.folder or None,
        sessions=form.sessions,
        worked=form.worked,
        failed=form.failed,
    )


def _format_command(text: str, folder: str | None) -> str:
    return f"cd {folder} && {text}" if folder else text


def count_sessions(count: int) -> str:
    """Format a number of sessions."""
    return f"{count} session" if count == 1 else f"{count} sessions"


def _format_day(playbook: Playbook, number: int) -> str:
    return datetime.fromtimestamp(playbook.sessions[number].started, UTC).date().isoformat()
