"""Rates over many sessions, whose calls are not independent.

Calls of one conversation share a task, a machine and a model: they fail together. So the unit that
is drawn is the conversation (the *cluster*), and how sure an estimate is, is seen by leaving out one
cluster after the other (the jackknife). An estimate is kept with what each of these leavings-out
would do to it: estimates over the same clusters can then be subtracted, whatever they share.

Few or very unequal clusters make such a spread itself uncertain. Intervals therefore use Student's t
with the degrees of freedom of the *effective* number of clusters, (Σn)² / Σn², less one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, sqrt
from typing import NamedTuple, TypeAlias

from .statistics import Interval, combined, t_quantile, t_tail, wilson

Cluster: TypeAlias = str  # the family of a session
Part: TypeAlias = Sequence[float]  # errors and calls, or any numerator and denominator
Parts: TypeAlias = Mapping[Cluster, Part]

MIN_CALLS, MIN_SESSIONS = 20, 5  # under these a rate is shown without an interval
# Where no call failed (or all did) the data cannot say how alike the calls of a session are.
# This much is assumed then: sessions of agents were seen at .05 to .2.
_LIKENESS = 0.05


class Measured(NamedTuple):
    """An estimate, and by how much it moves when a cluster is left out."""

    value: float
    shifts: Mapping[Cluster, float]
    freedom: float

    @property
    def variance(self) -> float:
        count = len(self.shifts)
        return (count - 1) / count * sum(s * s for s in self.shifts.values()) if count > 1 else 0.0


class Rate(NamedTuple):
    """Errors per call. The interval is missing where there are too few calls or sessions for one."""

    errors: int
    calls: int
    sessions: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def range(self) -> Interval | None:
        return None if self.low is None or self.high is None else Interval(self.low, self.high)


class Estimate(NamedTuple):
    """A number with its interval; `p` is the chance of one as far from zero if zero were true."""

    value: float
    low: float
    high: float
    p: float | None = None
    coverage: float | None = None  # the share of the calls that could be compared

    @property
    def range(self) -> Interval:
        return Interval(self.low, self.high)


# ── estimates


def ratio(parts: Parts) -> Measured | None:
    """The ratio of two sums over clusters, such as errors per call."""
    top = sum(part[0] for part in parts.values())
    base = sum(part[1] for part in parts.values())
    if base <= 0:
        return None
    value = top / base
    shifts = {
        cluster: (top - part[0]) / (base - part[1]) - value if base > part[1] else 0.0
        for cluster, part in parts.items()
        if part[1] > 0
    }
    return Measured(value, shifts, _freedom([part[1] for part in parts.values()]))


def standardised(
    cells: Mapping[Cluster, Mapping[int, Part]], weights: Mapping[int, float]
) -> Measured | None:
    """What the rate would be if the strata (tools) were used in the proportions of `weights`.

    `cells` has the errors and calls of each cluster by stratum. A stratum that only one cluster has
    falls back on the overall rate when that cluster is left out.
    """
    sums: dict[int, list[float]] = {stratum: [0.0, 0.0] for stratum in weights}
    for strata in cells.values():
        for stratum, part in strata.items():
            if stratum in sums:
                sums[stratum][0] += part[0]
                sums[stratum][1] += part[1]
    whole = sum(weights.values())
    if whole <= 0 or any(calls <= 0 for _, calls in sums.values()):
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
            shifts[cluster] = shift / whole
            sizes.append(size)
    value = sum(weight * rates[stratum] for stratum, weight in weights.items()) / whole
    return Measured(value, shifts, _freedom(sizes))


def minus(a: Measured, b: Measured) -> Measured:
    """The difference of two estimates, which may share clusters."""
    shifts = dict(a.shifts)
    for cluster, shift in b.shifts.items():
        shifts[cluster] = shifts.get(cluster, 0.0) - shift
    return Measured(a.value - b.value, shifts, _welch(a, b))


def within(cells: Iterable[tuple[Cluster, float, float, float, float]]) -> Measured | None:
    """The difference of rates inside strata: Mantel and Haenszel's, later less earlier.

    Each cell is a stratum (a session, or a tool of one) with its cluster: errors and calls later,
    errors and calls earlier. Strata are never compared with each other, so whatever is the same
    throughout a stratum cannot make a difference.
    """
    parts: dict[Cluster, list[float]] = {}
    for cluster, errors, calls, errors_before, calls_before in cells:
        if calls and calls_before:
            both = calls + calls_before
            part = parts.setdefault(cluster, [0.0, 0.0])
            part[0] += (errors * calls_before - errors_before * calls) / both
            part[1] += calls * calls_before / both
    return ratio(parts)


# ── how sure they are


def spread(measured: Measured | None, coverage: float | None = None) -> Estimate | None:
    """A difference with its interval and test; nothing where the data cannot tell a spread."""
    if measured is None or measured.variance <= 0:
        return None
    error = sqrt(measured.variance)
    reach = t_quantile(measured.freedom) * error
    p = t_tail(measured.value / error, measured.freedom)
    low, high = max(-1.0, measured.value - reach), min(1.0, measured.value + reach)
    return Estimate(measured.value, low, high, p, coverage)


def spread_of_rate(measured: Measured, parts: Iterable[float]) -> Interval:
    """The interval of a rate: Wilson's, for as many independent calls as would be this sure.

    `parts` are the calls of each cluster.
    """
    sizes = [size for size in parts if size > 0]
    calls, value = sum(sizes), measured.value
    independent = value * (1 - value)
    if measured.variance > 0 and independent > 0:
        effective = min(calls, independent / measured.variance)
    else:
        mean = sum(size * size for size in sizes) / calls
        effective = calls / (1 + (mean - 1) * _LIKENESS)
    return wilson(value * effective, effective, t_quantile(measured.freedom))


def rate_of(parts: Parts, sessions: int) -> Rate:
    """Errors per call over clusters, with an interval where there is enough for one."""
    errors = round(sum(part[0] for part in parts.values()))
    calls = round(sum(part[1] for part in parts.values()))
    measured = ratio(parts)
    if measured is None:
        return Rate(errors, calls, sessions)
    if calls < MIN_CALLS or sessions < MIN_SESSIONS or len(measured.shifts) < 2:
        return Rate(errors, calls, sessions, measured.value)
    range = spread_of_rate(measured, [part[1] for part in parts.values()])
    return Rate(errors, calls, sessions, measured.value, *range)


def difference(a: Parts, b: Parts) -> Estimate | None:
    """The difference of the rates of two sets, a - b, with its interval and test.

    Sets that share no cluster are independent: then the intervals of their rates are combined,
    which holds for small counts too.
    """
    first, second = ratio(a), ratio(b)
    if first is None or second is None:
        return None
    if not first.shifts.keys().isdisjoint(second.shifts):
        return spread(minus(first, second))
    low, high = combined(
        first.value,
        spread_of_rate(first, [part[1] for part in a.values()]),
        second.value,
        spread_of_rate(second, [part[1] for part in b.values()]),
    )
    tested = spread(minus(first, second))
    return Estimate(first.value - second.value, low, high, tested.p if tested else None)


def _freedom(sizes: Iterable[float]) -> float:
    """Degrees of freedom: the number of clusters as if they were of one size, less one."""
    whole = squares = 0.0
    for size in sizes:
        whole += size
        squares += size * size
    return max(1.0, whole * whole / squares - 1) if squares else 1.0


def _welch(a: Measured, b: Measured) -> float:
    """Degrees of freedom of a difference, after Welch and Satterthwaite."""
    mine, other = a.variance, b.variance
    parts = mine * mine / a.freedom + other * other / b.freedom
    return (mine + other) ** 2 / parts if parts > 0 else inf
