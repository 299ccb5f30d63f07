"""SQLite's search index: a full-text table for most messages, reader memory for the newest.

A commit that updates a full-text index writes several times the size of its message. So messages are
indexed in batches, in the transaction of the message that completes a batch. Messages that are not
indexed yet, those with ids after the last one in the index, are kept by each reader in a small
in-memory full-text table, which every search updates: both are searched with the same words.

Ranking all matches, and computing how rare a word is, get slower as the store grows. So in a large
store only the newest matches are ranked, by a score that needs no total counts; older ones follow,
newest first.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import apsw

from rekindle.store.core.engine import Clause, Progress, Row, Transaction
from rekindle.store.core.filter import build_in_condition
from rekindle.store.core.rows import get_row_search_text, get_search_text
from rekindle.store.core.search_query import Query, Term
from rekindle.store.core.text_encoding import prepare_for_index
from rekindle.types import Finding, Message

from .indexing import compare_index, index_all_messages

BATCH_MESSAGES = 64  # messages in a batch, or
BATCH_BYTES = 256 * 1024  # bytes of text in a batch
BULK_BYTES = 1_000_000  # from this size on, the index collects up to
BULK_HASH_BYTES = 8_000_000  # bytes of words in memory before writing, instead of one million
BULK_SEGMENTS = 8  # of the index before they are merged, instead of four
LARGE_STORE = 100_000  # messages: from here on, only
RANKED_MATCHES = 500  # newest matches are ranked
RARITY_SAMPLE = 100  # newest occurrences of a word that determine its rarity

_CREATE_TAIL = """
CREATE VIRTUAL TABLE temp.tail USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0')
"""
_LAST_INDEXED = "coalesce((SELECT max(id) FROM words_docsize), 0)"
_SELECT_UNINDEXED = f"SELECT id, session, position FROM messages WHERE id > {_LAST_INDEXED}"
_SELECT_UNINDEXED_JSON = (  # as a single value
    f"SELECT json_group_array(json_array(id, session, position) ORDER BY id) FROM ({_SELECT_UNINDEXED})"
)


class IndexBatch:
    """Tracks how much a writer has left to index; inexact counts of other writers do no harm."""

    def __init__(self) -> None:
        self._messages: int | None = None
        self._bytes = 0
        self._cached_texts: dict[tuple[int, int], Message | str] = {}
        self._is_bulk = False

    def count(self, tx: Transaction, messages: int, size: int) -> None:
        """Count messages that still have to be indexed."""
        if self._messages is None:  # others may have left some: many short runs must add up
            self._messages = int(tx.run(f"SELECT count(*) FROM ({_SELECT_UNINDEXED})")[0][0])
        self._messages += messages  # may count some of the first ones twice
        self._bytes += size

    @property
    def is_full(self) -> bool:
        """Whether the batch should be flushed."""
        return self._bytes >= BATCH_BYTES or (self._messages or 0) >= BATCH_MESSAGES

    def cache_texts(self, num: int, position: int, texts: Sequence[Message | str]) -> None:
        """Cache the texts that this transaction wrote, so that `flush` need not read them back."""
        for text_position, text in enumerate(texts, position):
            self._cached_texts[num, text_position] = text

    def clear_cache(self) -> None:
        """Clear the cached texts at the end of a transaction."""
        self._cached_texts.clear()

    def flush(self, tx: Transaction) -> None:
        """Move all unindexed messages into the index."""
        if self._bytes >= BULK_BYTES and not self._is_bulk:
            # A bulk import then becomes one segment of the index instead of several to merge.
            set_option = "INSERT INTO words (words, rank) VALUES (?, ?)"
            tx.run(set_option, ("hashsize", BULK_HASH_BYTES))
            tx.run(set_option, ("automerge", BULK_SEGMENTS))
            self._is_bulk = True
        unindexed: list[tuple[int, int, int]] = json.loads(tx.run(_SELECT_UNINDEXED_JSON)[0][0])
        cached = self._cached_texts
        stored = _load_texts(tx, [id for id, *place in unindexed if tuple(place) not in cached])
        _insert_texts(
            tx,
            "words",
            (
                (id, stored[id] if id in stored else _to_index_text(cached[num, position]))
                for id, num, position in unindexed
            ),
        )
        self._messages = self._bytes = 0


def _load_texts(tx: Transaction, ids: Sequence[int]) -> dict[int, str]:
    """Return the texts of messages, in order of their ids, as the index stores them."""
    if not ids:
        return {}
    sql = "SELECT id, content, body FROM messages WHERE id BETWEEN ? AND ?"
    rows = tx.run(sql, (ids[0], ids[-1]))  # one read: they are those of earlier transactions
    wanted = set(ids)
    return {
        id: prepare_for_index(get_row_search_text(content, body))
        for id, content, body in rows
        if id in wanted
    }


def _to_index_text(cached: Message | str) -> str:
    return cached if isinstance(cached, str) else get_index_text(cached)


def get_index_text(message: Message) -> str:
    """Return the text of a message as the index stores it."""
    return prepare_for_index(get_search_text(message))


def _index_rows(tx: Transaction, rows: Sequence[Row], table: str = "words") -> None:
    found = (
        (id, prepare_for_index(get_row_search_text(content, body))) for id, content, body in rows
    )
    _insert_texts(tx, table, found)


def _insert_texts(tx: Transaction, table: str, found: Iterable[tuple[int, str]]) -> None:
    """Index texts by their ids.

    One statement indexes a run of consecutive ids: while SQLite runs, another thread has the GIL, and
    each statement's return has to wait for it.
    """
    sql = f"INSERT INTO {table} (rowid, text) SELECT ? + rowid, value FROM carray(?)"
    for before, texts in _iter_id_runs(found):
        tx.run(sql, (before, apsw.carray(texts)))  # pyright: ignore[reportUnknownMemberType]


def _iter_id_runs(found: Iterable[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield runs of texts with consecutive ids, each with the id before the first."""
    before, texts = 0, list[str]()
    for id, text in found:
        if texts and id != before + len(texts) + 1:
            yield before, tuple(texts)
            texts = []
        if not texts:
            before = id - 1
        texts.append(text)
    if texts:
        yield before, tuple(texts)


