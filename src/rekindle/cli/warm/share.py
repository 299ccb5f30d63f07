"""`rekindle warm export`, `import`, `accept`, `retire` and `merge`: templates on their way."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from rekindle.cli.output import AsJson, counted, encode, note, say
from rekindle.cli.store_access import writing

from .templates import NewName, TemplateName, at_least, folder, redactor


def register(group: typer.Typer) -> None:
    """Add the commands of this file."""
    group.command("export")(export)
    group.command("import")(import_)
    group.command()(accept)
    group.command()(retire)
    group.command()(merge)


def export(
    name: TemplateName,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON it is in any case.")] = False,
) -> None:
    """Write a template as one file for others, with a checksum and where it comes from.

    Its texts are redacted once more.

    \b
    Examples:
      rekindle warm export our-repository -o our-repository.json
      rekindle warm export our-repository | ssh there rekindle warm import -
    """
    from rekindle import __version__
    from rekindle.knowledge.redact_template import rescanned
    from rekindle.learning.build import removed_by
    from rekindle.learning.library import exported, write_private

    from .render import removed_text

    eraser = redactor()
    template = rescanned(folder().find(name), eraser)
    data = exported(template, f"rekindle {__version__}", time.time())
    if eraser.report:
        note(f"Removed from the export: {removed_text(removed_by(eraser))}.")
    if output is None:
        sys.stdout.buffer.write(data)
        return
    write_private(output.expanduser().absolute(), data)
    note(f"Written to {output}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported template; - is stdin.")],
    name: Annotated[str | None, typer.Option("--name", "-n", help="Call it so here.")] = None,
    json: AsJson = False,
) -> None:
    """Take in a template from elsewhere. It stays in quarantine until you accept it.

    Its checksum is checked, and its texts are redacted again.

    \b
    Examples:
      rekindle warm import our-repository.json
      rekindle warm import - --name theirs < our-repository.json
    """
    from rekindle.knowledge.file_format import MOST_BYTES
    from rekindle.learning import build

    if str(file) == "-":
        data = sys.stdin.buffer.read(2 * MOST_BYTES)
    else:
        with file.expanduser().open("rb") as opened:
            data = opened.read(2 * MOST_BYTES)
    with writing(new=True) as store:
        got = build.receive(store, folder(), redactor(), data, str(file), name)
    template, missing, removed = got
    if json:
        answer = {"id": template.id, "name": template.name, "state": template.state}
        say(encode({**answer, "missing_tools": missing, "removed": removed}).decode())
        return
    say(f"Template {template.id!r}: {counted(len(template.patterns), 'pattern')}, in quarantine.")
    if removed:
        from .render import write_removed

        write_removed(removed)
    if missing:
        say(f"Never called here: {', '.join(missing)}. What needs them will not be shown.")
    say(f"Look at it (rekindle warm show {template.id}), then: rekindle warm accept {template.id}")


def accept(name: TemplateName, json: AsJson = False) -> None:
    """Let new sessions use a template that is in quarantine or was retired.

    \b
    Examples:
      rekindle warm accept theirs
    """
    from rekindle.learning import build

    with writing(new=True) as store:
        template = build.accept(store, folder(), name)
    _told(template.id, template.state, json)


def retire(name: TemplateName, json: AsJson = False) -> None:
    """Keep a template, but let no new session use it.

    \b
    Examples:
      rekindle warm retire our-repository
    """
    from rekindle.learning import build

    with writing(new=True) as store:
        template = build.retire(store, folder(), name)
    _told(template.id, template.state, json)


def _told(id: str, state: str, json: bool) -> None:
    say(encode({"id": id, "state": state}).decode() if json else f"Template {id!r} is {state}.")


def merge(
    names: Annotated[
        list[str], typer.Argument(metavar="TEMPLATE...", help="Two or more templates.")
    ],
    name: NewName,
    max: Annotated[int, typer.Option("--max", help="Keep at most so many patterns.")] = 60,
    json: AsJson = False,
) -> None:
    """Make one template of several, without what they say twice.

    \b
    Examples:
      rekindle warm merge backend frontend --name 'Whole repository'
    """
    from rekindle.learning import build

    at_least("--max", max, 1)
    with writing(new=True) as store:
        template = build.merge(store, folder(), redactor(), names, name, most=max)
    if json:
        say(encode({"id": template.id, "pattern_count": len(template.patterns)}).decode())
    else:
        say(f"Template {template.id!r}: {counted(len(template.patterns), 'pattern')}.")
