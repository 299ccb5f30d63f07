"""What turns used, as exactly as it is known: usage is stored by quarter of an hour.

Turns that share a quarter have one sum together; nothing is divided by guessing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import NamedTuple

from rekindle.analytics.usage.pricing import PriceList
from rekindle.types import QUARTER_SECONDS, UsageEntry

from .outline import PromptMark

_EPOCH = date(1970, 1, 1).toordinal()
_QUARTERS_PER_DAY = 86_400 // QUARTER_SECONDS


class TurnUsage(NamedTuple):
    """What some consecutive turns used: numbers of the first and the last prompt, tokens and cost."""

    first: int
    last: int
    tokens: int
    output: int
    cost: Decimal


def sum_turns(
    prompts: Sequence[PromptMark], entries: Sequence[UsageEntry], prices: PriceList
) -> Iterator[TurnUsage]:
    """Yield the usage of turns, in order; turns without known times or usage are left out."""
    groups = _group_turns(prompts)
    index = 0
    sums: dict[int, TurnUsage] = {}
    for entry in sorted(entries):
        while index < len(groups) - 1 and groups[index].end < entry.quarter:
            index += 1
        if not groups or not groups[index].start <= entry.quarter <= groups[index].end:
            continue
        group = groups[index]
        before = sums.get(index) or TurnUsage(group.first, group.last, 0, 0, Decimal(0))
        sums[index] = before._replace(
            tokens=before.tokens + sum(entry.tokens),
            output=before.output + entry.tokens.output,
            cost=before.cost + compute_cost(entry, prices),
        )
    yield from (sums[index] for index in sorted(sums))


class _TurnGroup(NamedTuple):
    first: int
    last: int
    start: int  # quarters
    end: int


def _group_turns(prompts: Sequence[PromptMark]) -> list[_TurnGroup]:
    """Group turns that share a quarter of an hour."""
    groups: list[_TurnGroup] = []
    for number, prompt in enumerate(prompts, 1):
        if prompt.time is None:
            continue
        start = int(prompt.time) // QUARTER_SECONDS
        end = max(start, int(prompt.end or prompt.time) // QUARTER_SECONDS)
        if groups and start <= groups[-1].end:
            last = groups[-1]
            groups[-1] = last._replace(last=number, end=max(end, last.end))
        else:
            groups.append(_TurnGroup(number, number, start, end))
    return groups


def compute_cost(entry: UsageEntry, prices: PriceList) -> Decimal:
    """Return the cost of an entry: the one that the agent reports, or else that of the price list."""
    if entry.cost:
        return entry.cost
    day = date.fromordinal(_EPOCH + entry.quarter // _QUARTERS_PER_DAY)
    price = prices.find_price(entry.model, day, entry.above)
    return price.compute_cost(entry.tokens, entry.cache_write_1h) if price else Decimal(0)
