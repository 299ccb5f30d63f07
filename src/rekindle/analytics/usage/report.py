"""Add up usage by day, week or month and by a key, with its cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

from rekindle.errors import InvalidInput
from rekindle.types import Tokens, UsageSum

from .pricing import PriceList

Period: TypeAlias = Literal["day", "week", "month"]

_MAX_GAP = 31  # periods
_EPOCH = date(1970, 1, 1).toordinal()
_AGE = re.compile(r"(\d{1,5})([dwmy])")
_UNIT_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}
_DEFAULT_DAYS: dict[Period | None, int] = {None: 30, "day": 30, "week": 84, "month": 365}


class UsageTotal(NamedTuple):
    """Tokens and their cost in dollars. `unpriced` tokens are of models without a known price."""

    tokens: Tokens = Tokens()
    cache_write_1h: int = 0
    cost: Decimal = Decimal(0)
    reported_cost: Decimal = Decimal(0)  # the part that agents report themselves
    unpriced: Tokens = Tokens()


class UsageRow(NamedTuple):
    """The total of a period, of a key, or of both."""

    start: date | None
    key: str
    total: UsageTotal


class UsageReport(NamedTuple):
    """Rows in order, their total, and the tokens of each model without a known price."""

    rows: list[UsageRow]
    total: UsageTotal
    unpriced: dict[str, Tokens]


def build_report(
    sums: Iterable[UsageSum], prices: PriceList, period: Period | None, *, is_keyed: bool = False
) -> UsageReport:
    """Add up sums by period, by key, or by both: periods in order, keys by descending cost."""
    groups: dict[tuple[date | None, str], list[UsageSum]] = {}
    starts: dict[int, date | None] = {}
    for one in sums:
        if not (any(one.tokens) or one.cost):
            continue  # a fork that did nothing yet
        if one.day not in starts:
            starts[one.day] = find_start(to_date(one.day), period) if period else None
        group = starts[one.day], one.key if is_keyed else ""
        groups.setdefault(group, []).append(one)
    unpriced: dict[str, Tokens] = {}
    rows: list[UsageRow] = []
    for (start, key), members in groups.items():
        totals = [compute_total(one, prices) for one in members]
        rows.append(UsageRow(start, key, _add_totals(totals)))
        for one, priced in zip(members, totals, strict=True):
            if any(priced.unpriced):
                unpriced[one.model] = unpriced.get(one.model, Tokens()).add(priced.unpriced)
    rows.sort(key=_get_order)
    total = _add_totals([row.total for row in rows])
    return UsageReport(rows, total, dict(sorted(unpriced.items())))


def compute_total(one: UsageSum, prices: PriceList) -> UsageTotal:
    """Return the total of a sum: with the agent's cost, or else by the price list."""
    tokens, hourly = one.tokens, one.cache_write_1h
    if one.is_reported:
        return UsageTotal(tokens, hourly, one.cost, one.cost)
    price = prices.find_price(one.model, to_date(one.day), one.above)
    if price is None:
        return UsageTotal(tokens, hourly, unpriced=tokens)
    return UsageTotal(tokens, hourly, price.compute_cost(tokens, hourly))


def _add_totals(totals: list[UsageTotal]) -> UsageTotal:
    if len(totals) == 1:
        return totals[0]
    return UsageTotal(
        tokens=_add_tokens([one.tokens for one in totals]),
        cache_write_1h=sum(one.cache_write_1h for one in totals),
        cost=sum((one.cost for one in totals), Decimal(0)),
        reported_cost=sum((one.reported_cost for one in totals), Decimal(0)),
        unpriced=_add_tokens([one.unpriced for one in totals]),
    )


def _add_tokens(counts: list[Tokens]) -> Tokens:
    return Tokens(*map(sum, zip(*counts, strict=True))) if counts else Tokens()


def compute_totals_by_key(sums: Iterable[UsageSum], prices: PriceList) -> dict[str, UsageTotal]:
    """Return the total of each key."""
    rows = build_report(sums, prices, None, is_keyed=True).rows
    return {row.key: row.total for row in rows}


def fill_gaps(rows: list[UsageRow], period: Period) -> Iterator[UsageRow]:
    """Yield the rows, and empty ones for periods without usage between them, unless they are many."""
    expected: date | None = None
    for row in rows:
        gap: list[UsageRow] = []
        while expected and row.start and expected < row.start and len(gap) <= _MAX_GAP:
            gap.append(UsageRow(expected, "", UsageTotal()))
            expected = find_next(expected, period)
        yield from gap if len(gap) <= _MAX_GAP else ()
        yield row
        expected = find_next(row.start, period) if row.start else None


def find_start(day: date, period: Period) -> date:
    """Return the first day of the period that a day is in; weeks begin on Monday."""
    if period == "week":
        return date.fromordinal(max(1, day.toordinal() - day.weekday()))
    return day.replace(day=1) if period == "month" else day


def find_next(start: date, period: Period) -> date | None:
    """Return the first day of the next period, or None at the end of the calendar."""
    days = {"day": 1, "week": 7, "month": 32}[period]
    try:
        return find_start(start + timedelta(days=days), period)
    except OverflowError:
        return None


def to_day(day: date) -> int:
    """Return the number of a day since 1970."""
    return day.toordinal() - _EPOCH


def to_date(day: int) -> date:
    """Return the date of a day since 1970, within what the calendar can hold."""
    return date.fromordinal(min(max(_EPOCH + day, 1), date.max.toordinal()))


def parse_since(text: str | None, today: date, period: Period | None) -> date | None:
    """Parse the first day to count: a date, `7d`, `4w`, `3m`, `1y`, today, yesterday or all.

    The default depends on the period. A period is counted from its first day. None means all.
    """
    words = {"today": 0, "yesterday": 1}
    if text == "all":
        return None
    if text is None:
        first = today - timedelta(days=_DEFAULT_DAYS[period] - 1)
    elif text in words:
        first = today - timedelta(days=words[text])
    elif match := _AGE.fullmatch(text):
        days = int(match[1]) * _UNIT_DAYS[match[2]]
        first = date.fromordinal(max(1, today.toordinal() - days + 1))
    else:
        try:
            first = date.fromisoformat(f"{text}-01" if len(text) == 7 else text)
        except ValueError:
            raise InvalidInput(
                f"since: expected a date such as 2026-01-31, 7d, 4w, 3m, 1y, today, yesterday or all,"
                f" got {text!r:.40}"
            ) from None
        return first
    return find_start(first, period) if period else first


def _get_order(row: UsageRow) -> tuple[date, Decimal, int, str]:
    used = row.total
    return row.start or date.min, -used.cost, -sum(used.tokens[:4]), row.key
