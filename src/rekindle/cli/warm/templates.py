"""`rekindle warm build`, `extract`, `list`, `show`, `edit`, `delete`: what new sessions start from."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from rekindle.cli.insights import commands
from rekindle.cli.output import (
    AsJson,
    Owner,
    Yes,
    confirm,
    counted,
    encode,
    note,
    progress,
    say,
    write_array,
)
from rekindle.cli.session_choice import Name
from rekindle.cli.store_access import reading, settings, writing
from rekindle.errors import InvalidInput, RekindleError

if TYPE_CHECKING:
    from rekindle.learning.library import Templates
    from rekindle.redaction.redactor import Redactor
    from rekindle.store import Store
    from rekindle.types import Template

group = typer.Typer(
    help="Learn from sessions, and start new ones with what was learned.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def folder() -> Templates:
    """The templates of this home."""
    from rekindle.learning.library import Templates

    return Templates.of_home(settings().home)


def redactor() -> Redactor:
    """Redaction that knows this machine: its user, home folder and secrets."""
    from rekindle.config import surroundings
    from rekindle.redaction.redactor import Redactor

    return Redactor.of_machine(*surroundings())


def complete_template(incomplete: str) -> list[tuple[str, str]]:
    """Templates for the shell to complete, with their names beside them."""
    try:
        entries = folder().all()
    except (RekindleError, OSError):
        return []
    return [
        (one.id, one.template.name)
        for one in entries
        if one.template and one.id.startswith(incomplete)
    ]


TemplateName = Annotated[
    str,
    typer.Argument(
        metavar="TEMPLATE",
        help="A template's id or name.",
        autocompletion=complete_template,
        show_default=False,
    ),
]
NewName = Annotated[
    str,
    typer.Option("--name", "-n", metavar="NAME", help="The template's name.", show_default=False),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be given again.")
]
Type = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Type of task: code, file, research or mixed."),
]
Source = Annotated[
    str | None, typer.Option(metavar="SOURCE", help="Only sessions from here, such as codex.")
]
Description = Annotated[str | None, typer.Option(help="What it is for.")]
# Which sessions a template is learned from, and how much of them it keeps.
MinMessages = Annotated[int, typer.Option(help="Sessions with at least so many messages.")]
MaxSessions = Annotated[int, typer.Option(help="Learn from at most so many, newest first.")]
Since = Annotated[
    str | None, typer.Option(metavar="DATE", help="Only sessions that were active since then.")
]
MaxPatterns = Annotated[int, typer.Option("--max", help="Keep at most so many patterns.")]
MinSupport = Annotated[
    int, typer.Option(help="A pattern must come from so many independent sessions.")
]
Auto = Annotated[
    bool, typer.Option("--auto", help="From sessions that did well; in quarantine until accepted.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file, and those that belong to the group."""
    from . import experiment, preview, share

    app.add_typer(group, name="warm")
    share.register(group)
    preview.register(group)
    group.add_typer(experiment.group, name="experiment")
    for command in (commands.profile, commands.compress_check, commands.compare):
        group.command(command.__name__.replace("_", "-"))(command)