def delete_session_words(tx: Transaction, num: int) -> None:
    """Remove a session's words from the index."""
    tx.run(
        "DELETE FROM words WHERE rowid IN (SELECT m.id FROM messages m"
        " JOIN words_docsize d ON d.id = m.id WHERE m.session = ?)",
        (num,),
    )


def rebuild_index(tx: Transaction, progress: Progress | None = None) -> int:
    """Rebuild the index and return the number of messages it covers."""
    tx.run("INSERT INTO words (words) VALUES ('delete-all')")
    return index_all_messages(tx, _index_rows, progress)


class UnindexedTail:
    """A reader's in-memory index of messages that are not in the main index yet."""

    def __init__(self) -> None:
        self._indexed: set[Row] | None = None

    def refresh(self, tx: Transaction) -> bool:
        """Update the tail; return False if it is empty."""
        unindexed = set(tx.run(_SELECT_UNINDEXED))
        if self._indexed is None:
            if not unindexed:
                return False
            tx.run(_CREATE_TAIL)
            self._indexed = set()
        if self._indexed - unindexed:
            tx.run("INSERT INTO temp.tail (tail) VALUES ('delete-all')")
            self._indexed = set()
        for id, _, _ in unindexed - self._indexed:
            rows = tx.run("SELECT id, content, body FROM messages WHERE id = ?", (id,))
            _index_rows(tx, rows, "temp.tail")
        self._indexed = unindexed
        return bool(unindexed)


def find_messages(
    tx: Transaction,
    tail: UnindexedTail,
    query: Query,
    clause: Clause | None,
    newest: bool,
    expected: int,
) -> Iterator[int]:
    """Yield ids of messages that match a query."""
    match = _build_match(query)
    if not match or (clause and clause.is_empty):
        return
    last: int = tx.run(f"SELECT {_LAST_INDEXED}")[0][0]
    score = "bm25({table})"
    if last > LARGE_STORE and not newest:
        score = f"relevance({{table}}, {', '.join(map(repr, _compute_weights(tx, query, last)))})"
    if last > LARGE_STORE:
        found = _search_newest(tx, match, clause, newest, score)
    else:
        found = _search_table(tx, "words", match, clause, newest, score, expected)
    if tail.refresh(tx):
        found = heapq.merge(
            _search_table(tx, "tail", match, clause, newest, score, BATCH_MESSAGES), found
        )
    for _, id in found:
        yield abs(id)


def _search_table(
    tx: Transaction,
    table: str,
    match: str,
    clause: Clause | None,
    newest: bool,
    score: str,
    expected: int,
) -> Iterator[Row]:
    """Yield rows of (order, id), lowest first; at equal times the later message comes first."""
    sql, params = _build_statement(table, match, clause, newest, score)
    # Not ORDER BY rank: that sorts all matches, however few are needed. Selecting the first few is
    # much cheaper than sorting all, and usually enough.
    first = tx.run(f"{sql} ORDER BY 1, 2 LIMIT {expected}", params)
    yield from first
    if len(first) == expected:
        yield from islice(tx.stream(f"{sql} ORDER BY 1, 2", params), expected, None)


