"""When sessions used their tokens: entries of a quarter of an hour, and their sums over local days.

A session's entries hold what it used itself; a fork's total may include what its parent used. A
session without entries counts as a whole on the day it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.filter import PROJECT_KEY, Filter, build_like, iter_in_clauses
from rekindle.store.core.rows import NANO, USAGE_COLUMNS, usage_to_row
from rekindle.store.core.tables import USAGE_ENTRIES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import (
    QUARTER_SECONDS,
    Session,
    Tokens,
    Usage,
    UsageEntry,
    UsageSum,
    replace_fields,
)

UsageKey: TypeAlias = Literal["project", "model", "agent", "session"]

_QUARTERS_PER_WEEK = 7 * 86_400 // QUARTER_SECONDS
_COUNTS = (*USAGE_COLUMNS, "cache_write_1h")
_KEY = "session, quarter, model, above"
_INSERT = f"{USAGE_ENTRIES.build_insert()} ON CONFLICT ({_KEY}) DO UPDATE SET "
_ADD = _INSERT + ", ".join(f"{n} = usage_entries.{n} + excluded.{n}" for n in _COUNTS)
# A file that is read again, or in part before, must not count twice.
_RAISE = _INSERT + ", ".join(
    f"{n} = CASE WHEN excluded.{n} > usage_entries.{n} THEN excluded.{n} ELSE usage_entries.{n} END"
    for n in _COUNTS
)
_SELECT = f"quarter, model, above, {', '.join(_COUNTS)}"
_HAS_NONE = "NOT EXISTS (SELECT 1 FROM usage_entries e WHERE e.session = s.num)"
# Every session's own numbers as entries, from the three places that hold them.
_SOURCES = (
    f"SELECT session, {_SELECT} FROM usage_entries",
    f"SELECT u.session, CAST(s.started AS BIGINT) / {QUARTER_SECONDS} AS quarter, u.model,"
    f" 0 AS above, {', '.join(f'u.{n}' for n in USAGE_COLUMNS)}, 0 AS cache_write_1h"
    f" FROM usage u JOIN sessions s ON s.num = u.session WHERE {_HAS_NONE}",
    f"SELECT s.num AS session, CAST(s.started AS BIGINT) / {QUARTER_SECONDS} AS quarter,"
    " coalesce(s.model, '') AS model, 0 AS above, "
    + ", ".join(
        f"s.{n} - coalesce((SELECT sum(u.{n}) FROM usage u WHERE u.session = s.num), 0) AS {n}"
        for n in USAGE_COLUMNS
    )
    + f", 0 AS cache_write_1h FROM sessions s WHERE {_HAS_NONE}"
    f" AND {' + '.join(f's.{n}' for n in USAGE_COLUMNS)} > 0",
)
_KEY_COLUMNS: Mapping[UsageKey | None, str] = {
    None: "''",
    "project": f"coalesce({PROJECT_KEY}, '')",
    "model": "x.model",
    "agent": "s.source",
    "session": "s.id",
}


class ZoneOffset(NamedTuple):
    """The distance of local time from UTC in seconds, valid from a quarter of an hour on."""

    quarter: int
    seconds: int


def add_entry(tx: Transaction, num: int, entry: UsageEntry) -> None:
    """Add what a model has just used to the entries of a session."""
    tx.run(_ADD, _to_row(num, entry))


def make_entries(session: Session, known: Mapping[str, Usage]) -> list[UsageEntry]:
    """Make entries of what a session's models used at unknown times: at its start."""
    quarter = max(0, int(session.started)) // QUARTER_SECONDS
    return [UsageEntry(quarter, model, used.tokens, used.cost) for model, used in known.items()]


def raise_entries(tx: Transaction, num: int, entries: Iterable[UsageEntry]) -> None:
    """Raise the entries of a session to those that its file has."""
    tx.run_many(_RAISE, [_to_row(num, entry) for entry in entries])


def load_entries(tx: Transaction, num: int) -> list[UsageEntry]:
    """Load the entries of a session in order."""
    rows = tx.run(f"SELECT {_SELECT} FROM usage_entries WHERE session = ? ORDER BY {_KEY}", (num,))
    return [_to_entry(row) for row in rows]


def sum_by_session(
    tx: Transaction, ids: Sequence[str], offsets: Sequence[ZoneOffset]
) -> Iterator[UsageSum]:
    """Yield the sums of these sessions; the key is the session's id."""
    for placeholders, batch in iter_in_clauses([escape_text(id) for id in ids]):
        where = f"s.id IN ({placeholders})"
        yield from _sum_entries(tx, "session", offsets, where, batch)


def count_active_quarters(tx: Transaction, ids: Sequence[str]) -> dict[str, int]:
    """Return in how many quarters of an hour each of these sessions used a model, by id."""
    found: dict[str, int] = {}
    for placeholders, batch in iter_in_clauses([escape_text(id) for id in ids]):
        rows = tx.run(
            "SELECT s.id, count(DISTINCT e.quarter) FROM sessions s JOIN usage_entries e"
            f" ON e.session = s.num WHERE s.id IN ({placeholders}) GROUP BY s.id",
            batch,
        )
        found |= {unescape_text(id): count for id, count in rows}
    return found


