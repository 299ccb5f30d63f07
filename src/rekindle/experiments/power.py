"""Compute how many sessions an experiment needs, and check the plan by simulation."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from random import Random
from typing import NamedTuple

from rekindle.analytics.anytime_interval import (
    DEFAULT_PLANNED_SESSIONS,
    Observation,
    RunningSums,
    compute_needed_sessions,
)
from rekindle.errors import InvalidInput

from .experiment import FIRST_CALLS

DEFAULT_CORRELATION = 0.10  # within sessions; observed for agents: .05 to .2


class PowerPlan(NamedTuple):
    """The expected rates, and the sessions needed in each of two arms of equal size."""

    cold: float
    warm: float
    correlation: float
    calls: int
    sessions: int | None  # in each arm; None: impracticably many


class SimulationResult(NamedTuple):
    """The result of running the plan many times on simulated sessions, checking after each one."""

    runs: int
    false_alarms: float  # share of runs that found a difference where there is none
    found: float  # share of runs that found the difference within the plan
    median_sessions: int | None  # median sessions in each arm at which they found it


def plan_experiment(
    cold: float, warm: float, correlation: float = DEFAULT_CORRELATION, calls: int = FIRST_CALLS
) -> PowerPlan:
    """Compute the sessions each arm needs to detect the difference with 80% power."""
    for name, rate in (("cold", cold), ("warm", warm)):
        if not 0 < rate < 1:
            raise InvalidInput(f"{name}: expected a rate between 0 and 1, got {rate!r}")
    if not 0 <= correlation < 1:
        raise InvalidInput(f"correlation: expected a number from 0 to below 1, got {correlation!r}")
    if cold == warm:
        raise InvalidInput("cold and warm are equal: there is no difference to detect")
    # With equal arms, each session contributes twice its distance from the mean.
    spread = (
        sum(rate * (1 - rate) for rate in (cold, warm))
        / 2
        / calls
        * (1 + (calls - 1) * correlation)
    )
    total = compute_needed_sessions(cold - warm, sqrt(4 * spread))
    return PowerPlan(cold, warm, correlation, calls, None if total is None else (total + 1) // 2)


def simulate_plan(
    plan: PowerPlan, runs: int, seed: int, progress: Callable[[int, int], None] | None = None
) -> SimulationResult:
    """Simulate the plan with and without the difference; no run stops early."""
    limit = 2 * (plan.sessions or DEFAULT_PLANNED_SESSIONS)
    alarms, detections = 0, list[int]()
    for number in range(runs):
        random = Random(f"{seed}/{number}")
        alarms += _find_first_clear(plan, plan.cold, limit, random) is not None
        first_clear = _find_first_clear(plan, plan.warm, limit, random)
        if first_clear is not None:
            detections.append(first_clear)
        if progress:
            progress(number + 1, runs)
    detections.sort()
    median = (detections[len(detections) // 2] + 1) // 2 if detections else None
    return SimulationResult(runs, alarms / runs, len(detections) / runs, median)


def _find_first_clear(plan: PowerPlan, warm: float, limit: int, random: Random) -> int | None:
    """Return the number of sessions after which the interval first excludes zero."""
    running_sums = RunningSums()
    for count in range(1, limit + 1):
        treated = random.random() < 0.5
        rate = warm if treated else plan.cold
        running_sums.add(
            Observation(treated, 0.5, _simulate_failures(rate, plan, random) / plan.calls)
        )
        effect = running_sums.effect
        if effect is not None and effect.is_clear:
            return count
    return None


def _simulate_failures(rate: float, plan: PowerPlan, random: Random) -> int:
    """Draw the failed calls of a session whose calls are correlated as planned."""
    if plan.correlation:
        weight = 1 / plan.correlation - 1
        rate = random.betavariate(rate * weight, (1 - rate) * weight)
    return sum(random.random() < rate for _ in range(plan.calls))
