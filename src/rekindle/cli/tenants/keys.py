"""`rekindle tenants keys`: API keys."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    escape_control_chars,
    print_json,
    print_line,
    print_notice,
    write_table,
)

from .commands import TenantArgument, format_moment, group, open_directory

if TYPE_CHECKING:
    from rekindle.store.tenants.directory import ApiKeyRow

keys_group = create_group("API keys of tenants: what a program may read and write.")
group.add_typer(keys_group, name="keys")
_DAY = 86_400.0


@keys_group.command("add")
def add_key(
    tenant: TenantArgument,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", help="Scope: read, write or admin (repeatable).", show_default="read"
        ),
    ] = None,
    member: Annotated[
        str | None, typer.Option(help="Member it belongs to.", show_default=False)
    ] = None,
    project: Annotated[
        list[str] | None,
        typer.Option("--project", help="Limit it to this project.", show_default="all"),
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0, help="Days until it expires.", show_default="never")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Add an API key and print its token, which is shown only once.

    \b
    Examples:
      rekindle tenants keys add acme --scope read --scope write
      rekindle tenants keys add acme --member ada --project github.com/acme/shop --days 90
    """
    scopes = [name for part in scope or ["read"] for name in part.split(",")]
    with open_directory() as tenants:
        key = tenants.keys.add(
            tenant,
            scopes=scopes,
            member=member,
            projects=project or None,
            expires=None if days is None else time.time() + days * _DAY,
        )
        tenants.record(tenant, "operator", "key.add", f"{key.id}: {' '.join(sorted(scopes))}")
    if json:
        print_json(key._asdict())
        return
    print_line(key.token)
    print_notice(f"This is the token of key {key.id}. It is not stored: keep it safe.")


@keys_group.command("list")
def list_keys(tenant: TenantArgument, json: JsonOption = False) -> None:
    """List the API keys of a tenant, without their tokens.

    \b
    Examples:
      rekindle tenants keys list acme
    """
    with open_directory() as tenants:
        found = tenants.keys.list(tenant)
    if json:
        print_json([_to_dict(key) for key in found])
        return
    titles = ("key", "scopes", "member", "projects", "used", "state")
    write_table([Column(title) for title in titles], [_format_key(key) for key in found])


@keys_group.command("revoke")
def revoke_key(
    tenant: TenantArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id of the key.")],
) -> None:
    """Revoke an API key. It stops working at once.

    \b
    Examples:
      rekindle tenants keys revoke acme 3f9c01d2a7b4
    """
    with open_directory() as tenants:
        is_new = tenants.keys.revoke(tenant, key)
        if is_new:
            tenants.record(tenant, "operator", "key.revoke", key)
    print_line("The key was revoked." if is_new else "The key had been revoked before.")


def _to_dict(key: ApiKeyRow) -> dict[str, Any]:
    return {name: value for name, value in key._asdict().items() if name not in ("hash", "tenant")}


def _format_key(key: ApiKeyRow) -> tuple[str, ...]:
    if key.revoked is not None:
        state = f"revoked {format_moment(key.revoked)}"
    elif key.expires is not None and key.expires <= time.time():
        state = "expired"
    else:
        state = "active" if key.expires is None else f"until {format_moment(key.expires)}"
    projects = "all" if key.projects is None else ", ".join(key.projects)
    texts = (key.member or "", projects)
    return (key.id, " ".join(key.scopes), *map(escape_control_chars, texts),
            format_moment(key.used), state)  # fmt: skip
