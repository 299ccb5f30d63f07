"""SQLite's search index: most messages in a full-text table, the newest in the reader's own memory.

A commit that updates a full-text index writes several times the size of its message. So messages are
indexed in batches, inside the transaction of the message that makes a batch full. What is not indexed
yet, everything behind the last id of the index, each reader keeps in a small full-text table in its
memory, brought up to date by every search: the same words are found either way, and at once.

To rank all matches, and to know how rare a word is, costs the more the more is stored. So in a large
store the newest matches are ranked, by a score of our own that asks for no count of all; older ones
follow, newest first.
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
from rekindle.store.core.indexing import index_all
from rekindle.store.core.rows import said, searchable
from rekindle.store.core.search_query import Query
from rekindle.store.core.text_encoding import indexable
from rekindle.types import Finding, Message

EVERY = 64  # messages make a batch, or
BYTES = 256 * 1024  # of text
BULK = 1_000_000  # bytes at once: from here on the index gathers up to
GATHERED = 8_000_000  # bytes of words in memory before it writes them, in place of one million
LARGE = 100_000  # messages: from here on, only
WINDOW = 500  # of the newest matches are put in order
SAMPLE = 100  # of a word's newest places tell how rare it is

_TAIL = """
CREATE VIRTUAL TABLE temp.tail USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0')
"""
_LAST = "coalesce((SELECT max(id) FROM words_docsize), 0)"
_WAITING = f"SELECT id, session, position FROM messages WHERE id > {_LAST}"
_PLACES = (  # the same as one value
    f"SELECT json_group_array(json_array(id, session, position) ORDER BY id) FROM ({_WAITING})"
)


class Batch:
    """How much a writer has left to be indexed; guesses about other writers do no harm."""

    def __init__(self) -> None:
        self._messages: int | None = None
        self._bytes = 0
        self._fresh: dict[tuple[int, int], Message | str] = {}
        self._gathers = False

    def note(self, tx: Transaction, messages: int, size: int) -> None:
        if self._messages is None:  # others may have left some: many short runs must add up
            self._messages = int(tx.run(f"SELECT count(*) FROM ({_WAITING})")[0][0])
        self._messages += messages  # of the first ones some may count twice
        self._bytes += size

    @property
    def is_full(self) -> bool:
        return self._bytes >= BYTES or (self._messages or 0) >= EVERY

    def remember(self, num: int, position: int, said: Sequence[Message | str]) -> None:
        """Keep what this transaction wrote at hand: `settle` then need not read it back."""
        for place, one in enumerate(said, position):
            self._fresh[num, place] = one

    def forget(self) -> None:
        self._fresh.clear()

    def settle(self, tx: Transaction) -> None:
        """Move what waits into the index."""
        if self._bytes >= BULK and not self._gathers:
            # What an import brings at once then becomes one piece of the index, not several to merge.
            tx.run("INSERT INTO words (words, rank) VALUES ('hashsize', ?)", (GATHERED,))
            self._gathers = True
        waiting: list[tuple[int, int, int]] = json.loads(tx.run(_PLACES)[0][0])
        _add(tx, "words", ((id, self._words(tx, *place)) for id, *place in waiting))
        self._messages = self._bytes = 0

    def _words(self, tx: Transaction, num: int, position: int) -> str:
        fresh = self._fresh.get((num, position))
        if fresh is not None:
            return fresh if isinstance(fresh, str) else words_of(fresh)
        sql = "SELECT content, body FROM messages WHERE session = ? AND position = ?"
        return indexable(searchable(*tx.run(sql, (num, position))[0]))


def words_of(message: Message) -> str:
    """The text of a message as the index is given it."""
    return indexable(said(message))


def _index(tx: Transaction, rows: Sequence[Row], table: str = "words") -> None:
    found = ((id, indexable(searchable(content, body))) for id, content, body in rows)
    _add(tx, table, found)


def _add(tx: Transaction, table: str, found: Iterable[tuple[int, str]]) -> None:
    """Index texts by their ids.

    In few steps, one for ids that follow each other: during a step of SQLite another thread has
    Python for itself, and after it the thread has to wait for its turn.
    """
    sql = f"INSERT INTO {table} (rowid, text) SELECT ? + rowid, value FROM carray(?)"
    for before, texts in _runs(found):
        tx.run(sql, (before, apsw.carray(texts)))  # pyright: ignore[reportUnknownMemberType]


def _runs(found: Iterable[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Texts whose ids follow each other, and the id before the first of them."""
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


def forget(tx: Transaction, num: int) -> None:
    """Take a session's words out of the index."""
    tx.run(
        "DELETE FROM words WHERE rowid IN (SELECT m.id FROM messages m"
        " JOIN words_docsize d ON d.id = m.id WHERE m.session = ?)",
        (num,),
    )


def rebuild(tx: Transaction, progress: Progress | None) -> int:
    """Index everything anew."""
    tx.run("INSERT INTO words (words) VALUES ('delete-all')")
    return index_all(tx, _index, progress)


class Tail:
    """One reader's copy of what is not yet in the index."""

    def __init__(self) -> None:
        self._known: set[Row] | None = None

    def fill(self, tx: Transaction) -> bool:
        """Bring the copy up to date; False if there is nothing in it."""
        waiting = set(tx.run(_WAITING))
        if self._known is None:
            if not waiting:
                return False
            tx.run(_TAIL)
            self._known = set()
        if self._known - waiting:
            tx.run("INSERT INTO temp.tail (tail) VALUES ('delete-all')")
            self._known = set()
        for id, _, _ in waiting - self._known:
            rows = tx.run("SELECT id, content, body FROM messages WHERE id = ?", (id,))
            _index(tx, rows, "temp.tail")
        self._known = waiting
        return bool(waiting)


