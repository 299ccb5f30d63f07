"""Error rates over many sessions, whose calls are not independent.

Calls of one conversation share a task, a machine and a model, so they fail together. The sampling unit
is therefore the conversation (the *cluster*), and the uncertainty of an estimate is measured by leaving
out one cluster at a time (the jackknife). An estimate keeps the shift that each omission causes, so
that estimates over the same clusters can be subtracted even if they overlap.

With few or very unequal clusters the variance itself is uncertain. Intervals therefore use Student's t
with the degrees of freedom of the *effective* number of clusters, (Σn)² / Σn², minus one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, sqrt
from typing import NamedTuple, TypeAlias

from .statistics import (
    Interval,
    combine_intervals,
    compute_t_p_value,
    compute_t_quantile,
    compute_wilson_interval,
)

Cluster: TypeAlias = str  # the id of a session's family
CountPair: TypeAlias = Sequence[float]  # errors and calls, or any numerator and denominator
ClusterCounts: TypeAlias = Mapping[Cluster, CountPair]

MIN_CALLS, MIN_SESSIONS = 20, 5  # below these a rate is shown without an interval
# Intra-session correlation assumed if no call failed (or all did), so that the data cannot show it.
# Observed for agents: .05 to .2.
_ASSUMED_CORRELATION = 0.05


class ClusteredEstimate(NamedTuple):
    """An estimate, and how far it shifts when each cluster is left out."""

    value: float
    shifts: Mapping[Cluster, float]
    freedom: float

    @property
    def variance(self) -> float:
        """The jackknife variance."""
        count = len(self.shifts)
        return (count - 1) / count * sum(s * s for s in self.shifts.values()) if count > 1 else 0.0


class Rate(NamedTuple):
    """Errors per call. The interval is missing if there are too few calls or sessions."""

    errors: int
    calls: int
    sessions: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def range(self) -> Interval | None:
        """The interval of the rate, if there is one."""
        return None if self.low is None or self.high is None else Interval(self.low, self.high)


class Estimate(NamedTuple):
    """A value with its interval; `p` is the two-sided p-value against zero."""

    value: float
    low: float
    high: float
    p: float | None = None
    coverage: float | None = None  # share of the calls that could be compared

    @property
    def range(self) -> Interval:
        return Interval(self.low, self.high)


# ── estimates


def estimate_ratio(parts: ClusterCounts) -> ClusteredEstimate | None:
    """Estimate the ratio of two sums over clusters, such as errors per call."""
    numerator = sum(part[0] for part in parts.values())
    denominator = sum(part[1] for part in parts.values())
    if denominator <= 0:
        return None
    value = numerator / denominator
    shifts = {
        cluster: (numerator - part[0]) / (denominator - part[1]) - value
        if denominator > part[1]
        else 0.0
        for cluster, part in parts.items()
        if part[1] > 0
    }
    return ClusteredEstimate(value, shifts, _compute_freedom([part[1] for part in parts.values()]))


def estimate_standardized_rate(
    cells: Mapping[Cluster, Mapping[int, CountPair]], weights: Mapping[int, float]
) -> ClusteredEstimate | None:
    """Estimate the rate if the strata (tools) were used in the proportions of `weights`.

    `cells` has the errors and calls of each cluster by stratum. A stratum found in a single cluster
    falls back to the overall rate when that cluster is left out.
    """
    sums: dict[int, list[float]] = {stratum: [0.0, 0.0] for stratum in weights}
    for strata in cells.values():
        for stratum, part in strata.items():
            if stratum in sums:
                sums[stratum][0] += part[0]
                sums[stratum][1] += part[1]
    total_weight = sum(weights.values())
    if total_weight <= 0 or any(calls <= 0 for _, calls in sums.values()):
        return None
    rates = {stratum: errors / calls for stratum, (errors, calls) in sums.items()}
    overall = sum(part[0] for part in sums.values()) / sum(part[1] for part in sums.values())
    shifts: dict[Cluster, float] = {}
    sizes: list[float] = []
    for cluster, strata in cells.items():
        shift = size = 0.0
        for stratum, (errors, calls) in strata.items():
            if stratum in sums and calls:
                all_errors, all_calls = sums[stratum]
                left = all_calls - calls
                rate = (all_errors - errors) / left if left > 0 else overall
                shift += weights[stratum] * (rate - rates[stratum])
                size += weights[stratum] * calls / all_calls
        if size:
            shifts[cluster] = shift / total_weight
            sizes.append(size)
    value = sum(weight * rates[stratum] for stratum, weight in weights.items()) / total_weight
    return ClusteredEstimate(value, shifts, _compute_freedom(sizes))


def subtract_estimates(a: ClusteredEstimate, b: ClusteredEstimate) -> ClusteredEstimate:
    """Subtract two estimates, which may share clusters."""
    shifts = dict(a.shifts)
    for cluster, shift in b.shifts.items():
        shifts[cluster] = shifts.get(cluster, 0.0) - shift
    return ClusteredEstimate(a.value - b.value, shifts, _compute_welch_freedom(a, b))


def estimate_stratified_difference(
    cells: Iterable[tuple[Cluster, float, float, float, float]],
) -> ClusteredEstimate | None:
    """Estimate the difference of rates inside strata, later minus earlier (Mantel-Haenszel).

    Each cell is a stratum (a session, or a tool of one) with its cluster: errors and calls later,
    errors and calls earlier. Strata are never compared with each other, so nothing that is constant
    within a stratum can cause a difference.
    """
    parts: dict[Cluster, list[float]] = {}
    for cluster, errors, calls, errors_before, calls_before in cells:
        if calls and calls_before:
            both = calls + calls_before
            part = parts.setdefault(cluster, [0.0, 0.0])
            part[0] += (errors * calls_before - errors_before * calls) / both
            part[1] += calls * calls_before / both
    return estimate_ratio(parts)


# ── intervals


def to_estimate(
    measured: ClusteredEstimate | None, coverage: float | None = None
) -> Estimate | None:
    """Add an interval and a p-value to a difference; return None if it has no variance."""
    if measured is None or measured.variance <= 0:
        return None
    error = sqrt(measured.variance)
    reach = compute_t_quantile(measured.freedom) * error
    p = compute_t_p_value(measured.value / error, measured.freedom)
    low, high = max(-1.0, measured.value - reach), min(1.0, measured.value + reach)
    return Estimate(measured.value, low, high, p, coverage)


def compute_rate_interval(measured: ClusteredEstimate, parts: Iterable[float]) -> Interval:
    """Compute the interval of a rate: Wilson's, with the effective number of independent calls.

    `parts` are the calls of each cluster.
    """
    return _compute_wilson_range(measured.value, measured.variance, measured.freedom, parts)


def _compute_wilson_range(
    value: float, variance: float, freedom: float, parts: Iterable[float]
) -> Interval:
    sizes = [size for size in parts if size > 0]
    calls = sum(sizes)
    independent = value * (1 - value)
    if variance > 0 and independent > 0:
        effective = min(calls, independent / variance)
    else:
        mean = sum(size * size for size in sizes) / calls
        effective = calls / (1 + (mean - 1) * _ASSUMED_CORRELATION)
    return compute_wilson_interval(value * effective, effective, compute_t_quantile(freedom))


def compute_rate(parts: ClusterCounts, sessions: int) -> Rate:
    """Compute the errors per call over clusters, with an interval if there is enough data."""
    errors = round(sum(part[0] for part in parts.values()))
    calls = round(sum(part[1] for part in parts.values()))
    measured = estimate_ratio(parts)
    if measured is None:
        return Rate(errors, calls, sessions)
    if calls < MIN_CALLS or sessions < MIN_SESSIONS or len(measured.shifts) < 2:
        return Rate(errors, calls, sessions, measured.value)
    range = compute_rate_interval(measured, [part[1] for part in parts.values()])
    return Rate(errors, calls, sessions, measured.value, *range)


def compute_column_rate(errors: Sequence[int], calls: Sequence[int], sessions: int) -> Rate:
    """Compute what `compute_rate` does from two columns with a value for each cluster.

    Columns of numbers take a tenth of the memory: use them for very many clusters.
    """
    total_errors, total_calls = sum(errors), sum(calls)
    if not total_calls:
        return Rate(total_errors, total_calls, sessions)
    value = total_errors / total_calls
    squares, count = 0.0, 0
    for error, call in zip(errors, calls, strict=True):
        if call:
            count += 1
            if call < total_calls:
                shift = (total_errors - error) / (total_calls - call) - value
                squares += shift * shift
    if total_calls < MIN_CALLS or sessions < MIN_SESSIONS or count < 2:
        return Rate(total_errors, total_calls, sessions, value)
    variance = (count - 1) / count * squares
    range = _compute_wilson_range(value, variance, _compute_freedom(calls), calls)
    return Rate(total_errors, total_calls, sessions, value, *range)


def subtract_rates(a: Rate, b: Rate) -> Estimate | None:
    """Return the difference of two independent rates, a - b; None if one has no interval."""
    if a.rate is None or b.rate is None or a.range is None or b.range is None:
        return None
    low, high = combine_intervals(a.rate, a.range, b.rate, b.range)
    return Estimate(a.rate - b.rate, low, high)


def estimate_difference(a: ClusterCounts, b: ClusterCounts) -> Estimate | None:
    """Estimate the difference of the rates of two sets, a - b, with its interval and p-value.

    Sets that share no cluster are independent: the intervals of their rates are combined, which
    also holds for small counts.
    """
    first, second = estimate_ratio(a), estimate_ratio(b)
    if first is None or second is None:
        return None
    if not first.shifts.keys().isdisjoint(second.shifts):
        return to_estimate(subtract_estimates(first, second))
    low, high = combine_intervals(
        first.value,
        compute_rate_interval(first, [part[1] for part in a.values()]),
        second.value,
        compute_rate_interval(second, [part[1] for part in b.values()]),
    )
    tested = to_estimate(subtract_estimates(first, second))
    return Estimate(first.value - second.value, low, high, tested.p if tested else None)


def _compute_freedom(sizes: Iterable[float]) -> float:
    """Compute the degrees of freedom: the effective number of clusters, minus one."""
    total = squares = 0.0
    for size in sizes:
        total += size
        squares += size * size
    return max(1.0, total * total / squares - 1) if squares else 1.0


def _compute_welch_freedom(a: ClusteredEstimate, b: ClusteredEstimate) -> float:
    """Compute the degrees of freedom of a difference, after Welch and Satterthwaite."""
    mine, other = a.variance, b.variance
    parts = mine * mine / a.freedom + other * other / b.freedom
    return (mine + other) ** 2 / parts if parts > 0 else inf
