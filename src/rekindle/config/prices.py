"""The price table that is shipped with Rekindle: published prices of models, each with its date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rekindle.types import Price

from .load import make_price
from .schema import PriceTable

_FILE = Path(__file__).with_name("prices.toml")


class PriceSource(NamedTuple):
    """Where the prices of a provider come from, and when they were last compared with it."""

    provider: str
    source: str
    checked: date


class DatedPrice(NamedTuple):
    """The price of a model since a day, for prompts of more than `above` tokens."""

    model: str
    price: Price
    since: date = date.min
    above: int = 0


@cache
def load_price_table() -> tuple[tuple[PriceSource, ...], tuple[DatedPrice, ...]]:
    """Load the sources and the prices of the shipped table."""
    import tomllib

    providers: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    sources = [PriceSource(name, one["source"], one["checked"]) for name, one in providers.items()]
    entries = [entry for one in providers.values() for entry in one["prices"]]
    return tuple(sources), tuple(price for entry in entries for price in _read_entry(entry))


def _read_entry(entry: Mapping[str, Any]) -> Iterator[DatedPrice]:
    names = [field.name for field in fields(PriceTable) if field.name in entry]
    price = make_price({name: Decimal(entry[name]) for name in names})
    for model in entry["models"]:
        yield DatedPrice(model, price, entry.get("since", date.min), entry.get("above", 0))
