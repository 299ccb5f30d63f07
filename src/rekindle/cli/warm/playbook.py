"""`rekindle warm notes`: read, correct and share the notes of a project."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    format_count,
    print_line,
    print_notice,
    to_one_line,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import open_for_notes, open_for_writing
from rekindle.errors import NotFound

from .options import find_project_key

if TYPE_CHECKING:
    from rekindle.knowledge.notes.note import NoteOrigin, RecalledNote
    from rekindle.learning.notes.decisions import ProjectNotes
    from rekindle.store import Store

MAX_REPEATED_CHARS = 60  # of a note, in the answer to a decision about it
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


def load_notes(store: Store, project: str | None) -> ProjectNotes:
    """Load the notes of the project that a person means, by default that of the current folder."""
    from rekindle.learning.notes.decisions import load_project_notes

    return load_project_notes(store, resolve_project(store, project))


def resolve_project(store: Store, wanted: str | None, folder: Path | None = None) -> str:
    """Return the project that a person means, by default that of a folder or of the current one."""
    from rekindle.learning.notes.playbooks import find_project

    if wanted is not None:
        return find_project_key(store, wanted)
    project = find_project(store, str((folder or Path.cwd()).absolute()))
    if project is None:
        if not store.observations.list_projects():
            raise NotFound("Nothing is known yet. Import sessions with `rekindle start`.")
        raise NotFound("Nothing is known about this folder. Name a project with --project.")
    return project


def write_notes_json(known: ProjectNotes, notes: Iterable[RecalledNote]) -> None:
    """Write notes as JSON, each with its state and, if a model proposed it, its origin."""
    write_json_array(_note_to_json(known, note) for note in notes)


def _note_to_json(known: ProjectNotes, note: RecalledNote) -> dict[str, Any]:
    import msgspec

    fields = {**msgspec.structs.asdict(note), "state": known.get_state(note)}
    fields["shared"] = known.is_told_elsewhere(note)
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
        known = load_notes(store, project)
    if json:
        write_notes_json(known, known.notes)
        return
    if not known.notes:
        print_notice("Nothing is known in this project yet that several sessions share.")
        return
    columns = [
        Column("id", style="cyan"),
        Column("state"),
        Column("kind"),
        Column("note", flexible=True),
    ]
    write_table(
        columns,
        [(note.id, _describe_state(known, note), note.kind, note.text) for note in known.notes],
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
        known = load_notes(store, project)
        found = known.find(note)
    if json:
        write_notes_json(known, [found])
        return
    print_line(found.text)
    seen = f"; last seen {found.last}" if found.last else ""
    print_line(f"{found.kind}, {_describe_state(known, found)}{seen}")
    if found.sessions:
        rate = f"worked {format_count(found.worked, 'time')}, failed {found.failed}; "
        print_line(f"{rate if found.command else ''}from {format_count(found.sessions, 'session')}")
    if (origin := known.decisions.origins.get(found.id)) is not None:
        print_line(_describe_origin(origin))


def _describe_state(known: ProjectNotes, note: RecalledNote) -> str:
    state = known.get_state(note)
    return f"{state}, shared" if known.is_told_elsewhere(note) else state


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
        known = load_notes(store, project)
        saved = decisions.edit_note(store, known, known.find(note), text, time.time())
    redactions = saved.words.describe_redactions()
    print_line(f"Edited; the note is now {saved.note.id}. {redactions}".rstrip())


@group.command("share")
def share_with_all(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Use a note in all your projects. Retire it in another one to remove it there.

    \b
    Examples:
      rekindle warm notes share 5f2c91aa
      rekindle warm notes unshare 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = load_notes(store, project)
        found = known.find(note)
        decisions.share_with_projects(store, known, found, time.time())
    print_line(f"Shared: {_shorten_note(found)}")


@group.command("unshare")
def stop_sharing(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Stop using a shared note in other projects. Its own project keeps it.

    \b
    Examples:
      rekindle warm notes unshare 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = load_notes(store, project)
        found = known.find(note)
        decisions.stop_sharing(store, known, found)
    print_line(f"No longer shared: {_shorten_note(found)}")


@group.command("accept")
def accept_note(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Accept a note that an agent or a model proposed. Until then, no session gets it.

    \b
    Examples:
      rekindle warm notes accept 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = load_notes(store, project)
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
        known = load_notes(store, project)
        found = known.find(note)
        decisions.pin_note(store, known, found, time.time())
    print_line(f"Pinned: {_shorten_note(found)}")


@group.command("retire")
def retire_note(note: _NoteArgument, project: NotesProjectOption = None) -> None:
    """Retire a note. Notes that you added or that an agent proposed are deleted.

    A note that this project shares ends everywhere. One that a model proposed is not proposed again.

    \b
    Examples:
      rekindle warm notes retire 5f2c91aa
    """
    from rekindle.learning.notes import decisions

    with open_for_writing(may_create=True) as store:
        known = load_notes(store, project)
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
        known = load_notes(store, project)
        found = known.find(note)
        decisions.reset_note(store, known, found)
    print_line(f"Reset: {_shorten_note(found)}")
