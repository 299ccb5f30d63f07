"""Locks that show which chat terminals are alive.

The system releases the lock when the process ends, however it ends. So a later terminal knows at once
that an answer was abandoned, without waiting for its lease to expire.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path


class TerminalLocks:
    """The lock files of the terminals of this home on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        machine = re.sub(r"[^A-Za-z0-9_]+", "_", platform.node())[:40]
        self._name_prefix = f"{machine}.{sha256(bytes(folder.absolute())).hexdigest()[:8]}"

    @contextmanager
    def acquire(self) -> Generator[str]:
        """Hold a lock under a unique terminal name and yield the name."""
        name = f"{self._name_prefix}-{os.urandom(6).hex()}"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._get_path(name)
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield name
        finally:
            path.unlink(missing_ok=True)
            os.close(fd)

    def is_gone(self, name: str) -> bool:
        """Return whether the terminal has ended; False for terminals on other machines."""
        if name.rpartition("-")[0] != self._name_prefix:
            return False
        try:
            fd = os.open(self._get_path(name), os.O_RDWR)
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._get_path(name).unlink(missing_ok=True)  # left by a killed process
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def _get_path(self, name: str) -> Path:
        return self._folder / f"{Path(name).name}.lock"
