"""How many sessions an experiment needs, worked out and then tried on made-up sessions."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from random import Random
from typing import NamedTuple

from rekindle.analytics.anytime_interval import PLANNED, Seen, Sums, needed
from rekindle.errors import InvalidInput

from .experiment import FIRST_CALLS

ALIKE = 0.10  # how much calls of one session fail together: agents were seen at .05 to .2


class Plan(NamedTuple):
    """What is expected, and the sessions it takes in each of two arms of the same size."""

    cold: float
    warm: float
    alike: float
    calls: int
    sessions: int | None  # in each arm; None: more than anyone has


class Tried(NamedTuple):
    """The plan, run many times on made-up sessions, with a look after every session."""

    runs: int
    false_alarms: float  # share of runs that saw a difference where there is none
    found: float  # share of runs that saw the difference by the planned number of sessions
    usual: int | None  # sessions in each arm at which half of those had seen it


def plan(cold: float, warm: float, alike: float = ALIKE, calls: int = FIRST_CALLS) -> Plan:
    """The sessions each arm needs to see the difference with a chance of four in five."""
    for name, rate in (("cold", cold), ("warm", warm)):
        if not 0 < rate < 1:
            raise InvalidInput(f"{name}: expected a rate between 0 and 1, got {rate!r}")
    if not 0 <= alike < 1:
        raise InvalidInput(f"alike: expected a number from 0 to below 1, got {alike!r}")
    if cold == warm:
        raise InvalidInput("cold and warm are the same: there is no difference to find")
    # Each session says twice its distance from the mean, for or against.
    spread = sum(rate * (1 - rate) for rate in (cold, warm)) / 2 / calls * (1 + (calls - 1) * alike)
    total = needed(cold - warm, sqrt(4 * spread))
    return Plan(cold, warm, alike, calls, None if total is None else (total + 1) // 2)


def tried(
    plan: Plan, runs: int, seed: int, progress: Callable[[int, int], None] | None = None
) -> Tried:
    """Run the plan with and without the difference; the looks never stop early by themselves."""
    limit = 2 * (plan.sessions or PLANNED)
    alarms, found = 0, list[int]()
    for number in range(runs):
        random = Random(f"{seed}/{number}")
        alarms += _first_clear(plan, plan.cold, limit, random) is not None
        seen = _first_clear(plan, plan.warm, limit, random)
        if seen is not None:
            found.append(seen)
        if progress:
            progress(number + 1, runs)
    found.sort()
    usual = (found[len(found) // 2] + 1) // 2 if found else None
    return Tried(runs, alarms / runs, len(found) / runs, usual)


def _first_clear(plan: Plan, warm: float, limit: int, random: Random) -> int | None:
    """The session after which the interval first leaves zero out."""
    sums = Sums()
    for count in range(1, limit + 1):
        treated = random.random() < 0.5
        rate = warm if treated else plan.cold
        sums.add(Seen(treated, 0.5, _failed(rate, plan, random) / plan.calls))
        effect = sums.effect
        if effect is not None and effect.is_clear:
            return count
    return None


def _failed(rate: float, plan: Plan, random: Random) -> int:
    """Failed calls of a session whose calls fail together as much as the plan says."""
    if plan.alike:
        weight = 1 / plan.alike - 1
        rate = random.betavariate(rate * weight, (1 - rate) * weight)
    return sum(random.random() < rate for _ in range(plan.calls))
