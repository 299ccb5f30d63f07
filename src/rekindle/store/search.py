"""From a query to hits: which messages, where they are, and what stands around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..errors import InvalidInput
from ..types import Hit, Message, Session
from .engine import Clause, Engine, Row, Transaction
from .filter import Filter
from .query import Query, parse, snippet
from .rows import MESSAGE_COLUMNS, message_of, searchable
from .sessions import by_id, by_num
from .text import escape

_COLUMNS = f"m.session, m.origin, {MESSAGE_COLUMNS}"
_ANYTHING = Filter()


def search(
    engine: Engine,
    tx: Transaction,
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
    found = _accepted(engine, tx, query, clause, rewound, newest, in_one_session, where)
    rows = list(islice(found, offset, offset + limit))
    return _hits(tx, query, rows, context)


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
    engine: Engine,
    tx: Transaction,
    query: Query,
    clause: Clause | None,
    rewound: bool,
    newest: bool,
    in_one_session: bool,
    where: Filter,
) -> Iterator[Row]:
    """Rows of matches that may be shown, in order."""
    hidden: dict[int, bool] = {}
    for id in engine.find(tx, query, clause, newest):
        rows = tx.run(f"SELECT {_COLUMNS} FROM messages m WHERE m.id = ?", (id,))
        num, origin, _, _, _, rewind, _, body, content = rows[0]
        if rewind is not None and not rewound:
            continue
        # A fork repeats its parent: show the words where they were first said, if that is there.
        if origin is not None and not in_one_session and _is_there(tx, origin, clause):
            continue
        if clause is None:
            if num not in hidden:
                hidden[num] = _is_hidden(tx, num)
            if hidden[num]:
                continue
        if query.has_literals and not query.accepts(searchable(content, body)):
            continue
        yield rows[0]


def _is_there(tx: Transaction, id: int, clause: Clause | None) -> bool:
    condition, params = clause or ("s.pruned IS NULL AND s.archived IS NULL", ())
    return bool(
        tx.run(
            "SELECT 1 FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id = ?"
            f" AND m.rewind IS NULL AND {condition}",
            (id, *params),
        )
    )


def _is_hidden(tx: Transaction, num: int) -> bool:
    rows = tx.run("SELECT pruned, archived FROM sessions WHERE num = ?", (num,))
    return not rows or rows[0] != (None, None)


def _hits(tx: Transaction, query: Query, rows: Sequence[Row], context: int) -> list[Hit]:
    sessions: dict[int, Session] = {}
    hits: list[Hit] = []
    for num, _, *found in rows:
        if num not in sessions:
            sessions[num] = by_num(tx, num)
        message = message_of(tuple(found))
        around = _around(tx, num, found[0], context) if context else []
        hits.append(
            Hit(
                session=sessions[num],
                message=message,
                snippet=snippet(query, searchable(found[6], found[5])),
                before=tuple(near for near in around if near.position < found[0]),
                after=tuple(near for near in around if near.position > found[0]),
            )
        )
    return hits


def _around(tx: Transaction, num: int, position: int, context: int) -> list[Message]:
    """The messages next to a hit, itself left out."""
    rows = tx.run(
        f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ?"
        " AND m.position BETWEEN ? AND ? AND m.rewind IS NULL ORDER BY m.position",
        (num, position - context, position + context),
    )
    return [message_of(row) for row in rows if row[0] != position]
