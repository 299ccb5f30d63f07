"""An interval that may be looked at at any time.

Looking again and again at an ordinary 95% interval, and stopping when it leaves zero out, is wrong
far more often than one time in twenty. The intervals here hold at all times at once: a normal
mixture over the sum of what the sessions say (Robbins' boundary), with the variance estimated from
them. That is exact for many sessions and close for some dozens, so that nothing is claimed before
there are `FIRST_LOOK` in each arm.

What a session says about the difference of two arms: its value, less the mean of the sessions before
it, weighed by the chance it had to be where it is. The expectation of that is the difference whatever
else is true of the session, because chance alone put it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import inf, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

from .statistics import LEVEL, Interval

FIRST_LOOK = 30  # sessions in each arm, before which the interval is everything
PLANNED = 400  # sessions at which the interval is as narrow as it can be
POWER = 0.8


class Seen(NamedTuple):
    """A session of one of the two arms: which, the chance it had to be there, and its value."""

    treated: bool
    chance: float  # of being treated, among the two arms
    value: float
    owner: str | None = None


class Effect(NamedTuple):
    """The difference, treated less not treated, and the values that go with the data."""

    value: float
    range: Interval
    sessions: int
    owners: int
    deviation: float  # of what one session says: how many are needed follows from it

    @property
    def is_clear(self) -> bool:
        return not self.range.holds(0.0)


class Sums:
    """What all sessions together say, kept up with each new one at a constant cost."""

    def __init__(self, planned: int = PLANNED) -> None:
        self._planned = planned
        self._arms = [0, 0]
        self._values = 0.0
        self._said = 0.0
        self._squares = 0.0
        self._owners: dict[str, tuple[int, float]] = {}
        self._by_owner = [
            0.0,
            0.0,
            0.0,
        ]  # over owners: sums squared, sums by counts, counts squared

    def add(self, seen: Seen) -> None:
        count = sum(self._arms)
        before = self._values / count if count else seen.value
        weight = 1 / seen.chance if seen.treated else -1 / (1 - seen.chance)
        said = (seen.value - before) * weight
        self._arms[seen.treated] += 1
        self._values += seen.value
        self._said += said
        self._squares += said * said
        # Without an owner a session stands for itself.
        self._add_to(seen.owner or f"\0{count}", said)

    def _add_to(self, owner: str, said: float) -> None:
        count, total = self._owners.get(owner, (0, 0.0))
        sums = self._by_owner
        sums[0] += (total + said) ** 2 - total**2
        sums[1] += (total + said) * (count + 1) - total * count
        sums[2] += (count + 1) ** 2 - count**2
        self._owners[owner] = count + 1, total + said

    @property
    def effect(self) -> Effect | None:
        """What is known by now; None while an arm is empty."""
        count = sum(self._arms)
        if not all(self._arms):
            return None
        value = round(self._said / count, 12)  # where all are alike, no dust is left over
        variance = self._variance(count, value)
        half = reach(count, self._planned) * sqrt(variance / count)
        if min(self._arms) < FIRST_LOOK:
            half = inf
        within = Interval(max(-1.0, value - half), min(1.0, value + half))
        return Effect(value, within, count, len(self._owners), sqrt(variance))

    def _variance(self, count: int, value: float) -> float:
        """Of what one session says: the larger one, of sessions by themselves and of owners.

        With a single owner only the first exists, and the result speaks of that owner.
        """
        alone = (self._squares - count * value * value) / (count - 1) if count > 1 else inf
        owners = len(self._owners)
        if owners < 2:
            return max(alone, 0.0)
        squares, products, counts = self._by_owner
        spread = squares - 2 * value * products + value * value * counts
        return max(alone, spread / count * owners / (owners - 1), 0.0)


def effects(sessions: Iterable[Seen], planned: int = PLANNED) -> Iterator[Effect | None]:
    """What is known after each session."""
    sums = Sums(planned)
    for seen in sessions:
        sums.add(seen)
        yield sums.effect


def reach(count: int, planned: int = PLANNED) -> float:
    """How many standard errors the interval reaches to each side after `count` sessions."""
    size = count * _mixture(planned)
    return sqrt((size + 1) / size * 2 * log(sqrt(size + 1) / (1 - LEVEL)))


@lru_cache(maxsize=64)
def _mixture(planned: int) -> float:
    """The mixing variance that makes the interval narrowest at the planned number of sessions."""
    doubt = -2 * log(1 - LEVEL)
    return (doubt + log(doubt + 1)) / planned


def needed(difference: float, deviation: float, planned: int = PLANNED) -> int | None:
    """Sessions in both arms until a difference of that size is seen with a chance of four in five."""
    if not difference or not 0 < deviation < inf:
        return None
    lucky = NormalDist().inv_cdf(POWER)
    low, high = 2 * FIRST_LOOK, 2 * FIRST_LOOK

    def is_enough(count: int) -> bool:
        error = deviation / sqrt(count)
        return abs(difference) >= (reach(count, planned) + lucky) * error

    while not is_enough(high):
        low, high = high, high * 2
        if high > 10_000_000:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low
