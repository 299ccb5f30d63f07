"""Lists of sessions, and a cache for them: only those that changed since the last read are read again.

A session's row counts its changes, so its number and that count identify one value for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.rows import SESSION_COLUMNS, row_to_session
from rekindle.types import Session

MAX_CACHED = 2_000
BATCH_SIZE = 500
_NEWEST_FIRST = " ORDER BY s.last_active DESC, s.source DESC, s.num DESC"
_MAX_MERGED = 50  # projects; a list of more is sorted


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


def select_newest(
    tx: Transaction, where: Filter, now: float, limit: int, offset: int, extra: str = ""
) -> list[Row]:
    """Return number and changes of sessions, newest first; `extra` is added to the conditions."""
    keys = where.projects or ()
    if not 1 < len(keys) <= _MAX_MERGED:
        condition, params = where.to_sql(now)
        sql = f"SELECT s.num, s.changes FROM sessions s WHERE {condition}{extra}{_NEWEST_FIRST}"
        return list(tx.run(f"{sql} LIMIT ? OFFSET ?", (*params, limit, offset)))
    parts: list[str] = []
    values: list[Any] = []
    for key in keys:  # each in the order of its index, up to where the list ends
        condition, params = where.with_(projects=(key,)).to_sql(now)
        columns = "s.num, s.changes, s.last_active, s.source"
        part = f"SELECT {columns} FROM sessions s WHERE {condition}{extra}{_NEWEST_FIRST} LIMIT ?"
        parts.append(f"SELECT * FROM ({part}) AS newest")
        values += [*params, limit + offset]
    union = f"{' UNION ALL '.join(parts)} ORDER BY 3 DESC, 4 DESC, 1 DESC LIMIT ? OFFSET ?"
    return [row[:2] for row in tx.run(union, (*values, limit, offset))]