def find(
    tx: Transaction, tail: Tail, query: Query, clause: Clause | None, newest: bool, likely: int
) -> Iterator[int]:
    """Yield ids of messages with the words of a query."""
    match = _match(query)
    if not match:
        return
    last: int = tx.run(f"SELECT {_LAST}")[0][0]
    score = "bm25({table})"
    if last > LARGE and not newest:
        score = f"relevance({{table}}, {', '.join(map(repr, _weights(tx, query, last)))})"
    if last > LARGE:
        found = _search_newest(tx, match, clause, newest, score)
    else:
        found = _search(tx, "words", match, clause, newest, score, likely)
    if tail.fill(tx):
        found = heapq.merge(_search(tx, "tail", match, clause, newest, score, EVERY), found)
    for _, id in found:
        yield abs(id)


def _search(
    tx: Transaction,
    table: str,
    match: str,
    clause: Clause | None,
    newest: bool,
    score: str,
    likely: int,
) -> Iterator[Row]:
    """Rows of (order, id), first the one with the lowest; of two at one time, the one said later."""
    sql, params = _statement(table, match, clause, newest, score)
    # Not ORDER BY rank: that sorts all matches, however few are wanted. And to sort out a few is
    # much cheaper than to sort all, and mostly enough.
    first = tx.run(f"{sql} ORDER BY 1, 2 LIMIT {likely}", params)
    yield from first
    if len(first) == likely:
        yield from islice(tx.stream(f"{sql} ORDER BY 1, 2", params), likely, None)


def _search_newest(
    tx: Transaction, match: str, clause: Clause | None, newest: bool, score: str
) -> Iterator[Row]:
    """The same of a large table: the newest matches in order, then the others as they come."""
    sql, params = _statement("words", match, clause, newest, score)
    first = tx.run(f"{sql} ORDER BY w.rowid DESC LIMIT {WINDOW}", params)
    yield from sorted(first)
    if len(first) == WINDOW:
        sql, params = _statement("words", match, clause, newest, "0", behind=abs(first[-1][1]))
        for _, id in tx.stream(f"{sql} ORDER BY w.rowid DESC", params):
            yield math.inf, id


def _statement(
    table: str,
    match: str,
    clause: Clause | None,
    newest: bool,
    score: str,
    behind: int | None = None,
) -> tuple[str, list[Any]]:
    order = "-m.time, -w.rowid" if newest else f"{score.format(table=table)}, w.rowid"
    # CROSS: the index comes first, whatever SQLite thinks of the filter.
    messages = "CROSS JOIN messages m ON m.id = w.rowid" if clause or newest else ""
    sessions = "CROSS JOIN sessions s ON s.num = m.session" if clause else ""
    condition, values = clause or ("true", ())
    before = "" if behind is None else f" AND w.rowid < {behind}"
    sql = (
        f"SELECT {order} FROM {table} w {messages} {sessions}"
        f" WHERE {table} MATCH ?{before} AND {condition}"
    )
    return sql, [match, *values]


def _weights(tx: Transaction, query: Query, last: int) -> list[float]:
    """How much each term of a query tells: the rarer of late, the more."""
    weights: list[float] = []
    for group in query.groups:
        for term in group:
            rows = tx.run(
                "SELECT rowid FROM words WHERE words MATCH ?"
                f" ORDER BY rowid DESC LIMIT 1 OFFSET {SAMPLE - 1}",
                (_quoted(term.words) + "*" * term.prefix,),
            )
            weights.append(math.log(1 + (last - rows[0][0] if rows else last) / SAMPLE))
    return weights


def relevance(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
    """How well a message fits, the lower the better: BM25 with weights that are given."""
    usual: float | None = api.aux_data
    if usual is None:
        usual = api.aux_data = max(1.0, api.column_total_size(0) / max(1, api.row_count))
    room = 1.2 * (0.25 + 0.75 * api.column_size(0) / usual)
    score = 0.0
    for phrase, weight in enumerate(weights):
        times = len(api.phrase_locations(phrase)[0])
        score -= weight * times * 2.2 / (times + room)
    return score


def _match(query: Query) -> str:
    """The query in FTS5's own language; every word quoted, so that none is taken for syntax."""
    return " AND ".join(
        "(" + " OR ".join(_quoted(term.words) + "*" * term.prefix for term in group) + ")"
        for group in query.groups
    )


def _quoted(words: Sequence[str]) -> str:
    return '"' + " ".join(words) + '"'


def check(tx: Transaction) -> Iterator[Finding]:
    """Is every message in the index that should be, and nothing else?"""
    missing = tx.run(
        f"SELECT count(*), min(id) FROM messages m WHERE id <= {_LAST}"
        " AND NOT EXISTS (SELECT 1 FROM words_docsize d WHERE d.id = m.id)"
    )[0]
    extra = tx.run(
        "SELECT count(*), min(id) FROM words_docsize d"
        " WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = d.id)"
    )[0]
    for (count, first), what in ((missing, "not in the index"), (extra, "in the index only")):
        if count:
            detail = f"{count} messages are {what}, the first has id {first}"
            yield Finding(check="search index", where="words", detail=detail)


def size(tx: Transaction) -> int:
    """Bytes of the index."""
    blocks: Any = tx.run("SELECT coalesce(sum(length(block)), 0) FROM words_data")[0][0]
    sizes: Any = tx.run("SELECT coalesce(sum(length(sz) + 8), 0) FROM words_docsize")[0][0]
    return blocks + sizes
