"""Taking turns: several processes write to one SQLite file without starving each other.

SQLite lets one writer in and leaves the others to try again. Its own way of waiting doubles the pause
after every failure, so that who waited longest tries least often. Here everyone tries every half
millisecond, and a writer that has been at it for a while looks whether anyone waits, and if so, steps
back for long enough that one of them gets in. Who waits says so with a shared lock on a file beside
the database; the kernel takes it back when a process dies.
"""

from __future__ import annotations

import os
import time

try:
    import fcntl
except ImportError:  # Windows: everyone tries often, nobody steps back
    fcntl = None

RETRY = 0.0005
TURN = 0.02
STEP_BACK = 0.0015


class Turns:
    """One process's part in taking turns on one file."""

    def __init__(self, path: str, busy_seconds: float) -> None:
        self._busy_seconds = busy_seconds
        self._file = -1
        if fcntl:
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
            self._file = os.open(f"{path}-turns", flags, 0o600)
        self._since = 0.0
        self._deadline = 0.0
        self._waits = False

    def begin(self) -> None:
        """Step back if it is somebody else's turn."""
        now = time.monotonic()
        if now - self._since > TURN:
            self._since = now
            if self._others_wait():
                time.sleep(STEP_BACK)

    def wait(self, tries: int) -> bool:
        """SQLite's busy handler: wait a little; False gives up."""
        now = time.monotonic()
        if tries == 0:
            self._deadline = now + self._busy_seconds
            self._waits = self._waits or self._say_so()
        time.sleep(RETRY)
        return now < self._deadline

    def end(self) -> None:
        """The wait, if there was one, is over."""
        if self._waits and fcntl:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._waits = False
            self._since = time.monotonic()

    def _say_so(self) -> bool:
        return fcntl is not None and self._lock(fcntl.LOCK_SH)

    def _others_wait(self) -> bool:
        if fcntl is None:
            return False
        if not self._lock(fcntl.LOCK_EX):
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def _lock(self, kind: int) -> bool:
        assert fcntl is not None
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
