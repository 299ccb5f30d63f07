"""Confidence intervals and tests for proportions of calls, in plain Python.

Everything here assumes independent trials; `clusters.py` is for calls that come in sessions. All
intervals are two-sided, at the 95% level.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE_LEVEL = 0.95
_TINY, _MAX_ITERATIONS = 1e-300, 500
_MIN_EXPANSION_FREEDOM = 30  # degrees of freedom at which the expansion is exact to five places
_TIE_FACTOR = 1 + 1e-7  # tables this close in probability count as equally likely


class Interval(NamedTuple):
    """A range of values that are compatible with the data."""

    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Return whether the value lies in the interval."""
        return self.low <= value <= self.high


Z = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2)


# ── Student's t, for few clusters


@lru_cache(maxsize=4096)
def compute_t_quantile(freedom: float) -> float:
    """Return how many standard errors an interval extends; `freedom` need not be whole."""
    if freedom >= _MIN_EXPANSION_FREEDOM:
        return _expand_t_quantile(freedom)
    low, high = 0.0, 2.0
    while compute_t_p_value(high, freedom) > 1 - CONFIDENCE_LEVEL:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if compute_t_p_value(middle, freedom) > 1 - CONFIDENCE_LEVEL:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _expand_t_quantile(freedom: float) -> float:
    """Compute the quantile by the Cornish-Fisher expansion around the normal one."""
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / freedom + second / freedom**2 + third / freedom**3


def compute_t_p_value(t: float, freedom: float) -> float:
    """Return the two-sided p-value of `t`."""
    if freedom == inf:
        return 2 * (1 - NormalDist().cdf(abs(t)))
    return _compute_incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _compute_incomplete_beta(x: float, a: float, b: float) -> float:
    """Compute the regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _evaluate_beta_fraction(x, a, b) / a
    return 1 - front * _evaluate_beta_fraction(1 - x, b, a) / b


def _evaluate_beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1 / _avoid_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_ITERATIONS):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _avoid_zero(1 + part * d)
            c = _avoid_zero(1 + part / c)
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


def _avoid_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# ── one proportion


def compute_wilson_interval(errors: float, calls: float, z: float = Z) -> Interval:
    """Compute Wilson's interval for a proportion. Effective counts need not be whole numbers."""
    if calls <= 0:
        return Interval(0.0, 1.0)
    share, z_squared_per_call = errors / calls, z * z / calls
    middle = (share + z_squared_per_call / 2) / (1 + z_squared_per_call)
    half = (
        z
        * sqrt(max(0.0, share * (1 - share)) / calls + z_squared_per_call / (4 * calls))
        / (1 + z_squared_per_call)
    )
    low = 0.0 if errors <= 0 else max(0.0, middle - half)
    high = 1.0 if errors >= calls else min(1.0, middle + half)
    return Interval(low, high)


# ── two proportions


def combine_intervals(
    a: float, a_range: Interval, b: float, b_range: Interval, factor: float = 1.0
) -> Interval:
    """Compute the interval of `a - factor * b` from the intervals of two independent estimates.

    The method of Newcombe (for proportions) and of Zou and Donner (for any linear combination)
    keeps the asymmetry of intervals of small proportions, and works with zero counts.
    """
    value = a - factor * b
    below = sqrt((a - a_range.low) ** 2 + (factor * (b_range.high - b)) ** 2)
    above = sqrt((a_range.high - a) ** 2 + (factor * (b - b_range.low)) ** 2)
    return Interval(value - below, value + above)


def compute_newcombe_interval(a_errors: int, a_calls: int, b_errors: int, b_calls: int) -> Interval:
    """Compute Newcombe's interval for the difference of two independent proportions, a - b."""
    if not a_calls or not b_calls:
        return Interval(-1.0, 1.0)
    return combine_intervals(
        a_errors / a_calls,
        compute_wilson_interval(a_errors, a_calls),
        b_errors / b_calls,
        compute_wilson_interval(b_errors, b_calls),
    )


def compute_fisher_p_value(a_errors: int, a_calls: int, b_errors: int, b_calls: int) -> float:
    """Compute the two-sided p-value of Fisher's exact test for equal proportions."""
    errors, calls = a_errors + b_errors, a_calls + b_calls
    log_total = _compute_log_binomial(calls, errors)

    def compute_log_probability(k: int) -> float:
        return (
            _compute_log_binomial(a_calls, k)
            + _compute_log_binomial(b_calls, errors - k)
            - log_total
        )

    observed = compute_log_probability(a_errors) + log(_TIE_FACTOR)
    possible = range(max(0, errors - b_calls), min(a_calls, errors) + 1)
    return min(
        1.0, sum(exp(each) for each in map(compute_log_probability, possible) if each <= observed)
    )


def _compute_log_binomial(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
