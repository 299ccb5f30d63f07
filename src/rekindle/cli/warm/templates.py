"""`rekindle warm build`, `extract`, `list`, `show`, `edit` and `delete`: manage templates."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    JsonOption,
    OwnerOption,
    YesOption,
    encode_json,
    format_count,
    print_json,
    print_line,
    print_notice,
    require_confirmation,
    show_progress,
    write_json_array,
)
from rekindle.cli.session_choice import SessionArgument
from rekindle.cli.store_access import open_for_reading, open_for_writing
from rekindle.errors import InvalidInput

from .options import (
    AutoOption,
    DescriptionOption,
    MaxNotesOption,
    MaxSessionsOption,
    MinMessagesOption,
    MinSupportOption,
    NameOption,
    ProjectOption,
    SinceOption,
    SourceOption,
    TagsOption,
    TemplateArgument,
    TypeOption,
    create_redactor,
    find_project_key,
    find_template,
    open_library,
    require_at_least,
)

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Template

group = create_group("Learn from past sessions and warm-start new ones.")


@group.command()
def build(
    name: NameOption,
    min_messages: MinMessagesOption = 30,
    max_sessions: MaxSessionsOption = 50,
    source: SourceOption = None,
    type: TypeOption = None,
    tag: TagsOption = None,
    max: MaxNotesOption = 40,
    min_support: MinSupportOption = 2,
    since: SinceOption = None,
    description: DescriptionOption = None,
    auto: AutoOption = False,
    owner: OwnerOption = None,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> None:
    """Build a template from what past sessions share: commands, error fixes and files.

    Reads only sessions that are new since the last build. Values that are not known to be harmless
    are omitted and counted.

    \b
    Examples:
      rekindle warm build --name 'Our repository' --source claude-code
      rekindle warm build --name reviews --type code --min-messages 50 --tag review
      rekindle warm build --name weekly --since 2026-01-01 --auto
    """
    from rekindle.learning import build
    from rekindle.learning.session_filter import BuildFilter
    from rekindle.store.core.filter import parse_local_time

    active_since = parse_local_time(since) if since else None
    require_at_least("--min-messages", min_messages, 0)
    for option, value in (
        ("--max-sessions", max_sessions), ("--max", max), ("--min-support", min_support),
    ):  # fmt: skip
        require_at_least(option, value, 1)
    wanted = BuildFilter(
        source, owner, active_since, type, min_messages, max_sessions, max, min_support
    )
    redactor = create_redactor()
    with open_for_writing() as store, show_progress("Learning") as show:
        wanted = wanted._replace(project=project and find_project_key(store, project))
        result = build.build_template(
            store, open_library(), redactor, name, wanted,
            description=description, tags=tag or (), automatic=auto, progress=show,
        )  # fmt: skip
    removed = build.count_redactions(redactor, result.template)
    if json:
        details = {"metrics": result.scan, "removed": removed, "kept": result.kept}
        print_json({**_template_to_dict(result.template), **details})
        return
    from .render import write_build_result

    write_build_result(result, removed)


@group.command()
def extract(
    session: SessionArgument,
    name: NameOption,
    tag: TagsOption = None,
    description: DescriptionOption = None,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Create a template from one session: its files, its user's style and commands that worked.

    \b
    Examples:
      rekindle warm extract 'My Project' --name my-project
    """
    from rekindle.learning import build

    redactor = create_redactor()
    with open_for_writing() as store:
        template = build.extract_template(
            store, open_library(), redactor, session, name,
            description=description, tags=tag or (), owner=owner,
        )  # fmt: skip
    removed = build.count_redactions(redactor, template)
    if json:
        print_json({**_template_to_dict(template), "removed": removed})
        return
    from .render import write_inactive_notice, write_redactions

    write_redactions(removed)
    print_line(f"Template {template.id!r}: {format_count(len(template.notes), 'note')}.")
    write_inactive_notice(template)
    print_line(f"View it with: rekindle warm show {template.id}")


