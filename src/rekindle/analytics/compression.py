"""What compressing a conversation does to its calls: right before against right after.

The history of a session is replaced by a summary either inside the session or by going on in a
child. Both are a *cut*, with a stretch of calls before it and one after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rekindle.types import Judged, Session

from .claims import FEWEST_SESSIONS, NOT_ENOUGH
from .cluster_stats import Estimate, Rate, spread
from .groups import Group, Pair, View, counts_of, same_session, same_session_and_tool, sides
from .sample import Sample, Track, gather, goes_on
from .statistics import combined, fisher, newcombe, wilson

NEAR = 20  # calls to each side of a cut
STEP = 5
TOLERANCE = 1.2  # an error rate within 20% counts as kept
KEPT, NOT_KEPT = "kept", "not kept"


class Stretch(NamedTuple):
    """The calls of a track from `start` to `stop`."""

    track: Track
    start: int
    stop: int

    def counts(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        return counts_of(self.track, numbers, self.start, self.stop)

    def rate(self) -> Rate:
        failed = self.track.failed[self.start : self.stop]
        return rate_of_one(sum(failed), len(failed))


class Cut(NamedTuple):
    """A compression, and the stretches of calls between it and the next one to each side."""

    family: str
    before: Stretch
    after: Stretch
    in_child: bool

    def near(self) -> tuple[Stretch, Stretch]:
        """The calls right before and right after; a call between two cuts is near one of them."""
        track, start, stop = self.before
        first = stop - (stop - start if start == 0 else (stop - start) // 2)
        before = Stretch(track, max(first, stop - NEAR), stop)
        track, start, stop = self.after
        last = start + (
            stop - start if stop == len(track.failed) else (stop - start) - (stop - start) // 2
        )
        return before, Stretch(track, start, min(last, start + NEAR))


def cuts(sample: Sample) -> Iterator[Cut]:
    """Every compression of the sessions, inside one or by going on in a child."""
    stretches: list[list[Stretch]] = []
    for track, family in zip(sample.tracks, sample.families, strict=True):
        places = [bisect_left(track.positions, position) for position in track.compressions]
        edges = [0, *places, len(track.positions)]
        mine = [Stretch(track, start, stop) for start, stop in pairwise(edges)]
        stretches.append(mine)
        for before, after in pairwise(mine):
            yield Cut(family, before, after, in_child=False)
    for parent, child in sample.continued:
        before, after = stretches[parent][-1], stretches[child][0]
        yield Cut(sample.families[child], before, after, in_child=True)


# ── over many sessions


class Nearby(NamedTuple):
    """Calls at a distance from a compression: from -20 (before) to 20 (after)."""

    first: int
    last: int
    rate: Rate


class Around(NamedTuple):
    """All compressions together."""

    compressions: int
    before: Rate
    after: Rate
    change: Estimate | None  # as it is
    same_tool: Estimate | None  # each tool of a session with itself
    steps: tuple[Nearby, ...]


def around(view: View) -> Around:
    """The calls right before and right after all compressions."""
    pairs: list[Pair] = []
    nearby = [Group() for _ in range(2 * NEAR // STEP)]
    count, numbers = 0, view.numbers
    for cut in cuts(view.sample):
        count += 1
        before, after = cut.near()
        pair = Pair(cut.family, after.counts(numbers), before.counts(numbers))
        if pair.later and pair.earlier:
            pairs.append(pair)
        for step in range(NEAR // STEP):
            stop, start = before.stop - step * STEP, after.start + step * STEP
            left = Stretch(before.track, max(before.start, stop - STEP), max(before.start, stop))
            right = Stretch(after.track, start, min(after.stop, start + STEP))
            nearby[NEAR // STEP - 1 - step].add(cut.family, left.counts(numbers))
            nearby[NEAR // STEP + step].add(cut.family, right.counts(numbers))
    later, earlier = sides(pairs)
    compared = pairs if len(pairs) >= FEWEST_SESSIONS else []
    measured, coverage = same_session_and_tool(compared)
    return Around(
        count,
        earlier.rate,
        later.rate,
        spread(same_session(compared)),
        spread(measured, coverage),
        tuple(_nearby(index, group) for index, group in enumerate(nearby)),
    )


def _nearby(index: int, group: Group) -> Nearby:
    first = index * STEP - NEAR
    return Nearby(first + (first >= 0), first + STEP - (first < 0), group.rate)


# ── of one conversation


class Kept(NamedTuple):
    """One compression of a conversation: did it keep its proficiency?

    `within` says whether the error rate after is at most 20% over that before, `verdict` whether
    that is sure. The rest is about the calls right before and right after.
    """

    session: str  # that goes on
    in_child: bool
    before: Rate
    after: Rate
    within: bool | None
    excess: Estimate | None  # rate after, less 1.2 times the rate before
    verdict: str
    near_before: Rate
    near_after: Rate
    near_difference: Estimate | None


class Check(NamedTuple):
    """All compressions of a conversation, one by one and together."""

    sessions: tuple[str, ...]
    has_compression: bool
    proficiency_preserved: bool | None
    verdict: str
    together: Kept | None
    compressions: tuple[Kept, ...]


def chain_of(lineage: Sequence[Session], session: Session) -> list[Session]:
    """The sessions of the lineage that are one conversation with this one, oldest first."""
    by_id = {one.id: one for one in lineage}
    chain = [session]
    while (parent := by_id.get(chain[0].parent or "")) and goes_on(parent, chain[0]):
        if parent in chain:
            break
        chain.insert(0, parent)
    while child := next((one for one in lineage if goes_on(chain[-1], one)), None):
        if child in chain:
            break
        chain.append(child)
    return chain


def check(chain: Sequence[Judged]) -> Check:
    """Look at the compressions of a conversation: a session, or a chain of them, oldest first.

    The calls of the one conversation are taken as independent of each other.
    """
    sample = gather(chain)
    found = list(cuts(sample))
    kept = tuple(_kept(cut) for cut in found)
    if not kept:
        ids = tuple(judged.session.id for judged in chain)
        return Check(ids, False, None, NOT_ENOUGH, None, ())
    whole = kept[0] if len(kept) == 1 else _all(kept)
    return Check(
        tuple(judged.session.id for judged in chain), True, whole.within, whole.verdict, whole, kept
    )


def _kept(cut: Cut) -> Kept:
    near_before, near_after = (stretch.rate() for stretch in cut.near())
    return _judge(
        cut.after.track.id,
        cut.in_child,
        cut.before.rate(),
        cut.after.rate(),
        near_before,
        near_after,
    )


def _all(kept: Sequence[Kept]) -> Kept:
    """All compressions together: before the first against after it, and all that is near to one."""
    last = kept[-1]
    after = _sum([each.after for each in kept])
    near = [_sum([each.near_before for each in kept]), _sum([each.near_after for each in kept])]
    return _judge(last.session, last.in_child, kept[0].before, after, *near)


def _sum(rates: Sequence[Rate]) -> Rate:
    return rate_of_one(sum(rate.errors for rate in rates), sum(rate.calls for rate in rates))


def _judge(
    session: str, in_child: bool, before: Rate, after: Rate, near_before: Rate, near_after: Rate
) -> Kept:
    within, excess, verdict = None, None, NOT_ENOUGH
    if before.range and after.range and before.rate is not None and after.rate is not None:
        within = after.rate <= TOLERANCE * before.rate
        value = after.rate - TOLERANCE * before.rate
        excess = Estimate(
            value, *combined(after.rate, after.range, before.rate, before.range, TOLERANCE)
        )
        verdict = KEPT if excess.high <= 0 else NOT_KEPT if excess.low > 0 else NOT_ENOUGH
    return Kept(
        session, in_child, before, after, within, excess, verdict,
        near_before, near_after, difference_of_two(near_after, near_before),
    )  # fmt: skip


def rate_of_one(errors: int, calls: int) -> Rate:
    """Errors per call of one conversation, its calls taken as independent."""
    if not calls:
        return Rate(0, 0, 1)
    return Rate(errors, calls, 1, errors / calls, *wilson(errors, calls))


def difference_of_two(a: Rate, b: Rate) -> Estimate | None:
    """The difference of two such rates, a - b: Newcombe's interval, and Fisher's exact test."""
    if a.rate is None or b.rate is None:
        return None
    counts = (a.errors, a.calls, b.errors, b.calls)
    return Estimate(a.rate - b.rate, *newcombe(*counts), fisher(*counts))
