"""The lock of a folder: one program at a time keeps its processes."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from rekindle.errors import JournalUnwritable, SupervisorGone


class Lock:
    """Held until released, or until this program ends in whatever way."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def take(cls, folder: Path) -> Lock:
        """SupervisorGone if another program holds it."""
        try:
            file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalUnwritable(f"{folder} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise JournalUnwritable(f"{folder} cannot be locked: {error.strerror}") from error
            raise SupervisorGone(f"another program keeps the processes of {folder}") from None
        return cls(file)

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
