"""From a query to hits: which messages, where they are, and what stands around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..errors import InvalidInput
from ..types import Hit
from .engine import Clause, Engine, Row, Transaction
from .filter import Filter
from .listed import Listed
from .query import Query, parse, snippet
from .rows import MESSAGE_COLUMNS, message_of, searchable
from .sessions import by_id
from .text import escape

_FOUND = (
    f"SELECT m.session, s.changes, s.pruned, s.archived, m.origin, {MESSAGE_COLUMNS}"
    " FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id = ?"
)
_BESIDE = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ? AND m.position {{side}} ?"
    " AND m.rewind IS NULL ORDER BY m.position {order} LIMIT ?"
)
_BEFORE = _BESIDE.format(side="<", order="DESC")
_AFTER = _BESIDE.format(side=">", order="ASC")
_ANYTHING = Filter()


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
    found = _accepted(tx, ids, query, clause, rewound, in_one_session)
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


def _accepted(
    tx: Transaction,
    ids: Iterator[int],
    query: Query,
    clause: Clause | None,
    rewound: bool,
    in_one_session: bool,
) -> Iterator[Row]:
    """Rows of matches that may be shown, in order."""
    for id in ids:
        row = tx.run(_FOUND, (id,))[0]
        _, _, pruned, archived, origin, _, _, _, rewind, _, body, content = row
        if rewind is not None and not rewound:
            continue
        if clause is None and (pruned is not None or archived is not None):
            continue
        # A fork repeats its parent: show the words where they were first said, if that is there.
        if origin is not None and not in_one_session and _is_there(tx, origin, clause):
            continue
        if query.has_literals and not query.accepts(searchable(content, body)):
            continue
        yield row


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
    tx: Transaction, listed: Listed, query: Query, rows: Sequence[Row], context: int
) -> list[Hit]:
    sessions = listed.sessions(tx, [row[:2] for row in rows])
    hits: list[Hit] = []
    for session, (num, _, _, _, _, *found) in zip(sessions, rows, strict=True):
        before: list[Row] = []
        after: list[Row] = []
        if context:
            before = tx.run(_BEFORE, (num, found[0], context))
            after = tx.run(_AFTER, (num, found[0], context))
        hits.append(
            Hit(
                session,
                message_of(tuple(found)),
                snippet(query, searchable(found[6], found[5])),
                tuple([message_of(row) for row in reversed(before)]),
                tuple([message_of(row) for row in after]),
            )
        )
    return hits
