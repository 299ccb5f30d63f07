"""Arguments, options and helpers shared by the `rekindle warm` commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.store_access import load_settings, open_for_notes
from rekindle.errors import AmbiguousName, InvalidInput, NotFound, RekindleError

if TYPE_CHECKING:
    from rekindle.learning.library import TemplateLibrary
    from rekindle.redaction.redactor import Redactor
    from rekindle.store import Store
    from rekindle.types import Template


MAX_PROJECTS_SHOWN = 5


def open_library() -> TemplateLibrary:
    """Open the template library of this home."""
    from rekindle.learning.library import TemplateLibrary

    return TemplateLibrary.from_home(load_settings().home)


def create_redactor() -> Redactor:
    """Create a redactor that knows this machine: its user, home folder and secrets."""
    from rekindle.config import get_home_and_env
    from rekindle.redaction.redactor import Redactor

    return Redactor.from_environment(*get_home_and_env())


def complete_template(incomplete: str) -> list[tuple[str, str]]:
    """List templates and their names for shell completion."""
    try:
        entries = open_library().list_entries()
    except (RekindleError, OSError):
        return []
    return [
        (one.id, one.template.name)
        for one in entries
        if one.template and one.id.startswith(incomplete)
    ]


TemplateArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEMPLATE",
        help="Template id or name; to show, export or preview, also a project.",
        autocompletion=complete_template,
        show_default=False,
    ),
]
NameOption = Annotated[
    str,
    typer.Option("--name", "-n", metavar="NAME", help="Name of the template.", show_default=False),
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Tag (repeatable).")
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Task type: code, file, research or mixed."),
]
SourceOption = Annotated[
    str | None, typer.Option(metavar="SOURCE", help="Only sessions from this source, e.g. codex.")
]
DescriptionOption = Annotated[str | None, typer.Option(help="What the template is for.")]
# Options that select sessions and limit the size of a template.
MinMessagesOption = Annotated[int, typer.Option(help="Minimum number of messages per session.")]
MaxSessionsOption = Annotated[int, typer.Option(help="Maximum number of sessions, newest first.")]
SinceOption = Annotated[
    str | None, typer.Option(metavar="DATE", help="Only sessions active since this date.")
]
MaxNotesOption = Annotated[int, typer.Option("--max", help="Maximum number of notes.")]
MinSupportOption = Annotated[
    int, typer.Option(help="Minimum number of independent sessions per note.")
]
AutoOption = Annotated[
    bool, typer.Option("--auto", help="Use only successful sessions; quarantine the result.")
]


ProjectOption = Annotated[
    str | None,
    typer.Option(metavar="PROJECT", help="Only sessions of this project, e.g. owner/name."),
]


def find_project_key(store: Store, wanted: str) -> str:
    """Return the key of the project that a person named, or whose folder they named.

    Raise `NotFound` or `AmbiguousName`, which list names.
    """
    from rekindle.learning.notes.playbooks import find_project, is_repository
    from rekindle.projects import matches_project

    known = [project for project, _, _ in store.observations.list_projects()]
    if wanted in known:
        return wanted
    if wanted.startswith(("/", "~", ".")) and "\0" not in wanted:
        here = find_project(store, os.path.abspath(os.path.expanduser(wanted)))
        if here in known:
            return here
    found = [project for project in known if matches_project(project, wanted)]
    repositories = [*filter(is_repository, found)]
    if len(repositories or found) > 1:
        names = _format_projects(repositories or found)
        raise AmbiguousName(f"Several projects match {wanted!r:.80}: {names}.")
    if not found:
        raise NotFound(describe_missing_project(known, wanted))
    return (repositories or found)[0]


def describe_missing_project(known: Sequence[str], wanted: str) -> str:
    """Say that no project has a name, and which are near it, or which there are."""
    from rekindle.projects import shorten_project

    names: dict[str, str] = {}
    for project in known:
        short = shorten_project(project).lower()
        names |= {short: project, short.rpartition("/")[2]: project}
    close = get_close_matches(wanted.lower(), names, MAX_PROJECTS_SHOWN, 0.5)
    near = [*dict.fromkeys(names[one] for one in close)]
    problem = f"Project not found: {wanted!r:.80}."
    if not known:
        return f"{problem} Nothing is known yet. Import sessions with `rekindle start`."
    if near:
        return (
            f"{problem} Did you mean {_format_projects(near)}? List all with `rekindle projects`."
        )
    return f"{problem} Known projects: {_format_projects(known)}."


def _format_projects(projects: Sequence[str]) -> str:
    """Format projects as names that can be passed again, with the number of those left out."""
    from rekindle.projects import FOLDER_PREFIX

    names = [project.removeprefix(FOLDER_PREFIX) for project in projects]
    more = len(names) - MAX_PROJECTS_SHOWN
    rest = f" … and {more:,} more; list them with `rekindle projects`" if more > 0 else ""
    return ", ".join(names[:MAX_PROJECTS_SHOWN]) + rest


def find_template(name: str) -> Template:
    """Return the template with this id or name, or else the notes of a project of that name."""
    try:
        return open_library().find(name)
    except NotFound as error:
        from rekindle.learning.build import describe_playbook

        with open_for_notes(may_create=False) as store:
            try:
                return describe_playbook(store, find_project_key(store, name))
            except AmbiguousName:
                raise
            except NotFound:
                raise error from None


def require_at_least(option: str, value: int, minimum: int) -> None:
    """Raise `InvalidInput` naming the option if its value is below the minimum."""
    if value < minimum:
        raise InvalidInput(f"{option}: expected {minimum} or more, got {value}")
