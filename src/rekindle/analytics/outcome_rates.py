"""Count successful sessions: in total, by source and by project."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from .statistics import compute_wilson_interval

MIN_KNOWN = 5  # sessions with a known outcome; fewer are no evidence


class OutcomeCount(NamedTuple):
    """Sessions of one source and project with the same verdict."""

    source: str
    project: str | None
    verdict: str
    sessions: int


class OutcomeRate(NamedTuple):
    """The share of sessions that succeeded among those whose outcome is known, with its interval."""

    group: str  # all, source, project
    name: str
    succeeded: int
    failed: int
    unknown: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None


def compute_outcome_rate(
    group: str, name: str, succeeded: int, failed: int, unknown: int
) -> OutcomeRate:
    """Compute the share that succeeded; without rate and interval if too few are known."""
    known = succeeded + failed
    if known < MIN_KNOWN:
        return OutcomeRate(group, name, succeeded, failed, unknown)
    low, high = compute_wilson_interval(succeeded, known)
    return OutcomeRate(group, name, succeeded, failed, unknown, succeeded / known, low, high)


def summarize_outcomes(counts: Iterable[OutcomeCount]) -> tuple[OutcomeRate, ...]:
    """Summarize outcomes in total, then by source and by project, most sessions first."""
    sums: defaultdict[tuple[str, str], defaultdict[str, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for one in counts:
        for key in (("all", ""), ("source", one.source), ("project", one.project or "")):
            if key != ("project", ""):
                sums[key][one.verdict] += one.sessions
    order = ("all", "source", "project")
    ranked = sorted(
        sums.items(), key=lambda item: (order.index(item[0][0]), -sum(item[1].values()), item[0])
    )
    return tuple(
        compute_outcome_rate(*key, found["succeeded"], found["failed"], found["unknown"])
        for key, found in ranked
    )
