"""From a query to hits: which messages, where they are, and what stands around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Clause, Engine, Row, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.rows import MESSAGE_COLUMNS, message_of, said
from rekindle.store.core.search_query import Query, Snippets, parse
from rekindle.store.core.text_encoding import escape
from rekindle.types import Hit, Message

from .list_cache import Listed
from .sessions import by_id

_FOUND = (
    f"SELECT m.id, m.session, s.changes, s.pruned, s.archived, m.origin, {MESSAGE_COLUMNS}"
    " FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id IN"
)
_AROUND = (
    f"SELECT m.session, {MESSAGE_COLUMNS} FROM messages h JOIN messages m ON m.session = h.session"
    " AND m.position BETWEEN h.position - ? AND h.position + ? AND m.id <> h.id"
    " WHERE m.rewind IS NULL AND h.id IN"
)
_BESIDE = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ? AND m.position {{side}} ?"
    " AND m.rewind IS NULL ORDER BY m.position {order} LIMIT ?"
)
_BEFORE = _BESIDE.format(side="<", order="DESC")
_AFTER = _BESIDE.format(side=">", order="ASC")
_ANYTHING = Filter()
TOGETHER = 100  # rows read with one statement


def search(
    engine: Engine,
    tx: Transaction,
    listed: Listed,
    text: str,
    *,
    where: Filter,
    message: dict[str, Any],
    rewound: bool,
    newest: bool,
    limit: int,
    offset: int,
    context: int,
    now: float,
) -> list[Hit]:
    """Find messages; `message` limits them by role, tool, session, since and until."""
    if limit < 1 or offset < 0 or context < 0:
        raise InvalidInput("limit must be 1 or more, offset and context 0 or more")
    query = parse(text)
    clause = _clause(tx, where, message, now)
    in_one_session = message.get("session") is not None
    ids = engine.find(tx, query, clause, newest, offset + limit)
    rows = _rows(tx, ids, min(offset + limit, TOGETHER))
    found = _accepted(tx, rows, query, clause, rewound, in_one_session)
    return _hits(tx, listed, query, list(islice(found, offset, offset + limit)), context)


def _clause(tx: Transaction, where: Filter, message: dict[str, Any], now: float) -> Clause | None:
    """The condition that a match must meet; None if any may pass that is checked one by one."""
    conditions: list[str] = []
    params: list[Any] = []
    if where != _ANYTHING or any(value is not None for value in message.values()):
        condition, values = where.sql(now)
        conditions.append(condition)
        params += values
    if message.get("session") is not None:
        num, _ = by_id(tx, message["session"])
        conditions.append("m.session = ?")
        params.append(num)
    for name, condition in (
        ("role", "m.role = ?"),
        ("since", "m.time >= ?"),
        ("until", "m.time < ?"),
    ):
        if message.get(name) is not None:
            conditions.append(condition)
            params.append(escape(message[name]) if name == "role" else message[name])
    if message.get("tool") is not None:
        conditions.append("replace(m.tools, ?, '') <> m.tools")  # LIKE knows no case in SQLite
        params.append(f" {escape('_'.join(message['tool'].split()))} ")
    return (" AND ".join(conditions), params) if conditions else None


class Found(NamedTuple):
    """A message that matches, and the session it is in."""

    id: int
    session: tuple[int, int]  # its number and its count of changes
    message: Message


def _rows(tx: Transaction, ids: Iterator[int], together: int) -> Iterator[Row]:
    """The rows of messages in the order of their ids, some at a time."""
    while part := list(islice(ids, together)):
        marks = ", ".join("?" * len(part))
        rows = {row[0]: row for row in tx.run(f"{_FOUND} ({marks})", part)}
        yield from (rows[id] for id in part if id in rows)


def _accepted(
    tx: Transaction,
    rows: Iterator[Row],
    query: Query,
    clause: Clause | None,
    rewound: bool,
    in_one_session: bool,
) -> Iterator[Found]:
    """Matches that may be shown, in order."""
    for row in rows:
        id, num, changes, pruned, archived, origin = row[:6]
        if clause is None and (pruned is not None or archived is not None):
            continue
        message = message_of(row[6:])
        if message.rewound and not rewound:
            continue
        # A fork repeats its parent: show the words where they were first said, if that is there.
        if origin is not None and not in_one_session and _is_there(tx, origin, clause):
            continue
        if query.has_literals and not query.accepts(said(message)):
            continue
        yield Found(id, (num, changes), message)


def _is_there(tx: Transaction, id: int, clause: Clause | None) -> bool:
    condition, params = clause or ("s.pruned IS NULL AND s.archived IS NULL", ())
    return bool(
        tx.run(
            "SELECT 1 FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id = ?"
            f" AND m.rewind IS NULL AND {condition}",
            (id, *params),
        )
    )


def _hits(
    tx: Transaction, listed: Listed, query: Query, found: Sequence[Found], context: int
) -> list[Hit]:
    sessions = listed.sessions(tx, [each.session for each in found])
    around = _around(tx, found, context)
    snippets = Snippets(query)
    return [
        Hit(session, each.message, snippets.of(said(each.message)), *beside)
        for session, each, beside in zip(sessions, found, around, strict=True)
    ]


def _around(
    tx: Transaction, found: Sequence[Found], context: int
) -> list[tuple[tuple[Message, ...], tuple[Message, ...]]]:
    """For each hit the messages before and after it: read together where nothing was rewound."""
    if not context or not found:
        return [((), ())] * len(found)
    near: dict[tuple[int, int], Message] = {}
    for start in range(0, len(found), TOGETHER):
        ids = [each.id for each in found[start : start + TOGETHER]]
        marks = ", ".join("?" * len(ids))
        for num, *row in tx.run(f"{_AROUND} ({marks})", [context, context, *ids]):
            near[num, row[0]] = message_of(tuple(row))
    return [
        _beside(tx, each.session[0], each.message.position or 0, context, near) for each in found
    ]


def _beside(
    tx: Transaction, num: int, at: int, context: int, near: dict[tuple[int, int], Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    get = near.get
    before = tuple([m for p in range(at - context, at) if (m := get((num, p)))])
    after = tuple([m for p in range(at + 1, at + context + 1) if (m := get((num, p)))])
    if len(before) < context and at > len(before):  # something between was rewound
        rows = tx.run(_BEFORE, (num, at, context))
        before = tuple([message_of(row) for row in reversed(rows)])
    if len(after) < context:  # the same, or the end
        after = tuple([message_of(row) for row in tx.run(_AFTER, (num, at, context))])
    return before, after
