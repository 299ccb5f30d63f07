"""SQLite's search index: most messages in a full-text table, the newest in the reader's own memory.

A commit that updates a full-text index writes several times the size of its message. So messages are
indexed in batches, inside the transaction of the message that makes a batch full. What is not indexed
yet, everything behind the last id of the index, each reader keeps in a small full-text table in its
memory, brought up to date by every search: the same words are found either way, and at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..types import Finding
from .engine import Clause, Progress, Row, Transaction
from .indexing import index_all
from .query import Query
from .rows import searchable
from .text import indexable

EVERY = 64  # messages make a batch, or
BYTES = 256 * 1024  # of text

_TAIL = """
CREATE VIRTUAL TABLE temp.tail USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0')
"""
_LAST = "coalesce((SELECT max(id) FROM words_docsize), 0)"
_WAITING = f"SELECT id, session, position FROM messages WHERE id > {_LAST}"


class Batch:
    """How much a writer has left to be indexed; guesses about other writers do no harm."""

    def __init__(self) -> None:
        self._messages: int | None = None
        self._bytes = 0

    def note(self, tx: Transaction, messages: int, size: int) -> None:
        if self._messages is None:  # others may have left some: many short runs must add up
            self._messages = tx.run(f"SELECT count(*) FROM ({_WAITING})")[0][0]
        else:
            self._messages += messages
        self._bytes += size

    @property
    def is_full(self) -> bool:
        return self._bytes >= BYTES or (self._messages or 0) >= EVERY

    def settle(self, tx: Transaction) -> None:
        """Move what waits into the index."""
        _index(tx, tx.run(f"SELECT id, content, body FROM messages WHERE id > {_LAST} ORDER BY id"))
        self._messages = self._bytes = 0


def _index(tx: Transaction, rows: Sequence[Row], table: str = "words") -> None:
    tx.many(
        f"INSERT INTO {table} (rowid, text) VALUES (?, ?)",
        ((id, indexable(searchable(content, body))) for id, content, body in rows),
    )


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
    found = _search(tx, "words", match, clause, newest, likely)
    if tail.fill(tx):
        found = heapq.merge(_search(tx, "tail", match, clause, newest, EVERY), found)
    for _, id in found:
        yield abs(id)


def _search(
    tx: Transaction, table: str, match: str, clause: Clause | None, newest: bool, likely: int
) -> Iterator[Row]:
    """Rows of (order, id), first the one with the lowest; of two at one time, the one said later."""
    if clause is None and not newest:
        # Not ORDER BY rank: that sorts all matches, however few are wanted.
        sql = f"SELECT bm25({table}), rowid FROM {table} WHERE {table} MATCH ? ORDER BY 1"
        params: tuple[Any, ...] = (match,)
    else:
        condition, values = clause or ("true", ())
        order = "-m.time, -w.rowid" if newest else f"bm25({table}), w.rowid"
        sessions = "JOIN sessions s ON s.num = m.session" if clause else ""
        sql = (
            f"SELECT {order} FROM {table} w JOIN messages m ON m.id = w.rowid {sessions}"
            f" WHERE {table} MATCH ? AND {condition} ORDER BY 1, 2"
        )
        params = (match, *values)
    # To sort out a few is much cheaper than to sort all, and mostly enough.
    first = tx.run(f"{sql} LIMIT {likely}", params)
    yield from first
    if len(first) == likely:
        yield from islice(tx.stream(sql, params), likely, None)


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