@group.command()
def build(
    name: NewName,
    min_messages: MinMessages = 30,
    max_sessions: MaxSessions = 50,
    source: Source = None,
    type: Type = None,
    tag: Tags = None,
    max: MaxPatterns = 40,
    min_support: MinSupport = 2,
    since: Since = None,
    description: Description = None,
    auto: Auto = False,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Mine sessions into a template: what they share, and what mended their errors.

    Looks only at what is new since the last time. Secrets and private data are removed before
    anything is learned; what was removed is counted.

    \b
    Examples:
      rekindle warm build --name 'Our repository' --source claude-code
      rekindle warm build --name reviews --type code --min-messages 50 --tag review
      rekindle warm build --name weekly --since 2026-01-01 --auto
    """
    from rekindle.learning import build
    from rekindle.learning.miner import Wanted
    from rekindle.store.core.filter import moment

    active = moment(since) if since else None
    at_least("--min-messages", min_messages, 0)
    for option, value in (
        ("--max-sessions", max_sessions), ("--max", max), ("--min-support", min_support),
    ):  # fmt: skip
        at_least(option, value, 1)
    wanted = Wanted(
        source, owner, active, type, min_messages, max_sessions, most=max, least=min_support
    )
    eraser = redactor()
    with writing() as store, progress("Learning") as show:
        built = build.build(
            store, folder(), eraser, name, wanted,
            now=time.time(), description=description, tags=tag or (), automatic=auto, progress=show,
        )  # fmt: skip
    removed = build.removed_by(eraser)
    if json:
        told = {"metrics": built.scan, "removed": removed, "kept": built.kept}
        say(encode({**_head(built.template), **told}).decode())
        return
    from .render import write_built

    write_built(built, removed)


def at_least(option: str, value: int, least: int) -> None:
    """Refuse a number that is too small, by the name that its option has."""
    if value < least:
        raise InvalidInput(f"{option}: expected {least} or more, got {value}")


@group.command()
def extract(
    session: Name,
    name: NewName,
    tag: Tags = None,
    description: Description = None,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Make a template of one session: what it was about, how its user speaks, calls that worked.

    \b
    Examples:
      rekindle warm extract 'My Project' --name my-project
    """
    from rekindle.learning import build

    eraser = redactor()
    with writing() as store:
        template = build.extract(
            store, folder(), eraser, session, name,
            now=time.time(), description=description, tags=tag or (), owner=owner,
        )  # fmt: skip
    removed = build.removed_by(eraser)
    if json:
        say(encode({**_head(template), "removed": removed}).decode())
        return
    from .render import write_removed, write_waiting

    write_removed(removed)
    say(f"Template {template.id!r}: {counted(len(template.patterns), 'example')}.")
    write_waiting(template)
    say(f"See it with: rekindle warm show {template.id}")


@group.command("list")
def list_(
    type: Type = None,
    tag: Annotated[
        str | None, typer.Option(metavar="TAG", help="Only those with this tag.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Only those learned from this source.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="active, quarantined or retired.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the templates, with how often they were used and how that went.

    \b
    Examples:
      rekindle warm list
      rekindle warm list --type code --tag review
    """
    entries = folder().all()
    for entry in entries:
        if entry.template is None:
            note(f"rekindle: {entry.problem}")
    found = [entry.template for entry in entries if entry.template]
    given = {"--type": type, "--tag": tag, "--source": source, "--state": state}
    filters = {option: value for option, value in given.items() if value is not None}
    _check_filters(filters, found)
    with reading() as store:
        fitting = _fitting(store, found, filters)
        rows = [(one, _use(store, one)) for one in fitting]
    if json:
        write_array({**_head(one), "use": use} for one, use in rows)
        return
    if found and not rows:
        told = " ".join(f"{option} {value}" for option, value in filters.items())
        note(f"No template fits {told}: `rekindle warm list` shows all {len(found)}.")
        return
    if not rows:
        note("No templates here: make one with `rekindle warm build --name NAME`.")
        return
    from .render import write_list

    write_list(rows)


def _check_filters(filters: Mapping[str, str], found: Sequence[Template]) -> None:
    from rekindle.analytics.profile import TASK_KINDS
    from rekindle.types import TemplateState

    types = dict.fromkeys((*TASK_KINDS, "mixed", *(one.task_type for one in found)))
    for option, known in (("--type", [*types]), ("--state", [*get_args(TemplateState)])):
        value = filters.get(option)
        if value is not None and value not in known:
            raise InvalidInput(f"{option}: expected one of {', '.join(known)}, got {value!r:.40}")


def _fitting(
    store: Store, found: Sequence[Template], filters: Mapping[str, str]
) -> Sequence[Template]:
    fitting = [
        one
        for one in found
        if filters.get("--type", one.task_type) == one.task_type
        and filters.get("--state", one.state) == one.state
        and ("--tag" not in filters or filters["--tag"] in one.tags)
    ]
    source = filters.get("--source")
    return fitting if source is None else _from(store, fitting, source)


def _from(store: Store, found: Sequence[Template], source: str) -> Sequence[Template]:
    """Templates that were learned from a source, as they tell themselves or as their sessions do."""
    from rekindle.knowledge.file_format import sources_of
    from rekindle.learning.build import sessions_of
    from rekindle.store import Filter

    sessions = sessions_of(store, Filter(source=source))
    return [
        one for one in found if source in sources_of(one) or not sessions.isdisjoint(one.sources)
    ]


def _use(store: Store, template: Template) -> Any:
    from rekindle.learning import build

    return build.use_of(store, template.id)


def _head(template: Template) -> dict[str, Any]:
    """A template without its patterns, for programs."""
    kept = template._asdict()
    for name in ("patterns", "seed", "scan"):
        del kept[name]
    tools = sorted({step.tool for one in template.patterns for step in one.steps})
    return {
        **kept,
        "tags": list(template.tags),
        "pattern_count": len(template.patterns),
        "tools": tools,
    }


@group.command()
def show(name: TemplateName, json: AsJson = False) -> None:
    """Show a template: what it advises, where that is known from, and how it did.

    \b
    Examples:
      rekindle warm show our-repository
      rekindle warm show 'Our repository' --json
    """
    from rekindle.learning import build

    template = folder().find(name)
    with reading() as store:
        use = build.use_of(store, template.id)
        known = store.mined.tools()
    if json:
        from rekindle.knowledge.file_format import fields_of

        say(encode({**fields_of(template), "use": use}).decode())
        return
    from .render import write_template

    write_template(template, use, known)


@group.command()
def edit(
    name: TemplateName,
    description: Description = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Add a tag.")] = None,
    untag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Take a tag away.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Drop a pattern, by its id.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Change a template's description, name or tags, or drop a pattern. Its id stays.

    \b
    Examples:
      rekindle warm edit our-repository --description 'How we work here' --tag go
      rekindle warm edit our-repository --drop 3f2a
    """
    from rekindle.learning import build

    if not any(value is not None for value in (description, rename, tag, untag, drop)):
        raise typer.BadParameter(
            "say what to change: --description, --rename, --tag, --untag, --drop"
        )
    wanted = build.Edit(description, rename, tag or (), untag or (), drop or ())
    eraser = redactor()
    with writing() as store:
        template = build.edit(store, folder(), eraser, name, wanted)
    removed = build.removed_by(eraser)
    if json:
        say(encode({**_head(template), "removed": removed}).decode())
        return
    if removed:
        from .render import write_removed

        write_removed(removed)
    say(f"Template {template.id!r} now has revision {template.revision}.")


@group.command()
def delete(name: TemplateName, yes: Yes = False, json: AsJson = False) -> None:
    """Delete a template. Sessions that used it stay as they are.

    \b
    Examples:
      rekindle warm delete our-repository
    """
    from rekindle.learning.library import index

    templates = folder()
    try:
        id = templates.find(name).id
    except InvalidInput:
        id = name  # a file that cannot be read can still be deleted
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter(f"this deletes the template {id!r}: give --yes")
    confirm(f"Delete the template {id!r}?", yes=yes)
    with writing() as store:
        templates.delete(id)
        index(store, templates)
    say(encode({"deleted": id}).decode() if json else f"Deleted {id!r}.")
