"""Parents and children: a compressed session continues in a child, a fork starts one at any message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.filter import iter_in_clauses
from rekindle.store.core.rows import MESSAGE_VALUES, SESSION_COLUMNS, SESSION_ROWS, row_to_session
from rekindle.store.core.text_encoding import escape_text
from rekindle.types import Message, Session, Tokens, replace_fields

from . import titles
from .requests import refresh_requests
from .sessions import (
    append_messages,
    change_session,
    create_session,
    end_session,
    get_session,
    get_session_by_num,
)

MAX_POSITION = 2**62
# A sub-agent is folded only under a parent that is here.
NOT_FOLDED = (
    "(s.sub_agent IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM sessions p WHERE p.id = s.parent AND p.pruned IS NULL))"
)
_COPIED_VALUES = {
    "session": "?",
    "position": "row_number() OVER (ORDER BY position) - 1",
    "origin": "coalesce(origin, id)",
}
_COPY_MESSAGES = (
    f"INSERT INTO messages ({MESSAGE_VALUES})"
    f" SELECT {', '.join(_COPIED_VALUES.get(name, name) for name in MESSAGE_VALUES.split(', '))}"
    " FROM messages WHERE session = ? AND position <= ? AND rewind IS NULL ORDER BY position"
)
_SELECT_TEXTS = (
    "SELECT id, role, content, position FROM messages WHERE session = ? AND rewind IS NULL"
    " ORDER BY position"
)
_UPDATE_COUNTS = """
UPDATE sessions SET changes = changes + 1,
    message_count = (SELECT count(*) FROM messages m WHERE m.session = num AND m.rewind IS NULL),
    tool_call_count = (SELECT coalesce(sum(calls), 0) FROM messages m
        WHERE m.session = num AND m.rewind IS NULL)
WHERE num = ?
"""


def recount_session(tx: Transaction, num: int) -> None:
    """Recount a session's messages and tool calls, and find its requests again."""
    tx.run(_UPDATE_COUNTS, (num,))
    refresh_requests(tx, num)


def _build_child(parent: Session, make_id: Callable[[], str], now: float) -> Session:
    return replace_fields(
        parent,
        id=make_id(),
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
        sub_agent=None,
    )


def _inherit_prelude(tx: Transaction, parent: int, child: int) -> None:
    """Give a child the prelude and system prompt of its parent, so that it sends the same prefix."""
    rows = tx.run(
        "SELECT template_revision, prelude, system_prompt FROM sessions WHERE num = ?", (parent,)
    )
    if any(value is not None for value in rows[0]):
        sql = (
            "UPDATE sessions SET changes = changes + 1, template_revision = ?, prelude = ?,"
            " system_prompt = ? WHERE num = ?"
        )
        tx.run(sql, (*rows[0], child))


def _choose_title(tx: Transaction, parent: Session, title: str | None) -> str | None:
    if title:
        return titles.clean_title(title)
    if parent.title is None:
        return None
    return titles.find_next_title(tx, escape_text(parent.owner or ""), parent.title)[0]


def fork_session(
    engine: Engine,
    tx: Transaction,
    session_id: str,
    at: int | None,
    fields: Mapping[str, str],
    make_id: Callable[[], str],
    now: float,
) -> Session:
    """Create a child with a copy of the conversation up to and including position `at`.

    It keeps what its parent is, except for `fields`: title, source and owner.
    """
    num, parent = get_session(tx, session_id)
    stop = tx.run(
        "SELECT max(position) FROM messages WHERE session = ? AND position <= ? AND rewind IS NULL",
        (num, MAX_POSITION if at is None else at),
    )[0][0]
    if stop is None or (at is not None and stop != at):
        raise InvalidInput(f"session {session_id} has no message at position {at}")
    child = replace_fields(
        _build_child(parent, make_id, now),
        **{**fields, "title": _choose_title(tx, parent, fields.get("title"))},
        forked_at=stop,
    )
    child_num = create_session(tx, child)
    _inherit_prelude(tx, num, child_num)
    tx.run(_COPY_MESSAGES, (child_num, num, stop))
    tx.run(
        "UPDATE sessions SET changes = changes + 1, next_position ="
        " (SELECT count(*) FROM messages m WHERE m.session = num) WHERE num = ?",
        (child_num,),
    )
    recount_session(tx, child_num)
    child = get_session_by_num(tx, child_num)
    engine.index(tx, child_num, 0, child.message_count, 0)
    return child


