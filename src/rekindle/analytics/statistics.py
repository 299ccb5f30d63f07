"""Intervals and tests for shares of calls, in plain Python.

Everything here speaks of independent trials; `clusters.py` is for calls that come in sessions. All
intervals are two-sided, at the level of 95%.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

LEVEL = 0.95
_TINY, _STEPS = 1e-300, 500
_MANY = 30  # degrees of freedom, from which on the expansion is right to five places
_SAME = 1 + 1e-7  # two tables as likely as each other, whatever the rounding


class Interval(NamedTuple):
    """The values that go with the data."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


Z = NormalDist().inv_cdf((1 + LEVEL) / 2)


# ── Student's t, for few clusters


@lru_cache(maxsize=4096)
def t_quantile(freedom: float) -> float:
    """How many standard errors an interval reaches to each side; `freedom` need not be whole."""
    if freedom >= _MANY:
        return _nearly_normal(freedom)
    low, high = 0.0, 2.0
    while t_tail(high, freedom) > 1 - LEVEL:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if t_tail(middle, freedom) > 1 - LEVEL:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _nearly_normal(freedom: float) -> float:
    """The quantile by its expansion around the normal one (Fisher and Cornish's)."""
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / freedom + second / freedom**2 + third / freedom**3


def t_tail(t: float, freedom: float) -> float:
    """The chance of a value at least as far from zero as `t`, to either side."""
    if freedom == inf:
        return 2 * (1 - NormalDist().cdf(abs(t)))
    return _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + part * d)
            c = _not_zero(1 + part / c)
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# ── one share


def wilson(errors: float, calls: float, reach: float = Z) -> Interval:
    """Wilson's interval for a share. The counts may be effective ones, which need not be whole."""
    if calls <= 0:
        return Interval(0.0, 1.0)
    share, spread = errors / calls, reach * reach / calls
    middle = (share + spread / 2) / (1 + spread)
    half = reach * sqrt(max(0.0, share * (1 - share)) / calls + spread / (4 * calls)) / (1 + spread)
    low = 0.0 if errors <= 0 else max(0.0, middle - half)
    high = 1.0 if errors >= calls else min(1.0, middle + half)
    return Interval(low, high)


# ── two shares


def combined(
    a: float, a_range: Interval, b: float, b_range: Interval, factor: float = 1.0
) -> Interval:
    """The interval of `a - factor * b`, from the intervals of two independent estimates.

    Newcombe's way (for shares) and that of Zou and Donner (for any linear combination): it keeps
    the lopsided shape that intervals of small shares have, and works where a count is zero.
    """
    value = a - factor * b
    below = sqrt((a - a_range.low) ** 2 + (factor * (b_range.high - b)) ** 2)
    above = sqrt((a_range.high - a) ** 2 + (factor * (b - b_range.low)) ** 2)
    return Interval(value - below, value + above)


def newcombe(a_errors: int, a_calls: int, b_errors: int, b_calls: int) -> Interval:
    """Newcombe's interval for the difference of two independent shares, a - b."""
    if not a_calls or not b_calls:
        return Interval(-1.0, 1.0)
    return combined(
        a_errors / a_calls, wilson(a_errors, a_calls), b_errors / b_calls, wilson(b_errors, b_calls)
    )


def fisher(a_errors: int, a_calls: int, b_errors: int, b_calls: int) -> float:
    """Fisher's exact test: how likely are tables no likelier than this one, if the shares are one?"""
    errors, calls = a_errors + b_errors, a_calls + b_calls
    whole = _log_choose(calls, errors)

    def weight(k: int) -> float:
        return _log_choose(a_calls, k) + _log_choose(b_calls, errors - k) - whole

    seen = weight(a_errors) + log(_SAME)
    possible = range(max(0, errors - b_calls), min(a_calls, errors) + 1)
    return min(1.0, sum(exp(each) for each in map(weight, possible) if each <= seen))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