def _search_newest(
    tx: Transaction, match: str, clause: Clause | None, newest: bool, score: str
) -> Iterator[Row]:
    """Yield rows of a large table: the newest matches ranked, then the others newest first."""
    sql, params = _build_statement("words", match, clause, newest, score)
    first = tx.run(f"{sql} ORDER BY w.rowid DESC LIMIT {RANKED_MATCHES}", params)
    yield from sorted(first)
    if len(first) == RANKED_MATCHES:
        sql, params = _build_statement(
            "words", match, clause, newest, "0", before_id=abs(first[-1][1])
        )
        for _, id in tx.stream(f"{sql} ORDER BY w.rowid DESC", params):
            yield math.inf, id


def _build_statement(
    table: str,
    match: str,
    clause: Clause | None,
    newest: bool,
    score: str,
    before_id: int | None = None,
) -> tuple[str, list[Any]]:
    order = "-m.time, -w.rowid" if newest else f"{score.format(table=table)}, w.rowid"
    # CROSS JOIN makes SQLite start with the index, whatever the filter.
    messages = "CROSS JOIN messages m ON m.id = w.rowid" if clause or newest else ""
    sessions = "CROSS JOIN sessions s ON s.num = m.session" if clause else ""
    condition, values = clause[:2] if clause else ("true", ())
    id_condition = "" if before_id is None else f" AND w.rowid < {before_id}"
    if clause and clause.sessions is not None:
        # The set of their messages is small: no row of any other message is read. `+` keeps SQLite
        # from searching the index once for each of them.
        nums = [session.num for session in clause.sessions]
        wanted = f"FROM messages WHERE {build_in_condition(nums)}"
        id_condition += f" AND +w.rowid IN (SELECT id {wanted})"
        id_condition += f" AND w.rowid >= (SELECT min(id) {wanted})"  # most are new
    sql = (
        f"SELECT {order} FROM {table} w {messages} {sessions}"
        f" WHERE {table} MATCH ?{id_condition} AND {condition}"
    )
    return sql, [match, *values]


def _compute_weights(tx: Transaction, query: Query, last: int) -> list[float]:
    """Compute the weight of each term of a query: the rarer recently, the higher."""
    if sum(map(len, query.groups)) == 1:
        return [1.0]  # any weight gives the same order
    weights: list[float] = []
    for group in query.groups:
        for term in group:
            rows = tx.run(
                "SELECT rowid FROM words WHERE words MATCH ?"
                f" ORDER BY rowid DESC LIMIT 1 OFFSET {RARITY_SAMPLE - 1}",
                (_quote_phrase(term.words) + "*" * term.prefix,),
            )
            weights.append(math.log(1 + (last - rows[0][0] if rows else last) / RARITY_SAMPLE))
    return weights


def score_relevance(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
    """Score how well a message matches, lower is better: BM25 with given weights."""
    average_size: float | None = api.aux_data
    if average_size is None:
        average_size = api.aux_data = max(1.0, api.column_total_size(0) / max(1, api.row_count))
    length_norm = 1.2 * (0.25 + 0.75 * api.column_size(0) / average_size)
    score = 0.0
    for phrase, weight in enumerate(weights):
        occurrences = len(api.phrase_locations(phrase)[0])
        score -= weight * occurrences * 2.2 / (occurrences + length_norm)
    return score


def _build_match(query: Query) -> str:
    """Build the FTS5 query, quoting every word so that none is read as syntax."""
    wanted = " AND ".join(map(_build_alternatives, query.groups))
    unwanted = _build_alternatives(query.excluded_words)
    # Last, because the weights of a score are those of the first phrases.
    return f"({wanted}) NOT {unwanted}" if wanted and query.excluded_words else wanted


def _build_alternatives(terms: Sequence[Term]) -> str:
    found = " OR ".join(_quote_phrase(term.words) + "*" * term.prefix for term in terms)
    return f"({found})"


def _quote_phrase(words: Sequence[str]) -> str:
    return '"' + " ".join(words) + '"'


def check_index(tx: Transaction) -> Iterator[Finding]:
    """Check that the index holds every message it should and nothing else."""
    return compare_index(
        tx,
        missing=f"messages m WHERE id <= {_LAST_INDEXED}"
        " AND NOT EXISTS (SELECT 1 FROM words_docsize d WHERE d.id = m.id)",
        extra="words_docsize d WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = d.id)",
    )


def measure_index(tx: Transaction) -> int:
    """Return the size of the index in bytes."""
    blocks: Any = tx.run("SELECT coalesce(sum(length(block)), 0) FROM words_data")[0][0]
    sizes: Any = tx.run("SELECT coalesce(sum(length(sz) + 8), 0) FROM words_docsize")[0][0]
    return blocks + sizes
