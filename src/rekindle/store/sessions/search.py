"""Run a search: find the matching messages, their sessions and their context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Clause, Engine, Row, SearchedSession, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.rows import MESSAGE_COLUMNS, MESSAGE_ROWS, get_search_text, row_to_message
from rekindle.store.core.search_query import Query, SnippetMaker, parse_query
from rekindle.store.core.text_encoding import escape_text
from rekindle.types import Hit, Message

from .list_cache import SessionListCache
from .sessions import get_session

_SELECT_MATCHES = (
    f"SELECT m.id, m.session, s.changes, s.pruned, s.archived, m.origin, {MESSAGE_COLUMNS}"
    " FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id IN"
)
_SELECT_CONTEXT = (
    f"SELECT m.session, {MESSAGE_COLUMNS} FROM messages h JOIN messages m ON m.session = h.session"
    " AND m.position BETWEEN h.position - ? AND h.position + ? AND m.id <> h.id"
    " WHERE m.rewind IS NULL AND h.id IN"
)
_NEIGHBORS = (
    "WHERE m.session = ? AND m.position {side} ? AND m.rewind IS NULL"
    " ORDER BY m.position {order} LIMIT ?"
)
_BEFORE = _NEIGHBORS.format(side="<", order="DESC")
_AFTER = _NEIGHBORS.format(side=">", order="ASC")
_DEFAULT_FILTER = Filter()
BATCH_SIZE = 100  # rows read with one statement
# Up to here, it is cheaper to list all messages of some sessions than to look up that of each match.
_FEW_SESSIONS, _FEW_MESSAGES = 2_000, 50_000


def search_messages(
    engine: Engine,
    tx: Transaction,
    list_cache: SessionListCache,
    text: str,
    *,
    where: Filter,
    message_filter: dict[str, Any],
    rewound: bool,
    newest: bool,
    limit: int,
    offset: int,
    context: int,
    now: float,
) -> list[Hit]:
    """Find messages; `message_filter` limits them by role, tool, session, since and until."""
    if limit < 1 or offset < 0 or context < 0:
        raise InvalidInput("limit must be 1 or more, offset and context 0 or more")
    query = parse_query(text)
    clause = _build_clause(tx, where, message_filter, now)
    in_one_session = message_filter.get("session") is not None
    ids = engine.find(tx, query, clause, newest, offset + limit)
    rows = _iter_rows(tx, ids, min(offset + limit, BATCH_SIZE))
    matches = _iter_matches(tx, rows, query, clause, rewound, in_one_session)
    return _build_hits(
        tx, list_cache, query, list(islice(matches, offset, offset + limit)), context
    )


def _build_clause(
    tx: Transaction, where: Filter, message_filter: dict[str, Any], now: float
) -> Clause | None:
    """Build the condition that a match must meet; None if matches are only checked one by one."""
    conditions: list[str] = []
    params: list[Any] = []
    if where != _DEFAULT_FILTER or any(value is not None for value in message_filter.values()):
        condition, values = where.to_sql(now)
        conditions.append(condition)
        params += values
    only: int | None = None
    if message_filter.get("session") is not None:
        only, _ = get_session(tx, message_filter["session"])
        conditions.append("m.session = ?")
        params.append(only)
    for name, condition in (
        ("role", "m.role = ?"),
        ("since", "m.time >= ?"),
        ("until", "m.time < ?"),
    ):
        if message_filter.get(name) is not None:
            conditions.append(condition)
            params.append(
                escape_text(message_filter[name]) if name == "role" else message_filter[name]
            )
    if message_filter.get("tool") is not None:
        conditions.append("replace(m.tools, ?, '') <> m.tools")  # LIKE ignores case in SQLite
        params.append(f" {escape_text('_'.join(message_filter['tool'].split()))} ")
    if not conditions:
        return None
    return Clause(
        " AND ".join(conditions),
        params,
        cache(lambda: _find_few(tx, where, now, only)),
        where.projects if where.project is None else (where.project,),
        is_whole_project=where._replace(project=None, projects=None) == _DEFAULT_FILTER
        and only is None,
        needs_messages=any(value is not None for value in message_filter.values()),
    )


def _find_few(
    tx: Transaction, where: Filter, now: float, only: int | None
) -> list[SearchedSession] | None:
    """Return the sessions that a search is limited to, unless they are many."""
    if where == _DEFAULT_FILTER and only is None:
        return None
    condition, params = where.to_sql(now)
    if only is not None:
        condition, params = f"{condition} AND s.num = ?", [*params, only]
    sql = f"SELECT s.num, s.message_count, s.last_active FROM sessions s WHERE {condition}"
    few = [SearchedSession(*row) for row in tx.run(f"{sql} LIMIT {_FEW_SESSIONS + 1}", params)]
    is_few = len(few) <= _FEW_SESSIONS and sum(one.message_count for one in few) <= _FEW_MESSAGES
    return sorted(few, key=_get_last_active, reverse=True) if is_few else None


def _get_last_active(session: SearchedSession) -> float:
    return session.last_active


class MessageMatch(NamedTuple):
    """A matching message and its session."""

    id: int
    session: tuple[int, int]  # number and count of changes
    message: Message


def _iter_rows(tx: Transaction, ids: Iterator[int], batch_size: int) -> Iterator[Row]:
    """Yield the rows of messages in the order of their ids, reading them in batches."""
    while batch := list(islice(ids, batch_size)):
        placeholders = ", ".join("?" * len(batch))
        rows = {row[0]: row for row in tx.run(f"{_SELECT_MATCHES} ({placeholders})", batch)}
        yield from (rows[id] for id in batch if id in rows)


def _iter_matches(
    tx: Transaction,
    rows: Iterator[Row],
    query: Query,
    clause: Clause | None,
    rewound: bool,
    in_one_session: bool,
) -> Iterator[MessageMatch]:
    """Yield the matches that may be shown, in order."""
    for row in rows:
        id, num, changes, pruned, archived, origin = row[:6]
        if clause is None and (pruned is not None or archived is not None):
            continue
        message = row_to_message(row[6:])
        if message.rewound and not rewound:
            continue
        # A fork repeats its parent: show only the original message, if it is visible.
        if origin is not None and not in_one_session and _is_visible(tx, origin, clause):
            continue
        if query.has_literals and not query.matches_literals(get_search_text(message)):
            continue
        yield MessageMatch(id, (num, changes), message)


def _is_visible(tx: Transaction, id: int, clause: Clause | None) -> bool:
    condition, params = clause[:2] if clause else ("s.pruned IS NULL AND s.archived IS NULL", ())
    return bool(
        tx.run(
            "SELECT 1 FROM messages m JOIN sessions s ON s.num = m.session WHERE m.id = ?"
            f" AND m.rewind IS NULL AND {condition}",
            (id, *params),
        )
    )


def _build_hits(
    tx: Transaction,
    list_cache: SessionListCache,
    query: Query,
    matches: Sequence[MessageMatch],
    context: int,
) -> list[Hit]:
    sessions = list_cache.load(tx, [match.session for match in matches])
    contexts = _load_contexts(tx, matches, context)
    snippets = SnippetMaker(query)
    return [
        Hit(
            session, match.message, snippets.make(get_search_text(match.message)), *context_messages
        )
        for session, match, context_messages in zip(sessions, matches, contexts, strict=True)
    ]


def _load_contexts(
    tx: Transaction, matches: Sequence[MessageMatch], context: int
) -> list[tuple[tuple[Message, ...], tuple[Message, ...]]]:
    """Return the messages before and after each match, read together where nothing was rewound."""
    if not context or not matches:
        return [((), ())] * len(matches)
    nearby: dict[tuple[int, int], Message] = {}
    for start in range(0, len(matches), BATCH_SIZE):
        ids = [match.id for match in matches[start : start + BATCH_SIZE]]
        placeholders = ", ".join("?" * len(ids))
        for num, *row in tx.run(f"{_SELECT_CONTEXT} ({placeholders})", [context, context, *ids]):
            nearby[num, row[0]] = row_to_message(tuple(row))
    return [
        _load_neighbors(tx, match.session[0], match.message.position or 0, context, nearby)
        for match in matches
    ]


def _load_neighbors(
    tx: Transaction, num: int, at: int, context: int, nearby: dict[tuple[int, int], Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    get = nearby.get
    before = tuple([m for p in range(at - context, at) if (m := get((num, p)))])
    after = tuple([m for p in range(at + 1, at + context + 1) if (m := get((num, p)))])
    if len(before) < context and at > len(before):  # a message in between was rewound
        before = tuple(reversed(MESSAGE_ROWS.find(tx, _BEFORE, (num, at, context))))
    if len(after) < context:  # likewise, or the end of the session
        after = tuple(MESSAGE_ROWS.find(tx, _AFTER, (num, at, context)))
    return before, after