def sum_by_day(
    tx: Transaction,
    by: UsageKey | None,
    offsets: Sequence[ZoneOffset],
    *,
    where: Filter,
    now: float,
    since: float | None = None,
    until: float | None = None,
    days: Sequence[int] | None = None,
) -> list[UsageSum]:
    """Return the sums of all sessions that match a filter, by local day, model and key.

    A model in the filter is the one that used the tokens, not the one of the session. With `days`,
    all days from one of these to the next are added up.
    """
    condition, params = replace_fields(where, model=None, model_part=None).to_sql(now)
    conditions = [condition]
    for operator, bound in ((">=", since), ("<", until)):
        if bound is not None:
            conditions.append(f"x.quarter {operator} ?")
            params.append(int(bound) // QUARTER_SECONDS)
    if where.model is not None:
        conditions.append("x.model = ?")
        params.append(escape_text(where.model))
    if where.model_part is not None:
        conditions.append("lower(x.model) LIKE lower(?) ESCAPE '!'")
        params.append(build_like(where.model_part))
    return [*_sum_entries(tx, by, offsets, " AND ".join(conditions), params, days)]


def find_first_quarter(tx: Transaction, ids: Sequence[str] | None = None) -> int | None:
    """Return the first quarter of an hour that may have an entry, of all sessions or of these."""
    if ids is None:
        firsts = [
            (
                tx.run("SELECT min(started) FROM sessions WHERE pruned IS NULL")[0][0],
                tx.run("SELECT min(quarter) FROM usage_entries")[0][0],
            )
        ]
    else:
        firsts = [
            tx.run(
                "SELECT min(s.started), min(e.quarter) FROM sessions s"
                " LEFT JOIN usage_entries e ON e.session = s.num"
                f" WHERE s.id IN ({placeholders})",
                batch,
            )[0]
            for placeholders, batch in iter_in_clauses([escape_text(id) for id in ids])
        ]
    found = [started and int(started) // QUARTER_SECONDS for started, _ in firsts]
    found += [quarter for _, quarter in firsts]
    return min((int(one) for one in found if one is not None), default=None)


def find_offsets(first: int, last: int, get_offset: Callable[[float], int]) -> list[ZoneOffset]:
    """Find the distances of local time from UTC between two quarters of an hour.

    `get_offset` returns the distance at a time. A change that is undone within a week is not found.
    """
    offsets = [ZoneOffset(first, get_offset(first * QUARTER_SECONDS))]
    for start in range(first, last + 1, _QUARTERS_PER_WEEK):
        low, high = start, min(start + _QUARTERS_PER_WEEK, last + 1)
        if get_offset(high * QUARTER_SECONDS) == offsets[-1].seconds:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            is_before = get_offset(middle * QUARTER_SECONDS) == offsets[-1].seconds
            low, high = (middle, high) if is_before else (low, middle)
        offsets.append(ZoneOffset(high, get_offset(high * QUARTER_SECONDS)))
    return offsets


def _sum_entries(
    tx: Transaction,
    by: UsageKey | None,
    offsets: Sequence[ZoneOffset],
    where: str,
    params: Sequence[Any],
    days: Sequence[int] | None = None,
) -> Iterator[UsageSum]:
    day = f"(x.quarter * {QUARTER_SECONDS} + {_build_offset(offsets)}) / 86400"
    day = day if days is None else _build_first_day(days, offsets)
    sums = ", ".join(f"sum(x.{n})" for n in _COUNTS)
    for source in _SOURCES:
        rows = tx.run(
            f"SELECT {day}, {_KEY_COLUMNS[by]}, x.model, x.above,"
            f" CASE WHEN x.cost_nano > 0 THEN 1 ELSE 0 END, {sums}"
            f" FROM ({source}) x JOIN sessions s ON s.num = x.session WHERE {where}"
            " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
            params,
        )
        yield from map(_to_sum, rows)


def _build_offset(offsets: Sequence[ZoneOffset]) -> str:
    """Build the SQL of the distance from UTC at a quarter of an hour, newest first."""
    if not offsets:
        return "0"
    first, *changes = offsets
    cases = [f"WHEN x.quarter >= {int(at)} THEN {int(gap)}" for at, gap in reversed(changes)]
    return f"CASE {' '.join(cases)} ELSE {int(first.seconds)} END" if cases else f"{first.seconds}"


def _build_first_day(days: Sequence[int], offsets: Sequence[ZoneOffset]) -> str:
    """Build the SQL of the last of these days that an entry is not before, or 0."""
    cases: list[str] = []
    for day in sorted(days, reverse=True):
        past = [gap for at, gap in offsets if at * QUARTER_SECONDS <= day * 86_400]
        gap = past[-1] if past else offsets[0].seconds
        start = (day * 86_400 - gap) // QUARTER_SECONDS
        cases.append(f"WHEN x.quarter >= {int(start)} THEN {int(day)}")
    return f"CASE {' '.join(cases)} ELSE 0 END" if cases else "0"


def _to_row(num: int, entry: UsageEntry) -> Row:
    counts = (*usage_to_row(entry.tokens, entry.cost), entry.cache_write_1h)
    return (num, entry.quarter, escape_text(entry.model), entry.above, *counts)


def _to_entry(row: Row) -> UsageEntry:
    quarter, model, above, *tokens, cost, hourly = row
    name = unescape_text(model)
    return UsageEntry(quarter, name, Tokens(*tokens), Decimal(cost) / NANO, hourly, above)


def _to_sum(row: Row) -> UsageSum:
    day, key, model, above, reported, *counts = row
    *tokens, cost, hourly = map(int, counts)  # not every engine returns sums as int
    return UsageSum(
        day=int(day),
        key=unescape_text(key),
        model=unescape_text(model),
        above=above,
        is_reported=bool(reported),
        tokens=Tokens(*tokens),
        cache_write_1h=hourly,
        cost=Decimal(cost) / NANO,
    )
