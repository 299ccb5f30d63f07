"""Which terminals are there: each holds a lock for as long as its program lives.

The system lets go of the lock when the program ends, however it ends. So a terminal that comes later
knows at once that nobody will finish an answer, without waiting for a lease to run out.
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


class Presence:
    """The terminals of a home on this machine, known by lock files in a folder of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        machine = re.sub(r"[^A-Za-z0-9_]+", "_", platform.node())[:40]
        self._here = f"{machine}.{sha256(bytes(folder.absolute())).hexdigest()[:8]}"

    @contextmanager
    def enter(self) -> Generator[str]:
        """Be there, under a name that no other terminal has."""
        name = f"{self._here}-{os.urandom(6).hex()}"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(name)
        held = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield name
        finally:
            path.unlink(missing_ok=True)
            os.close(held)

    def is_gone(self, name: str) -> bool:
        """Has the terminal of that name ended? Of those elsewhere nobody can tell: no."""
        if name.rpartition("-")[0] != self._here:
            return False
        try:
            found = os.open(self._path(name), os.O_RDWR)
        except OSError:
            return True
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path(name).unlink(missing_ok=True)  # what a killed one left
        except OSError:
            return False
        finally:
            os.close(found)
        return True

    def _path(self, name: str) -> Path:
        return self._folder / f"{Path(name).name}.lock"
