"""PostgreSQL's search index: tsvectors of our own words, written in the transaction of the message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from rekindle.store.core.engine import Clause, Progress, Row, Transaction
from rekindle.store.core.filter import build_in_condition
from rekindle.store.core.rows import get_row_search_text, get_search_text
from rekindle.store.core.search_query import Query, Term
from rekindle.store.core.text_encoding import split_words
from rekindle.types import Finding, Message

from .indexing import compare_index, index_all_messages

MAX_POSITIONS = 4_000  # words in a part: a tsvector counts positions up to 16,383 and keeps at most
MAX_POSITIONS_PER_WORD = 255  # positions of one word
MAX_SPREAD_WORDS = 32  # words of a query that may match in different parts of a long message
MAX_PART_BYTES = 900_000  # a tsvector holds at most a megabyte
MAX_WORD_LENGTH = 500  # characters: a lexeme has at most 2,046 bytes
LARGE_STORE = 100_000  # messages: from here on, only
RANKED_MATCHES = 500  # newest matches are ranked
FIRST_WINDOW, WINDOW_GROWTH = (
    4_000,
    8,
)  # ids in the first range that is searched, and in the next ones
RARE_WINDOW = 30_000  # ids that show how common the matches are
IDS_PER_MATCH = 250  # in a range, at the cost of reading one match
OVERLAP = 32  # words shared by adjacent parts, so that a phrase across the boundary is found

_LONG = "EXISTS (SELECT 1 FROM words l WHERE l.id = w.id AND l.part > 0)"
_HAS_WORDS = "EXISTS (SELECT 1 FROM words o WHERE o.id = w.id AND o.text @@ ?::tsquery)"
# In no part of a long message.
_NOT_EXCLUDED = "NOT EXISTS (SELECT 1 FROM words x WHERE x.id = w.id AND x.text @@ ?::tsquery)"


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
        "INSERT INTO words (id, part, text) SELECT id, ?, ?::tsvector FROM messages"
        " WHERE session = ? AND position = ?",
        [
            (part, vector, num, place)
            for place, message in enumerate(messages, position)
            for part, vector in enumerate(build_vectors(get_search_text(message)))
        ],
    )


def build_insert_of_added(message: Message) -> tuple[str, list[str]]:
    """Build the statement that indexes a message which the same statement adds."""
    vectors = [*build_vectors(get_search_text(message))]
    values = ", ".join(f"({part}, ?::tsvector)" for part in range(len(vectors)))
    return (
        "INSERT INTO words (id, part, text) SELECT added.id, v.part, v.text"
        f" FROM added, (VALUES {values}) AS v (part, text)"
    ), vectors


def _index_rows(tx: Transaction, rows: Sequence[Row]) -> None:
    tx.run_many(
        "INSERT INTO words (id, part, text) VALUES (?, ?, ?::tsvector)",
        [
            (id, part, vector)
            for id, content, body in rows
            for part, vector in enumerate(build_vectors(get_row_search_text(content, body)))
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
    if not query.groups:
        return
    last: int = tx.run("SELECT coalesce(max(id), 0) FROM words")[0][0]
    if last > LARGE_STORE and clause and clause.sessions is not None:
        yield from _find_in_sessions(tx, query, clause, clause.sessions, newest)
    elif last > LARGE_STORE:
        yield from _find_in_windows(tx, query, clause, newest, last)
    else:
        yield from _find_and_rank_all(tx, query, clause, newest)


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
        limit = RANKED_MATCHES - len(ranked or ())
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
            if len(ranked) == RANKED_MATCHES or high <= 0:
                yield from (id for _, id in sorted(ranked, reverse=True))
                ranked = None


def _is_rare(found: int, searched: int, last: int) -> bool:
    """Return whether all other matches cost less than a range of ids that has enough of them.

    To read a match costs as much as to pass some hundred ids in a range.
    """
    share = max(found, 1) / searched
    return share * last * IDS_PER_MATCH < RANKED_MATCHES / share


def _find_in_sessions(
    tx: Transaction, query: Query, clause: Clause, sessions: Sequence[int], newest: bool
) -> Iterator[int]:
    """Yield ids from a few sessions, whose messages cost less than the matches of all sessions."""
    whole = _build_tsquery(query)
    is_match, params = "w.text @@ ?::tsquery", [whole]
    if 1 < len(query.groups) <= MAX_SPREAD_WORDS:
        is_match = f"({is_match} OR ({' AND '.join([_LONG, *[_HAS_WORDS] * len(query.groups)])}))"
        params += [_build_tsquery(Query((group,))) for group in query.groups]
    if query.excluded_words:
        is_match += f" AND {_NOT_EXCLUDED}"
        params.append(" | ".join(map(_build_phrase, query.excluded_words)))
    order, rank_params = _build_order(whole, newest)
    for (id,) in tx.run(
        "SELECT w.id FROM messages m JOIN sessions s ON s.num = m.session"
        f" JOIN words w ON w.id = m.id WHERE {build_in_condition(sessions, 'm.session')}"
        f" AND {is_match} AND {clause.condition} GROUP BY w.id ORDER BY {order} DESC, w.id DESC",
        [*params, *clause.params, *rank_params],
    ):
        yield id


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
    whole = _build_tsquery(query)
    match_sql = f"w.text @@ ?::tsquery AND {window.format('w.')}"
    match_params = [whole]
    if 1 < len(query.groups) <= MAX_SPREAD_WORDS and tx.run(
        f"SELECT 1 FROM words WHERE part > 0 AND id > {low} AND id <= {high} LIMIT 1"
    ):
        # Words of a long message may be in different parts.
        first, *others = [_build_tsquery(Query((group,))) for group in query.groups]
        match_sql = (
            f"w.id IN (SELECT id FROM words WHERE text @@ ?::tsquery AND {window.format('')} UNION"
            f" SELECT w.id FROM words w WHERE w.text @@ ?::tsquery AND {window.format('w.')}"
            f" AND {' AND '.join([_LONG, *[_HAS_WORDS] * len(others)])})"
        )
        match_params = [whole, first, *others]
    if query.excluded_words:
        match_sql += f" AND {_NOT_EXCLUDED}"
        match_params.append(" | ".join(map(_build_phrase, query.excluded_words)))
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
        match_sql += f" AND {_NOT_EXCLUDED}"
        match_params = [*match_params, " | ".join(map(_build_phrase, query.excluded_words))]
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


def check_index(tx: Transaction) -> Iterator[Finding]:
    """Check that the index holds every message and nothing else."""
    return compare_index(
        tx,
        missing="(SELECT id FROM messages EXCEPT SELECT id FROM words) lost",
        extra="(SELECT id FROM words EXCEPT SELECT id FROM messages) lost",
    )


def build_vectors(text: str) -> Iterator[str]:
    """Yield the words of a text and their positions as tsvectors; an empty text has one empty vector."""
    all_words = [*split_words(text)]
    if len(text) > MAX_WORD_LENGTH or not text.isascii():
        all_words = [word[:MAX_WORD_LENGTH] for word in all_words]
    if len(all_words) <= MAX_POSITIONS_PER_WORD:
        yield _build_short_vector(all_words)
        return
    start = 0
    while start < max(len(all_words), 1):
        positions: defaultdict[str, list[int]] = defaultdict(list)
        bytes_left, stop = MAX_PART_BYTES, start
        while stop < len(all_words) and stop - start < MAX_POSITIONS and bytes_left > 0:
            word_positions = positions[all_words[stop]]
            if len(word_positions) == MAX_POSITIONS_PER_WORD:
                break
            word_positions.append(stop - start + 1)
            bytes_left -= 4 * len(all_words[stop]) + 8
            stop += 1
        yield " ".join(
            f"{_quote_lexeme(word)}:{','.join(map(str, word_positions))}"
            for word, word_positions in positions.items()
        )
        start = stop if stop in (start, len(all_words)) else max(stop - OVERLAP, start + 1)
        if not all_words:
            return


def _build_short_vector(words: Sequence[str]) -> str:
    """Build the tsvector of a text that fits into one part whatever its words are."""
    positions: dict[str, str] = {}
    for position, word in enumerate(words, 1):
        known = positions.get(word)
        positions[word] = f"{known},{position}" if known else f"{position}"
    return " ".join([f"{_quote_lexeme(word)}:{known}" for word, known in positions.items()])


@lru_cache(maxsize=16_384)
def _quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _build_tsquery(query: Query) -> str:
    return " & ".join("(" + " | ".join(map(_build_phrase, group)) + ")" for group in query.groups)


def _build_match_query(query: Query) -> tuple[str, list[str]]:
    """Build the query for messages that have all words, in one part or over several parts."""
    sql = "SELECT id FROM words WHERE text @@ ?::tsquery"
    params = [_build_tsquery(query)]
    if 1 < len(query.groups) <= MAX_SPREAD_WORDS:
        each = f"{sql} AND id IN (SELECT id FROM words WHERE part > 0)"
        sql += f" UNION ({' INTERSECT '.join([each] * len(query.groups))})"
        params += [_build_tsquery(Query((group,))) for group in query.groups]
    return sql, params


def _build_phrase(term: Term) -> str:
    lexemes = [_quote_lexeme(word[:MAX_WORD_LENGTH]) for word in term.words]
    lexemes[-1] += ":*" if term.prefix else ""
    return "(" + " <-> ".join(lexemes) + ")"
