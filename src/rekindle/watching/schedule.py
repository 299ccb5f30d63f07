"""When to import and when to learn: decided from times that are passed in.

A file that takes long to read is read less often, so that reading takes at most a tenth of the time
however fast it grows. After a failure of the store, everything waits, longer each time.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_SHARE = 0.1  # of the time, for reading one file again and again
LEARN_AFTER_SECONDS = 20.0  # without a new message
LEARN_WITHIN_SECONDS = 300.0  # even if messages keep coming
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0


class WatchSchedule:
    """Paths that wait to be imported, and the time of the next work."""

    def __init__(self) -> None:
        self._waiting: dict[str, float] = {}  # path and the time before which it is not read
        self._rests: dict[str, float] = {}  # path and the end of the rest after its last import
        self._retry_at = 0.0
        self._failures = 0
        self._learn_at: float | None = None
        self._learn_by: float | None = None

    def add_paths(self, paths: Iterable[str], now: float, delay: float = 0.0) -> None:
        """Add paths that have changed."""
        for path in paths:
            earliest = max(now + delay, self._rests.get(path, 0.0))
            self._waiting[path] = min(earliest, self._waiting.get(path, earliest))

    def take_due(self, now: float) -> list[str]:
        """Return the paths that are to be imported now, parents before what is below them."""
        if now < self._retry_at:
            return []
        due = [path for path, earliest in self._waiting.items() if earliest <= now]
        for path in due:
            del self._waiting[path]
        return sorted(due, key=lambda path: (path.count("/"), path))

    def record_import(
        self, paths: Iterable[str], now: float, seconds: float, *, has_news: bool
    ) -> None:
        """Record that paths were imported, how long that took, and whether it found messages."""
        self._failures, self._retry_at = 0, 0.0
        self._rests = {path: end for path, end in self._rests.items() if end > now}
        rest = seconds / MAX_SHARE
        if rest > 1.0:
            self._rests.update((path, now + rest) for path in paths)
        if has_news:
            self._learn_at = now + LEARN_AFTER_SECONDS
            self._learn_by = self._learn_by or now + LEARN_WITHIN_SECONDS

    def record_failure(self, paths: Iterable[str], now: float) -> float:
        """Record that the store failed; return the seconds until the next attempt."""
        self.add_paths(paths, now)
        pause = min(FIRST_RETRY_SECONDS * 2**self._failures, MAX_RETRY_SECONDS)
        self._failures = min(self._failures + 1, 30)
        self._retry_at = now + pause
        return pause

    def is_learning_due(self, now: float) -> bool:
        """Return whether it is time to learn."""
        if self._learn_at is None or self._learn_by is None or now < self._retry_at:
            return False
        return now >= min(self._learn_at, self._learn_by)

    def record_learning(self) -> None:
        """Record that everything imported so far was learned."""
        self._learn_at = self._learn_by = None
        self._failures, self._retry_at = 0, 0.0

    def compute_wait(self, now: float) -> float | None:
        """Return the seconds until there is something to do, or None if nothing waits."""
        times = list(self._waiting.values())
        if self._learn_at is not None and self._learn_by is not None:
            times.append(min(self._learn_at, self._learn_by))
        if not times:
            return None
        return max(0.0, max(min(times), self._retry_at) - now)
