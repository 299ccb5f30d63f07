"""Protect files that do not exist yet while a background command runs.

A mount needs something to lie on, so an empty folder stands where such a file would be. The first
command after the last background one removes these folders. What a workspace contained when the
background command started is recorded: it cannot have exchanged those files for links since.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from rekindle.json_fields import as_object

from .protected_files import COMMON_LAUNCH_FILES

_START_SECONDS = 30.0  # until a command that is being started holds its lock


class WorkspaceLock(NamedTuple):
    """The lock that background commands in a workspace hold, and what they protect."""

    path: str
    root: str

    @classmethod
    def open(cls, base: str, root: str) -> WorkspaceLock:
        """Open the lock of a workspace, kept below `base`."""
        folder = os.path.join(base, "locks")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = hashlib.blake2b(os.fsencode(root), digest_size=12).hexdigest()
        return cls(os.path.join(folder, name), root)

    @property
    def is_held(self) -> bool:
        """Whether a background command runs, or is being started."""
        try:
            with open(self.path, "r+b") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime < _START_SECONDS:
                    return True
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def read_protected(self) -> dict[str, bool]:
        """Return the paths that background commands protect, and whether a folder only stands there."""
        try:
            with open(self.path, "rb") as file:
                found = as_object(json.loads(file.read() or b"{}"))
        except (OSError, ValueError):
            return {}
        return {path: value is True for path, value in found.items()}

    def list_placeholders(self) -> list[str]:
        """Return the files that run code later and do not exist: folders will stand there."""
        paths = (os.path.join(self.root, name) for name in COMMON_LAUNCH_FILES)
        return [path for path in paths if not os.path.lexists(path)]

    def write_protected(self, paths: Sequence[str], placeholders: Sequence[str]) -> None:
        """Record what a background command that is about to start protects."""
        known = self.read_protected() if self.is_held else {}
        known = {**dict.fromkeys(paths, False), **dict.fromkeys(placeholders, True), **known}
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(known).encode())
            file.truncate()

    def remove_placeholders(self) -> bool:
        """Remove the empty folders that no running command needs; return whether there were any."""
        protected = self.read_protected()
        if not protected or self.is_held:
            return False
        for path, is_placeholder in protected.items():
            if is_placeholder:
                with suppress(OSError):  # it is not empty, or not a folder
                    os.rmdir(path)
        with suppress(OSError):
            os.unlink(self.path)
        return True
