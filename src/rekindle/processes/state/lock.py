"""The lock of a folder: only one program at a time manages its processes."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from rekindle.errors import JournalUnwritable, SupervisorUnavailable


class FolderLock:
    """A lock held until it is released or this program ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, folder: Path) -> FolderLock:
        """Acquire the lock; raise SupervisorUnavailable if another program holds it."""
        try:
            fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalUnwritable(f"{folder} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise JournalUnwritable(f"{folder} cannot be locked: {error.strerror}") from error
            raise SupervisorUnavailable(
                f"another program manages the processes of {folder}"
            ) from None
        return cls(fd)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
