"""Two sessions, or two sets of sessions, beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rekindle.types import Judged

from .cluster_stats import MIN_SESSIONS, Estimate, Rate, difference, rate_of, spread
from .compression import difference_of_two, rate_of_one
from .groups import Group, counts_of, same_mix
from .sample import Sample, Totals, gather

FISHER = "Fisher's exact test"
JACKKNIFE = "t test, sessions as clusters"


class Side(NamedTuple):
    """One of the two: what it is, and its errors."""

    name: str
    totals: Totals
    rate: Rate


class Comparison(NamedTuple):
    """How b compares with a: `improvement` is the rate of a less that of b, positive if b is better."""

    a: Side
    b: Side
    improvement: Estimate | None
    same_mix: Estimate | None  # the improvement, at the same mix of kinds of work
    test: str
    better: str | None  # the name of the better side, where the interval leaves zero out
    shared: int  # sessions that are in both
    enough: bool


def compare(
    a: Iterable[Judged], b: Iterable[Judged], names: tuple[str, str] = ("A", "B")
) -> Comparison:
    """Compare two sets with their sessions as clusters, or two single sessions call by call.

    Of two single sessions the result speaks of these two alone.
    """
    first, second = gather(a), gather(b)
    if len(first.tracks) == 1 and len(second.tracks) == 1:
        return _of_sessions(first, second, names)
    return _of_sets(first, second, names)


def _of_sessions(first: Sample, second: Sample, names: tuple[str, str]) -> Comparison:
    rates = [rate_of_one(each.totals.failed, each.totals.judged) for each in (first, second)]
    improvement = difference_of_two(*rates)
    shared = int(first.tracks[0].id == second.tracks[0].id)
    enough = improvement is not None
    return Comparison(
        Side(names[0], first.totals, rates[0]),
        Side(names[1], second.totals, rates[1]),
        improvement,
        None,
        FISHER,
        _better(improvement, names),
        shared,
        enough,
    )


def _of_sets(first: Sample, second: Sample, names: tuple[str, str]) -> Comparison:
    kinds: dict[str, int] = {}
    a, b = _group(first, kinds), _group(second, kinds)
    enough = min(len(a.parts), len(b.parts)) >= MIN_SESSIONS
    improvement = difference(a.parts, b.parts) if enough else None
    measured, coverage = same_mix(a, b) if enough else (None, 0.0)
    shared = {track.id for track in first.tracks} & {track.id for track in second.tracks}
    return Comparison(
        Side(names[0], first.totals, rate_of(a.parts, a.sessions)),
        Side(names[1], second.totals, rate_of(b.parts, b.sessions)),
        improvement,
        spread(measured, coverage),
        JACKKNIFE,
        _better(improvement, names),
        len(shared),
        improvement is not None,
    )


def _group(sample: Sample, kinds: dict[str, int]) -> Group:
    """The sessions added up by kind of work, which has the same number on both sides."""
    numbers = [kinds.setdefault(work, len(kinds)) for _, work in sample.kinds]
    group = Group()
    for track, family in zip(sample.tracks, sample.families, strict=True):
        group.add(family, counts_of(track, numbers))
    return group


def _better(improvement: Estimate | None, names: tuple[str, str]) -> str | None:
    if improvement is None or improvement.range.holds(0):
        return None
    return names[1] if improvement.value > 0 else names[0]
