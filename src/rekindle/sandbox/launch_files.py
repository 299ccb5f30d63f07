"""Undo changes of a command to files in its workspace that run code later.

Mounts protect the files that exist. A command can still create one that did not exist, and Landlock
cannot protect single files at all. So the files are recorded before a command and checked after it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .protected_files import GIT_LAUNCH_FILES, LAUNCH_FILES, SHELL_FILES

_LARGE = frozenset(("modules", "worktrees"))  # folders of whole repositories
_MAX_FILES, _MAX_BYTES = 2000, 4 << 20
# A file's mode and content, a link's target, or a folder's mode; None: too large to keep.
_State: TypeAlias = tuple[int, bytes] | None


class LaunchFiles(NamedTuple):
    """The files that run code later in some folders, as they were before a command."""

    states: Mapping[str, _State]
    watched: Sequence[str]

    @classmethod
    def record(cls, roots: Sequence[str], home: str = "", *, locked: bool = False) -> LaunchFiles:
        """Record the files below these folders.

        With `locked`, the kernel protects those that exist, so only missing ones and links matter:
        another program may change the others meanwhile.
        """
        watched = [path for root in roots for path in _list_watched(root, home)]
        if locked:
            watched = [
                path for path in watched if not os.path.lexists(path) or os.path.islink(path)
            ]
        states: dict[str, _State] = {}
        for path in watched:
            for found in _walk_tree(path):
                if len(states) < _MAX_FILES:
                    states[found] = _read_state(found)
        return cls(states, watched)

    def restore(self, aside: str) -> list[str]:
        """Restore the recorded state and return the paths that were changed.

        What was created is moved to a new folder below `aside`.
        """
        changed: list[str] = []
        for watched in self.watched:
            for path in list(_walk_tree(watched)):
                is_new = path not in self.states and len(self.states) < _MAX_FILES
                if is_new and os.path.lexists(path):
                    _move_aside(path, aside)
                    changed.append(path)
        for path, state in self.states.items():
            if state is not None and _read_state(path) != state:
                if os.path.lexists(path) and not (stat.S_ISDIR(state[0]) and os.path.isdir(path)):
                    _move_aside(path, aside)
                _write_state(path, state)
                changed.append(path)
        return changed


def _list_watched(root: str, home: str) -> Iterator[str]:
    names = SHELL_FILES if root == home else LAUNCH_FILES
    yield from (os.path.join(root, name) for name in names)
    git = os.path.join(root, ".git")
    if os.path.isdir(git) and not os.path.islink(git):
        yield from (os.path.join(git, name) for name in GIT_LAUNCH_FILES if name not in _LARGE)
    elif os.path.lexists(git):
        yield git


def _walk_tree(path: str) -> Iterator[str]:
    """Yield a path that exists and, of a folder, everything below it, without following links."""
    if not os.path.lexists(path):
        return
    yield path
    if os.path.isdir(path) and not os.path.islink(path):
        try:
            names = sorted(os.listdir(path))
        except OSError:
            return
        for name in names:
            yield from _walk_tree(os.path.join(path, name))


def _read_state(path: str) -> _State:
    """Return the contents of a path; None if it does not exist or is too large to keep."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return status.st_mode, os.fsencode(os.readlink(path))
        if not stat.S_ISREG(status.st_mode):
            return status.st_mode, b""
        if status.st_size > _MAX_BYTES:
            return None
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return status.st_mode, file.read(_MAX_BYTES)
    except OSError:
        return None


def _write_state(path: str, state: tuple[int, bytes]) -> None:
    mode, content = state
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if stat.S_ISLNK(mode):
            os.symlink(os.fsdecode(content), path)
        elif stat.S_ISDIR(mode):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, stat.S_IMODE(mode))
        elif stat.S_ISREG(mode):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, stat.S_IMODE(mode)), "wb") as file:
                file.write(content)
    except OSError:
        return


def _move_aside(path: str, aside: str) -> None:
    os.makedirs(aside, mode=0o700, exist_ok=True)
    target = os.path.join(tempfile.mkdtemp(dir=aside, prefix="kept-"), os.path.basename(path))
    try:
        shutil.move(path, target)
    except (OSError, shutil.Error):
        return
