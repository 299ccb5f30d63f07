"""Search a large table of words from the newest message on, by ranges that the index knows.

Each row of the index `words_keys` has keys of the ranges of ids that it is in, on four levels, and the
same with the number of its project. The server intersects the list of a range with those of words, and
skips what is outside the range, so that a step costs what it finds, however many messages are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rekindle.store.core.engine import Clause, Row, Transaction
from rekindle.store.core.filter import build_in_condition
from rekindle.store.core.search_query import Query

from .keys import PROJECT_BITS, WordIndex
from .project_numbers import UNKNOWN
from .vectors import build_phrase, build_tsquery

RANKED_MATCHES = 500  # newest matches are ranked
MAX_SPREAD_WORDS = 32  # words of a query that may match in different parts of a long message
RANGE_BITS = (11, 15, 19, 23)  # of the ids in a range of each level, as in the index `words_keys`
FIRST_WIDTH = 2_048  # ids of the first step
NARROWING = 8  # of a step that would read too many
WIDENING = 32  # of a step in a project after none was found: its messages are often close together
MAX_CANDIDATES = 2_000  # rows with the words that a step reads, except from the narrowest range
MAX_LONG = 200  # long messages with one of the words that a step looks into
RANKED_CANDIDATES = 2_000  # of which those that meet the filters are ranked, if they are fewer
SAMPLE = 200  # rows with the words that show how common they are
_COLUMNS = "w.id, w.text, w.session, w.time"
_LOOK_UP = "coalesce(w.{0}, (SELECT m.{0} FROM messages m WHERE m.id = w.id))"
HAS_WORDS = "EXISTS (SELECT 1 FROM words o WHERE o.id = w.id AND o.text @@ ?::tsquery)"
# In no part of a long message.
NOT_EXCLUDED = "NOT EXISTS (SELECT 1 FROM words x WHERE x.id = w.id AND x.text @@ ?::tsquery)"


class SearchExtent(NamedTuple):
    """What a search has to go through."""

    last: int  # id
    has_long: bool = False  # messages with several parts
    last_unknown: int = 0  # id of a message without the number of a project
    tenant: int = 0  # its number, if the table has rows of several
    projects: Sequence[int] = ()  # their numbers, if it is limited to some

    @property
    def is_part(self) -> bool:
        """Whether the table has rows that the search does not concern."""
        return bool(self.tenant or self.projects)


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
        index: WordIndex,
        extent: SearchExtent,
    ) -> None:
        self._tx = tx
        self._query = query
        self._clause = clause
        self._newest = newest
        self._index = index
        self._extent = extent
        self._end = extent.last + 1
        self._whole = build_tsquery(query)
        self._groups = [build_tsquery(Query((group,))) for group in query.groups]
        # Words of a long message may be in different parts.
        self._is_spread = extent.has_long and 1 < len(self._groups) <= MAX_SPREAD_WORDS
        self._candidates = 0  # read so far

    def is_common(self, message_count: int) -> bool:
        """Return whether there are probably more candidates than this number of messages."""
        found, low = 0, self._end
        for bits in RANGE_BITS:
            low = _get_low_end(self._end, 4 << bits)
            keys = _list_keys(self._extent, low, self._end, 4 << bits)
            rows = self._index.build_source(self._tx, keys, self._whole)
            found = len(self._tx.run(f"SELECT 1 {rows} LIMIT {SAMPLE}", (self._whole,)))
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
        width = searched * expected // (self._candidates + 1)
        if self._extent.is_part and not self._candidates:
            width = searched * WIDENING
        width = max(FIRST_WIDTH, width)
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
        keys = [-1 - key for key in _list_keys(self._extent, low, high, width)]
        limit = MAX_LONG if width > FIRST_WIDTH else MAX_CANDIDATES
        fewest: list[int] | None = None
        for group in self._groups:
            rows = self._index.build_source(self._tx, keys, group)
            ids = [id for (id,) in self._tx.run(f"SELECT w.id {rows} LIMIT {limit}", (group,))]
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
        keys: Sequence[int] = ()
        if self._extent.is_part or not is_rest:
            keys = _list_keys(self._extent, low, high, 4 << RANGE_BITS[-1] if is_rest else width)
        most = MAX_CANDIDATES if width > FIRST_WIDTH else MAX_CANDIDATES + FIRST_WIDTH
        found = (
            f"SELECT {_COLUMNS} {self._index.build_source(self._tx, keys, self._whole)}"
            f" AND w.id + 0 >= {low} AND w.id + 0 < {high} LIMIT {most}"
        )
        columns = self._build_columns()
        matches, params = f"SELECT {columns} FROM found w", [self._whole]
        if long_ids:
            has_all = " AND ".join([HAS_WORDS] * len(self._groups))
            matches += (
                f" UNION ALL SELECT {columns} FROM words w WHERE w.id >= {low} AND w.id < {high}"
                f" AND {build_in_condition(long_ids, 'w.id')} AND {has_all}"
            )
            params += self._groups
        select, values = self._build_select()
        rows = self._tx.run(
            f"WITH found AS MATERIALIZED ({found}), matches AS MATERIALIZED ({matches})"
            f" ({select} ORDER BY w.id DESC LIMIT {limit})"
            " UNION ALL SELECT count(*), NULL FROM found",
            [*params, *values],
        )
        [candidates] = [count for count, id in rows if id is None]
        return [row for row in rows if row[1] is not None], int(candidates)

    def _build_columns(self) -> str:
        """Build the columns of a match; an older version wrote neither session nor time with its words.

        They are looked up first: with row-level security, a join with a query would use no index.
        """
        columns = ["w.id", "w.text"]
        if self._clause and not self._clause.needs_messages:
            columns.append(f"{_LOOK_UP.format('session')} AS session")
        if self._newest:
            columns.append(f"{_LOOK_UP.format('time')} AS time")
        return ", ".join(columns)

    def _build_select(self) -> tuple[str, list[Any]]:
        """Build the query for (order, id) of the matches that meet the filters."""
        order, params = "ts_rank(w.text, ?::tsquery, 1)", list[Any]([self._whole])
        joins, conditions = "", ["true"]
        if self._newest:
            order, params = "w.time", []
        if self._query.excluded_words:
            conditions.append(NOT_EXCLUDED)
            params.append(" | ".join(map(build_phrase, self._query.excluded_words)))
        if self._clause:
            joins = " JOIN sessions s ON s.num = w.session"
            if self._clause.needs_messages:
                joins = " JOIN messages m ON m.id = w.id JOIN sessions s ON s.num = m.session"
            conditions.append(self._clause.condition)
            params += self._clause.params
        return (
            f"SELECT {order}, w.id FROM matches w{joins} WHERE {' AND '.join(conditions)}",
            params,
        )


def _get_level(width: int) -> int:
    """Return the widest level of which this many ids have four or more ranges."""
    return max(0, sum(4 << bits <= width for bits in RANGE_BITS) - 1)


def _has_next_level(level: int, width: int) -> bool:
    """Return whether ranges of the next level fit into a width."""
    return level + 1 < len(RANGE_BITS) and width >= 1 << RANGE_BITS[level + 1]


def _get_low_end(high: int, width: int) -> int:
    """Return where a range of about this width begins."""
    level = _get_level(width)
    bits = RANGE_BITS[level]
    if _has_next_level(level, width):  # to the nearest of its ranges
        bits = RANGE_BITS[level + 1]
        return (max(0, high - width) + (1 << (bits - 1))) >> bits << bits
    return max(0, high - width) >> bits << bits


def _list_ranges(low: int, high: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield the levels and numbers of few ranges with the ids from one up to another.

    They have at most a quarter more ids above.
    """
    level = _get_level(width)
    if _has_next_level(level, width):
        bits = RANGE_BITS[level + 1]
        stop = high >> bits
        if 4 * (((stop + 1) << bits) - high) <= high - low:
            stop += 1
        yield from ((level + 1, number) for number in range(low >> bits, stop))
        low = max(low, stop << bits)
    if low < high:
        bits = RANGE_BITS[level]
        yield from ((level, number) for number in range(low >> bits, ((high - 1) >> bits) + 1))


def _list_keys(extent: SearchExtent, low: int, high: int, width: int) -> list[int]:
    """List the keys of the rows from one id up to another, and some in the same ranges."""
    keys: list[int] = []
    for level, number in _list_ranges(low, high, width):
        key = number << 2 | level
        if not extent.projects:
            keys.append(extent.tenant << PROJECT_BITS | key)
            continue
        projects = [*extent.projects]
        if number << RANGE_BITS[level] <= extent.last_unknown:
            projects.append(UNKNOWN)
        keys += [(extent.tenant ^ project) << PROJECT_BITS | key for project in projects]
    return keys
