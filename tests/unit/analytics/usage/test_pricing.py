"""The price of a model by its name and day: exact names only, and the user's own prices first."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from rekindle.analytics.usage.pricing import PriceList
from rekindle.config.prices import DatedPrice, load_price_table
from rekindle.types import PROMPT_SIZES, Price, Tokens

DAY = date(2026, 3, 1)
OLD, NEW, LONG, OWN = (Price(Decimal(number)) for number in (1, 2, 3, 4))
TABLE = (
    DatedPrice("swift-2", OLD),
    DatedPrice("swift-2", LONG, above=200_000),
    DatedPrice("swift-2", NEW, since=date(2026, 6, 1)),
    DatedPrice("swift-2-mini", OLD),
    DatedPrice("dated-20250101", LONG),
    DatedPrice("dated", OLD),
)
PRICES = PriceList(TABLE)


@pytest.mark.parametrize(
    "name",
    [
        "swift-2",
        "swift-2-20250929",
        "swift-2@20250929",
        "swift-2-2025-04-14",
        "anthropic/swift-2",
        "openrouter/anthropic/swift-2",
        "openrouter/openai/swift-2-20250929",
    ],
)
def test_a_date_at_the_end_and_a_provider_before_it_are_no_part_of_a_name(name: str) -> None:
    assert PRICES.find_price(name, DAY) == OLD


@pytest.mark.parametrize(
    "name",
    ["", "swift", "swift-2.1", "swift-2-max", "Swift-2", "elsewhere/swift-2", "swift-2-2025", "/"],
)
def test_a_similar_name_has_no_price(name: str) -> None:
    assert PRICES.find_price(name, DAY) is None


def test_a_name_with_a_date_of_its_own_goes_before_the_one_without() -> None:
    assert PRICES.find_price("dated-20250101", DAY) == LONG
    assert PRICES.find_price("dated-20250102", DAY) == OLD


def test_the_price_is_that_of_the_day() -> None:
    assert PRICES.find_price("swift-2", date(2026, 5, 31)) == OLD
    assert PRICES.find_price("swift-2", date(2026, 6, 1)) == NEW


def test_the_days_of_changes_are_known() -> None:
    assert PRICES.list_changes() == [date(2026, 6, 1)]


def test_a_long_prompt_has_its_own_price_as_long_as_that_is_valid() -> None:
    assert PRICES.find_price("swift-2", DAY, 100_000) == OLD
    assert PRICES.find_price("swift-2", DAY, 200_000) == LONG
    assert PRICES.find_price("swift-2", DAY, 272_000) == LONG
    assert PRICES.find_price("swift-2", date(2026, 6, 1), 272_000) == NEW


def test_the_users_own_price_goes_first_under_any_form_of_the_name() -> None:
    own = PriceList(TABLE, {"swift-2": OWN, "anthropic/swift-2-mini": OWN, "homemade": OWN})
    assert own.find_price("swift-2-20250929", DAY, 272_000) == OWN
    assert own.find_price("anthropic/swift-2-mini", DAY) == OWN
    assert own.find_price("swift-2-mini", DAY) == OLD
    assert own.find_price("homemade", DAY) == OWN


def test_tokens_that_are_cached_for_an_hour_have_their_own_price() -> None:
    price = PriceList(load_price_table()[1]).find_price("claude-opus-4-5-20251101", DAY)
    assert price is not None
    tokens = Tokens(input=1_000_000, output=1_000_000, cache_read=1_000_000, cache_write=3_000_000)
    assert price.compute_cost(tokens, 2_000_000) == Decimal("5") + 25 + Decimal("0.50") + (
        Decimal("6.25") + 2 * 10
    )


def test_the_shipped_table_names_its_sources_and_is_plausible() -> None:
    sources, table = load_price_table()
    assert all(one.source.startswith("https://") for one in sources)
    assert all(date(2026, 1, 1) < one.checked < date(2030, 1, 1) for one in sources)
    keys = [(one.model, one.since, one.above) for one in table]
    assert len(keys) == len(set(keys)), "every price is there once"
    for model, price, since, above in table:
        assert 0 < price.cache_read <= price.input < price.output, model
        assert price.input <= price.cache_write <= price.cache_write_1h, model
        assert above in PROMPT_SIZES, "no other sizes are kept apart"
        assert not above or any(
            (one.model, one.since, one.above) == (model, since, 0) for one in table
        ), "a short prompt has a price on the same days"
