"""Compare the error rates of calls right before and right after a conversation was compressed.

A session's history is replaced by a summary either inside the session or by continuing in a child
session. Both are a *compression point*, with a window of calls before it and one after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rekindle.types import JudgedSession, Session

from .claims import MIN_COMPARED_SESSIONS, NOT_ENOUGH
from .cluster_stats import Estimate, Rate, to_estimate
from .groups import (
    CallGroup,
    EarlyLatePair,
    Grouping,
    compare_within_session,
    compare_within_tool,
    count_calls,
    sum_pairs,
)
from .sample import Sample, SessionTrack, collect_sample, is_continuation
from .statistics import (
    combine_intervals,
    compute_fisher_p_value,
    compute_newcombe_interval,
    compute_wilson_interval,
)

NEARBY_CALLS = 20  # on each side of a compression
BUCKET_CALLS = 5
TOLERANCE = 1.2  # an error rate at most 20% higher counts as kept
KEPT, NOT_KEPT = "kept", "not kept"


class CallWindow(NamedTuple):
    """The calls of a track from `start` up to `stop`."""

    track: SessionTrack
    start: int
    stop: int

    def count_calls(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        return count_calls(self.track, numbers, self.start, self.stop)

    def compute_rate(self) -> Rate:
        failed = self.track.failed[self.start : self.stop]
        return compute_single_rate(sum(failed), len(failed))


class CompressionPoint(NamedTuple):
    """A compression, and the windows of calls up to the next one on each side."""

    family: str
    before: CallWindow
    after: CallWindow
    in_child: bool

    def get_nearby_windows(self) -> tuple[CallWindow, CallWindow]:
        """Return the calls right before and right after the compression.

        Calls between two compressions are split between them, so that none is counted twice.
        """
        track, start, stop = self.before
        first = stop - (stop - start if start == 0 else (stop - start) // 2)
        before = CallWindow(track, max(first, stop - NEARBY_CALLS), stop)
        track, start, stop = self.after
        last = start + (
            stop - start if stop == len(track.failed) else (stop - start) - (stop - start) // 2
        )
        return before, CallWindow(track, start, min(last, start + NEARBY_CALLS))


def find_compressions(sample: Sample) -> Iterator[CompressionPoint]:
    """Yield every compression of the sessions, inside a session or by continuing in a child."""
    windows: list[list[CallWindow]] = []
    for track, family in zip(sample.tracks, sample.families, strict=True):
        indexes = [bisect_left(track.positions, position) for position in track.compressions]
        edges = [0, *indexes, len(track.positions)]
        own_windows = [CallWindow(track, start, stop) for start, stop in pairwise(edges)]
        windows.append(own_windows)
        for before, after in pairwise(own_windows):
            yield CompressionPoint(family, before, after, in_child=False)
    for parent, child in sample.continued:
        before, after = windows[parent][-1], windows[child][0]
        yield CompressionPoint(sample.families[child], before, after, in_child=True)


# ── many sessions


class NearbyRate(NamedTuple):
    """The calls at a distance from a compression, from -20 (before) to 20 (after)."""

    first: int
    last: int
    rate: Rate


class CompressionSummary(NamedTuple):
    """All compressions together."""

    compressions: int
    before: Rate
    after: Rate
    change: Estimate | None  # unadjusted
    same_tool: Estimate | None  # compared within each tool of a session
    steps: tuple[NearbyRate, ...]


def summarize_compressions(grouping: Grouping) -> CompressionSummary:
    """Compare the calls right before and right after all compressions."""
    pairs: list[EarlyLatePair] = []
    nearby = [CallGroup() for _ in range(2 * NEARBY_CALLS // BUCKET_CALLS)]
    count, numbers = 0, grouping.numbers
    for point in find_compressions(grouping.sample):
        count += 1
        before, after = point.get_nearby_windows()
        pair = EarlyLatePair(point.family, after.count_calls(numbers), before.count_calls(numbers))
        if pair.later and pair.earlier:
            pairs.append(pair)
        for step in range(NEARBY_CALLS // BUCKET_CALLS):
            stop, start = before.stop - step * BUCKET_CALLS, after.start + step * BUCKET_CALLS
            left = CallWindow(
                before.track, max(before.start, stop - BUCKET_CALLS), max(before.start, stop)
            )
            right = CallWindow(after.track, start, min(after.stop, start + BUCKET_CALLS))
            nearby[NEARBY_CALLS // BUCKET_CALLS - 1 - step].add(
                point.family, left.count_calls(numbers)
            )
            nearby[NEARBY_CALLS // BUCKET_CALLS + step].add(
                point.family, right.count_calls(numbers)
            )
    later, earlier = sum_pairs(pairs)
    compared = pairs if len(pairs) >= MIN_COMPARED_SESSIONS else []
    measured, coverage = compare_within_tool(compared)
    return CompressionSummary(
        count,
        earlier.rate,
        later.rate,
        to_estimate(compare_within_session(compared)),
        to_estimate(measured, coverage),
        tuple(_build_nearby_rate(index, group) for index, group in enumerate(nearby)),
    )


def _build_nearby_rate(index: int, group: CallGroup) -> NearbyRate:
    first = index * BUCKET_CALLS - NEARBY_CALLS
    return NearbyRate(first + (first >= 0), first + BUCKET_CALLS - (first < 0), group.rate)


# ── one conversation


class Retention(NamedTuple):
    """One compression of a conversation, and whether it kept its proficiency.

    `within` says whether the error rate after is at most 20% above the rate before; `verdict` says
    whether that is certain. The `near` fields cover only the calls right before and right after.
    """

    session: str  # the one that continues
    in_child: bool
    before: Rate
    after: Rate
    within: bool | None
    excess: Estimate | None  # rate after minus 1.2 times the rate before
    verdict: str
    near_before: Rate
    near_after: Rate
    near_difference: Estimate | None


class CompressionCheck(NamedTuple):
    """All compressions of a conversation, one by one and together."""

    sessions: tuple[str, ...]
    has_compression: bool
    proficiency_preserved: bool | None
    verdict: str
    together: Retention | None
    compressions: tuple[Retention, ...]


def find_conversation_chain(lineage: Sequence[Session], session: Session) -> list[Session]:
    """Return the sessions of `lineage` that form one conversation with `session`, oldest first."""
    by_id = {one.id: one for one in lineage}
    chain = [session]
    while (parent := by_id.get(chain[0].parent or "")) and is_continuation(parent, chain[0]):
        if parent in chain:
            break
        chain.insert(0, parent)
    while child := next((one for one in lineage if is_continuation(chain[-1], one)), None):
        if child in chain:
            break
        chain.append(child)
    return chain


def check_compressions(chain: Sequence[JudgedSession]) -> CompressionCheck:
    """Check the compressions of a conversation: a session, or a chain of them, oldest first.

    The calls of the conversation are taken as independent of each other.
    """
    sample = collect_sample(chain)
    found = list(find_compressions(sample))
    retentions = tuple(_assess_point(point) for point in found)
    if not retentions:
        ids = tuple(judged.session.id for judged in chain)
        return CompressionCheck(ids, False, None, NOT_ENOUGH, None, ())
    whole = retentions[0] if len(retentions) == 1 else _combine_retentions(retentions)
    return CompressionCheck(
        tuple(judged.session.id for judged in chain),
        True,
        whole.within,
        whole.verdict,
        whole,
        retentions,
    )


def _assess_point(point: CompressionPoint) -> Retention:
    near_before, near_after = (stretch.compute_rate() for stretch in point.get_nearby_windows())
    return _assess_retention(
        point.after.track.id,
        point.in_child,
        point.before.compute_rate(),
        point.after.compute_rate(),
        near_before,
        near_after,
    )


def _combine_retentions(retentions: Sequence[Retention]) -> Retention:
    """Combine all compressions: before the first against after it, and all nearby calls."""
    last = retentions[-1]
    after = _sum_rates([each.after for each in retentions])
    near = [
        _sum_rates([each.near_before for each in retentions]),
        _sum_rates([each.near_after for each in retentions]),
    ]
    return _assess_retention(last.session, last.in_child, retentions[0].before, after, *near)


def _sum_rates(rates: Sequence[Rate]) -> Rate:
    return compute_single_rate(
        sum(rate.errors for rate in rates), sum(rate.calls for rate in rates)
    )


def _assess_retention(
    session: str, in_child: bool, before: Rate, after: Rate, near_before: Rate, near_after: Rate
) -> Retention:
    within, excess, verdict = None, None, NOT_ENOUGH
    if before.range and after.range and before.rate is not None and after.rate is not None:
        within = after.rate <= TOLERANCE * before.rate
        value = after.rate - TOLERANCE * before.rate
        excess = Estimate(
            value, *combine_intervals(after.rate, after.range, before.rate, before.range, TOLERANCE)
        )
        verdict = KEPT if excess.high <= 0 else NOT_KEPT if excess.low > 0 else NOT_ENOUGH
    return Retention(
        session, in_child, before, after, within, excess, verdict,
        near_before, near_after, compare_single_rates(near_after, near_before),
    )  # fmt: skip


def compute_single_rate(errors: int, calls: int) -> Rate:
    """Compute the error rate of one conversation, taking its calls as independent."""
    if not calls:
        return Rate(0, 0, 1)
    return Rate(errors, calls, 1, errors / calls, *compute_wilson_interval(errors, calls))


def compare_single_rates(a: Rate, b: Rate) -> Estimate | None:
    """Compute a - b for two such rates: Newcombe's interval and Fisher's exact test."""
    if a.rate is None or b.rate is None:
        return None
    counts = (a.errors, a.calls, b.errors, b.calls)
    return Estimate(
        a.rate - b.rate, *compute_newcombe_interval(*counts), compute_fisher_p_value(*counts)
    )
