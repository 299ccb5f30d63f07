"""`rekindle lessons`: show what a project's sessions learned, or write it into a file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    DryRunOption,
    JsonOption,
    YesOption,
    print_line,
    print_notice,
    require_confirmation,
)
from rekindle.cli.store_access import open_for_notes
from rekindle.errors import InvalidInput
from rekindle.files import write_new_file

from .playbook import NotesProjectOption, load_notes, write_notes_json

if TYPE_CHECKING:
    from rekindle.knowledge.notes.note import RecalledNote
    from rekindle.learning.notes.decisions import ProjectNotes

MAX_LESSONS = 12  # of each kind
BEGIN_MARK, END_MARK = "<!-- rekindle lessons: begin -->", "<!-- rekindle lessons: end -->"
_MARK = re.compile(f"{BEGIN_MARK}|{END_MARK}")


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
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Show what a project's sessions learned, as Markdown for people and agents.

    With --write, the lessons replace those between two marks in the file; the rest stays as it is.

    \b
    Examples:
      rekindle lessons
      rekindle lessons --project owner/name --write AGENTS.md
      rekindle lessons --write AGENTS.md --dry-run
    """
    from rekindle.learning.notes.typed_text import redact_note_text

    if json and write is not None:
        raise typer.BadParameter("--json and --write cannot be combined")
    if dry_run and write is None:
        raise typer.BadParameter("--dry-run needs --write FILE")
    if write is not None and not write.resolve().parent.is_dir():
        raise typer.BadParameter(f"folder not found: {write.parent}")
    with open_for_notes() as store:
        known = load_notes(store, project)
    told = _choose_lessons(known)
    if json:
        write_notes_json(known, [note for notes in told.values() for note in notes])
        return
    lessons = redact_note_text("\n".join(_format_lessons(known.project, told)))
    if redactions := lessons.describe_redactions():  # of notes that were typed long ago
        print_notice(redactions)
    if write is None:
        print_line(lessons.text)
    else:
        _write_lessons(write, lessons.text, dry_run=dry_run, yes=yes)


def _write_lessons(name: Path, lessons: str, *, dry_run: bool, yes: bool) -> None:
    """Show the change of a file, ask, and write it."""
    file = name.resolve()  # a link stays a link
    before = _read_file(file)
    after = _replace_lessons(before, lessons, name)
    if after == before:
        print_notice(f"{name} is up to date.")
        return
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(name), str(name), lineterm=""
    ):
        print_line(line)
    if dry_run:
        return
    require_confirmation(f"Write {name}?", yes=yes)
    write_new_file(file, after, mode=0o644, in_place=True)
    print_line(f"Wrote {name}.")


def _replace_lessons(text: str, lessons: str, name: Path) -> str:
    """Return the text of a file with these lessons between its marks, or at its end."""
    newline = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    block = f"{BEGIN_MARK}\n{lessons}\n{END_MARK}".replace("\n", newline)
    span = _find_lessons(text, name)
    if span is not None:
        return text[: span[0]] + block + text[span[1] :]
    separator = "" if not text else newline if text.endswith("\n") else 2 * newline
    return f"{text}{separator}{block}{newline}"


def _find_lessons(text: str, name: Path) -> tuple[int, int] | None:
    """Return where the lessons begin and end in a text, if it has any.

    Raise `InvalidInput` if it is not certain: what stands between wrong marks is somebody's own.
    """
    marks = [*_MARK.finditer(text)]
    if not marks:
        return None
    if marks[0][0] == END_MARK:
        wrong, problem = marks[0], "end mark without its begin mark"
    elif len(marks) == 1 or marks[1][0] == BEGIN_MARK:
        wrong, problem = marks[0], "begin mark without its end mark"
    elif len(marks) > 2:
        wrong, problem = marks[2], f"another {'begin' if marks[2][0] == BEGIN_MARK else 'end'} mark"
    else:
        return marks[0].start(), marks[1].end()
    line = text.count("\n", 0, wrong.start()) + 1
    raise InvalidInput(f"{name}:{line}: {problem}; remove it")


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
        # A comment could be a mark, or hide something.
        yield from (f"- {note.text.replace('<!--', '<! --')}" for note in notes)


def _is_common(note: RecalledNote) -> bool:
    """Return whether a note is worth a line in a file that every session reads."""
    return note.kind == "wish" or (note.sessions > 1 and not note.mostly_fails)
