"""`rekindle tenants add`, `list`, `remove`, `quota` and `audit`."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    YesOption,
    escape_control_chars,
    print_json,
    print_line,
    require_confirmation,
    write_table,
)
from rekindle.cli.store_access import load_settings
from rekindle.errors import AccessDenied

if TYPE_CHECKING:
    from rekindle.tenants import Tenants

group = create_group("Manage organisations that share a server: members, API keys and quotas.")
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.")]
NO_LIMIT = "none"


@contextmanager
def open_directory() -> Generator[Tenants]:
    """Open the tenants next to the configured store; an API key does not administrate them."""
    from rekindle.tenants import open_tenants

    config = load_settings()
    if config.store.api_key:
        raise AccessDenied("Tenants are managed without an API key: unset store.api_key.")
    with open_tenants(
        config.store.url,
        durability=config.store.durability,
        busy_seconds=config.store.busy_seconds,
        active_seconds=config.retention.active_hours * 3600,
        undo_seconds=config.retention.undo_days * 86400,
    ) as tenants:
        yield tenants


def format_moment(seconds: float | None) -> str:
    """Format a time of the directory for a table."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@group.command("add")
def add_tenant(name: TenantArgument) -> None:
    """Add a tenant: an organisation with its own sessions.

    On SQLite it gets its own file next to the store. In PostgreSQL its rows are separated from
    those of others by views and by row-level security.

    \b
    Examples:
      rekindle tenants add acme
    """
    with open_directory() as tenants:
        tenants.add(name)
    print_line(f"Added. Give someone access: rekindle tenants keys add {name} --scope read")


@group.command("list")
def list_tenants(json: JsonOption = False) -> None:
    """List the tenants with their quotas and what they stored today.

    \b
    Examples:
      rekindle tenants list
    """
    with open_directory() as tenants:
        found = [(one, tenants.get_usage(one.name)) for one in tenants.list()]
    if json:
        print_json(
            [
                {
                    "name": one.name,
                    "created": one.created,
                    "quota": one.quota._asdict(),
                    "today": {"messages": usage[0], "bytes": usage[1]},
                }
                for one, usage in found
            ]
        )
        return
    if not found:
        print_line("No tenants yet. Add one with `rekindle tenants add NAME`.")
        return
    titles = ("tenant", "created", "sessions", "messages/day", "bytes/day")
    rows = [
        (one.name, format_moment(one.created), *map(_format_limit, one.quota)) for one, _ in found
    ]
    write_table([Column(title) for title in titles], rows)


@group.command("remove")
def remove_tenant(name: TenantArgument, yes: YesOption = False) -> None:
    """Delete a tenant with all its sessions, members and keys; its audit log is kept.

    \b
    Examples:
      rekindle tenants remove acme
      rekindle tenants remove acme --yes
    """
    from rekindle.api.serving.uploads import FOLDER, TranscriptUploads

    with open_directory() as tenants:
        tenant = tenants.get(name)
        require_confirmation(f"Delete {name} with everything it has stored, for good?", yes=yes)
        tenants.remove(name)
    TranscriptUploads(load_settings().home / FOLDER).delete_all(tenant.id)
    print_line(f"{name} was deleted.")


@group.command("quota")
def change_quota(
    name: TenantArgument,
    sessions: Annotated[
        str | None, typer.Option(help="Maximum number of sessions, or `none`.", show_default=False)
    ] = None,
    messages: Annotated[
        str | None,
        typer.Option(help="Maximum number of messages per day, or `none`.", show_default=False),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--bytes", help="Maximum number of bytes per day, or `none`.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show or set how much a tenant may store. Days are in UTC.

    \b
    Examples:
      rekindle tenants quota acme
      rekindle tenants quota acme --sessions 10000 --messages 50000
      rekindle tenants quota acme --bytes none
    """
    from rekindle.tenants import Quota

    given = (sessions, messages, size)
    with open_directory() as tenants:
        quota = tenants.get(name).quota
        if any(one is not None for one in given):
            limits = [
                old if new is None else _parse_limit(new)
                for old, new in zip(quota, given, strict=True)
            ]
            quota = Quota(*limits)
            tenants.set_quota(name, quota)
        usage = tenants.get_usage(name)
    if json:
        today = {"messages": usage[0], "bytes": usage[1]}
        print_json({"quota": quota._asdict(), "today": today})
        return
    columns = (Column("quota"), Column("limit"), Column("today"))
    rows = [
        ("sessions", _format_limit(quota.sessions), ""),
        ("messages/day", _format_limit(quota.messages_per_day), f"{usage[0]:,}"),
        ("bytes/day", _format_limit(quota.bytes_per_day), f"{usage[1]:,}"),
    ]
    write_table(columns, rows)


@group.command("audit")
def show_audit(
    name: Annotated[
        str | None, typer.Argument(metavar="[TENANT]", help="Only entries of this tenant.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of entries.")
    ] = 50,
    json: JsonOption = False,
) -> None:
    """Show who changed what, newest first, including removed tenants.

    \b
    Examples:
      rekindle tenants audit
      rekindle tenants audit acme --limit 10
    """
    with open_directory() as tenants:
        entries = tenants.list_entries(name, limit)
    if json:
        print_json([one._asdict() for one in entries])
        return
    columns = [Column(title) for title in ("time", "tenant", "actor", "action")]
    rows = [(format_moment(one.time), *map(escape_control_chars, one[2:])) for one in entries]
    write_table([*columns, Column("detail", flexible=True)], rows)


def _parse_limit(text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    digits = text.replace("_", "").replace(",", "")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15:
        raise typer.BadParameter(f"quota: expected a whole number or {NO_LIMIT}, got {text!r}")
    return int(digits)


def _format_limit(limit: Any) -> str:
    return NO_LIMIT if limit is None else f"{limit:,}"
