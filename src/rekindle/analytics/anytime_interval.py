"""Anytime-valid confidence intervals: they hold however often one looks.

Checking an ordinary 95% interval repeatedly, and stopping once it excludes zero, errs far more often
than one time in twenty. The intervals here hold at all times simultaneously: a normal mixture over the
sum of the sessions' contributions (Robbins' boundary), with the variance estimated from them. That is
exact for many sessions and close for some dozens, so nothing is claimed before each arm has
`MIN_ARM_SESSIONS`.

A session's contribution to the difference of two arms is its value, minus the mean of the sessions
before it, weighted by the inverse probability of its arm. Its expectation is the difference of the
arms, whatever else is true of the session, because the assignment is random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import inf, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

from .statistics import CONFIDENCE_LEVEL, Interval

MIN_ARM_SESSIONS = 30  # with fewer, the interval is unbounded
DEFAULT_PLANNED_SESSIONS = 400  # number of sessions for which the interval is tuned
POWER = 0.8


class Observation(NamedTuple):
    """A session of one of the two arms: its arm, the probability of treatment, and its value."""

    treated: bool
    chance: float  # probability of treatment, among the two arms
    value: float
    owner: str | None = None


class Effect(NamedTuple):
    """The difference, treated minus untreated, and its interval."""

    value: float
    range: Interval
    sessions: int
    owners: int
    deviation: float  # of one contribution: determines the needed sessions

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.range.contains(0.0)


class RunningSums:
    """The sums over all sessions, updated with each new one at constant cost."""

    def __init__(self, planned: int = DEFAULT_PLANNED_SESSIONS) -> None:
        self._planned = planned
        self._arm_counts = [0, 0]
        self._values = 0.0
        self._contributions = 0.0
        self._squares = 0.0
        self._owners: dict[str, tuple[int, float]] = {}
        self._owner_sums = [
            0.0,
            0.0,
            0.0,
        ]  # over owners: sums squared, sums times counts, counts squared

    def add(self, observation: Observation) -> None:
        """Add the next session."""
        count = sum(self._arm_counts)
        mean_before = self._values / count if count else observation.value
        weight = 1 / observation.chance if observation.treated else -1 / (1 - observation.chance)
        contribution = (observation.value - mean_before) * weight
        self._arm_counts[observation.treated] += 1
        self._values += observation.value
        self._contributions += contribution
        self._squares += contribution * contribution
        # A session without an owner is a cluster of its own.
        self._add_to_owner(observation.owner or f"\0{count}", contribution)

    def _add_to_owner(self, owner: str, contribution: float) -> None:
        count, total = self._owners.get(owner, (0, 0.0))
        sums = self._owner_sums
        sums[0] += (total + contribution) ** 2 - total**2
        sums[1] += (total + contribution) * (count + 1) - total * count
        sums[2] += (count + 1) ** 2 - count**2
        self._owners[owner] = count + 1, total + contribution

    @property
    def effect(self) -> Effect | None:
        """The current effect; None while an arm is empty."""
        count = sum(self._arm_counts)
        if not all(self._arm_counts):
            return None
        value = round(
            self._contributions / count, 12
        )  # removes rounding dust if all values are equal
        variance = self._compute_variance(count, value)
        half = compute_critical_value(count, self._planned) * sqrt(variance / count)
        if min(self._arm_counts) < MIN_ARM_SESSIONS:
            half = inf
        within = Interval(max(-1.0, value - half), min(1.0, value + half))
        return Effect(value, within, count, len(self._owners), sqrt(variance))

    def _compute_variance(self, count: int, value: float) -> float:
        """Return the variance of one contribution: the larger of that by session and by owner.

        With a single owner only the former exists, and the result applies to that owner.
        """
        by_session = (self._squares - count * value * value) / (count - 1) if count > 1 else inf
        owners = len(self._owners)
        if owners < 2:
            return max(by_session, 0.0)
        squares, products, counts = self._owner_sums
        owner_squares = squares - 2 * value * products + value * value * counts
        return max(by_session, owner_squares / count * owners / (owners - 1), 0.0)


def iter_effects(
    sessions: Iterable[Observation], planned: int = DEFAULT_PLANNED_SESSIONS
) -> Iterator[Effect | None]:
    """Yield the effect after each session."""
    running_sums = RunningSums(planned)
    for observation in sessions:
        running_sums.add(observation)
        yield running_sums.effect


def compute_critical_value(count: int, planned: int = DEFAULT_PLANNED_SESSIONS) -> float:
    """Return how many standard errors the interval extends to each side after `count` sessions."""
    scaled_count = count * _compute_mixing_variance(planned)
    return sqrt(
        (scaled_count + 1) / scaled_count * 2 * log(sqrt(scaled_count + 1) / (1 - CONFIDENCE_LEVEL))
    )


@lru_cache(maxsize=64)
def _compute_mixing_variance(planned: int) -> float:
    """Return the mixing variance that makes the interval narrowest at `planned` sessions."""
    minus_two_log_alpha = -2 * log(1 - CONFIDENCE_LEVEL)
    return (minus_two_log_alpha + log(minus_two_log_alpha + 1)) / planned


def compute_needed_sessions(
    difference: float, deviation: float, planned: int = DEFAULT_PLANNED_SESSIONS
) -> int | None:
    """Return the sessions needed in both arms to detect such a difference with 80% power."""
    if not difference or not 0 < deviation < inf:
        return None
    power_quantile = NormalDist().inv_cdf(POWER)
    low, high = 2 * MIN_ARM_SESSIONS, 2 * MIN_ARM_SESSIONS

    def is_enough(count: int) -> bool:
        error = deviation / sqrt(count)
        return abs(difference) >= (compute_critical_value(count, planned) + power_quantile) * error

    while not is_enough(high):
        low, high = high, high * 2
        if high > 10_000_000:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low
