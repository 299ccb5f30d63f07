"""`rekindle tenants members`: who belongs to a tenant."""

from __future__ import annotations

from typing import Annotated

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    escape_control_chars,
    print_json,
    print_line,
    write_table,
)
from rekindle.cli.terminal.text import format_count

from .commands import TenantArgument, format_moment, group, open_directory

members_group = create_group("Members of tenants.")
group.add_typer(members_group, name="members")
MemberArgument = Annotated[str, typer.Argument(metavar="MEMBER", help="Name of the member.")]


@members_group.command("add")
def add_member(
    tenant: TenantArgument,
    member: MemberArgument,
    role: Annotated[str, typer.Option("--role", "-r", help="admin or member.")] = "member",
) -> None:
    """Add a member to a tenant, or change the role of one.

    \b
    Examples:
      rekindle tenants members add acme ada --role admin
    """
    with open_directory() as tenants:
        tenants.add_member(tenant, member, role)
    print_line(f"{escape_control_chars(member)} is {role} of {tenant}.")


@members_group.command("list")
def list_members(tenant: TenantArgument, json: JsonOption = False) -> None:
    """List the members of a tenant.

    \b
    Examples:
      rekindle tenants members list acme
    """
    with open_directory() as tenants:
        found = tenants.list_members(tenant)
    if json:
        print_json([one._asdict() for one in found])
        return
    columns = (Column("member", flexible=True), Column("role"), Column("since"))
    rows = [(escape_control_chars(one.name), one.role, format_moment(one.added)) for one in found]
    write_table(columns, rows)


@members_group.command("remove")
def remove_member(tenant: TenantArgument, member: MemberArgument) -> None:
    """Remove a member from a tenant and revoke their API keys.

    \b
    Examples:
      rekindle tenants members remove acme ada
    """
    with open_directory() as tenants:
        count = tenants.remove_member(tenant, member)
    print_line(f"Removed, and {format_count(count, 'key')} revoked.")
