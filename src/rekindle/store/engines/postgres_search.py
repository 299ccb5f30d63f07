"""PostgreSQL's search index: tsvectors of our own words, written in the transaction of the message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.store.core.engine import (
    Clause,
    Progress,
    Row,
    SearchedSession,
    TitleQuery,
    Transaction,
)
from rekindle.store.core.filter import build_in_condition
from rekindle.store.core.rows import get_row_search_text, get_search_text
from rekindle.store.core.search_query import Query
from rekindle.types import Finding, Message

from .indexing import compare_index, index_all_messages
from .words import range_walk
from .words.keys import SELECT_TENANT_NUMBER, TENANT_WORDS, WORDS, WordIndex
from .words.project_numbers import build_project_number, find_project_numbers
from .words.range_walk import (
    HAS_WORDS,
    MAX_SPREAD_WORDS,
    NOT_EXCLUDED,
    RangeWalk,
    SearchExtent,
)
from .words.vectors import build_phrase, build_tsquery, build_vectors, number_parts

LARGE_STORE = 100_000  # messages: from here on, only the newest matches are ranked
FIRST_WINDOW, WINDOW_GROWTH = (
    4_000,
    8,
)  # ids in the first range that is searched, and in the next ones
RARE_WINDOW = 30_000  # ids that show how common the matches are
IDS_PER_MATCH = 250  # in a range, at the cost of reading one match
MESSAGES_PER_STEP = 1_000  # of sessions that are searched together
MESSAGES_PER_FIRST_STEP = 125  # if the newest are enough; then twice as many
MESSAGES_PER_MATCH = 100  # of a project: if recent sessions have fewer matches, the index is asked
MESSAGES_PER_GROUP = 2_000  # are ranked together, if they have fewer matches than are ranked

_WORD_COLUMNS = "id, part, text, project, session, time"
_SESSION_VALUES = f"{build_project_number('s.')}, s.num"
_INSERT_WORDS = (
    f"INSERT INTO words ({_WORD_COLUMNS})"
    f" SELECT m.id, ?::integer, ?::tsvector, {_SESSION_VALUES}, m.time"
    " FROM messages m JOIN sessions s ON s.num = m.session"
)
_LONG = "EXISTS (SELECT 1 FROM words l WHERE l.id = w.id AND l.part > 0)"


def index_messages_from(tx: Transaction, num: int, position: int) -> None:
    """Index a session's messages starting at a position."""
    _index_rows(
        tx,
        tx.run(
            "SELECT id, content, body FROM messages WHERE session = ? AND position >= ?",
            (num, position),
        ),
    )


def index_messages(tx: Transaction, num: int, position: int, messages: Sequence[Message]) -> None:
    """Index messages that were just written, starting at a position, without reading them back."""
    tx.run_many(
        f"{_INSERT_WORDS} WHERE m.session = ? AND m.position = ?",
        [
            (part, vector, num, place)
            for place, message in enumerate(messages, position)
            for part, vector in number_parts(build_vectors(get_search_text(message)))
        ],
    )


def build_insert_of_added(message: Message) -> tuple[str, list[str]]:
    """Build the statement that indexes a message which the same statement adds."""
    parts = number_parts(build_vectors(get_search_text(message)))
    values = ", ".join(f"({part}, ?::tsvector)" for part, _ in parts)
    return (
        f"INSERT INTO words ({_WORD_COLUMNS}) SELECT added.id, v.part, v.text, {_SESSION_VALUES},"
        " added.time FROM added JOIN sessions s ON s.num = added.session,"
        f" (VALUES {values}) AS v (part, text)"
    ), [vector for _, vector in parts]


def _index_rows(tx: Transaction, rows: Sequence[Row]) -> None:
    tx.run_many(
        f"{_INSERT_WORDS} WHERE m.id = ?",
        [
            (part, vector, id)
            for id, content, body in rows
            for part, vector in number_parts(build_vectors(get_row_search_text(content, body)))
        ],
    )


def delete_session_words(tx: Transaction, num: int) -> None:
    """Remove a session's words from the index."""
    tx.run("DELETE FROM words WHERE id IN (SELECT id FROM messages WHERE session = ?)", (num,))


