"""Back up the home server into one archive, and restore it into an empty home.

The archive holds the dump of the database, the media, all keys and settings, and what the gateway
needs to go on as the same device of the bot.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from rekindle.errors import HomeServerError, InvalidInput
from rekindle.platforms.settings_file import get_settings_path, get_state_folder
from rekindle.services.background import choose_runner

from .environment import find_environment
from .gateway_link import PLATFORM, is_linked
from .layout import (
    ServerFiles,
    ServerSettings,
    load_secrets,
    load_server_settings,
    save_settings,
    write_private_file,
)
from .removal import remove_server
from .server import HomeServer, Report
from .setup import SetupOptions, SetupResult, choose_settings, complete_server, find_free_port

_FORMAT = 1
_MANIFEST = "manifest.json"
_DUMP = "database.dump"
_SETTINGS_FILES = ("settings.json", "secrets.json", "local.yaml")
_MEDIA, _PASSWORDS = "media", "passwords"
_GATEWAY_FILE, _GATEWAY_STATE = "gateway/settings.toml", "gateway/state"
_NEEDED = {_DUMP, "settings.json", "secrets.json"}
_CHUNK = 1 << 20
_SQLITE_HEADER = b"SQLite format 3\0"


def back_up_server(server: HomeServer, archive: Path | None, now: float) -> Path:
    """Write an archive that the user alone may read, and return its path."""
    if not server.cluster.is_ready():
        raise HomeServerError(
            "The database does not answer. Start it with `rekindle matrix restart`."
        )
    if archive is None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        host = server.settings.server_name.replace(":", "-")
        archive = server.files.backups / f"{host}-{stamp}.tar.gz"
        server.files.backups.mkdir(parents=True, exist_ok=True, mode=0o700)
    if archive.exists():
        raise InvalidInput(f"{archive} already exists.")
    if not archive.parent.is_dir():
        raise InvalidInput(f"{archive.parent}: no such folder.")
    server.files.remove_leftovers()
    draft = archive.with_name(f".{archive.name}.{os.getpid()}.part")
    folder = Path(tempfile.mkdtemp(prefix="backup-", dir=server.files.folder))
    try:
        # Before the media, so that the files of all messages in it are there.
        server.cluster.dump_database(folder / _DUMP)
        fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        with os.fdopen(fd, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar:
                _add_text(tar, _MANIFEST, json.dumps(_build_manifest(server, now), indent=2))
                for name, path in _iter_files(server, folder):
                    tar.add(path, name, recursive=False)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(archive)
    finally:
        draft.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return archive


def _build_manifest(server: HomeServer, now: float) -> dict[str, Any]:
    environment = find_environment(server.files)
    return {
        "format": _FORMAT,
        "server_name": server.settings.server_name,
        "synapse": environment.version if environment else "",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
    }


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o600
    tar.addfile(entry, io.BytesIO(text.encode()))


def _iter_files(server: HomeServer, folder: Path) -> Iterator[tuple[str, Path]]:
    files, home = server.files, server.files.home
    yield _DUMP, folder / _DUMP
    for name in _SETTINGS_FILES:
        if (files.folder / name).exists():
            yield name, files.folder / name
    yield from _walk_files(_MEDIA, files.media)
    yield from _walk_files(_PASSWORDS, files.passwords)
    if is_linked(home, server.settings):
        yield _GATEWAY_FILE, get_settings_path(PLATFORM, home)
        for name, path in _walk_files(_GATEWAY_STATE, get_state_folder(PLATFORM, home)):
            if path.name.endswith(("-wal", "-shm", "-journal")):
                continue  # part of the database beside it
            yield name, _copy_database(path, folder) if _is_database(path) else path


def _walk_files(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER


def _copy_database(path: Path, folder: Path) -> Path:
    """Copy a database that the gateway may be writing to."""
    import apsw

    copy = folder / f"{len(list(folder.iterdir()))}.db"
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    target = apsw.Connection(str(copy))
    try:
        with target.backup("main", source, "main") as backup:
            backup.step()
    finally:
        source.close()
        target.close()
    return copy


# -- restore --------------------------------------------------------------------------------------


def restore_server(
    home: Path,
    archive: Path,
    options: SetupOptions,
    user_home: Path,
    env: Mapping[str, str],
    report: Report,
) -> SetupResult:
    """Restore an archive into a home without a server; an interrupted restore starts over."""
    files = ServerFiles(home)
    runner = choose_runner(files.run, user_home, env)
    manifest = read_manifest(archive)
    is_unfinished = files.restore_mark.exists()
    if not is_unfinished and files.folder.exists() and any(files.folder.iterdir()):
        raise InvalidInput(
            f"There is a Matrix server in {files.folder} already. A backup is restored into an empty"
            " home; see `rekindle matrix teardown`."
        )
    check_archive(archive, files)
    if is_unfinished:
        remove_server(home, user_home, env, keep_gateway=True)
    if options.postgres_data is not None and options.postgres_data.exists():
        raise InvalidInput(f"{options.postgres_data} already exists.")
    files.create_folder()
    write_private_file(files.restore_mark, f"{archive.absolute()}\n")
    _extract_files(archive, files)
    settings = _adapt_settings(files, options, report)
    load_secrets(files)
    if not options.synapse_version:
        options = replace(options, synapse_version=str(manifest.get("synapse") or ""))
    dump = files.folder / _DUMP
    _, link = complete_server(files, settings, runner, options, report, dump)
    dump.unlink()
    files.restore_mark.unlink()
    server = HomeServer(files, settings, load_secrets(files), runner)
    return SetupResult(server, is_changed=True, link=link)


def read_manifest(archive: Path) -> dict[str, Any]:
    """Return the description of an archive; raise InvalidInput if it is not one of ours."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            first = tar.next()
            content = tar.extractfile(first) if first and first.name == _MANIFEST else None
            found: Any = json.loads(content.read(65_536)) if content else None
    except FileNotFoundError:
        raise InvalidInput(f"{archive}: no such file.") from None
    except (tarfile.TarError, EOFError, ValueError, OSError, zlib.error) as error:
        raise InvalidInput(f"{archive} is not a backup: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{archive} is not a backup of a Matrix server.")
    manifest = cast("dict[str, Any]", found)
    if manifest.get("format") != _FORMAT:
        raise InvalidInput(f"{archive} was written by another version of Rekindle.")
    return manifest


