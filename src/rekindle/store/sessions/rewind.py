"""Remove messages from a conversation and bring them back. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import MESSAGE_ROWS
from rekindle.store.core.text_encoding import unescape_text
from rekindle.types import Message, Rewind

from .lineage import recount_session
from .sessions import append_messages, get_session

_REWIND_COLUMNS = "r.num, s.id, r.kind, r.since, r.messages, r.time, r.restored"
_FROM_REWINDS = "FROM rewinds r JOIN sessions s ON s.num = r.session"


def _row_to_rewind(row: Row) -> Rewind:
    num, session, *rest = row  # in the order of the fields
    return Rewind(num, unescape_text(session), *rest)


def _rewind_from(tx: Transaction, num: int, since: int, kind: str, now: float) -> Rewind | None:
    """Remove all messages starting at position `since`; return None if there are none."""
    condition = "session = ? AND position >= ? AND rewind IS NULL"
    count = tx.run(f"SELECT count(*) FROM messages WHERE {condition}", (num, since))[0][0]
    if not count:
        return None
    rewind_num = tx.run(
        "INSERT INTO rewinds (session, kind, since, messages, time) VALUES (?, ?, ?, ?, ?)"
        " RETURNING num",
        (num, kind, since, count, now),
    )[0][0]
    tx.run(f"UPDATE messages SET rewind = ? WHERE {condition}", (rewind_num, num, since))
    recount_session(tx, num)
    return _row_to_rewind(
        tx.run(f"SELECT {_REWIND_COLUMNS} {_FROM_REWINDS} WHERE r.num = ?", (rewind_num,))[0]
    )


def _find_user_messages(tx: Transaction, num: int, limit: int) -> list[Message]:
    return MESSAGE_ROWS.find(
        tx,
        "WHERE m.session = ? AND m.rewind IS NULL AND m.role = 'user'"
        " ORDER BY m.position DESC LIMIT ?",
        (num, limit),
    )


def undo_turns(tx: Transaction, session_id: str, turns: int, now: float) -> Rewind:
    """Remove the last turns, each a user message and everything after it."""
    if turns < 1:
        raise InvalidInput(f"turns: expected 1 or more, got {turns}")
    num, _ = get_session(tx, session_id)
    found = _find_user_messages(tx, num, turns)
    if not found:
        raise InvalidInput(f"session {session_id} has no turn to undo")
    rewind = _rewind_from(tx, num, found[-1].position or 0, "undo", now)
    assert rewind is not None
    return rewind


def retry_turn(tx: Transaction, session_id: str, now: float) -> Message:
    """Remove the answer to the last user message and return that message, to answer it again."""
    num, _ = get_session(tx, session_id)
    found = _find_user_messages(tx, num, 1)
    if not found:
        raise InvalidInput(f"session {session_id} has no user message to retry")
    _rewind_from(tx, num, (found[0].position or 0) + 1, "retry", now)
    return found[0]


def remove_last_message(tx: Transaction, session_id: str, now: float) -> Message | None:
    """Remove the last message and return it, None if there is none."""
    num, _ = get_session(tx, session_id)
    found = MESSAGE_ROWS.find(
        tx, "WHERE m.session = ? AND m.rewind IS NULL ORDER BY m.position DESC LIMIT 1", (num,)
    )
    if not found:
        return None
    _rewind_from(tx, num, found[0].position or 0, "remove", now)
    return found[0]


def rewrite_session(
    engine: Engine, tx: Transaction, session_id: str, messages: Sequence[Message], now: float
) -> Rewind | None:
    """Replace the whole conversation with `messages`."""
    num, session = get_session(tx, session_id)
    rewind = _rewind_from(tx, num, 0, "rewrite", now)
    append_messages(engine, tx, session, messages, now, num, allow_duplicates=True)
    return rewind


def redo_rewind(tx: Transaction, session_id: str, rewind_id: int | None, now: float) -> Rewind:
    """Restore the messages that a rewind removed, and remove what was added since."""
    num, _ = get_session(tx, session_id)
    which, params = ("AND r.num = ?", (num, rewind_id)) if rewind_id else ("", (num,))
    rows = tx.run(
        f"SELECT {_REWIND_COLUMNS} {_FROM_REWINDS} WHERE r.session = ? {which} AND r.restored IS NULL"
        " ORDER BY r.num DESC LIMIT 1",
        params,
    )
    if not rows:
        raise NotFound(f"session {session_id} has nothing to redo")
    rewind = _row_to_rewind(rows[0])
    _rewind_from(tx, num, rewind.since, "redo", now)
    tx.run(
        "UPDATE messages SET rewind = NULL WHERE session = ? AND position >= ? AND rewind = ?",
        (num, rewind.since, rewind.id),
    )
    tx.run("UPDATE rewinds SET restored = ? WHERE num = ?", (now, rewind.id))
    recount_session(tx, num)
    return _row_to_rewind(
        tx.run(f"SELECT {_REWIND_COLUMNS} {_FROM_REWINDS} WHERE r.num = ?", (rewind.id,))[0]
    )


def sync_branches(tx: Transaction, num: int, abandoned: Collection[str], now: float) -> None:
    """Remove the messages with these platform ids, and restore those that are active again.

    They stand on branches of a transcript that its user left behind. Parts of an answer that were
    imported later have its id and a suffix. What users removed themselves stays removed.
    """
    known = "session = ? AND kind = 'branch' AND restored IS NULL"
    branches = {one for (one,) in tx.run(f"SELECT num FROM rewinds WHERE {known}", (num,))}
    if not (abandoned or branches):
        return
    rows = tx.run(
        "SELECT id, position, rewind, platform_id FROM messages WHERE session = ?"
        " AND platform_id IS NOT NULL ORDER BY position",
        (num,),
    )
    left: list[Row] = []
    active: list[Row] = []
    for id, position, rewind, name in rows:
        platform_id = unescape_text(name)
        is_left = platform_id in abandoned or platform_id.partition("+")[0] in abandoned
        if is_left and rewind is None:
            left.append((id, position))
        elif not is_left and rewind in branches:
            active.append((id,))
    if left:
        rewind_num = tx.run(
            "INSERT INTO rewinds (session, kind, since, messages, time) VALUES (?, 'branch', ?, ?, ?)"
            " RETURNING num",
            (num, left[0][1], len(left), now),
        )[0][0]
        rows_left = [(rewind_num, id) for id, _ in left]
        tx.run_many("UPDATE messages SET rewind = ? WHERE id = ?", rows_left)
    if active:
        tx.run_many("UPDATE messages SET rewind = NULL WHERE id = ?", active)
    if left or active:
        recount_session(tx, num)


def list_rewinds(tx: Transaction, session_id: str) -> list[Rewind]:
    """Return the rewinds of a session, oldest first."""
    num, _ = get_session(tx, session_id)
    sql = f"SELECT {_REWIND_COLUMNS} {_FROM_REWINDS} WHERE r.session = ? ORDER BY r.num"
    return [_row_to_rewind(row) for row in tx.run(sql, (num,))]
