"""Set up the home server, step by step. A step that is done is skipped, so that a run which was
interrupted anywhere is completed by the next, and a run on a complete server changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.errors import HomeServerError, InvalidInput
from rekindle.services.background import ServerRunner, choose_runner

from .environment import build_environment, find_environment, use_environment
from .gateway_link import GatewayLink, link_gateway
from .layout import (
    ServerFiles,
    ServerSettings,
    check_server_name,
    check_user_name,
    find_secrets,
    find_server_settings,
    generate_secrets,
    load_secrets,
    save_bot_token,
    save_secrets,
    save_settings,
)
from .postgres import find_postgres
from .server import HomeServer, Report, is_port_free, require_free_port

_FIRST_PORT = 5433  # the one after PostgreSQL's own


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """What the user asks for; None keeps what is set, or the default."""

    server_name: str | None = None
    client_port: int | None = None
    federation_port: int | None = None
    postgres_port: int | None = None
    postgres_data: Path | None = None
    admin: str | None = None
    bot: str | None = None
    public_url: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    synapse_version: str = ""
    replace_gateway: bool = False


@dataclass(frozen=True, slots=True)
class SetupResult:
    """What a set-up has led to."""

    server: HomeServer
    is_changed: bool
    link: GatewayLink


def set_up_server(
    home: Path, options: SetupOptions, user_home: Path, env: Mapping[str, str], report: Report
) -> SetupResult:
    """Create the home server, or complete it, or change its settings."""
    files = ServerFiles(home)
    if files.restore_mark.exists():
        raise HomeServerError(
            "A restore was interrupted. Run `rekindle matrix restore` again, or"
            " `rekindle matrix teardown`."
        )
    old = find_server_settings(files)
    settings = choose_settings(files, old, options)
    find_postgres()  # before anything is created
    files.create_folder()
    files.remove_leftovers()
    is_changed = False
    if find_secrets(files) is None:
        save_secrets(files, generate_secrets())
        report(f"Generated secrets in {files.secrets}")
        is_changed = True
    if save_settings(files, settings):
        is_changed = True
    runner = choose_runner(files.run, user_home, env)
    is_completed, link = complete_server(files, settings, runner, options, report, None)
    server = _open_server(files, settings, runner)
    return SetupResult(server, is_changed or is_completed or link.is_changed, link)


def complete_server(
    files: ServerFiles,
    settings: ServerSettings,
    runner: ServerRunner,
    options: SetupOptions,
    report: Report,
    dump: Path | None,
) -> tuple[bool, GatewayLink]:
    """Complete the missing parts; load a dump into a new database. Return whether anything changed."""
    server = _open_server(files, settings, runner)
    server.cluster.require_access()
    is_changed = _install_synapse(files, options.synapse_version, report)
    is_new_config = server.write_config()
    if server.cluster.create():
        report(f"Created a database cluster in {server.cluster.data}")
        is_changed = True
    if is_new_config:  # ports may have changed
        server.stop_all()
    if server.start_postgres():
        report(f"Started PostgreSQL on port {settings.postgres_port}")
        is_changed = True
    if server.cluster.create_database():
        if dump is not None:
            server.cluster.load_dump(dump)
            report("Restored the database")
        is_changed = True
    if server.start_synapse():
        report(f"Started Synapse on port {settings.client_port} ({runner.kind})")
        is_changed = True
    is_changed |= _create_accounts(server, report)
    server = _open_server(files, settings, runner)
    link = link_gateway(files.home, settings, server.secrets, replace_other=options.replace_gateway)
    if link.is_changed:
        report(f"Connected the gateway as {settings.get_address(settings.bot)}")
    return is_changed or is_new_config, link


def choose_settings(
    files: ServerFiles, old: ServerSettings | None, options: SetupOptions
) -> ServerSettings:
    """Return the settings that the options ask for; raise InvalidInput if they cannot be had."""
    settings = old or _choose_first_settings(files, options)
    fixed = {"server_name": options.server_name, "admin": options.admin, "bot": options.bot}
    for field, value in fixed.items():
        if value is not None and value != getattr(settings, field):
            name = field.replace("_", " ")
            raise InvalidInput(
                f"The {name} is {getattr(settings, field)} and cannot be changed. To start over, run"
                " `rekindle matrix teardown` first."
            )
    data = options.postgres_data and str(options.postgres_data.absolute())
    if data and data != settings.postgres_data and Path(settings.postgres_data).exists():
        raise InvalidInput(f"The database is in {settings.postgres_data} and cannot be moved.")
    given = {
        "client_port": options.client_port,
        "federation_port": options.federation_port,
        "postgres_port": options.postgres_port,
        "postgres_data": data,
        "public_url": options.public_url,
        "certificate": options.certificate and str(options.certificate.absolute()),
        "key": options.key and str(options.key.absolute()),
    }
    changed = replace(settings, **{k: v for k, v in given.items() if v is not None})
    _check_settings(changed)
    _check_ports(old, changed)
    return changed


def _choose_first_settings(files: ServerFiles, options: SetupOptions) -> ServerSettings:
    if options.server_name is None:
        raise InvalidInput(
            "Name the server: rekindle matrix setup example.org. The name is part of every user's"
            " address and cannot be changed later; use localhost to try it on this machine."
        )
    defaults = ServerSettings("", "", 0)
    data = options.postgres_data or files.folder / "postgres"
    return ServerSettings(
        server_name=check_server_name(options.server_name),
        postgres_data=str(data.absolute()),
        postgres_port=options.postgres_port or find_free_port(),
        admin=check_user_name(options.admin or defaults.admin),
        bot=check_user_name(options.bot or defaults.bot),
    )


def find_free_port() -> int:
    """Return a port for the database."""
    return next(port for port in range(_FIRST_PORT, 65_536) if is_port_free(port))


def _check_settings(settings: ServerSettings) -> None:
    ports = (settings.client_port, settings.federation_port, settings.postgres_port)
    if len({*ports}) < len(ports):
        raise InvalidInput("The ports must differ from each other.")
    if settings.admin == settings.bot:
        raise InvalidInput("The names of the administrator and the bot must differ.")
    if bool(settings.certificate) != bool(settings.key):
        raise InvalidInput("--certificate and --key belong together.")
    for path in (settings.certificate, settings.key):
        if path and not Path(path).is_file():
            raise InvalidInput(f"{path}: no such file.")
    url = settings.public_url
    if url and (not url.startswith(("https://", "http://")) or not url.isprintable() or " " in url):
        raise InvalidInput("--public-url must begin with https://.")


def _check_ports(old: ServerSettings | None, settings: ServerSettings) -> None:
    """Refuse ports of other programs before anything is written."""
    for field in ("client_port", "federation_port", "postgres_port"):
        port = getattr(settings, field)
        if old is None or port != getattr(old, field):
            require_free_port(port, f"--{field.replace('_', '-')}")


def _install_synapse(files: ServerFiles, version: str, report: Report) -> bool:
    if find_environment(files) is not None:
        return False
    report("Installing Synapse; this takes a minute…")
    environment = build_environment(files, version)
    use_environment(files, environment)
    report(f"Installed Synapse {environment.version}")
    return True


def _create_accounts(server: HomeServer, report: Report) -> bool:
    """Create the administrator and the bot, and get the bot's token."""
    settings, secrets, api = server.settings, server.secrets, server.api
    user = settings.get_address(settings.bot)
    if secrets.bot_access_token and api.find_user(secrets.bot_access_token) == user:
        return False
    secret = secrets.registration_shared_secret
    if api.create_user(settings.admin, secrets.admin_password, secret, is_admin=True):
        report(f"Created the administrator {settings.get_address(settings.admin)}")
    if api.create_user(settings.bot, secrets.bot_password, secret, is_admin=False):
        report(f"Created the bot {user}")
    admin = api.log_in(settings.admin, secrets.admin_password)
    api.raise_limits(user, admin.access_token)
    api.log_out(admin.access_token)
    login = api.log_in(settings.bot, secrets.bot_password, secrets.bot_device_id)
    save_bot_token(server.files, login.access_token)
    return True


def _open_server(files: ServerFiles, settings: ServerSettings, runner: ServerRunner) -> HomeServer:
    return HomeServer(files, settings, load_secrets(files), runner)
