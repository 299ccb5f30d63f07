"""Archive and prune sessions by last activity; active sessions are kept, and both can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.rows import SESSION_COLUMNS, row_to_session
from rekindle.store.core.text_encoding import escape_text
from rekindle.types import Session

from . import titles
from .sessions import change_session, get_session, resolve_session

# The prelude or system prompt of a deleted session, unless another session uses it.
_DELETE_UNUSED_PRELUDE = (
    "DELETE FROM preludes WHERE hash = ?"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.prelude = preludes.hash)"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.system_prompt = preludes.hash)"
)


def find_inactive_sessions(
    tx: Transaction, where: Filter, active_seconds: float, now: float
) -> list[tuple[int, Session]]:
    """Return the sessions that match a filter, except active ones."""
    condition, params = where.to_sql(now)
    rows = tx.run(
        f"SELECT s.num, {SESSION_COLUMNS} FROM sessions s WHERE {condition}"
        " AND (s.ended IS NOT NULL OR s.last_active < ?) ORDER BY s.last_active",
        (*params, now - active_seconds),
    )
    return [(row[0], row_to_session(row[1:])) for row in rows]


def mark_sessions(
    tx: Transaction, column: str, where: Filter, active_seconds: float, now: float
) -> list[Session]:
    """Set `archived` or `pruned` for the matching sessions, and return them."""
    found = find_inactive_sessions(tx, where, active_seconds, now)
    sql = f"UPDATE sessions SET changes = changes + 1, {column} = ? WHERE num = ?"
    tx.run_many(sql, [(now, num) for num, _ in found])
    return [session for _, session in found]


def archive_session(tx: Transaction, id: str, now: float) -> Session:
    """Archive one session, unless it is already, and return it."""
    num, session = get_session(tx, id)
    return session if session.archived else change_session(tx, num, {"archived": now})


def prune_session(tx: Transaction, id: str, active_seconds: float, now: float) -> Session:
    """Delete one session so that it can be restored; raise InvalidInput if it is active."""
    num, session = get_session(tx, id)
    if session.ended is None and session.last_active >= now - active_seconds:
        raise InvalidInput(f"Session {id} is active. End it first, then delete it.")
    return change_session(tx, num, {"pruned": now})


def restore_sessions(tx: Transaction, names: Sequence[str]) -> list[Session]:
    """Restore sessions from the archive, or from pruning if they are not purged yet."""
    restored: list[Session] = []
    for name in names:
        num, owner, title, pruned = _find_removed_session(tx, name)
        columns: dict[str, Any] = {"archived": None, "pruned": None}
        if pruned is not None and title and titles.is_title_taken(tx, owner, title):
            free = titles.find_next_title(tx, owner, title)
            columns |= dict(zip(("title", "title_base", "title_number"), free, strict=True))
        restored.append(change_session(tx, num, columns))
    return restored


def _find_removed_session(tx: Transaction, name: str) -> Row:
    """Return the row of a session by its id, or by the title or id prefix it had when removed."""
    sql = "SELECT num, owner, title, pruned FROM sessions WHERE id = ?"
    if rows := tx.run(sql, (escape_text(name),)):
        return rows[0]
    try:
        found = resolve_session(tx, name, removed=True)
    except AmbiguousName:
        raise
    except NotFound:
        raise NotFound(
            f"no archived or pruned session with the id or title {name!r};"
            " purged sessions cannot be restored"
        ) from None
    return tx.run(sql, (escape_text(found.id),))[0]


def purge_next_session(engine: Engine, tx: Transaction, before: float) -> int:
    """Permanently delete one session pruned before `before`; return the number deleted (0 or 1)."""
    rows = tx.run("SELECT num FROM sessions WHERE pruned < ? ORDER BY pruned LIMIT 1", (before,))
    for (num,) in rows:
        delete_session(engine, tx, num)
    return len(rows)


def delete_session(engine: Engine, tx: Transaction, num: int) -> None:
    """Permanently delete a session with everything that belongs to it alone."""
    engine.unindex(tx, num)
    tx.run("DELETE FROM messages WHERE session = ?", (num,))
    sql = "DELETE FROM sessions WHERE num = ? RETURNING prelude, system_prompt"
    for hash in tx.run(sql, (num,))[0]:
        tx.run(_DELETE_UNUSED_PRELUDE, (hash,))
