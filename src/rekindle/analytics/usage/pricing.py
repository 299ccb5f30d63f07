"""The price of a model on a day, by its name.

A name is looked up as it is, then without a date at its end, then without a provider before it. A
similar name is never taken: a model that is not found has no price.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from rekindle.config.prices import DatedPrice
from rekindle.types import Price

_DATE = re.compile(r"[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2})$")
# Providers and routers whose prices are those of the model.
_PREFIXES = frozenset(
    {"anthropic", "openai", "google", "gemini", "openrouter", "vertex_ai", "models", "opencode"}
)


class PriceList:
    """Prices of models by name, day and size of the prompt."""

    def __init__(self, table: Iterable[DatedPrice], own: Mapping[str, Price] | None = None) -> None:
        self._own = own or {}
        self._found: dict[tuple[str, date, int], Price | None] = {}
        self._table: dict[str, list[DatedPrice]] = {}
        for entry in table:
            self._table.setdefault(entry.model, []).append(entry)
        for entries in self._table.values():
            entries.sort(key=lambda entry: (entry.since, entry.above), reverse=True)

    def find_price(self, model: str, day: date, above: int = 0) -> Price | None:
        """Return the price of a model on a day, or None if it is unknown.

        `above` is a number of tokens that the prompt exceeds. The user's own prices go first.
        """
        key = model, day, above
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        return self._found[key]

    def list_changes(self) -> list[date]:
        """Return the days on which a price of the table changed."""
        days = {entry.since for entries in self._table.values() for entry in entries}
        return sorted(days - {date.min})

    def _look_up(self, model: str, day: date, above: int) -> Price | None:
        names = [*_iter_names(model)]
        for name in names:
            if name in self._own:
                return self._own[name]
        for name in names:
            entries = [entry for entry in self._table.get(name, ()) if entry.since <= day]
            newest = entries[0].since if entries else None
            for entry in entries:
                if entry.since == newest and entry.above <= above:
                    return entry.price
        return None


def _iter_names(model: str) -> Iterator[str]:
    name = model
    while True:
        yield name
        if (undated := _DATE.sub("", name)) != name:
            yield undated
        prefix, slash, rest = name.partition("/")
        if not slash or prefix not in _PREFIXES:
            return
        name = rest
