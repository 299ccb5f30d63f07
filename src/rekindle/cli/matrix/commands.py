"""`rekindle matrix`: set up a server, and run it from day to day."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Literal

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import JsonOption, print_json, print_line, print_notice
from rekindle.cli.store_access import load_settings
from rekindle.config import get_home_and_env
from rekindle.errors import InvalidInput

from .options import (
    CertificateOption,
    ClientPortOption,
    FederationPortOption,
    KeyOption,
    PostgresDataOption,
    PostgresPortOption,
    PublicUrlOption,
    ReplaceGatewayOption,
    ServerNameArgument,
    VersionOption,
    format_bytes,
    open_server,
    print_result,
)

group = create_group("Run a Matrix server of your own: Synapse with PostgreSQL.")


@group.command("setup")
def set_up(
    server_name: ServerNameArgument = None,
    client_port: ClientPortOption = None,
    federation_port: FederationPortOption = None,
    postgres_port: PostgresPortOption = None,
    postgres_data: PostgresDataOption = None,
    admin: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The administrator's name.", show_default="admin"),
    ] = None,
    bot: Annotated[
        str | None, typer.Option(metavar="NAME", help="The bot's name.", show_default="rekindle")
    ] = None,
    public_url: PublicUrlOption = None,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    synapse_version: VersionOption = "",
    replace_gateway: ReplaceGatewayOption = False,
) -> None:
    """Create the server, complete it after an interruption, or change its ports and addresses.

    Installs Synapse into an environment of its own, creates a database, an administrator and the bot
    of the gateway, and connects the gateway. Run again, it changes nothing.

    \b
    Examples:
      rekindle matrix setup example.org
      rekindle matrix setup --public-url https://matrix.example.org
    """
    from rekindle.services.matrix.layout import ServerFiles
    from rekindle.services.matrix.server import lock_server
    from rekindle.services.matrix.setup import SetupOptions, set_up_server

    options = SetupOptions(
        server_name=server_name,
        client_port=client_port,
        federation_port=federation_port,
        postgres_port=postgres_port,
        postgres_data=postgres_data,
        admin=admin,
        bot=bot,
        public_url=public_url,
        certificate=certificate,
        key=key,
        synapse_version=synapse_version,
        replace_gateway=replace_gateway,
    )
    home = load_settings().home
    user_home, env = get_home_and_env()
    with lock_server(ServerFiles(home)):
        print_result(set_up_server(home, options, user_home, env, print_notice))


@group.command("status")
def show_status(json: JsonOption = False) -> None:
    """Show whether the server runs; exit with code 1 if it does not.

    \b
    Examples:
      rekindle matrix status
      rekindle matrix status --json
    """
    from rekindle.services.matrix.layout import ServerFiles, find_server_settings
    from rekindle.services.matrix.status import describe_missing, query_server

    files = ServerFiles(load_settings().home)
    if find_server_settings(files) is None:
        if json:
            print_json(describe_missing(files))
        else:
            print_line("There is no Matrix server here. Create one with `rekindle matrix setup`.")
        raise typer.Exit(1)
    state = query_server(open_server())
    if json:
        print_json(state)
    else:
        _print_state(state)
    if not state["healthy"]:
        raise typer.Exit(1)


def _print_state(state: dict[str, Any]) -> None:
    synapse, postgres = state["synapse"], state["postgres"]
    health = "running" if state["healthy"] else "not running"
    print_line(f"{state['server_name']}: {health} ({state['runner']})")
    print_line(
        f"  Synapse {synapse['version'] or 'not installed'}: {_describe_process(synapse)},"
        f" {synapse['client_url']}, federation on port {synapse['federation_port']}"
    )
    size = "" if postgres["bytes"] is None else f", {format_bytes(postgres['bytes'])}"
    print_line(f"  PostgreSQL: {_describe_process(postgres)}, port {postgres['port']}{size}")
    print_line(f"  Media: {format_bytes(state['media_bytes'])}")
    connected = "connected" if state["gateway_connected"] else "not connected"
    print_line(f"  Gateway: {connected} as {state['users']['bot']}")
    key = state["device"]["key"] or "none before the gateway runs"
    print_line(f"  Device: {state['device']['id']}, key {key}")
    print_line(f"  Last backup: {state['last_backup'] or 'none'}")
    if verb := state["interrupted"]:
        print_line(f"  An interrupted {verb} has to be completed: rekindle matrix {verb}")


def _describe_process(program: dict[str, Any]) -> str:
    state = "answers" if program["answers"] else "does not answer"
    return f"{state}, process {program['pid']}" if program["pid"] else state


@group.command("restart")
def restart() -> None:
    """Start the server, or stop it and start it again.

    \b
    Examples:
      rekindle matrix restart
    """
    from rekindle.services.matrix.server import lock_server
    from rekindle.services.matrix.updating import recover_update

    server = open_server()
    with lock_server(server.files):
        recover_update(server, print_notice)
        server.restart()
    print_line(f"The Matrix server runs at {server.settings.client_url}.")


@group.command("logs")
def show_logs(
    program: Annotated[
        Literal["synapse", "postgres"], typer.Argument(help="Program whose log to show.")
    ] = "synapse",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new lines.")] = False,
) -> None:
    """Show the last lines of a log.

    \b
    Examples:
      rekindle matrix logs
      rekindle matrix logs postgres -n 200 --follow
    """
    server = open_server()
    synapse_log = server.files.logs / "synapse.log"
    file = server.cluster.get_log_file() if program == "postgres" else synapse_log
    if not file.exists():
        raise InvalidInput(f"There is no log yet: {file}")
    sys.stdout.flush()
    words = ["tail", f"-n{lines}", *(["-F"] if follow else []), str(file)]
    if subprocess.run(words, stdin=subprocess.DEVNULL).returncode:
        raise typer.Exit(1)


@group.command("create-user")
def create_user(
    name: Annotated[str, typer.Argument(help="Name of the user, without the server.")],
    admin: Annotated[bool, typer.Option("--admin", help="Make the user an administrator.")] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
) -> None:
    """Create a user. The password is generated and written to a file, unless you give one.

    \b
    Examples:
      rekindle matrix create-user ada
      rekindle matrix create-user ada --password-stdin < password.txt
    """
    from rekindle.services.matrix.layout import (
        check_user_name,
        generate_password,
        write_private_file,
    )

    server = open_server()
    check_user_name(name)
    files, address = server.files, server.settings.get_address(name)
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else generate_password()
    if not password:
        raise InvalidInput("The password is empty.")
    secret = server.secrets.registration_shared_secret
    if not server.api.create_user(name, password, secret, is_admin=admin):
        raise InvalidInput(f"User {address} already exists.")
    print_line(f"Created {address}")
    if not password_stdin:
        file = files.passwords / f"{name.replace('/', '_')}.txt"
        files.passwords.mkdir(exist_ok=True, mode=0o700)
        write_private_file(file, f"{password}\n")
        print_line(f"The password is in {file}")
