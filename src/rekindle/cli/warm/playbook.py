"""`rekindle warm notes` and `rekindle lessons`: read, correct and share the notes of a project."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    YesOption,
    format_count,
    print_line,
    print_notice,
    require_confirmation,
    to_one_line,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import open_for_notes, open_for_writing
from rekindle.errors import InvalidInput, NotFound
from rekindle.files import write_new_file

from .options import find_project_key

if TYPE_CHECKING:
    from rekindle.knowledge.notes.note import NoteOrigin, RecalledNote
    from rekindle.learning.notes.decisions import ProjectNotes
    from rekindle.store import Store

MAX_LESSONS = 12  # of each kind
MAX_REPEATED_CHARS = 60  # of a note, in the answer to a decision about it
BEGIN_MARK, END_MARK = "<!-- rekindle lessons: begin -->", "<!-- rekindle lessons: end -->"
NotesProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="PROJECT",
        help="Project, e.g. owner/name.",
        show_default="this folder's",
    ),
]
_NoteArgument = Annotated[
    str, typer.Argument(metavar="NOTE", help="Id of the note.", show_default=False)
]

group = create_group("Read and correct the notes of a project.")


def _load_notes(store: Store, project: str | None) -> ProjectNotes:
    from rekindle.learning.notes.decisions import load_project_notes

    return load_project_notes(store, resolve_project(store, project))


def resolve_project(store: Store, wanted: str | None, folder: Path | None = None) -> str:
    """Return the project that a person means, by default that of a folder or of the current one."""
    from rekindle.learning.notes.playbooks import find_project

    if wanted is not None:
        return find_project_key(store, wanted)
    project = find_project(store, str((folder or Path.cwd()).absolute()))
    if project is None:
        raise NotFound("Nothing is known about this folder. Name a project with --project.")
    return project


def _write_notes_json(known: ProjectNotes, notes: Iterable[RecalledNote]) -> None:
    write_json_array(_note_to_json(known, note) for note in notes)


def _note_to_json(known: ProjectNotes, note: RecalledNote) -> dict[str, Any]:
    import msgspec

    fields = {**msgspec.structs.asdict(note), "state": known.get_state(note)}
    origin = known.decisions.origins.get(note.id)
    return {**fields, "origin": msgspec.structs.asdict(origin)} if origin else fields


@group.command("list")
def list_project_notes(project: NotesProjectOption = None, json: JsonOption = False) -> None:
    """List the notes of a project: commands, fixes and files that several sessions share.

    \b
    Examples:
      rekindle warm notes list
      rekindle warm notes list --project owner/name --json
    """
    with open_for_notes() as store:
        known = _load_notes(store, project)
    if json:
        _write_notes_json(known, known.notes)
        return
    columns = [
        Column("id", style="cyan"),
        Column("state"),
        Column("kind"),
        Column("note", flexible=True),
    ]
    write_table(
        columns, [(note.id, known.get_state(note), note.kind, note.text) for note in known.notes]
    )


@group.command("show")
def show_note(
    note: _NoteArgument, project: NotesProjectOption = None, json: JsonOption = False
) -> None:
    """Show one note with the evidence for it.

    \b
    Examples:
      rekindle warm notes show 5f2c91aa
    """
    with open_for_notes() as store:
        known = _load_notes(store, project)
        found = known.find(note)
    if json:
        _write_notes_json(known, [found])
        return
    print_line(found.text)
    seen = f"; last seen {found.last}" if found.last else ""
    print_line(f"{found.kind}, {known.get_state(found)}{seen}")
    if found.sessions:
        rate = f"worked {format_count(found.worked, 'time')}, failed {found.failed}; "
        print_line(f"{rate if found.command else ''}from {format_count(found.sessions, 'session')}")
    if (origin := known.decisions.origins.get(found.id)) is not None:
        print_line(_describe_origin(origin))


def _shorten_note(note: RecalledNote) -> str:
    return f"{note.id} {to_one_line(note.text, MAX_REPEATED_CHARS)}"


def _describe_origin(origin: NoteOrigin) -> str:
    said = f"from what users said in {', '.join(origin.sessions)}"
    source = f"in place of note {origin.note}" if origin.note else said
    return f"proposed by {origin.model} on {origin.day}, {source}"


@group.command("add")
def add_note(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the note.")],
    project: NotesProjectOption = None,
) -> None:
    """Add a note in your own words, which every session of the project gets.

    \b
    Examples:
      rekindle warm notes add 'Run the linter before every commit.'
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        saved = decisions.add_note(store, resolve_project(store, project), text, time.time())
    if saved.is_new:
        print_line(f"Added {saved.note.id}. {saved.words.describe_redactions()}".rstrip())
    else:
        print_line(f"Already there: {_shorten_note(saved.note)}")