def link_copy(tx: Transaction, session_id: str, origin_id: str) -> Session:
    """Make a session a fork of the one that it was copied from, if it has no parent yet.

    Messages with the same text count as copies, so that a search finds only the original.
    """
    num, session = get_session(tx, session_id)
    origin_num, _ = get_session(tx, origin_id)
    if session.id == origin_id or session.parent not in (None, origin_id):
        return session
    originals: dict[tuple[str, str], deque[int]] = {}
    rows = tx.run(_SELECT_TEXTS, (origin_num,))
    if not rows:
        return session
    for id, role, content, _ in rows:
        if content:
            originals.setdefault((role, content), deque()).append(id)
    pairs: list[tuple[int, int]] = []
    for id, role, content, _ in tx.run(_SELECT_TEXTS, (num,)):
        if same := originals.get((role, content)):
            pairs.append((same.popleft(), id))
    tx.run_many("UPDATE messages SET origin = ? WHERE id = ? AND origin IS NULL", pairs)
    columns = {"parent": escape_text(origin_id), "forked_at": rows[-1][3]}
    return change_session(tx, num, columns)


def compress_session(
    engine: Engine,
    tx: Transaction,
    session_id: str,
    messages: Sequence[Message],
    make_id: Callable[[], str],
    now: float,
) -> Session:
    """End a session with reason `compression` and continue in a child that starts with `messages`."""
    num, parent = get_session(tx, session_id)
    if parent.end_reason == "compression":
        raise InvalidInput(
            f"session {session_id} is already compressed; it continues in {find_tip(tx, session_id).id}"
        )
    if parent.ended is not None:
        raise InvalidInput(f"session {session_id} has ended ({parent.end_reason}); reopen it first")
    if not messages:
        raise InvalidInput("compress needs at least one message for the new session")
    title = _choose_title(tx, parent, None)
    end_session(tx, session_id, "compression", now)
    child = replace_fields(_build_child(parent, make_id, now), title=title, preview=None)
    appended = append_messages(engine, tx, child, messages, now)
    _inherit_prelude(tx, num, appended.num)
    return get_session_by_num(tx, appended.num)


def find_tip(tx: Transaction, session_id: str) -> Session:
    """Return the last session of a chain of compressions."""
    _, session = get_session(tx, session_id)
    seen = {session.id}
    while session.end_reason == "compression":
        children = SESSION_ROWS.find(
            tx,
            "WHERE s.parent = ? AND s.pruned IS NULL AND s.forked_at IS NULL"
            " ORDER BY s.num DESC LIMIT 1",
            (escape_text(session.id),),
        )
        if not children or children[0].id in seen:
            break
        session = children[0]
        seen.add(session.id)
    return session


def find_sub_agents(tx: Transaction, ids: Sequence[str]) -> dict[str, list[Session]]:
    """Return the sub-agents of sessions, with those that they started in turn, in order of creation."""
    roots = {id: id for id in ids}  # of every session found so far
    found: dict[str, list[Session]] = {}
    parents: list[str] = list(roots)
    while parents:
        children: list[Session] = []
        for placeholders, batch in iter_in_clauses([escape_text(id) for id in parents]):
            where = f"WHERE s.parent IN ({placeholders}) AND s.parent IS NOT NULL"
            rest = f"{where} AND s.sub_agent IS NOT NULL AND s.pruned IS NULL ORDER BY s.num"
            children += SESSION_ROWS.find(tx, rest, batch)
        parents = []
        for child in children:
            if child.id not in roots and child.parent in roots:
                root = roots[child.id] = roots[child.parent]
                found.setdefault(root, []).append(child)
                parents.append(child.id)
    return found


def list_children(tx: Transaction, session_id: str) -> list[Session]:
    """Return the sessions started from this one, in order of creation."""
    rest = "WHERE s.parent = ? AND s.pruned IS NULL ORDER BY s.num"
    return SESSION_ROWS.find(tx, rest, (escape_text(session_id),))


def list_lineage(tx: Transaction, session_id: str) -> list[Session]:
    """Return the ancestors of a session, the session itself and its descendants."""
    get_session(tx, session_id)
    rows = tx.run(
        "WITH RECURSIVE up (id, parent) AS ("
        " SELECT id, parent FROM sessions WHERE id = ?"
        " UNION SELECT s.id, s.parent FROM sessions s JOIN up ON s.id = up.parent"
        "), down (id) AS ("
        " SELECT id FROM sessions WHERE id = ?"
        " UNION SELECT s.id FROM sessions s JOIN down ON s.parent = down.id"
        f") SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.pruned IS NULL"
        " AND s.id IN (SELECT id FROM up UNION SELECT id FROM down) ORDER BY s.started, s.num",
        (escape_text(session_id), escape_text(session_id)),
    )
    return [row_to_session(row) for row in rows]
