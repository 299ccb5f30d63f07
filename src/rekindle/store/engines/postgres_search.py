"""PostgreSQL's search index: tsvectors of our own words, written in the transaction of the message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rekindle.store.core.engine import Clause, Progress, Row, Transaction
from rekindle.store.core.rows import get_row_search_text
from rekindle.store.core.search_query import Query, Term
from rekindle.store.core.text_encoding import split_words
from rekindle.types import Finding

from .indexing import compare_index, index_all_messages

MAX_POSITIONS = 4_000  # words in a part: a tsvector counts positions up to 16,383 and keeps at most
MAX_POSITIONS_PER_WORD = 255  # positions of one word
MAX_SPREAD_WORDS = 32  # words of a query that may match in different parts of a long message
MAX_PART_BYTES = 900_000  # a tsvector holds at most a megabyte
MAX_WORD_LENGTH = 500  # characters: a lexeme has at most 2,046 bytes
OVERLAP = 32  # words shared by adjacent parts, so that a phrase across the boundary is found


def index_messages_from(tx: Transaction, num: int, position: int) -> None:
    """Index a session's messages starting at a position."""
    _index_rows(
        tx,
        tx.run(
            "SELECT id, content, body FROM messages WHERE session = ? AND position >= ?",
            (num, position),
        ),
    )


def _index_rows(tx: Transaction, rows: Sequence[Row]) -> None:
    tx.run_many(
        "INSERT INTO words (id, part, text) VALUES (?, ?, ?::tsvector)",
        [
            (id, part, vector)
            for id, content, body in rows
            for part, vector in enumerate(_build_vectors(get_row_search_text(content, body)))
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
    condition, params = clause[:2] if clause else ("true", ())
    match_sql, match_params = _build_match_query(query)
    match_sql = f"w.id IN ({match_sql})"
    order, rank_params = "max(m.time)", []
    if query.excluded_words:  # in no part of a long message
        match_sql += (
            " AND NOT EXISTS (SELECT 1 FROM words x WHERE x.id = w.id AND x.text @@ ?::tsquery)"
        )
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


def _build_vectors(text: str) -> Iterator[str]:
    """Yield the words of a text and their positions as tsvectors; an empty text has one empty vector."""
    all_words = [word[:MAX_WORD_LENGTH] for word in split_words(text)]
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
