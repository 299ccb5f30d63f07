"""Archiving and pruning: by last activity, never an active session, and with a way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rekindle.errors import NotFound
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.rows import SESSION_COLUMNS, session_of
from rekindle.store.core.text_encoding import escape
from rekindle.types import Session

from . import titles
from .sessions import change

# What a deleted session was started with, unless another still names it.
_SWEEP = (
    "DELETE FROM preludes WHERE hash = ?"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.prelude = preludes.hash)"
)


def affected(
    tx: Transaction, where: Filter, active_seconds: float, now: float
) -> list[tuple[int, Session]]:
    """The sessions that a filter means, without those that are in use."""
    condition, params = where.sql(now)
    rows = tx.run(
        f"SELECT s.num, {SESSION_COLUMNS} FROM sessions s WHERE {condition}"
        " AND (s.ended IS NOT NULL OR s.last_active < ?) ORDER BY s.last_active",
        (*params, now - active_seconds),
    )
    return [(row[0], session_of(row[1:])) for row in rows]


def mark(
    tx: Transaction, column: str, where: Filter, active_seconds: float, now: float
) -> list[Session]:
    """Set `archived` or `pruned` for what a filter means, and return it."""
    found = affected(tx, where, active_seconds, now)
    sql = f"UPDATE sessions SET changes = changes + 1, {column} = ? WHERE num = ?"
    tx.many(sql, [(now, num) for num, _ in found])
    return [session for _, session in found]


def restore(tx: Transaction, session_ids: Sequence[str]) -> list[Session]:
    """Bring sessions back from the archive, or from pruning while they are still there."""
    restored: list[Session] = []
    for session_id in session_ids:
        rows = tx.run(
            "SELECT num, owner, title, pruned FROM sessions WHERE id = ?", (escape(session_id),)
        )
        if not rows:
            raise NotFound(f"no session {session_id!r}; what was purged cannot be brought back")
        num, owner, title, pruned = rows[0]
        columns: dict[str, Any] = {"archived": None, "pruned": None}
        if pruned is not None and title and titles.is_taken(tx, owner, title):
            free = titles.following(tx, owner, title)
            columns |= dict(zip(("title", "title_base", "title_number"), free, strict=True))
        restored.append(change(tx, num, columns))
    return restored


def purge_one(engine: Engine, tx: Transaction, before: float) -> int:
    """Really delete one session that was pruned before that time; how many that were."""
    rows = tx.run("SELECT num FROM sessions WHERE pruned < ? ORDER BY pruned LIMIT 1", (before,))
    for (num,) in rows:
        engine.unindex(tx, num)
        tx.run("DELETE FROM messages WHERE session = ?", (num,))
        gone = tx.run("DELETE FROM sessions WHERE num = ? RETURNING prelude", (num,))
        tx.run(_SWEEP, (gone[0][0],))
    return len(rows)
