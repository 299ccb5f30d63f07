"""Fair write locking: several processes write to one SQLite file without starving each other.

SQLite admits one writer and leaves the others to retry. Its own busy handler backs off exponentially,
so that whoever waited longest tries least often. Here every writer retries each half millisecond, and
a writer that has been active for a while checks for waiters and, if there are any, yields long enough
for one of them to get in. Waiters hold a shared lock on a file next to the database; the kernel
releases it when a process dies.
"""

from __future__ import annotations

import os
import time

try:
    import fcntl
except ImportError:  # Windows: everyone retries often, nobody yields
    fcntl = None

RETRY_SECONDS = 0.0005
TURN_SECONDS = 0.02
YIELD_SECONDS = 0.0015


class WriteLock:
    """One process's part in sharing the write lock of a file."""

    def __init__(self, path: str, busy_seconds: float) -> None:
        self._busy_seconds = busy_seconds
        self._file = -1
        if fcntl:
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
            self._file = os.open(f"{path}-turns", flags, 0o600)
        self._turn_start = 0.0
        self._deadline = 0.0
        self._is_waiting = False

    def yield_to_waiters(self) -> None:
        """Pause if another process is waiting to write and this one has had its turn."""
        now = time.monotonic()
        if now - self._turn_start > TURN_SECONDS:
            self._turn_start = now
            if self._has_waiters():
                time.sleep(YIELD_SECONDS)

    def wait(self, attempts: int) -> bool:
        """Wait briefly, as SQLite's busy handler; return False to give up."""
        now = time.monotonic()
        if attempts == 0:
            self._deadline = now + self._busy_seconds
            self._is_waiting = self._is_waiting or self._announce_wait()
        time.sleep(RETRY_SECONDS)
        return now < self._deadline

    def end_wait(self) -> None:
        """End the wait, if there was one."""
        if self._is_waiting and fcntl:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._is_waiting = False
            self._turn_start = time.monotonic()

    def _announce_wait(self) -> bool:
        return fcntl is not None and self._try_lock(fcntl.LOCK_SH)

    def _has_waiters(self) -> bool:
        if fcntl is None:
            return False
        if not self._try_lock(fcntl.LOCK_EX):
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def _try_lock(self, kind: int) -> bool:
        assert fcntl is not None
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close the lock file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
