"""Usage by day, week, month and key: periods, order, cost, and what has no price."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from rekindle.analytics.usage.pricing import PriceList
from rekindle.analytics.usage.report import (
    UsageRow,
    UsageTotal,
    build_report,
    fill_gaps,
    find_next,
    find_start,
    parse_since,
    to_date,
)
from rekindle.config.prices import DatedPrice
from rekindle.errors import InvalidInput
from rekindle.types import Price, Tokens, UsageSum

MILLION = 1_000_000
PRICES = PriceList([DatedPrice("small", Price(Decimal(1), Decimal(2)))])
TODAY = date(2026, 11, 17)  # a Tuesday


def used(
    day: date, model: str = "small", *, key: str = "", tokens: int = MILLION, cost: str = "0"
) -> UsageSum:
    return UsageSum(
        day=(day - date(1970, 1, 1)).days,
        key=key,
        model=model,
        above=0,
        is_reported=cost != "0",
        tokens=Tokens(input=tokens),
        cache_write_1h=0,
        cost=Decimal(cost),
    )


def test_days_weeks_and_months_are_added_up_in_order() -> None:
    days = [date(2026, 11, 2), date(2026, 11, 1), date(2026, 10, 31), date(2026, 11, 2)]
    sums = [used(day) for day in days]
    starts = {
        period: [
            (row.start, row.total.tokens.input) for row in build_report(sums, PRICES, period).rows
        ]
        for period in ("day", "week", "month")
    }
    assert starts == {
        "day": [(days[2], MILLION), (days[1], MILLION), (days[0], 2 * MILLION)],
        "week": [(date(2026, 10, 26), 2 * MILLION), (date(2026, 11, 2), 2 * MILLION)],
        "month": [(date(2026, 10, 1), MILLION), (date(2026, 11, 1), 3 * MILLION)],
    }


def test_keys_come_by_cost_within_each_period() -> None:
    first, second = date(2026, 11, 1), date(2026, 11, 2)
    sums = [
        used(second, key="cheap"),
        used(first, key="cheap"),
        used(first, key="dear", tokens=3 * MILLION),
    ]
    report = build_report(sums, PRICES, "day", is_keyed=True)
    assert [(row.start, row.key) for row in report.rows] == [
        (first, "dear"), (first, "cheap"), (second, "cheap"),
    ]  # fmt: skip
    assert [row.key for row in build_report(sums, PRICES, None, is_keyed=True).rows] == [
        "dear", "cheap",
    ]  # fmt: skip


def test_the_cost_of_an_agent_goes_before_that_of_the_prices() -> None:
    report = build_report([used(TODAY, cost="0.30"), used(TODAY)], PRICES, "day")
    assert report.total.cost == Decimal("1.30")
    assert report.total.reported_cost == Decimal("0.30")
    assert report.unpriced == {}


def test_a_model_without_a_price_is_listed_and_costs_nothing() -> None:
    report = build_report([used(TODAY, "homemade", tokens=5), used(TODAY)], PRICES, "day")
    assert report.total.cost == 1
    assert report.total.unpriced == Tokens(input=5)
    assert report.unpriced == {"homemade": Tokens(input=5)}


def test_a_key_without_usage_is_not_listed() -> None:
    report = build_report([used(TODAY, key="fork", tokens=0)], PRICES, None, is_keyed=True)
    assert (report.rows, report.total) == ([], UsageTotal())


def test_a_tenth_of_a_cent_is_added_exactly() -> None:
    sums = [used(TODAY, tokens=100, cost="0") for _ in range(1_000)]
    assert build_report(sums, PRICES, "day").total.cost == Decimal("0.1")


def test_periods_without_usage_are_filled_in() -> None:
    rows = [UsageRow(date(2026, 1, 1), "", UsageTotal(cost=Decimal(1)))]
    rows.append(rows[0]._replace(start=date(2026, 4, 1)))
    starts = [row.start for row in fill_gaps(rows, "month")]
    assert starts == [date(2026, month, 1) for month in (1, 2, 3, 4)]
    assert [*fill_gaps([], "day")] == []
    far = [rows[0], rows[0]._replace(start=date.max)]
    assert [*fill_gaps(far, "day")] == far, "a year of empty lines says nothing"


def test_a_week_begins_on_monday_and_the_calendar_has_an_end() -> None:
    assert find_start(TODAY, "week") == date(2026, 11, 16)
    assert find_start(date(2026, 11, 16), "week") == date(2026, 11, 16)
    assert find_next(date(2026, 12, 1), "month") == date(2027, 1, 1)
    assert find_next(date.max, "day") is None
    assert (to_date(-(10**9)), to_date(10**9)) == (date.min, date.max)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("2026-10-31", date(2026, 10, 31)),
        ("2026-10", date(2026, 10, 1)),
        ("today", TODAY),
        ("yesterday", date(2026, 11, 16)),
        ("1d", TODAY),
        ("7d", date(2026, 11, 11)),
        ("2w", date(2026, 11, 4)),
        ("99999y", date.min),
        ("all", None),
        (None, date(2026, 10, 19)),
    ],
)
def test_the_first_day_is_a_date_an_age_or_a_word(text: str | None, first: date | None) -> None:
    assert parse_since(text, TODAY, "day") == first


def test_a_period_is_counted_from_its_first_day() -> None:
    assert parse_since("8d", TODAY, "week") == date(2026, 11, 9)
    assert parse_since(None, TODAY, "week") == date(2026, 8, 24)
    assert parse_since(None, TODAY, "month") == date(2025, 11, 1)
    assert parse_since("2026-11-12", TODAY, "week") == date(2026, 11, 12), "as it was said"


@pytest.mark.parametrize("text", ["", "soon", "7", "d7", "-7d", "2026-13-01", "2026-1-1", "7d "])
def test_anything_else_is_refused_with_what_is_possible(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"since: expected a date such as .*, 7d,"):
        parse_since(text, TODAY, "day")
