"""`rekindle tenants export-person` and `erase-person`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rekindle.cli.output import (
    JsonOption,
    YesOption,
    escape_control_chars,
    print_json,
    print_line,
    require_confirmation,
)
from rekindle.cli.store_access import load_settings
from rekindle.cli.terminal.text import format_count

from .commands import TenantArgument, group, open_directory

PersonArgument = Annotated[
    str,
    typer.Argument(
        metavar="PERSON",
        help="An owner of sessions, or an identity such as matrix:@ada:example.org.",
    ),
]


@group.command("export-person")
def export_data(
    tenant: TenantArgument,
    person: PersonArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create.")],
) -> None:
    """Write everything that a tenant has stored about a person into a file of JSON lines.

    \b
    Examples:
      rekindle tenants export-person acme ada ada.jsonl
    """
    from rekindle.tenants import export_person

    path = file.expanduser()
    if path.exists():
        raise typer.BadParameter(f"{path} already exists")
    with open_directory() as tenants, tenants.open_store(tenant, readonly=True) as store:
        store.personal_data.find(person)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            count = 0
            for line in export_person(store, person):
                output.write(line)
                count += 1
        tenants.record(tenant, "operator", "person.export", f"{count} lines")
    print_line(f"{format_count(count, 'line')} written to {path}")


@group.command("erase-person")
def erase_data(
    tenant: TenantArgument, person: PersonArgument, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Erase everything that a tenant has stored about a person, and verify that nothing is left.

    \b
    Examples:
      rekindle tenants erase-person acme ada
      rekindle tenants erase-person acme matrix:@ada:example.org --yes --json
    """
    from rekindle.api.serving.uploads import FOLDER, TranscriptUploads
    from rekindle.tenants import erase_person

    with open_directory() as tenants, tenants.open_store(tenant) as store:
        found = store.personal_data.find(person)
        sessions = format_count(len(found.sessions), "session")
        shown = escape_control_chars(person)
        require_confirmation(f"Erase {shown} with {sessions}, for good?", yes=yes)
        # First: after the sessions are gone, nothing says which transcripts are theirs.
        uploads = TranscriptUploads(load_settings().home / FOLDER)
        ids = {id for _, id in found.sessions}
        pushed = uploads.delete_sessions(tenants.get(tenant).id, ids)
        report = erase_person(store, person)
        tenants.record(tenant, "operator", "person.erase", f"{sessions}, {len(report.left)} left")
    if json:
        print_json({**report._asdict(), "transcripts": pushed})
        return
    for table, count in sorted(report.rows.items()):
        print_line(f"{table}: {count:,} erased")
    if pushed:
        print_line(f"{format_count(pushed, 'pushed transcript')} deleted")
    print_line(f"Searched for {format_count(report.passages, 'passage')} of what they wrote.")
    if report.left:
        print_line(f"Found in sessions of others: {', '.join(report.left)}")
    if report.templates:
        print_line(f"Templates built from these sessions: {', '.join(report.templates)}")
    if not report.left:
        print_line("Nothing was found.")
