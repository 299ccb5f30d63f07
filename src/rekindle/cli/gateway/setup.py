"""`rekindle gateway setup`: connect a chat platform, step by step."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import escape_control_chars, print_line, print_notice
from rekindle.cli.store_access import load_settings as load_config
from rekindle.cli.store_access import open_for_writing
from rekindle.errors import InvalidInput, PlatformError

from .commands import group

if TYPE_CHECKING:
    from rekindle.platforms import BotIdentity
    from rekindle.platforms.kind import PlatformField, PlatformKind

CHECK_SECONDS = 30.0
_SETTING = "gateway.platforms"


@group.command("setup")
def set_up_platform(
    platform: Annotated[
        str, typer.Argument(help="matrix, telegram, discord, slack, whatsapp, or a plugin.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Setting to use without asking; NAME=@FILE reads a file.",
        ),
    ] = None,
    owner: Annotated[
        str,
        typer.Option(metavar="USER", help="Your id on the platform; owners may use every tool."),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Sign in once to check the settings.")
    ] = True,
) -> None:
    """Connect a chat platform: ask for its settings, check them, and save them.

    The settings go to a file that only you can read, in the folder `platforms` of Rekindle's home.
    Nobody may talk to the gateway until you allow it: give your own id with --owner, or write to the
    bot and approve the code that it answers with.

    \b
    Examples:
      rekindle gateway setup
      rekindle gateway setup telegram --owner 123456
      rekindle gateway setup matrix --set homeserver=https://example.org --set access_token=@token.txt
    """
    import asyncio

    from rekindle.platforms.plugins import find_kind
    from rekindle.platforms.settings_file import (
        get_settings_path,
        read_settings_file,
        write_settings,
    )

    config = load_config()
    kind = find_kind(platform or _ask_platform())
    known = read_settings_file(get_settings_path(kind.name, config.home))
    given = _parse_settings(settings or [], kind)
    if kind.guide and sys.stdin.isatty():
        print_notice(kind.guide)
    values = _collect_values(kind, known, given)
    if check:
        identity = asyncio.run(_sign_in(kind, values, config.home))
        print_line(f"Signed in to {kind.title} as {_format_identity(identity)}.")
    path = write_settings(kind.name, config.home, values)
    print_line(f"Wrote {path}.")
    _add_platform(config.file, config.gateway.platforms, kind.name)
    _set_owner(kind, owner or _ask_owner(kind))
    print_line("Start the gateway with `rekindle gateway run`.")


def _ask_platform() -> str:
    from rekindle.platforms.plugins import list_kind_names

    names = list_kind_names()
    if not sys.stdin.isatty():
        raise InvalidInput(f"name a platform: {', '.join(names)}")
    for number, name in enumerate(names, 1):
        print_notice(f"  {number}  {name}")
    chosen = str(typer.prompt("Which platform", err=True)).strip()
    is_number = chosen.isascii() and chosen.isdigit() and 0 < int(chosen[:4]) <= len(names)
    return names[int(chosen) - 1] if is_number else chosen


def _parse_settings(settings: list[str], kind: PlatformKind) -> dict[str, str]:
    names = [field.name for field in kind.fields]
    given: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in names:
            raise InvalidInput(f"--set: expected NAME=VALUE with one of {', '.join(names)}")
        if value.startswith("@"):
            try:
                value = Path(value[1:]).read_text("utf-8").strip()
            except OSError as error:
                raise InvalidInput(f"--set {name}: {value[1:]}: {error.strerror}") from error
            except ValueError:
                raise InvalidInput(f"--set {name}: {value[1:]} is not a text file") from None
        given[name] = value
    return given


def _collect_values(
    kind: PlatformKind, known: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return a value for every setting: given, asked for, or as it was."""
    values: dict[str, str] = {}
    for field in kind.fields:
        value = given.get(field.name)
        if value is None and sys.stdin.isatty():
            value = _ask_value(field, known.get(field.name))
        elif value is None:
            value = known.get(field.name, field.default)
        if value is None:
            raise InvalidInput(f"{field.name} is missing; pass --set {field.name}=VALUE")
        if not value and field.default is None:
            raise InvalidInput(f"{field.name} is empty")
        values[field.name] = value
    return values


def _ask_value(field: PlatformField, known: str | None) -> str:
    if field.help:
        print_notice(field.help)
    current = known if known is not None else field.default
    if field.is_secret and known:
        answer = typer.prompt(
            f"{field.question} (Enter keeps it)", default="", hide_input=True, show_default=False,
            err=True,
        )  # fmt: skip
        return str(answer).strip() or known
    answer = typer.prompt(
        field.question, default=current, hide_input=field.is_secret,
        show_default=bool(current) and not field.is_secret, err=True,
    )  # fmt: skip
    return str(answer).strip()


async def _sign_in(kind: PlatformKind, values: Mapping[str, str], home: Path) -> BotIdentity:
    import asyncio

    from rekindle.platforms.settings_file import get_state_folder

    platform = kind.connect(values, get_state_folder(kind.name, home))
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await platform.identify()
    except TimeoutError:
        raise PlatformError(f"{kind.title}: no answer within {CHECK_SECONDS:g} s") from None
    finally:
        await platform.close()


def _format_identity(identity: BotIdentity) -> str:
    name, id = escape_control_chars(identity.name), escape_control_chars(identity.id)
    return f"{name} ({id})" if name and id and name != id else name or id


def _add_platform(file: Path, platforms: str, name: str) -> None:
    from rekindle.config.file_edit import write_setting

    names = platforms.split()
    if name in names:
        return
    write_setting(file, _SETTING, " ".join([*names, name]))
    print_line(f"Added {name} to {_SETTING} in {file}.")


def _ask_owner(kind: PlatformKind) -> str:
    if not sys.stdin.isatty():
        return ""
    question = f"Your own id on {kind.title} (Enter: pair later)"
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _set_owner(kind: PlatformKind, user: str) -> None:
    if not user:
        print_line(
            "To be let in, write to the bot, then run `rekindle gateway pair CODE -r owner`."
        )
        return
    with open_for_writing(may_create=True) as store:
        store.people.set_role(kind.name, user, "owner")
    print_line(f"{escape_control_chars(user)} may talk to the gateway as owner.")
