"""Remove the home server with all its data."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from rekindle.errors import HomeServerError, NotFound
from rekindle.services.background import choose_runner

from .gateway_link import unlink_gateway
from .layout import (
    ServerFiles,
    ServerSettings,
    find_secrets,
    find_server_settings,
    generate_secrets,
)
from .server import HomeServer


def remove_server(
    home: Path, user_home: Path, env: Mapping[str, str], *, keep_gateway: bool = False
) -> None:
    """Stop the servers and delete everything but backups; an interrupted run can be repeated."""
    files = ServerFiles(home)
    if not files.folder.exists():
        raise NotFound("There is no Matrix server here.")
    try:
        settings, secrets = find_server_settings(files), find_secrets(files)
    except HomeServerError:  # damaged files can be deleted too
        settings, secrets = None, None
    runner = choose_runner(files.run, user_home, env)
    known = settings or ServerSettings("unknown", str(files.folder / "postgres"), 1)
    # Nothing is opened with the secrets.
    server = HomeServer(files, known, secrets or generate_secrets(), runner)
    server.forget_all()
    server.cluster.remove_drafts()
    if settings is not None and not keep_gateway:
        unlink_gateway(home, settings)
    # The settings go last: they say what is to be deleted.
    _delete_folder(server.cluster.data)
    for path in files.folder.iterdir():
        if path in (files.settings, files.restore_mark):
            continue
        if path.is_dir() and not path.is_symlink():
            _delete_folder(path)
        else:
            path.unlink(missing_ok=True)
    _delete_folder(files.folder)


def _delete_folder(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise HomeServerError(f"{error.filename} cannot be deleted: {error.strerror}.") from error
