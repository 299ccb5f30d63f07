"""PostgreSQL's search index: tsvectors made of our own words, in the transaction of the message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rekindle.store.core.engine import Clause, Progress, Row, Transaction
from rekindle.store.core.indexing import index_all
from rekindle.store.core.rows import searchable
from rekindle.store.core.search_query import Query, Term
from rekindle.store.core.text_encoding import words
from rekindle.types import Finding

PLACES = 4_000  # words in a part: a tsvector counts places up to 16,383, and keeps
MOST_OF_ONE = 255  # places of one word
SPREAD = 32  # words of a query that are also looked for in different parts of a long message
ROOM = 900_000  # bytes in a part: it holds at most a megabyte
LONGEST = 500  # characters of a word: a lexeme has at most 2,046 bytes
OVERLAP = 32  # words that two parts share, so that a phrase across the border is found


def index_from(tx: Transaction, num: int, position: int) -> None:
    """Index a session's messages from a position on."""
    _index(
        tx,
        tx.run(
            "SELECT id, content, body FROM messages WHERE session = ? AND position >= ?",
            (num, position),
        ),
    )


def _index(tx: Transaction, rows: Sequence[Row]) -> None:
    tx.many(
        "INSERT INTO words (id, part, text) VALUES (?, ?, ?::tsvector)",
        [
            (id, part, vector)
            for id, content, body in rows
            for part, vector in enumerate(_vectors(searchable(content, body)))
        ],
    )


def forget(tx: Transaction, num: int) -> None:
    """Take a session's words out of the index."""
    tx.run("DELETE FROM words WHERE id IN (SELECT id FROM messages WHERE session = ?)", (num,))


def rebuild(tx: Transaction, progress: Progress | None) -> int:
    """Index everything anew."""
    tx.run("DELETE FROM words")
    return index_all(tx, _index, progress)


def find(tx: Transaction, query: Query, clause: Clause | None, newest: bool) -> Iterator[int]:
    """Yield ids of messages with the words of a query."""
    if not query.groups:
        return
    condition, params = clause or ("true", ())
    matching, wanted = _matching(query)
    order, ranked = "max(m.time)", []
    if not newest:
        order, ranked = "max(ts_rank(w.text, ?::tsquery, 1))", wanted[:1]
    for (id,) in tx.stream(
        "SELECT w.id FROM words w JOIN messages m ON m.id = w.id"
        " JOIN sessions s ON s.num = m.session"
        f" WHERE w.id IN ({matching}) AND {condition}"
        f" GROUP BY w.id ORDER BY {order} DESC, w.id DESC",
        (*wanted, *params, *ranked),
    ):
        yield id


def check(tx: Transaction) -> Iterator[Finding]:
    """Is every message in the index, and nothing else?"""
    for sql, what in (
        ("SELECT id FROM messages EXCEPT SELECT id FROM words", "not in the index"),
        ("SELECT id FROM words EXCEPT SELECT id FROM messages", "in the index only"),
    ):
        count, first = tx.run(f"SELECT count(*), min(id) FROM ({sql}) lost")[0]
        if count:
            detail = f"{count} messages are {what}, the first has id {first}"
            yield Finding(check="search index", where="words", detail=detail)


def _vectors(text: str) -> Iterator[str]:
    """The words of a text and their places as tsvectors; an empty text has one without words."""
    found = [word[:LONGEST] for word in words(text)]
    start = 0
    while start < max(len(found), 1):
        places: defaultdict[str, list[int]] = defaultdict(list)
        room, stop = ROOM, start
        while stop < len(found) and stop - start < PLACES and room > 0:
            where = places[found[stop]]
            if len(where) == MOST_OF_ONE:
                break
            where.append(stop - start + 1)
            room -= 4 * len(found[stop]) + 8
            stop += 1
        yield " ".join(
            f"{_lexeme(word)}:{','.join(map(str, where))}" for word, where in places.items()
        )
        start = stop if stop in (start, len(found)) else max(stop - OVERLAP, start + 1)
        if not found:
            return


def _lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _tsquery(query: Query) -> str:
    return " & ".join("(" + " | ".join(map(_phrase, group)) + ")" for group in query.groups)


def _matching(query: Query) -> tuple[str, list[str]]:
    """The keys that have all the words, together in one part or spread over a long message's parts."""
    sql = "SELECT id FROM words WHERE text @@ ?::tsquery"
    params = [_tsquery(query)]
    if 1 < len(query.groups) <= SPREAD:
        each = f"{sql} AND id IN (SELECT id FROM words WHERE part > 0)"
        sql += f" UNION ({' INTERSECT '.join([each] * len(query.groups))})"
        params += [_tsquery(Query((group,))) for group in query.groups]
    return sql, params


def _phrase(term: Term) -> str:
    lexemes = [_lexeme(word[:LONGEST]) for word in term.words]
    lexemes[-1] += ":*" if term.prefix else ""
    return "(" + " <-> ".join(lexemes) + ")"