def rebuild_index(tx: Transaction, progress: Progress | None = None) -> int:
    """Rebuild the index and return the number of messages it covers."""
    tx.run("DELETE FROM words")
    return index_all_messages(tx, _index_rows, progress)


def find_messages(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool, expected: int
) -> Iterator[int]:
    """Yield ids of messages that match a query; the server needs no `expected` number."""
    return _find_messages(tx, query, clause, newest, WORDS)


def find_tenant_messages(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool, expected: int
) -> Iterator[int]:
    """Yield ids like `find_messages` in the tables that tenants share."""
    return _find_messages(tx, query, clause, newest, TENANT_WORDS)


def _find_messages(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool, index: WordIndex
) -> Iterator[int]:
    if not query.groups:
        return
    extent = _get_extent(tx, index)
    if extent.last <= LARGE_STORE:
        yield from _find_and_rank_all(tx, query, clause, newest)
        return
    # A planner that expects many matches would look for the first of them in the whole table.
    tx.run("SET LOCAL enable_seqscan = off")
    if any(term.prefix for group in query.groups for term in group):
        # The index reads the lists of all words with a prefix to their ends, whatever the range.
        yield from _find_by_ids(tx, query, clause, newest, extent.last)
        return
    if clause and clause.projects:
        numbers = find_project_numbers(tx, clause.projects)
        extent = extent._replace(projects=numbers or ())
    walk = RangeWalk(tx, query, clause, newest, index, extent)
    if clause and clause.is_whole_project and extent.projects:
        yield from _find_in_project(tx, query, clause, newest, walk)
    elif clause and clause.sessions is not None and walk.is_common(clause.message_count):
        yield from _find_in_sessions(tx, query, clause, newest)
    elif not (clause and clause.is_empty):
        yield from walk.find()


def _find_in_project(
    tx: Transaction, query: Query, clause: Clause, newest: bool, walk: RangeWalk
) -> Iterator[int]:
    """Yield ids from all sessions of projects that the index knows.

    A walk ranks matches in the order of arrival. If there are more than it ranks, the newest ones are
    looked for in the most recent sessions first.
    """
    seen: set[int] = set()
    if newest and walk.is_common(range_walk.RANKED_MATCHES) and clause.sessions is not None:
        for id in _find_in_sessions(tx, query, clause, newest, MESSAGES_PER_MATCH):
            seen.add(id)
            yield id
    yield from (id for id in walk.find() if id not in seen)


def _find_by_ids(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool, last: int
) -> Iterator[int]:
    """Yield ids from a large table by the index of ids."""
    if clause and clause.sessions is not None:
        yield from _find_in_sessions(tx, query, clause, newest)
    else:
        yield from _find_in_windows(tx, query, clause, newest, last)


def _get_extent(tx: Transaction, index: WordIndex) -> SearchExtent:
    tenant = SELECT_TENANT_NUMBER if index.is_shared else "0"
    [row] = tx.run(
        "SELECT coalesce(max(id), 0), EXISTS (SELECT 1 FROM words WHERE part > 0),"
        f" coalesce((SELECT max(id) FROM words WHERE project IS NULL), 0), {tenant} FROM words"
    )
    return SearchExtent(*row)


def _find_in_windows(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool, last: int
) -> Iterator[int]:
    """Yield ids from a large table: the newest matches ranked, then the others newest first.

    Ids follow the order of arrival. Ranges of them are searched from the newest on, each wider than the
    one before, until enough is found or the matches turn out to be so few that all can be read.
    """
    ranked: list[Row] | None = []
    high, width, found = last, FIRST_WINDOW, 0
    while high > 0:
        searched = last - high
        is_rare = clause is None and searched > RARE_WINDOW and _is_rare(found, searched, last)
        low = 0 if is_rare else max(0, high - width)
        limit = range_walk.RANKED_MATCHES - len(ranked or ())
        sql, params = _build_window_query(tx, query, clause, newest, low, high)
        rows = tx.run(f"{sql} ORDER BY w.id DESC LIMIT {limit}", params)
        found += len(rows)
        if len(rows) == limit:  # go on below them
            high = rows[-1][1] - 1
        else:
            high, width = low, width * WINDOW_GROWTH
        if ranked is None:
            yield from (id for _, id in rows)
        else:
            ranked += rows
            if len(ranked) == range_walk.RANKED_MATCHES or high <= 0:
                yield from (id for _, id in sorted(ranked, reverse=True))
                ranked = None