def check_archive(archive: Path, files: ServerFiles) -> None:
    """Read an archive to its end; raise InvalidInput if it is damaged or holds what it must not."""
    found: set[str] = set()
    try:
        for entry, _, content in _iter_entries(archive, files):
            while content.read(_CHUNK):
                pass
            found.add(entry)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InvalidInput(f"{archive} is damaged: {error}") from error
    if missing := sorted(_NEEDED - found):
        raise InvalidInput(f"{archive} is incomplete: {missing[0]} is missing.")


def _extract_files(archive: Path, files: ServerFiles) -> None:
    """Extract the files of an archive to where they belong."""
    for entry, target, content in _iter_entries(archive, files):
        if entry.startswith("gateway/") and target.exists():
            continue  # the gateway here is in use
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            shutil.copyfileobj(content, file)


def _iter_entries(archive: Path, files: ServerFiles) -> Iterator[tuple[str, Path, IO[bytes]]]:
    """Yield the name, the target and the content of every file in an archive."""
    with tarfile.open(archive, "r:gz") as tar:
        for entry in tar:
            if entry.name == _MANIFEST:
                continue
            target = _find_target(entry, files)
            content = tar.extractfile(entry) if target else None
            if target is None or content is None:
                raise InvalidInput(f"{archive}: unexpected entry {entry.name!r:.100}.")
            yield entry.name, target, content


def _find_target(entry: tarfile.TarInfo, files: ServerFiles) -> Path | None:
    """Return where an entry belongs; None if it has no place."""
    path = PurePosixPath(entry.name)
    if not entry.isreg() or path.is_absolute() or ".." in path.parts or "\0" in entry.name:
        return None
    if entry.name == _DUMP or entry.name in _SETTINGS_FILES:
        return files.folder / entry.name
    if entry.name == _GATEWAY_FILE:
        return get_settings_path(PLATFORM, files.home)
    if entry.name.startswith(f"{_GATEWAY_STATE}/"):
        folder = get_settings_path(PLATFORM, files.home).parent / PLATFORM
        return folder / path.relative_to(_GATEWAY_STATE)
    if path.parts[0] in (_MEDIA, _PASSWORDS) and len(path.parts) > 1:
        return files.folder / path
    return None


def _adapt_settings(files: ServerFiles, options: SetupOptions, report: Report) -> ServerSettings:
    """Write the settings of the old machine with the folders and ports of this one."""
    old = load_server_settings(files)
    if old.certificate and not Path(old.certificate).is_file():
        report(f"{old.certificate} is not here: federation is on loopback until you set it again")
        old = replace(old, certificate="", key="")
    data = options.postgres_data or files.folder / "postgres"
    old = replace(
        old,
        postgres_data=str(data.absolute()),
        postgres_port=options.postgres_port or find_free_port(),
    )
    settings = choose_settings(files, old, options)
    save_settings(files, settings)
    return settings
