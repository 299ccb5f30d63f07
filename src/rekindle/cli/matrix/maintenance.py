"""`rekindle matrix`: back up, restore, update and remove the server."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from rekindle.cli.output import print_line, print_notice
from rekindle.cli.store_access import load_settings
from rekindle.config import get_home_and_env
from rekindle.errors import InvalidInput, NotFound

from .commands import group
from .options import (
    ClientPortOption,
    FederationPortOption,
    PostgresDataOption,
    PostgresPortOption,
    ReplaceGatewayOption,
    VersionOption,
    format_bytes,
    open_server,
    print_result,
)

_PHRASE = "yes-delete-everything"


@group.command("backup")
def back_up(
    archive: Annotated[
        Path | None,
        typer.Argument(
            help="File to write.", show_default="a new one in the folder matrix-backups"
        ),
    ] = None,
) -> None:
    """Write one archive with the database, the media and all keys. Keep it as safe as the server.

    \b
    Examples:
      rekindle matrix backup
      rekindle matrix backup /mnt/backups/matrix.tar.gz
    """
    from rekindle.services.matrix.backup import back_up_server
    from rekindle.services.matrix.server import lock_server

    server = open_server()
    with lock_server(server.files):
        written = back_up_server(server, archive, time.time())
    print_line(f"Wrote {written} ({format_bytes(written.stat().st_size)})")


@group.command("restore")
def restore(
    archive: Annotated[Path, typer.Argument(help="Archive written by `backup`.")],
    client_port: ClientPortOption = None,
    federation_port: FederationPortOption = None,
    postgres_port: PostgresPortOption = None,
    postgres_data: PostgresDataOption = None,
    synapse_version: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="Version of Synapse.", show_default="that of the backup"
        ),
    ] = "",
    replace_gateway: ReplaceGatewayOption = False,
) -> None:
    """Restore a backup on a machine without a server. Run it again if it was interrupted.

    \b
    Examples:
      rekindle matrix restore /mnt/backups/matrix.tar.gz
    """
    from rekindle.services.matrix.backup import restore_server
    from rekindle.services.matrix.layout import ServerFiles
    from rekindle.services.matrix.server import lock_server
    from rekindle.services.matrix.setup import SetupOptions

    options = SetupOptions(
        client_port=client_port,
        federation_port=federation_port,
        postgres_port=postgres_port,
        postgres_data=postgres_data,
        synapse_version=synapse_version,
        replace_gateway=replace_gateway,
    )
    home = load_settings().home
    user_home, env = get_home_and_env()
    with lock_server(ServerFiles(home)):
        print_result(restore_server(home, archive, options, user_home, env, print_notice))


@group.command("update")
def update(synapse_version: VersionOption = "") -> None:
    """Update Synapse after a backup; the old version runs again if the new one does not start.

    \b
    Examples:
      rekindle matrix update
    """
    from rekindle.services.matrix.server import lock_server
    from rekindle.services.matrix.updating import update_server

    server = open_server()
    with lock_server(server.files):
        result = update_server(server, synapse_version, time.time(), print_notice)
    if not result.is_changed:
        print_line(f"Nothing to do: Synapse {result.old} and its libraries are up to date.")
    elif result.old == result.new:
        print_line(f"Updated the libraries of Synapse {result.new}.")
    else:
        print_line(f"Updated Synapse from {result.old} to {result.new}.")


@group.command("teardown")
def tear_down(
    yes: Annotated[
        bool, typer.Option(f"--{_PHRASE}", help="Delete everything without asking.")
    ] = False,
) -> None:
    """Stop the server and delete it with all users, messages, media and keys. Backups stay.

    \b
    Examples:
      rekindle matrix teardown
    """
    from rekindle.services.matrix.layout import ServerFiles
    from rekindle.services.matrix.removal import remove_server
    from rekindle.services.matrix.server import lock_server
    from rekindle.services.matrix.status import find_last_backup

    files = ServerFiles(load_settings().home)
    if not files.folder.exists():
        raise NotFound("There is no Matrix server here.")
    last = find_last_backup(files)
    if not yes:
        _require_phrase(files.folder, last)
    user_home, env = get_home_and_env()
    with lock_server(files):
        remove_server(files.home, user_home, env)
    print_line("Deleted the Matrix server with all its data.")
    if last:
        print_line(f"Backups are kept in {files.backups}.")


def _require_phrase(folder: Path, last_backup: str | None) -> None:
    """Have the user type that everything is to be deleted."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"Nothing was deleted. Confirm it with --{_PHRASE}.")
    print_notice(f"This deletes all users, messages, media and keys in {folder}, for ever.")
    print_notice(f"Last backup: {last_backup or 'none'}")
    typed = typer.prompt(f"Type {_PHRASE} to go on", default="", show_default=False, err=True)
    if typed != _PHRASE:
        raise typer.Abort
