"""Tell how the home server is."""

from __future__ import annotations

from typing import Any

from rekindle.errors import HomeServerError

from .environment import find_environment
from .gateway_link import is_linked
from .layout import ServerFiles, find_server_settings
from .server import HomeServer


def query_server(server: HomeServer) -> dict[str, Any]:
    """Return the state of the home server as it is shown and given to programs."""
    settings, files = server.settings, server.files
    environment = find_environment(files)
    is_ready = server.cluster.exists and server.cluster.is_ready()
    is_healthy = server.api.is_healthy()
    return {
        "set_up": True,
        "server_name": settings.server_name,
        "healthy": is_healthy and is_ready,
        "runner": server.runner.kind,
        "synapse": {
            "version": environment.version if environment else None,
            "pid": server.runner.get_pid(server.describe_synapse()),
            "answers": is_healthy,
            "client_url": settings.client_url,
            "federation_port": settings.federation_port,
            "public_url": settings.public_url or None,
        },
        "postgres": {
            "pid": _get_postgres_pid(server),
            "answers": is_ready,
            "port": settings.postgres_port,
            "data": settings.postgres_data,
            "bytes": server.cluster.measure_database() if is_ready else None,
        },
        "media_bytes": sum(one.stat().st_size for one in files.media.rglob("*") if one.is_file()),
        "users": {
            "admin": settings.get_address(settings.admin),
            "bot": settings.get_address(settings.bot),
        },
        "gateway_connected": is_linked(files.home, settings),
        "device": {
            "id": server.secrets.bot_device_id,
            "key": _find_device_key(server) if is_healthy else None,
        },
        "last_backup": find_last_backup(files),
        "interrupted": find_interruption(files),
    }


def describe_missing(files: ServerFiles) -> dict[str, Any]:
    """Return the state of a home without a server."""
    return {
        "set_up": find_server_settings(files) is not None,
        "healthy": False,
        "last_backup": find_last_backup(files),
    }


def find_last_backup(files: ServerFiles) -> str | None:
    """Return the path of the newest backup in the usual folder."""
    found = [path for path in files.backups.glob("*.tar.gz") if not path.name.startswith(".")]
    return str(max(found, key=lambda path: path.stat().st_mtime)) if found else None


def find_interruption(files: ServerFiles) -> str | None:
    """Return the verb of a command that was interrupted and has to be run again."""
    if files.restore_mark.exists():
        return "restore"
    return "update" if files.update_mark.exists() else None


def _find_device_key(server: HomeServer) -> str | None:
    settings, secrets = server.settings, server.secrets
    user = settings.get_address(settings.bot)
    try:
        return server.api.find_device_key(secrets.bot_access_token, user, secrets.bot_device_id)
    except HomeServerError:  # the set-up is not complete, or the token was revoked
        return None


def _get_postgres_pid(server: HomeServer) -> int | None:
    try:
        return server.runner.get_pid(server.cluster.describe_program())
    except HomeServerError:  # PostgreSQL is no longer installed
        return None
