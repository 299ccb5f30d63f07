"""A cache of sessions for lists: only sessions that changed since the last read are read again.

A session's row counts its changes, so its number and that count identify one value for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.rows import SESSION_COLUMNS, row_to_session
from rekindle.types import Session

MAX_CACHED = 2_000
BATCH_SIZE = 500


class SessionListCache:
    """A small cache of sessions by number and count of changes."""

    def __init__(self) -> None:
        self._cached: dict[Row, Session] = {}

    def load(self, tx: Transaction, versions: Sequence[Row]) -> list[Session]:
        """Return the sessions of rows of (number, changes), in the same order."""
        cached = self._cached
        try:
            return [cached[row] for row in versions]
        except KeyError:
            return self._load_missing(tx, versions)

    def _load_missing(self, tx: Transaction, versions: Sequence[Row]) -> list[Session]:
        found = {row: self._cached[row] for row in versions if row in self._cached}
        missing = [row for row in versions if row not in found]
        for start in range(0, len(missing), BATCH_SIZE):
            batch = missing[start : start + BATCH_SIZE]
            placeholders = ", ".join("?" * len(batch))
            for num, changes, *columns in tx.run(
                f"SELECT s.num, s.changes, {SESSION_COLUMNS} FROM sessions s"
                f" WHERE s.num IN ({placeholders})",
                [num for num, _ in batch],
            ):
                found[num, changes] = row_to_session(tuple(columns))
        if len(self._cached) + len(missing) > MAX_CACHED:
            self._cached = {}  # a new dict: another thread may be reading the old one
        if len(missing) <= MAX_CACHED:
            self._cached.update({row: found[row] for row in missing})
        return [found[row] for row in versions]
