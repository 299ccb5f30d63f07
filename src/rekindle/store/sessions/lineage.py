"""Parents and children: compression goes on in a child, a fork starts one at any message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import SESSION_COLUMNS, session_of
from rekindle.store.core.text_encoding import escape
from rekindle.types import Message, Session, Tokens, replace

from . import titles
from .sessions import append, by_id, by_num, create, end

LAST_POSITION = 2**62
_COPY = """
INSERT INTO messages
    (session, position, role, time, origin, calls, answers, platform_id, tools, body, content)
SELECT ?, row_number() OVER (ORDER BY position) - 1, role, time, coalesce(origin, id), calls,
       answers, platform_id, tools, body, content
FROM messages WHERE session = ? AND position <= ? AND rewind IS NULL ORDER BY position
"""
_COUNT = """
UPDATE sessions SET changes = changes + 1,
    message_count = (SELECT count(*) FROM messages m WHERE m.session = num AND m.rewind IS NULL),
    tool_call_count = (SELECT coalesce(sum(calls), 0) FROM messages m
        WHERE m.session = num AND m.rewind IS NULL)
WHERE num = ?
"""


def recount(tx: Transaction, num: int) -> None:
    """Count a session's messages and calls anew."""
    tx.run(_COUNT, (num,))


def _child(parent: Session, new_id: Callable[[], str], now: float) -> Session:
    return replace(
        parent,
        id=new_id(),
        title=None,
        parent=parent.id,
        forked_at=None,
        started=now,
        last_active=now,
        ended=None,
        end_reason=None,
        message_count=0,
        tool_call_count=0,
        tokens=Tokens(),
        cost=Decimal(0),
        archived=None,
    )


def _hand_on(tx: Transaction, parent: int, child: int) -> None:
    """Give a child what its parent was started with: it sends the same prefix."""
    rows = tx.run("SELECT template_revision, prelude FROM sessions WHERE num = ?", (parent,))
    if rows[0][1] is not None:
        sql = (
            "UPDATE sessions SET changes = changes + 1, template_revision = ?, prelude = ?"
            " WHERE num = ?"
        )
        tx.run(sql, (*rows[0], child))


def _next_title(tx: Transaction, parent: Session, title: str | None) -> str | None:
    if title:
        return titles.clean(title)
    if parent.title is None:
        return None
    return titles.following(tx, escape(parent.owner or ""), parent.title)[0]


def fork(
    engine: Engine,
    tx: Transaction,
    session_id: str,
    at: int | None,
    title: str | None,
    new_id: Callable[[], str],
    now: float,
) -> Session:
    """Start a child with a copy of the conversation up to and including position `at`."""
    num, parent = by_id(tx, session_id)
    stop = tx.run(
        "SELECT max(position) FROM messages WHERE session = ? AND position <= ? AND rewind IS NULL",
        (num, LAST_POSITION if at is None else at),
    )[0][0]
    if stop is None or (at is not None and stop != at):
        raise InvalidInput(f"session {session_id} has no message at position {at}")
    child = replace(
        _child(parent, new_id, now),
        title=_next_title(tx, parent, title),
        forked_at=stop,
    )
    child_num = create(tx, child)
    _hand_on(tx, num, child_num)
    tx.run(_COPY, (child_num, num, stop))
    tx.run(
        "UPDATE sessions SET changes = changes + 1, preview = ?, next_position ="
        " (SELECT count(*) FROM messages m WHERE m.session = num) WHERE num = ?",
        (parent.preview, child_num),
    )
    recount(tx, child_num)
    child = by_num(tx, child_num)
    engine.index(tx, child_num, 0, child.message_count, 0)
    return child


def compress(
    engine: Engine,
    tx: Transaction,
    session_id: str,
    messages: Sequence[Message],
    new_id: Callable[[], str],
    now: float,
) -> Session:
    """End a session with reason `compression` and go on in a child that starts with `messages`."""
    num, parent = by_id(tx, session_id)
    if parent.end_reason == "compression":
        raise InvalidInput(
            f"session {session_id} was compressed already; it goes on in {tip(tx, session_id).id}"
        )
    if parent.ended is not None:
        raise InvalidInput(f"session {session_id} has ended ({parent.end_reason}); reopen it first")
    if not messages:
        raise InvalidInput("a compressed session needs at least one message to start with")
    title = _next_title(tx, parent, None)
    end(tx, session_id, "compression", now)
    child = replace(_child(parent, new_id, now), title=title, preview=None)
    appended = append(engine, tx, child, messages, now)
    _hand_on(tx, num, appended.num)
    return by_num(tx, appended.num)


def tip(tx: Transaction, session_id: str) -> Session:
    """The newest end of a chain of compressions."""
    _, session = by_id(tx, session_id)
    seen = {session.id}
    while session.end_reason == "compression":
        rows = tx.run(
            f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.parent = ? AND s.pruned IS NULL"
            " AND s.forked_at IS NULL ORDER BY s.num DESC LIMIT 1",
            (escape(session.id),),
        )
        if not rows or rows[0][0] in seen:
            break
        session = session_of(rows[0])
        seen.add(session.id)
    return session


def children(tx: Transaction, session_id: str) -> list[Session]:
    rows = tx.run(
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.parent = ? AND s.pruned IS NULL"
        " ORDER BY s.num",
        (escape(session_id),),
    )
    return [session_of(row) for row in rows]


def lineage(tx: Transaction, session_id: str) -> list[Session]:
    """Everything a session descends from, itself, and everything that descends from it."""
    by_id(tx, session_id)
    rows = tx.run(
        "WITH RECURSIVE up (id, parent) AS ("
        " SELECT id, parent FROM sessions WHERE id = ?"
        " UNION SELECT s.id, s.parent FROM sessions s JOIN up ON s.id = up.parent"
        "), down (id) AS ("
        " SELECT id FROM sessions WHERE id = ?"
        " UNION SELECT s.id FROM sessions s JOIN down ON s.parent = down.id"
        f") SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.pruned IS NULL"
        " AND s.id IN (SELECT id FROM up UNION SELECT id FROM down) ORDER BY s.started, s.num",
        (escape(session_id), escape(session_id)),
    )
    return [session_of(row) for row in rows]
