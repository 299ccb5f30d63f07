"""Options that several commands of `rekindle matrix` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import print_line, print_notice
from rekindle.cli.store_access import load_settings
from rekindle.config import get_home_and_env

if TYPE_CHECKING:
    from rekindle.services.matrix.server import HomeServer
    from rekindle.services.matrix.setup import SetupResult

ServerNameArgument = Annotated[
    str | None,
    typer.Argument(
        help="Name of the server, a domain such as example.org. It is part of every user's address and"
        " cannot be changed later.",
        show_default=False,
    ),
]
ClientPortOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=1,
        max=65_535,
        help="Port for clients, on loopback.",
        show_default="8008",
    ),
]
FederationPortOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT", min=1, max=65_535, help="Port for other servers.", show_default="8448"
    ),
]
PostgresPortOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=1,
        max=65_535,
        help="Port of the database, on loopback.",
        show_default="a free one",
    ),
]
PostgresDataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder for the database.",
        show_default="matrix/postgres in the home",
    ),
]
PublicUrlOption = Annotated[
    str | None, typer.Option(metavar="URL", help="Address of the reverse proxy, https://…")
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Serve other servers with this certificate, publicly."),
]
KeyOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")
]
VersionOption = Annotated[
    str,
    typer.Option(
        "--synapse-version", metavar="VERSION", help="Version of Synapse.", show_default="newest"
    ),
]
ReplaceGatewayOption = Annotated[
    bool,
    typer.Option(
        "--replace-gateway", help="Connect the gateway even if it is connected to another server."
    ),
]


def open_server() -> HomeServer:
    """Open the home server of the user."""
    from rekindle.services.matrix import server

    user_home, env = get_home_and_env()
    return server.open_server(load_settings().home, user_home, env)


def format_bytes(count: int) -> str:
    """Return a size in kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1_000_000 else f"{count / 1e3:.0f} kB"


def print_result(result: SetupResult) -> None:
    """Print the result of a set-up or a restore, and the next steps."""
    settings, files = result.server.settings, result.server.files
    if not result.is_changed:
        print_line("Nothing to do: the Matrix server is complete and running.")
    print_line(f"Server:  {settings.server_name}, for clients at {settings.client_url}")
    admin = settings.get_address(settings.admin)
    print_line(f"Admin:   {admin}; the password is admin_password in {files.secrets}")
    print_line(f"Bot:     {settings.get_address(settings.bot)}")
    if result.link.other:
        print_notice(
            f"The gateway stays connected as {result.link.other}."
            " Connect it here with: rekindle matrix setup --replace-gateway"
        )
    if result.is_changed:
        print_line("Next:    rekindle matrix create-user NAME, then rekindle gateway run")
    if result.server.runner.kind == "systemd":
        print_line("It stops when you log out, unless you run: loginctl enable-linger")
    elif result.server.runner.kind == "background":
        print_line("After a restart of the machine, run: rekindle matrix restart")
