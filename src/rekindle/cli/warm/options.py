"""Arguments, options and helpers shared by the `rekindle warm` commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.store_access import load_settings, open_for_notes
from rekindle.errors import InvalidInput, NotFound, RekindleError

if TYPE_CHECKING:
    from rekindle.learning.library import TemplateLibrary
    from rekindle.redaction.redactor import Redactor
    from rekindle.store import Store
    from rekindle.types import Template


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
    """Return the key of the project that a person named."""
    from rekindle.projects import matches_project

    known = [project for project, _, _ in store.observations.list_projects()]
    found = [project for project in known if matches_project(project, wanted)]
    if not found:
        some = ", ".join(known[:5]) or "none"
        raise NotFound(f"Project not found: {wanted!r:.80}. Known projects: {some}.")
    return found[0]


def find_template(name: str) -> Template:
    """Return the template with this id or name, or else the notes of a project of that name."""
    try:
        return open_library().find(name)
    except NotFound as error:
        from rekindle.learning.build import describe_playbook

        with open_for_notes(may_create=False) as store:
            try:
                return describe_playbook(store, find_project_key(store, name))
            except NotFound:
                raise error from None


def require_at_least(option: str, value: int, minimum: int) -> None:
    """Raise `InvalidInput` naming the option if its value is below the minimum."""
    if value < minimum:
        raise InvalidInput(f"{option}: expected {minimum} or more, got {value}")
