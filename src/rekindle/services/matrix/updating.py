"""Update Synapse: after a backup, and back again if the new version does not come up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rekindle.errors import HomeServerError, RekindleError

from .backup import back_up_server
from .environment import (
    SynapseEnvironment,
    build_environment,
    find_environment,
    read_environment,
    remove_unused_environments,
    use_environment,
)
from .layout import read_json, write_private_file
from .server import HomeServer, Report


class UpdateResult(NamedTuple):
    """The versions before and after an update. They can be equal when only libraries changed."""

    old: str
    new: str
    is_changed: bool
    archive: Path | None = None


def update_server(server: HomeServer, version: str, now: float, report: Report) -> UpdateResult:
    """Install the newest Synapse, or this version; go back if it does not come up."""
    files = server.files
    recover_update(server, report)
    current = find_environment(files)
    if current is None:
        raise HomeServerError("Synapse is not installed. Run `rekindle matrix setup`.")
    report("Installing Synapse; this takes a minute…")
    built = build_environment(files, version)
    if built.packages == current.packages:
        remove_unused_environments(files)
        return UpdateResult(current.version, current.version, is_changed=False)
    archive = back_up_server(server, None, now)
    report(f"Wrote a backup to {archive}")
    server.stop_synapse()
    # Nobody writes now: this is what the old version goes on with if the new one fails.
    server.cluster.dump_database(_get_dump(server))
    _write_mark(server, current, is_failed=False)
    use_environment(files, built)
    try:
        server.start_synapse()
    except RekindleError as error:
        _restore_old_version(server, current)
        raise HomeServerError(
            f"Synapse {built.version} did not start, so {current.version} runs again. {error}"
        ) from error
    _finish_update(server)
    return UpdateResult(current.version, built.version, is_changed=True, archive=archive)


def recover_update(server: HomeServer, report: Report) -> None:
    """Complete an update that was interrupted, or go back if the new version does not come up."""
    mark: Any = read_json(server.files.update_mark)
    if mark is None:
        return
    report("Completing an update that was interrupted…")
    server.start_postgres()
    try:
        if mark["failed"]:
            raise HomeServerError("The update failed before.")
        server.start_synapse()
    except RekindleError:
        old = read_environment(server.files.environments / str(mark["environment"]))
        if old is None:
            raise
        _restore_old_version(server, old)
        report(f"The new version did not come up: Synapse {old.version} runs again")
        return
    _finish_update(server)


def _restore_old_version(server: HomeServer, old: SynapseEnvironment) -> None:
    """Start the old version with the database as it was."""
    # From here on the database may be empty: no interrupted run may take it for the new one.
    _write_mark(server, old, is_failed=True)
    server.stop_synapse()
    use_environment(server.files, old)
    server.cluster.drop_database()
    server.cluster.create_database()
    server.cluster.load_dump(_get_dump(server))
    server.start_synapse()
    _finish_update(server)


def _write_mark(server: HomeServer, old: SynapseEnvironment, *, is_failed: bool) -> None:
    text = json.dumps({"environment": old.folder.name, "failed": is_failed})
    write_private_file(server.files.update_mark, f"{text}\n")


def _get_dump(server: HomeServer) -> Path:
    return server.files.folder / "updating.dump"


def _finish_update(server: HomeServer) -> None:
    server.files.update_mark.unlink(missing_ok=True)
    _get_dump(server).unlink(missing_ok=True)
    remove_unused_environments(server.files)
