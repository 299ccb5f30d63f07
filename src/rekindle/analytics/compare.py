"""Compare two sessions, or two sets of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rekindle.types import JudgedSession

from .cluster_stats import (
    MIN_SESSIONS,
    Estimate,
    Rate,
    compute_rate,
    estimate_difference,
    to_estimate,
)
from .compression import compare_single_rates, compute_single_rate
from .groups import CallGroup, compare_at_same_mix, count_calls
from .sample import Sample, Totals, collect_sample

FISHER = "Fisher's exact test"
JACKKNIFE = "t test, sessions as clusters"


class ComparedSide(NamedTuple):
    """One side of a comparison: its name, its totals and its error rate."""

    name: str
    totals: Totals
    rate: Rate


class Comparison(NamedTuple):
    """How b compares with a; `improvement` is a's rate minus b's, positive if b is better."""

    a: ComparedSide
    b: ComparedSide
    improvement: Estimate | None
    same_mix: Estimate | None  # the improvement at the same mix of work kinds
    test: str
    better: str | None  # the name of the better side, if the interval excludes zero
    shared: int  # sessions that are on both sides
    enough: bool


def compare_sessions(
    a: Iterable[JudgedSession], b: Iterable[JudgedSession], names: tuple[str, str] = ("A", "B")
) -> Comparison:
    """Compare two sets with their sessions as clusters, or two single sessions call by call.

    The result for two single sessions applies to these two only.
    """
    first, second = collect_sample(a), collect_sample(b)
    if len(first.tracks) == 1 and len(second.tracks) == 1:
        return _compare_two_sessions(first, second, names)
    return _compare_sets(first, second, names)


def _compare_two_sessions(first: Sample, second: Sample, names: tuple[str, str]) -> Comparison:
    rates = [
        compute_single_rate(each.totals.failed, each.totals.judged) for each in (first, second)
    ]
    improvement = compare_single_rates(*rates)
    shared = int(first.tracks[0].id == second.tracks[0].id)
    enough = improvement is not None
    return Comparison(
        ComparedSide(names[0], first.totals, rates[0]),
        ComparedSide(names[1], second.totals, rates[1]),
        improvement,
        None,
        FISHER,
        _find_better(improvement, names),
        shared,
        enough,
    )


def _compare_sets(first: Sample, second: Sample, names: tuple[str, str]) -> Comparison:
    kinds: dict[str, int] = {}
    a, b = _group_by_work(first, kinds), _group_by_work(second, kinds)
    enough = min(len(a.parts), len(b.parts)) >= MIN_SESSIONS
    improvement = estimate_difference(a.parts, b.parts) if enough else None
    measured, coverage = compare_at_same_mix(a, b) if enough else (None, 0.0)
    shared = {track.id for track in first.tracks} & {track.id for track in second.tracks}
    return Comparison(
        ComparedSide(names[0], first.totals, compute_rate(a.parts, a.sessions)),
        ComparedSide(names[1], second.totals, compute_rate(b.parts, b.sessions)),
        improvement,
        to_estimate(measured, coverage),
        JACKKNIFE,
        _find_better(improvement, names),
        len(shared),
        improvement is not None,
    )


def _group_by_work(sample: Sample, kinds: dict[str, int]) -> CallGroup:
    """Sum the sessions by kind of work, numbered the same on both sides."""
    numbers = [kinds.setdefault(work, len(kinds)) for _, work in sample.kinds]
    group = CallGroup()
    for track, family in zip(sample.tracks, sample.families, strict=True):
        group.add(family, count_calls(track, numbers))
    return group


def _find_better(improvement: Estimate | None, names: tuple[str, str]) -> str | None:
    if improvement is None or improvement.range.contains(0):
        return None
    return names[1] if improvement.value > 0 else names[0]