def _is_rare(found: int, searched: int, last: int) -> bool:
    """Return whether all other matches cost less than a range of ids that has enough of them.

    To read a match costs as much as to pass some hundred ids in a range.
    """
    share = max(found, 1) / searched
    return share * last * IDS_PER_MATCH < range_walk.RANKED_MATCHES / share


def _find_in_sessions(
    tx: Transaction, query: Query, clause: Clause, newest: bool, per_match: int | None = None
) -> Iterator[int]:
    """Yield ids from a few sessions, whose messages cost less than the matches of all sessions.

    The most recent sessions come first. Their matches are ranked, as far as that takes; what follows
    is ranked apart. With `newest`, a match waits until no session can have a newer one. The search ends
    early if it has to read more messages than `per_match` for each match.
    """
    waiting: list[Row] = []
    searched = total = found = 0
    first_step = min(MESSAGES_PER_FIRST_STEP if newest else MESSAGES_PER_STEP, MESSAGES_PER_STEP)
    for chunk, rest in _iter_chunks(clause.sessions or (), first_step):
        nums = [session.num for session in chunk]
        waiting += _read_sessions(tx, query, clause, nums, newest)
        waiting.sort(reverse=True)
        message_count = sum(session.message_count for session in chunk)
        searched, total = searched + message_count, total + message_count
        count = len(waiting)
        if newest and rest is not None:
            count = sum(time > rest.last_active for time, _ in waiting)
        elif rest is not None and count < range_walk.RANKED_MATCHES:
            is_group = count > 0 and searched >= MESSAGES_PER_GROUP
            count = count if is_group else 0
        yield from (id for _, id in waiting[:count])
        del waiting[:count]
        searched, found = 0 if count else searched, found + count
        if per_match and total > MESSAGES_PER_STEP + per_match * found:
            return


def _iter_chunks(
    sessions: Sequence[SearchedSession], step: int
) -> Iterator[tuple[Sequence[SearchedSession], SearchedSession | None]]:
    """Yield sessions with some messages together, and the session after them."""
    start, count = 0, 0
    for stop, session in enumerate(sessions, 1):
        count += session.message_count
        if count >= step or stop == len(sessions):
            yield sessions[start:stop], sessions[stop] if stop < len(sessions) else None
            start, count, step = stop, 0, min(2 * step, MESSAGES_PER_STEP)


def _read_sessions(
    tx: Transaction, query: Query, clause: Clause, nums: Sequence[int], newest: bool
) -> list[Row]:
    """Return (order, id) of the matches in some sessions."""
    whole = build_tsquery(query)
    # Called by its name, since the operator may read the index of words to its end.
    is_match, params = "ts_match_vq(w.text, ?::tsquery)", [whole]
    if 1 < len(query.groups) <= MAX_SPREAD_WORDS:
        is_match = f"({is_match} OR ({' AND '.join([_LONG, *[HAS_WORDS] * len(query.groups)])}))"
        params += [build_tsquery(Query((group,))) for group in query.groups]
    if query.excluded_words:
        is_match += f" AND {NOT_EXCLUDED}"
        params.append(" | ".join(map(build_phrase, query.excluded_words)))
    order, rank_params = _build_order(whole, newest)
    return tx.run(
        f"SELECT {order}, w.id FROM messages m JOIN sessions s ON s.num = m.session"
        f" JOIN words w ON w.id = m.id WHERE {build_in_condition(nums, 'm.session')}"
        f" AND {is_match} AND {clause.condition} GROUP BY w.id",
        [*rank_params, *params, *clause.params],
    )


def _build_order(whole: str, newest: bool) -> tuple[str, list[Any]]:
    if newest:
        return "max(m.time)", []
    return "max(ts_rank(w.text, ?::tsquery, 1))", [whole]


