"""Sessions that were listed before: who lists again, reads only those that have changed since.

A session's row counts its changes, so a number and a count stand for one value for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.rows import SESSION_COLUMNS, session_of
from rekindle.types import Session

REMEMBERED = 2_000
TOGETHER = 500


class Listed:
    """A small memory of sessions as they were at a count of changes."""

    def __init__(self) -> None:
        self._known: dict[Row, Session] = {}

    def sessions(self, tx: Transaction, listed: Sequence[Row]) -> list[Session]:
        """The sessions of rows of (number, changes), in their order."""
        known = self._known
        try:
            return [known[row] for row in listed]
        except KeyError:
            return self._read(tx, listed)

    def _read(self, tx: Transaction, listed: Sequence[Row]) -> list[Session]:
        found = {row: self._known[row] for row in listed if row in self._known}
        missing = [row for row in listed if row not in found]
        for start in range(0, len(missing), TOGETHER):
            part = missing[start : start + TOGETHER]
            marks = ", ".join("?" * len(part))
            for num, changes, *columns in tx.run(
                f"SELECT s.num, s.changes, {SESSION_COLUMNS} FROM sessions s WHERE s.num IN ({marks})",
                [num for num, _ in part],
            ):
                found[num, changes] = session_of(tuple(columns))
        if len(self._known) + len(missing) > REMEMBERED:
            self._known = {}  # a new one: another thread may be reading the old
        if len(missing) <= REMEMBERED:
            self._known.update({row: found[row] for row in missing})
        return [found[row] for row in listed]
