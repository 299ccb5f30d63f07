"""Find sessions by words of their titles, or by the beginning of their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rekindle.store.core.engine import Row, TitleQuery, Transaction
from rekindle.store.core.filter import Filter, build_like
from rekindle.store.core.text_encoding import escape_text

NEWEST_SESSIONS = 2_000  # searched first: a common word is found there often enough
MIN_ID_PREFIX = 4
_ORDER = "ORDER BY s.last_active DESC, s.source DESC, s.num DESC"
_VERSION = "s.num, s.changes"


def find_by_title(
    tx: Transaction,
    text: str,
    where: Filter,
    now: float,
    limit: int,
    select_titles: Callable[[Transaction, Sequence[str]], TitleQuery | None],
) -> Sequence[Row]:
    """Return the numbers and versions of sessions whose titles contain all words, newest first.

    Sessions whose ids begin with the text come before them. `select_titles` builds the query for the
    sessions whose titles have some parts, if the store has an index of them.
    """
    words = [build_like(word.casefold()) for word in text.split()]
    if not words:
        return ()
    condition, params = where.to_sql(now)
    by_id = _find_by_id(tx, text.strip(), condition, params, limit)
    contains = "s.title_base LIKE ? ESCAPE '!'"
    matches = " AND ".join(["s.title IS NOT NULL", *[contains] * len(words)])
    found = tx.run(
        f"SELECT {_VERSION} FROM (SELECT * FROM sessions s WHERE {condition} {_ORDER}"
        f" LIMIT {NEWEST_SESSIONS}) s WHERE {matches} {_ORDER} LIMIT ?",
        (*params, *words, limit),
    )
    if len(found) < limit and _has_older(tx, condition, params):
        parts = _split_words(text)
        query = select_titles(tx, parts) if parts else None
        values: Sequence[Any] = ()
        if query is not None:
            source, values = query
            # In steps, since the planner may go through all sessions by age or title otherwise.
            sql = (
                f"WITH found AS MATERIALIZED ({source}), titled AS MATERIALIZED (SELECT s.*"
                f" FROM found f JOIN sessions s ON s.num = f.session WHERE {matches}"
                f" AND {condition}) SELECT {_VERSION} FROM titled s {_ORDER} LIMIT ?"
            )
        else:  # look through the index of all titles
            sql = (
                f"SELECT {_VERSION} FROM sessions s WHERE s.num IN"
                f" (SELECT s.num FROM sessions s WHERE {matches}) AND {condition} {_ORDER} LIMIT ?"
            )
        found = tx.run(sql, (*values, *words, *params, limit))
    return [*by_id, *(row for row in found if row not in by_id)][:limit]


def _split_words(text: str) -> list[str]:
    """Return the parts of three characters that titles with these words have."""
    words = [escape_text(word.casefold()) for word in text.split()]
    return [*{word[start : start + 3] for word in words for start in range(len(word) - 2)}]


def _has_older(tx: Transaction, condition: str, params: Sequence[Any]) -> bool:
    """Return whether there are more sessions than the newest that have been searched."""
    sql = f"SELECT 1 FROM sessions s WHERE {condition} {_ORDER} LIMIT 1 OFFSET {NEWEST_SESSIONS}"
    return bool(tx.run(sql, params))


def _find_by_id(
    tx: Transaction, prefix: str, condition: str, params: Sequence[Any], limit: int
) -> list[Row]:
    if len(prefix) < MIN_ID_PREFIX or " " in prefix:
        return []
    start = escape_text(prefix)
    return tx.run(
        f"SELECT {_VERSION} FROM sessions s WHERE s.id >= ? AND s.id < ? AND {condition}"
        " ORDER BY s.id DESC LIMIT ?",
        (start, f"{start}\U0010ffff", *params, limit),
    )
