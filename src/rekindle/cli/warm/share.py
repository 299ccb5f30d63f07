"""`rekindle warm export`, `import`, `accept`, `retire` and `merge`: share and combine templates."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    encode_json,
    format_count,
    print_json,
    print_line,
    print_notice,
)
from rekindle.cli.store_access import open_for_writing

from .options import (
    NameOption,
    TemplateArgument,
    create_redactor,
    find_template,
    open_library,
    require_at_least,
)


def export_template_file(
    name: TemplateArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write. Default: stdout."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Accepted for consistency; always JSON.")
    ] = False,
) -> None:
    """Export a template as one file, with a checksum and its origin.

    Its texts are redacted once more.

    \b
    Examples:
      rekindle warm export our-repository -o our-repository.json
      rekindle warm export our-repository | ssh there rekindle warm import -
      rekindle warm export owner/name -o what-we-know.json
    """
    from rekindle import __version__
    from rekindle.knowledge.redact_template import redact_template
    from rekindle.learning.build import count_redactions
    from rekindle.learning.library import export_template, write_private_file

    from .render import format_redactions

    redactor = create_redactor()
    template = redact_template(find_template(name), redactor)
    data = export_template(template, f"rekindle {__version__}", time.time())
    if redactor.report:
        print_notice(f"Redacted from the export: {format_redactions(count_redactions(redactor))}.")
    if output is None:
        sys.stdout.buffer.write(data)
        return
    write_private_file(output.expanduser().absolute(), data)
    print_notice(f"Wrote {output}")


def import_template_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Exported template; - for stdin.")],
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Name to import it under.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Import an exported template. It stays quarantined until you accept it.

    The checksum is verified, the texts are redacted again, and commands are reduced to what a note of
    your own would say.

    \b
    Examples:
      rekindle warm import our-repository.json
      rekindle warm import - --name theirs < our-repository.json
    """
    from rekindle.knowledge.file_format import MAX_BYTES
    from rekindle.learning import build

    if str(file) == "-":
        data = sys.stdin.buffer.read(2 * MAX_BYTES)
    else:
        with file.expanduser().open("rb") as opened:
            data = opened.read(2 * MAX_BYTES)
    with open_for_writing(may_create=True) as store:
        imported = build.import_template(
            store, open_library(), create_redactor(), data, str(file), name
        )
    template, removed, dropped = imported
    if json:
        result = {"id": template.id, "name": template.name, "state": template.state}
        print_json({**result, "removed": removed, "dropped": dropped})
        return
    print_line(
        f"Imported {template.id!r}: {format_count(len(template.notes), 'note')}, quarantined."
    )
    if dropped:
        print_line(f"Left out: {format_count(dropped, 'note')} with commands that are not safe.")
    if removed:
        from .render import write_redactions

        write_redactions(removed)
    print_line(
        f"Review: rekindle warm show {template.id}; then: rekindle warm accept {template.id}"
    )


def accept(name: TemplateArgument, json: JsonOption = False) -> None:
    """Activate a quarantined or retired template, so that new sessions can use it.

    \b
    Examples:
      rekindle warm accept theirs
    """
    from rekindle.learning import build

    with open_for_writing(may_create=True) as store:
        template = build.accept_template(store, open_library(), name)
    _print_state(template.id, template.state, json)


def retire(name: TemplateArgument, json: JsonOption = False) -> None:
    """Retire a template: keep it, but do not use it in new sessions.

    \b
    Examples:
      rekindle warm retire our-repository
    """
    from rekindle.learning import build

    with open_for_writing(may_create=True) as store:
        template = build.retire_template(store, open_library(), name)
    _print_state(template.id, template.state, json)


def _print_state(id: str, state: str, json: bool) -> None:
    print_line(
        encode_json({"id": id, "state": state}).decode() if json else f"Template {id!r} is {state}."
    )


def merge(
    names: Annotated[
        list[str], typer.Argument(metavar="TEMPLATE...", help="Two or more template ids or names.")
    ],
    name: NameOption,
    max: Annotated[int, typer.Option("--max", help="Maximum number of notes.")] = 60,
    json: JsonOption = False,
) -> None:
    """Merge several templates into one, without duplicates.

    \b
    Examples:
      rekindle warm merge backend frontend --name 'Whole repository'
    """
    from rekindle.learning import build

    require_at_least("--max", max, 1)
    with open_for_writing(may_create=True) as store:
        template = build.merge_templates(
            store, open_library(), create_redactor(), names, name, max_notes=max
        )
    if json:
        print_json({"id": template.id, "pattern_count": len(template.notes)})
    else:
        print_line(f"Template {template.id!r}: {format_count(len(template.notes), 'note')}.")