@group.command("edit")
def edit_note(
    note: _NoteArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="New text of the note.")],
    project: NotesProjectOption = None,
) -> None:
    """Reword a note. A learned note is retired and replaced with yours.

    \b
    Examples:
      rekindle warm notes edit 5f2c91aa 'Run `make check` before every commit.'
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = _load_notes(store, project)
        saved = decisions.edit_note(store, known, known.find(note), text, time.time())
    redactions = saved.words.describe_redactions()
    print_line(f"Edited; the note is now {saved.note.id}. {redactions}".rstrip())


@group.command("share")
def share_with_all(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Use a note in all your projects. Retire it in a project to remove it there.

    \b
    Examples:
      rekindle warm notes share 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = _load_notes(store, project)
        found = known.find(note)
        decisions.share_with_projects(store, known, found, time.time())
    print_line(f"Shared: {_shorten_note(found)}")


@group.command("accept")
def accept_note(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Accept a note that an agent or a model proposed. Until then, no session gets it.

    \b
    Examples:
      rekindle warm notes accept 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = _load_notes(store, project)
        found = known.find(note)
        decisions.accept_note(store, known, found, time.time())
    print_line(f"Accepted: {_shorten_note(found)}")


@group.command("pin")
def pin_note(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Include a note at every start, whatever the session is about.

    \b
    Examples:
      rekindle warm notes pin 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = _load_notes(store, project)
        found = known.find(note)
        decisions.pin_note(store, known, found, time.time())
    print_line(f"Pinned: {_shorten_note(found)}")


@group.command("retire")
def retire_note(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Retire a note. Notes that you added or that an agent proposed are deleted.

    A note that a model proposed is not proposed again.

    \b
    Examples:
      rekindle warm notes retire 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = _load_notes(store, project)
        found = known.find(note)
        decisions.retire_note(store, known, found, time.time())
    print_line(f"Retired: {_shorten_note(found)}")


@group.command("reset")
def reset_note(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Undo the pinning or retiring of a note.

    \b
    Examples:
      rekindle warm notes reset 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = _load_notes(store, project)
        found = known.find(note)
        decisions.reset_note(store, known, found)
    print_line(f"Reset: {_shorten_note(found)}")


# ── lessons


def show_lessons(
    project: NotesProjectOption = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the lessons to this file, e.g. AGENTS.md, after showing the change.",
            show_default=False,
        ),
    ] = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Show what a project's sessions learned, as Markdown for people and agents.

    With --write, the lessons replace those between two marks in the file; the rest stays as it is.

    \b
    Examples:
      rekindle lessons
      rekindle lessons --project owner/name --write AGENTS.md
    """
    from rekindle.learning.notes.typed_text import redact_note_text

    if json and write is not None:
        raise typer.BadParameter("--json and --write cannot be combined")
    with open_for_notes() as store:
        known = _load_notes(store, project)
    told = _choose_lessons(known)
    if json:
        _write_notes_json(known, [note for notes in told.values() for note in notes])
        return
    lessons = redact_note_text("\n".join(_format_lessons(known.project, told)))
    text = lessons.text
    if redactions := lessons.describe_redactions():  # of notes that were typed long ago
        print_notice(redactions)
    if write is None:
        print_line(text)
        return
    file = write.resolve()  # a link stays a link
    before = _read_file(file)
    after = _replace_lessons(before, text)
    if after == before:
        print_notice(f"{write} is up to date.")
        return
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(write), str(write), lineterm=""
    ):
        print_line(line)
    require_confirmation(f"Write {write}?", yes=yes)
    write_new_file(file, after, mode=0o644, in_place=True)


def _read_file(file: Path) -> str:
    """Read a text as it is, line ends included; a missing file is empty."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise InvalidInput(f"{file}: not valid UTF-8") from None


def _choose_lessons(known: ProjectNotes) -> Mapping[str, Sequence[RecalledNote]]:
    """Return the notes of each section that has any."""
    from rekindle.knowledge.skill import SECTION_TITLES

    hidden = ("retired", "quarantined")
    reworded = known.decisions.reworded.values()  # told in the place of other notes
    told = [
        note
        for note in known.notes
        if known.get_state(note) not in hidden and note not in reworded and _is_common(note)
    ]
    sections = {
        title: [known.decisions.reword(note) for note in told if note.kind == kind][:MAX_LESSONS]
        for kind, title in SECTION_TITLES.items()
    }
    return {title: notes for title, notes in sections.items() if notes}


def _format_lessons(project: str, sections: Mapping[str, Sequence[RecalledNote]]) -> Iterable[str]:
    from rekindle.projects import shorten_project

    yield f"## What sessions learned in {shorten_project(project)}"
    if not sections:
        yield ""
        yield "Nothing yet that several sessions share."
    for title, notes in sections.items():
        yield ""
        yield f"{title}:"
        yield ""
        yield from (f"- {note.text}" for note in notes)


def _is_common(note: RecalledNote) -> bool:
    """Return whether a note is worth a line in a file that every session reads."""
    return note.kind == "wish" or (note.sessions > 1 and not note.mostly_fails)


def _replace_lessons(text: str, lessons: str) -> str:
    block = f"{BEGIN_MARK}\n{lessons}\n{END_MARK}"
    start, end = text.find(BEGIN_MARK), text.find(END_MARK)
    if 0 <= start < end:
        return text[:start] + block + text[end + len(END_MARK) :]
    separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{separator}{block}\n"
