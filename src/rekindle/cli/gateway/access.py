"""`rekindle gateway allow`, `deny`, `pair` and `list`: who may talk to the gateway."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.output import (
    Column,
    JsonOption,
    escape_control_chars,
    print_json,
    print_line,
    write_table,
)
from rekindle.cli.store_access import load_settings, open_for_reading, open_for_writing

from .commands import group

if TYPE_CHECKING:
    from rekindle.store.conversations.people import AccessEvent, Identity

RoleOption = Annotated[str, typer.Option("--role", "-r", help="Role: owner, user or guest.")]
UserArgument = Annotated[
    str, typer.Argument(metavar="PLATFORM:USER", help="Their id, such as matrix:@ada:example.org.")
]


@group.command("allow")
def allow_user(
    user: UserArgument,
    role: RoleOption = "user",
    name: Annotated[str, typer.Option(help="Name to show in lists.")] = "",
) -> None:
    """Let someone talk to the gateway, or change their role.

    Owners may use every tool. Users and guests get tools that cannot change anything, and have daily
    limits (see `gateway.user_turns` and the like in `rekindle config`).

    \b
    Examples:
      rekindle gateway allow matrix:@ada:example.org --role owner
      rekindle gateway allow telegram:123456
    """
    from rekindle.gateway.access import operator

    with open_for_writing(may_create=True) as store:
        identity = operator.accept_user(store, user, role, name)
    print_line(f"{_format_who(identity)} may talk as {identity.role}.")


@group.command("deny")
def deny_user(user: UserArgument) -> None:
    """Deny someone access to the gateway immediately, until they are allowed again.

    \b
    Examples:
      rekindle gateway deny telegram:123456
    """
    from rekindle.gateway.access import operator

    with open_for_writing(may_create=True) as store:
        identity = operator.refuse_user(store, user)
    print_line(f"{_format_who(identity)} may not talk.")


@group.command("pair")
def pair_user(
    code: Annotated[str, typer.Argument(help="The code that the gateway sent them.")],
    role: RoleOption = "user",
) -> None:
    """Allow the person who gave you a pairing code.

    The gateway sends a code to strangers, which works once and for an hour. Make sure that it comes
    from the person you expect.

    \b
    Examples:
      rekindle gateway pair K7QM-2D9P
      rekindle gateway pair K7QM-2D9P --role owner
    """
    from rekindle.gateway.access import operator

    with open_for_writing(may_create=True) as store:
        identity = operator.pair_user(store, code, role)
    print_line(f"{_format_who(identity)} may talk as {identity.role}.")


@group.command("list")
def list_people(
    log: Annotated[bool, typer.Option("--log", help="Show the latest decisions.")] = False,
    json: JsonOption = False,
) -> None:
    """List people who are allowed, waiting for approval, or denied.

    \b
    Examples:
      rekindle gateway list
      rekindle gateway list --log
    """
    from rekindle.gateway.access.operator import list_allowed

    with open_for_reading(refresh=False) as store:
        people = store.people.list()
        events = store.people.list_events() if log else []
    by_settings = list_allowed(load_settings().gateway.allow)
    if json:
        result: dict[str, Any] = {
            "people": [_to_dict(one) for one in people],
            "settings": by_settings,
        }
        if log:
            result["log"] = [one._asdict() for one in events]
        print_json(result)
    elif log:
        columns = (
            Column("time"),
            Column("event"),
            Column("platform"),
            Column("user"),
            Column("name"),
        )
        write_table(columns, [_format_event(one) for one in events])
    elif not people and not by_settings:
        print_line("Nobody may talk yet. Use `rekindle gateway allow PLATFORM:USER --role owner`.")
    else:
        columns = (Column("user", flexible=True), Column("name"), Column("role"), Column("since"))
        rows = [(f"{one['user']}", "", f"{one['role']}", "settings") for one in by_settings]
        write_table(columns, [*rows, *map(_format_identity, people)])


def _to_dict(one: Identity) -> dict[str, Any]:
    is_waiting = one.role is None and (one.expires or 0.0) > time.time()
    return {**one._asdict(), "waiting": is_waiting}


def _format_identity(one: Identity) -> tuple[str, ...]:
    role = one.role or ("asks to be paired" if (one.expires or 0.0) > time.time() else "asked")
    return (f"{one.platform}:{one.user_id}", one.name, role, _format_time(one.changed))


def _format_event(one: AccessEvent) -> tuple[str, ...]:
    event = f"{one.event} ({one.detail})" if one.detail else one.event
    return (_format_time(one.time), event, one.platform, one.user_id, one.name)


def _format_who(one: Identity) -> str:
    name = f" ({one.name})" if one.name else ""
    return escape_control_chars(f"{one.platform}:{one.user_id}{name}")


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