def _build_window_query(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool, low: int, high: int
) -> tuple[str, list[Any]]:
    """Build the query for (order, id) of the matches in a range of ids."""
    # Without a lower end the range is no reason to read the index of ids.
    window = f"{{0}}id > {low} AND {{0}}id <= {high}" if low else f"{{0}}id + 0 <= {high}"
    whole = build_tsquery(query)
    match_sql = f"w.text @@ ?::tsquery AND {window.format('w.')}"
    if low and high - low <= FIRST_WINDOW * WINDOW_GROWTH:
        # Called by its name, since the operator may read the index of words to its end.
        match_sql = match_sql.replace("w.text @@ ?::tsquery", "ts_match_vq(w.text, ?::tsquery)")
    match_params = [whole]
    if 1 < len(query.groups) <= MAX_SPREAD_WORDS and tx.run(
        f"SELECT 1 FROM words WHERE part > 0 AND id > {low} AND id <= {high} LIMIT 1"
    ):
        # Words of a long message may be in different parts.
        first, *others = [build_tsquery(Query((group,))) for group in query.groups]
        match_sql = (
            f"w.id IN (SELECT id FROM words WHERE text @@ ?::tsquery AND {window.format('')} UNION"
            f" SELECT w.id FROM words w WHERE w.text @@ ?::tsquery AND {window.format('w.')}"
            f" AND {' AND '.join([_LONG, *[HAS_WORDS] * len(others)])})"
        )
        match_params = [whole, first, *others]
    if query.excluded_words:
        match_sql += f" AND {NOT_EXCLUDED}"
        match_params.append(" | ".join(map(build_phrase, query.excluded_words)))
    order, rank_params = _build_order(whole, newest)
    condition, params = clause[:2] if clause else ("true", ())
    needs_rows = clause is not None or newest
    joins = " JOIN messages m ON m.id = w.id JOIN sessions s ON s.num = m.session"
    sql = (
        f"SELECT {order}, w.id FROM words w{joins if needs_rows else ''}"
        f" WHERE {match_sql} AND {condition} GROUP BY w.id"
    )
    return sql, [*rank_params, *match_params, *params]


def _find_and_rank_all(
    tx: Transaction, query: Query, clause: Clause | None, newest: bool
) -> Iterator[int]:
    condition, params = clause[:2] if clause else ("true", ())
    match_sql, match_params = _build_match_query(query)
    match_sql = f"w.id IN ({match_sql})"
    order, rank_params = "max(m.time)", []
    if query.excluded_words:
        match_sql += f" AND {NOT_EXCLUDED}"
        match_params = [*match_params, " | ".join(map(build_phrase, query.excluded_words))]
    if not newest:
        order, rank_params = "max(ts_rank(w.text, ?::tsquery, 1))", match_params[:1]
    for (id,) in tx.stream(
        "SELECT w.id FROM words w JOIN messages m ON m.id = w.id"
        " JOIN sessions s ON s.num = m.session"
        f" WHERE {match_sql} AND {condition}"
        f" GROUP BY w.id ORDER BY {order} DESC, w.id DESC",
        (*match_params, *params, *rank_params),
    ):
        yield id


def select_titles(tx: Transaction, parts: Sequence[str]) -> TitleQuery | None:
    """Build the query for sessions whose titles have all parts."""
    return "SELECT session FROM title_parts WHERE parts @> ?::text[]", [[*parts]]


def check_index(tx: Transaction) -> Iterator[Finding]:
    """Check that the index holds every message and nothing else."""
    return compare_index(
        tx,
        missing="(SELECT id FROM messages EXCEPT SELECT id FROM words) lost",
        extra="(SELECT id FROM words EXCEPT SELECT id FROM messages) lost",
    )


def _build_match_query(query: Query) -> tuple[str, list[str]]:
    """Build the query for messages that have all words, in one part or over several parts."""
    sql = "SELECT id FROM words WHERE text @@ ?::tsquery"
    params = [build_tsquery(query)]
    if 1 < len(query.groups) <= MAX_SPREAD_WORDS:
        each = f"{sql} AND id IN (SELECT id FROM words WHERE part > 0)"
        sql += f" UNION ({' INTERSECT '.join([each] * len(query.groups))})"
        params += [build_tsquery(Query((group,))) for group in query.groups]
    return sql, params
