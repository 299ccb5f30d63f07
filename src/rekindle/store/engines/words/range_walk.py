"""Search a large table of words from the newest message on, by ranges that the index knows.

Each row of the index `words_ranges` has keys of the ranges of ids that it is in, on four levels. The
server intersects the list of a range with those of words, and skips what is outside the range, so that
a step costs what it finds, however many messages are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.store.core.engine import Clause, Row, Transaction
from rekindle.store.core.filter import build_in_condition
from rekindle.store.core.search_query import Query

from .vectors import build_phrase, build_tsquery

RANKED_MATCHES = 500  # newest matches are ranked
MAX_SPREAD_WORDS = 32  # words of a query that may match in different parts of a long message
RANGE_BITS = (11, 15, 19, 23)  # of the ids in a range of each level, as in the index `words_ranges`
FIRST_WIDTH = 2_048  # ids of the first step
NARROWING = 8  # of a step that would read too many
MAX_CANDIDATES = 2_000  # rows with the words that a step reads, except from the narrowest range
MAX_LONG = 200  # long messages with one of the words that a step looks into
RANKED_CANDIDATES = 2_000  # of which those that meet the filters are ranked, if they are fewer
SAMPLE = 200  # rows with the words that show how common they are

# The keys of a row in `words_ranges`, written as there.
_KEYS = (
    "(w.id >> 11) << 2, ((w.id >> 15) << 2) | 1, ((w.id >> 19) << 2) | 2, ((w.id >> 23) << 2) | 3"
)
_LONG_KEYS = ", ".join(f"-1 - ({key})" for key in _KEYS.split(", "))
_RANGES = f"(CASE WHEN w.part = 0 THEN ARRAY[{_KEYS}] ELSE ARRAY[{_KEYS}, {_LONG_KEYS}] END)"
HAS_WORDS = "EXISTS (SELECT 1 FROM words o WHERE o.id = w.id AND o.text @@ ?::tsquery)"
# In no part of a long message.
NOT_EXCLUDED = "NOT EXISTS (SELECT 1 FROM words x WHERE x.id = w.id AND x.text @@ ?::tsquery)"


class RangeWalk:
    """A search through a large table from the newest message on, by ranges that the index knows.

    A step reads a limited number of candidates, the rows with the words, from a range as wide as the
    candidates were rare before. The newest matches are ranked, the others follow by age.
    """

    def __init__(
        self,
        tx: Transaction,
        query: Query,
        clause: Clause | None,
        newest: bool,
        last: int,
        has_long: bool,
    ) -> None:
        self._tx = tx
        self._query = query
        self._clause = clause
        self._newest = newest
        self._end = last + 1
        self._whole = build_tsquery(query)
        self._groups = [build_tsquery(Query((group,))) for group in query.groups]
        # Words of a long message may be in different parts.
        self._is_spread = has_long and 1 < len(self._groups) <= MAX_SPREAD_WORDS
        self._candidates = 0  # read so far

    def is_common(self, message_count: int) -> bool:
        """Return whether there are probably more candidates than this number of messages."""
        found, low = 0, self._end
        for bits in RANGE_BITS:
            low = _get_low_end(self._end, 4 << bits)
            ranges = _build_ranges(low, self._end, 4 << bits)
            sql = f"SELECT 1 FROM words w WHERE {ranges} AND w.text @@ ?::tsquery LIMIT {SAMPLE}"
            found = len(self._tx.run(sql, (self._whole,)))
            if found >= SAMPLE // 10 or not low:
                break
        return found / (self._end - low) * self._end > message_count

    def find(self) -> Iterator[int]:
        """Yield the ids of all matches."""
        ranked: list[Row] | None = []
        high = self._end
        while high > 0:
            limit = RANKED_MATCHES - len(ranked or ())
            rows, low = self._read_widest(high, limit)
            high = rows[-1][1] if len(rows) == limit else low
            if ranked is None:
                yield from dict.fromkeys(id for _, id in rows)
                continue
            ranked += rows
            is_enough = bool(ranked) and self._candidates >= RANKED_CANDIDATES
            if is_enough or len(ranked) >= RANKED_MATCHES or high <= 0:
                yield from dict.fromkeys(id for _, id in sorted(ranked, reverse=True))
                ranked = None

    def _read_widest(self, high: int, limit: int) -> tuple[list[Row], int]:
        """Return the newest matches below an id, and the id from which on none is left out."""
        searched = self._end - high
        expected = min(limit * 5 // 4, MAX_CANDIDATES // 2)
        width = max(FIRST_WIDTH, searched * expected // (self._candidates + 1))
        while True:
            low = _get_low_end(high, width)
            long_ids: Sequence[int] | None = ()
            if self._is_spread:
                long_ids = self._find_long(low, high, width)
            if long_ids is not None:
                rows, candidates = self._read_range(low, high, width, long_ids, limit)
                if candidates < MAX_CANDIDATES or width == FIRST_WIDTH:
                    self._candidates += candidates
                    return rows, low
            width = max(FIRST_WIDTH, min(width, high) // NARROWING)

    def _find_long(self, low: int, high: int, width: int) -> Sequence[int] | None:
        """Return long messages in a range that have one group of words, or None if they are many."""
        ranges = _build_ranges(low, high, width, is_long=True)
        limit = MAX_LONG if width > FIRST_WIDTH else MAX_CANDIDATES
        fewest: list[int] | None = None
        for group in self._groups:
            sql = f"SELECT w.id FROM words w WHERE {ranges} AND w.text @@ ?::tsquery LIMIT {limit}"
            ids = [id for (id,) in self._tx.run(sql, (group,))]
            is_all = len(ids) < limit or width == FIRST_WIDTH
            if is_all and (fewest is None or len(ids) < len(fewest)):
                fewest = ids
            if not ids:
                break
        return fewest

    def _read_range(
        self, low: int, high: int, width: int, long_ids: Sequence[int], limit: int
    ) -> tuple[list[Row], int]:
        """Return (order, id) of the newest matches in a range, and the number of candidates."""
        is_rest = not low and self._candidates < MAX_CANDIDATES // 10  # few are read again
        ranges = "true" if is_rest else _build_ranges(low, high, width)
        most = MAX_CANDIDATES if width > FIRST_WIDTH else MAX_CANDIDATES + FIRST_WIDTH
        found = (
            f"SELECT w.id, w.text FROM words w WHERE {ranges} AND w.text @@ ?::tsquery"
            f" AND w.id + 0 >= {low} AND w.id + 0 < {high} LIMIT {most}"
        )
        matches, params = "TABLE found", [self._whole]
        if long_ids:
            has_all = " AND ".join([HAS_WORDS] * len(self._groups))
            matches += (
                f" UNION ALL SELECT w.id, w.text FROM words w WHERE w.id >= {low} AND w.id < {high}"
                f" AND {build_in_condition(long_ids, 'w.id')} AND {has_all}"
            )
            params += self._groups
        select, values = self._build_select()
        rows = self._tx.run(
            f"WITH found AS MATERIALIZED ({found}), matches AS ({matches})"
            f" ({select} ORDER BY w.id DESC LIMIT {limit})"
            " UNION ALL SELECT count(*), NULL FROM found",
            [*params, *values],
        )
        [candidates] = [count for count, id in rows if id is None]
        return [row for row in rows if row[1] is not None], int(candidates)

    def _build_select(self) -> tuple[str, list[Any]]:
        """Build the query for (order, id) of the matches that meet the filters."""
        order, params = "ts_rank(w.text, ?::tsquery, 1)", list[Any]([self._whole])
        joins, conditions = "", ["true"]
        if self._newest:
            order, params = "m.time", []
        if self._clause or self._newest:
            joins = " JOIN messages m ON m.id = w.id"
        if self._query.excluded_words:
            conditions.append(NOT_EXCLUDED)
            params.append(" | ".join(map(build_phrase, self._query.excluded_words)))
        if self._clause:
            joins += " JOIN sessions s ON s.num = m.session"
            conditions.append(self._clause.condition)
            params += self._clause.params
        return (
            f"SELECT {order}, w.id FROM matches w{joins} WHERE {' AND '.join(conditions)}",
            params,
        )


def _get_level(width: int) -> int:
    """Return the widest level of which this many ids have four or more ranges."""
    return max(0, sum(4 << bits <= width for bits in RANGE_BITS) - 1)


def _get_low_end(high: int, width: int) -> int:
    """Return where a range of about this width begins."""
    bits = RANGE_BITS[_get_level(width)]
    return max(0, high - width) >> bits << bits


def _build_ranges(low: int, high: int, width: int, *, is_long: bool = False) -> str:
    """Build the condition for the rows from one id up to another, and those in the same ranges."""
    level = _get_level(width)
    bits = RANGE_BITS[level]
    keys = [key << 2 | level for key in range(low >> bits, ((high - 1) >> bits) + 1)]
    listed = ", ".join([str(-1 - key if is_long else key) for key in keys])
    return f"{_RANGES} && '{{{listed}}}'::bigint[]"
