"""Taking messages out of a conversation, and bringing them back. Nothing is destroyed."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import MESSAGE_COLUMNS, message_of
from rekindle.store.core.text_encoding import unescape
from rekindle.types import Message, Rewind

from .lineage import recount
from .sessions import append, by_id

_COLUMNS = "r.num, s.id, r.kind, r.since, r.messages, r.time, r.restored"
_FROM = "FROM rewinds r JOIN sessions s ON s.num = r.session"


def _rewind_of(row: Row) -> Rewind:
    num, session, kind, since, messages, time, restored = row
    return Rewind(
        id=num,
        session=unescape(session),
        kind=kind,
        since=since,
        messages=messages,
        time=time,
        restored=restored,
    )


def _take_out(tx: Transaction, num: int, since: int, kind: str, now: float) -> Rewind | None:
    """Take out everything from position `since` on; None if there is nothing."""
    here = "session = ? AND position >= ? AND rewind IS NULL"
    count = tx.run(f"SELECT count(*) FROM messages WHERE {here}", (num, since))[0][0]
    if not count:
        return None
    rewind = tx.run(
        "INSERT INTO rewinds (session, kind, since, messages, time) VALUES (?, ?, ?, ?, ?)"
        " RETURNING num",
        (num, kind, since, count, now),
    )[0][0]
    tx.run(f"UPDATE messages SET rewind = ? WHERE {here}", (rewind, num, since))
    recount(tx, num)
    return _rewind_of(tx.run(f"SELECT {_COLUMNS} {_FROM} WHERE r.num = ?", (rewind,))[0])


def _user_messages(tx: Transaction, num: int, limit: int) -> list[Row]:
    return tx.run(
        f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ? AND m.rewind IS NULL"
        " AND m.role = 'user' ORDER BY m.position DESC LIMIT ?",
        (num, limit),
    )


def undo(tx: Transaction, session_id: str, turns: int, now: float) -> Rewind:
    """Take out the last turns, each a user message and all that followed it."""
    if turns < 1:
        raise InvalidInput(f"turns: expected 1 or more, got {turns}")
    num, _ = by_id(tx, session_id)
    asked = _user_messages(tx, num, turns)
    if not asked:
        raise InvalidInput(f"session {session_id} has no turn to undo")
    rewind = _take_out(tx, num, asked[-1][0], "undo", now)
    assert rewind is not None
    return rewind


def retry(tx: Transaction, session_id: str, now: float) -> Message:
    """Take out the answer to the last user message and return that message, to be answered again."""
    num, _ = by_id(tx, session_id)
    asked = _user_messages(tx, num, 1)
    if not asked:
        raise InvalidInput(f"session {session_id} has no user message to retry")
    message = message_of(asked[0])
    assert message.position is not None
    _take_out(tx, num, message.position + 1, "retry", now)
    return message


def rewrite(
    engine: Engine, tx: Transaction, session_id: str, messages: Sequence[Message], now: float
) -> Rewind | None:
    """Put `messages` in place of the whole conversation."""
    num, session = by_id(tx, session_id)
    rewind = _take_out(tx, num, 0, "rewrite", now)
    append(engine, tx, session, messages, now, num, again=True)
    return rewind


def redo(tx: Transaction, session_id: str, rewind_id: int | None, now: float) -> Rewind:
    """Bring back what a rewind took out; what was said since then is taken out in its place."""
    num, _ = by_id(tx, session_id)
    which, params = ("AND r.num = ?", (num, rewind_id)) if rewind_id else ("", (num,))
    rows = tx.run(
        f"SELECT {_COLUMNS} {_FROM} WHERE r.session = ? {which} AND r.restored IS NULL"
        " ORDER BY r.num DESC LIMIT 1",
        params,
    )
    if not rows:
        raise NotFound(f"session {session_id} has nothing to bring back")
    rewind = _rewind_of(rows[0])
    _take_out(tx, num, rewind.since, "redo", now)
    tx.run(
        "UPDATE messages SET rewind = NULL WHERE session = ? AND position >= ? AND rewind = ?",
        (num, rewind.since, rewind.id),
    )
    tx.run("UPDATE rewinds SET restored = ? WHERE num = ?", (now, rewind.id))
    recount(tx, num)
    return _rewind_of(tx.run(f"SELECT {_COLUMNS} {_FROM} WHERE r.num = ?", (rewind.id,))[0])


def rewinds(tx: Transaction, session_id: str) -> list[Rewind]:
    num, _ = by_id(tx, session_id)
    sql = f"SELECT {_COLUMNS} {_FROM} WHERE r.session = ? ORDER BY r.num"
    return [_rewind_of(row) for row in tx.run(sql, (num,))]