@group.command("list")
def list_templates(
    type: TypeOption = None,
    tag: Annotated[
        str | None, typer.Option(metavar="TAG", help="Only templates with this tag.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Only templates learned from this source.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only this state: active, quarantined or retired."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List templates, how often they were used and how well they did.

    \b
    Examples:
      rekindle warm list
      rekindle warm list --type code --tag review
    """
    entries = open_library().list_entries()
    for entry in entries:
        if entry.template is None:
            print_notice(f"rekindle: {entry.problem}")
    found = [entry.template for entry in entries if entry.template]
    given = {"--type": type, "--tag": tag, "--source": source, "--state": state}
    filters = {option: value for option, value in given.items() if value is not None}
    _check_filters(filters, found)
    with open_for_reading() as store:
        matching = _filter_templates(store, found, filters)
        rows = [(one, _load_usage(store, one)) for one in matching]
    if json:
        write_json_array({**_template_to_dict(one), "use": use} for one, use in rows)
        return
    if found and not rows:
        filter_text = " ".join(f"{option} {value}" for option, value in filters.items())
        print_notice(
            f"No templates match {filter_text}. `rekindle warm list` shows all {len(found)}."
        )
        return
    if not rows:
        print_notice("No templates yet. Create one with `rekindle warm build --name NAME`.")
        return
    from .render import write_template_list

    write_template_list(rows)


def _check_filters(filters: Mapping[str, str], found: Sequence[Template]) -> None:
    from rekindle.analytics.profile import TASK_KINDS
    from rekindle.types import TemplateState

    types = dict.fromkeys((*TASK_KINDS, "mixed", *(one.task_type for one in found)))
    for option, known in (("--type", [*types]), ("--state", [*get_args(TemplateState)])):
        value = filters.get(option)
        if value is not None and value not in known:
            raise InvalidInput(f"{option}: expected one of {', '.join(known)}, got {value!r:.40}")


def _filter_templates(
    store: Store, found: Sequence[Template], filters: Mapping[str, str]
) -> Sequence[Template]:
    matching = [
        one
        for one in found
        if filters.get("--type", one.task_type) == one.task_type
        and filters.get("--state", one.state) == one.state
        and ("--tag" not in filters or filters["--tag"] in one.tags)
    ]
    source = filters.get("--source")
    return matching if source is None else _filter_by_source(store, matching, source)


def _filter_by_source(store: Store, found: Sequence[Template], source: str) -> Sequence[Template]:
    """Return the templates learned from a source, by their own record or by their sessions."""
    from rekindle.knowledge.file_format import get_source_counts
    from rekindle.learning.build import find_session_ids
    from rekindle.store import Filter

    sessions = find_session_ids(store, Filter(source=source))
    return [
        one
        for one in found
        if source in get_source_counts(one) or not sessions.isdisjoint(one.sources)
    ]


def _load_usage(store: Store, template: Template) -> Any:
    from rekindle.learning import build

    return build.measure_usage(store, template.id)


def _template_to_dict(template: Template) -> dict[str, Any]:
    """Return the fields of a template, without its notes."""
    fields = template._asdict()
    for name in ("notes", "seed", "scan"):
        del fields[name]
    return {**fields, "tags": list(template.tags), "pattern_count": len(template.notes)}


@group.command()
def show(name: TemplateArgument, json: JsonOption = False) -> None:
    """Show a template: its advice, the evidence for it and its results.

    \b
    Examples:
      rekindle warm show our-repository
      rekindle warm show 'Our repository' --json
      rekindle warm show owner/name
    """
    from rekindle.learning import build

    template = find_template(name)
    with open_for_reading() as store:
        use = build.measure_usage(store, template.id)
    if json:
        from rekindle.knowledge.file_format import template_to_fields

        print_json({**template_to_fields(template), "use": use})
        return
    from .render import write_template

    write_template(template, use)


@group.command()
def edit(
    name: TemplateArgument,
    description: DescriptionOption = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="New name.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Add a tag.")] = None,
    untag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Remove a tag.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NOTE", help="Remove the note with this id.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Edit a template's description, name or tags, or remove a note. Its id stays the same.

    \b
    Examples:
      rekindle warm edit our-repository --description 'How we work here' --tag go
      rekindle warm edit our-repository --drop 3f2a
    """
    from rekindle.learning import build

    if not any(value is not None for value in (description, rename, tag, untag, drop)):
        raise typer.BadParameter(
            "specify what to change: --description, --rename, --tag, --untag, --drop"
        )
    wanted = build.TemplateEdit(description, rename, tag or (), untag or (), drop or ())
    redactor = create_redactor()
    with open_for_writing() as store:
        template = build.edit_template(store, open_library(), redactor, name, wanted)
    removed = build.count_redactions(redactor)
    if json:
        print_json({**_template_to_dict(template), "removed": removed})
        return
    if removed:
        from .render import write_redactions

        write_redactions(removed)
    print_line(f"Updated template {template.id!r} (revision {template.revision}).")


@group.command()
def delete(name: TemplateArgument, yes: YesOption = False, json: JsonOption = False) -> None:
    """Delete a template. Sessions that used it are not affected.

    \b
    Examples:
      rekindle warm delete our-repository
    """
    from rekindle.learning.library import update_index

    library = open_library()
    try:
        id = library.find(name).id
    except InvalidInput:
        id = name  # an unreadable template file can still be deleted
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter(f"confirmation required to delete {id!r}: pass --yes")
    require_confirmation(f"Delete template {id!r}?", yes=yes)
    with open_for_writing() as store:
        library.delete(id)
        update_index(store, library)
    print_line(encode_json({"deleted": id}).decode() if json else f"Deleted template {id!r}.")
