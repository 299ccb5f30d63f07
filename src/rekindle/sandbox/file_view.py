"""Decide which files a command sees: an ordered list of mounts.

Nothing is visible unless it is listed: the programs and libraries of the system, tools below the home
folder, the repository around the workspace, and the workspace itself. Within these, secrets are hidden
and files that run code later are locked.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from rekindle.errors import InvalidInput
from rekindle.projects import find_repository

from .protected_files import (
    GIT_LAUNCH_FILES,
    LAUNCH_FILES,
    TOOLCHAINS,
    find_private_files,
    find_secret_files,
    is_secret_file,
)

# read: visible; write: a workspace; lock: read-only inside a workspace; pin: writable, but cannot be
# renamed; hide: out of sight.
MountKind: TypeAlias = Literal["read", "write", "lock", "pin", "hide"]

SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/snap"),
    *("/nix/store", "/gnu/store", "/var/lib/dpkg", "/sys/devices/system"),
)
# Folders that are too wide to be a workspace: they hold other people's files, sockets or devices.
_WIDE_FOLDERS = frozenset(
    (
        "/",
        "/tmp",
        "/var",
        "/var/tmp",
        "/run",
        "/home",
        "/root",
        "/dev",
        "/proc",
        "/sys",
        "/mnt",
        "/media",
        "/boot",
    )
)
# Resolving names needs these, which lie in hidden folders on some systems.
_NETWORK_FILES = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/var/run/nscd",
)


class Mount(NamedTuple):
    """One path of this machine and how the command sees it."""

    kind: MountKind
    path: str


class FileView(NamedTuple):
    """The mounts from the outermost to the innermost, and the folders that the command may write."""

    mounts: tuple[Mount, ...]
    roots: tuple[str, ...]
    home: str
    network: bool = False

    def list_paths(self, *kinds: MountKind) -> list[str]:
        return [mount.path for mount in self.mounts if mount.kind in kinds]


class ViewRequest(NamedTuple):
    """What a view is built for: the workspace's folders and what the settings add.

    `own` are Rekindle's folders, `readable` and `writable` are additions. A readable path is never
    hidden.
    """

    roots: tuple[str, ...]
    environment: Mapping[str, str]
    own: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False


def build_view(request: ViewRequest) -> FileView:
    """Build the view of a command; raise InvalidInput if its workspace is too wide to be confined."""
    home = os.path.realpath(request.environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    roots = _resolve_folders((*request.roots, *request.writable))
    for root in roots:
        _check_root(root, home, request.own)
    own = _resolve_folders(request.own)
    given = [_expand_home(path, home, roots) for path in request.readable]
    readable = [path for path in given if not _is_inside_any(path, own)]
    mounts: dict[str, MountKind] = {}
    for path in _list_readable(request, home, roots):
        if not _is_inside_any(path, roots):
            mounts[path] = "read"
    mounts.update(dict.fromkeys(find_private_files(), "hide"))
    for path in readable:
        seen = [one for one, kind in mounts.items() if kind == "read"]
        if mounts.get(path) == "hide" or not os.path.exists(path):
            continue
        if not _is_inside_any(path, (*roots, *seen)):
            mounts[path] = "read"
    for root in roots:
        mounts[root] = "write"
        mounts.update(_list_protections(root, home))
    for path in readable:
        if mounts.get(path) == "hide":
            del mounts[path]
    for path in own:  # last: no setting opens our own files
        if path in mounts or _is_inside_any(path, (*roots, *mounts)):
            mounts[path] = "hide"
    ordered = sorted(mounts.items(), key=lambda each: (each[0].count("/"), each[0]))
    return FileView(
        tuple(Mount(kind, path) for path, kind in ordered), roots, home, request.network
    )


def _check_root(root: str, home: str, own: Iterable[str]) -> None:
    for folder in _resolve_folders(own):
        if root == folder or (
            _is_inside(root, folder) and not _is_inside(root + "/", f"{folder}/work")
        ):
            raise InvalidInput(f"{root} contains Rekindle's own files; start in another folder")
    is_system = any(root == folder or _is_inside(root, folder) for folder in SYSTEM_FOLDERS[:8])
    if (root in _WIDE_FOLDERS and root != home) or _is_inside(home, root) or is_system:
        raise InvalidInput(
            f"{root} is too broad for the sandbox; start in a project folder instead"
        )


def _list_readable(request: ViewRequest, home: str, roots: tuple[str, ...]) -> Iterable[str]:
    for folder in SYSTEM_FOLDERS:
        if os.path.exists(folder):
            yield folder
    for name in TOOLCHAINS:
        if os.path.isdir(path := os.path.join(home, name)):
            yield os.path.realpath(path) if os.path.islink(path) else path
    for prefix in {sys.prefix, sys.base_prefix, request.environment.get("VIRTUAL_ENV", "")}:
        if prefix and os.path.isdir(prefix) and not _is_too_wide(os.path.realpath(prefix), home):
            yield os.path.realpath(prefix)
    yield from _list_program_folders(request.environment.get("PATH", ""), home)
    for root in roots:
        repository = find_repository(root)
        if repository is not None and not _is_too_wide(repository.root, home, root):
            yield repository.root
    if request.network:
        yield from filter(os.path.exists, _NETWORK_FILES)
        agent = request.environment.get("SSH_AUTH_SOCK", "")
        if agent.startswith("/") and os.path.exists(agent):
            yield os.path.realpath(agent)


def _list_program_folders(path: str, home: str) -> Iterable[str]:
    """Yield the folders of PATH that are not part of the system; of a virtual environment, all of it."""
    for folder in path.split(":"):
        if not folder.startswith("/") or not os.path.isdir(folder):
            continue
        folder = os.path.realpath(folder)
        parent = os.path.dirname(folder)
        if os.path.exists(os.path.join(parent, "pyvenv.cfg")):
            folder = parent
        is_system = any(_is_inside(folder, system) for system in SYSTEM_FOLDERS)
        if not is_system and not _is_too_wide(folder, home):
            yield folder


def _is_too_wide(folder: str, home: str, *others: str) -> bool:
    return folder in (home, *others, *_WIDE_FOLDERS) or _is_inside(home, folder)


def _list_protections(root: str, home: str) -> dict[str, MountKind]:
    """Return what is hidden, locked and pinned in a workspace. Links are left to `launch_files`."""
    found: dict[str, MountKind] = {}
    if root == home:
        for name in os.listdir(root):
            path = os.path.join(root, name)
            if name.startswith(".") and not os.path.islink(path):
                found[path] = "hide"
        for name in TOOLCHAINS:
            if os.path.isdir(path := os.path.join(root, name)) and os.path.realpath(path) == path:
                found[path] = "lock"
        return found
    for name in LAUNCH_FILES:
        if _is_plain(path := os.path.join(root, name)):
            found[path] = "lock"
    found.update(_list_git_protections(os.path.join(root, ".git")))
    found.update(dict.fromkeys(find_secret_files(root), "hide"))
    return found


def _list_git_protections(folder: str) -> dict[str, MountKind]:
    if os.path.islink(folder) or not os.path.lexists(folder):
        return {}
    if not os.path.isdir(folder):
        return {folder: "lock"}  # it names a repository elsewhere
    found: dict[str, MountKind] = {folder: "pin"}
    for name in GIT_LAUNCH_FILES:
        if _is_plain(path := os.path.join(folder, name)):
            found[path] = "lock"
    return found


def _is_plain(path: str) -> bool:
    return os.path.lexists(path) and not os.path.islink(path)


def _expand_home(path: str, home: str, roots: tuple[str, ...]) -> str:
    """Return an absolute path; a relative one is below the first workspace."""
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return os.path.normpath(os.path.join(roots[0] if roots else "/", path))


def _resolve_folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if path))


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _is_inside_any(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or _is_inside(path, folder) for folder in folders)


__all__ = ["FileView", "Mount", "MountKind", "ViewRequest", "build_view", "is_secret_file"]
