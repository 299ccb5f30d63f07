"""Sum calls by family and tool, and compare them: directly, and at the same tool mix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .cluster_stats import (
    ClusteredEstimate,
    Estimate,
    Rate,
    compute_rate,
    compute_rate_interval,
    estimate_ratio,
    estimate_standardized_rate,
    estimate_stratified_difference,
    subtract_estimates,
)
from .profile import END_DIVISOR
from .sample import Sample, SessionTrack

# Rarer tools are combined: a rate over a handful of calls says nothing.
RARE_CALLS, RARE_SHARE = 20, 0.005
OTHER_TOOLS = -1
MIN_FIFTHS_CALLS = 10  # for a first and a last fifth worth comparing
MIN_COVERAGE = 0.8  # mixes with less overlap are not compared

Counts: TypeAlias = dict[int, list[int]]  # errors and calls by tool


class CallGroup:
    """Sessions, or parts of them, summed up."""

    def __init__(self) -> None:
        self.parts: dict[str, list[int]] = {}
        self.cells: dict[str, Counts] = {}
        self.sessions = 0

    def add(self, family: str, counts: Counts) -> None:
        """Add one session, or the part of it that belongs to this group."""
        if not counts:
            return
        self.sessions += 1
        part = self.parts.setdefault(family, [0, 0])
        cells = self.cells.setdefault(family, {})
        for tool, (errors, calls) in counts.items():
            part[0] += errors
            part[1] += calls
            cell = cells.get(tool)
            if cell is None:
                cells[tool] = [errors, calls]
            else:
                cell[0] += errors
                cell[1] += calls

    @property
    def rate(self) -> Rate:
        """The error rate of the group."""
        return compute_rate(self.parts, self.sessions)

    @property
    def estimate(self) -> ClusteredEstimate | None:
        """The error rate as an estimate that can be subtracted from others."""
        return estimate_ratio(self.parts)

    def count_by_tool(self) -> dict[int, int]:
        """Count the calls of each tool."""
        mix: dict[int, int] = {}
        for cells in self.cells.values():
            for tool, (_, calls) in cells.items():
                mix[tool] = mix.get(tool, 0) + calls
        return mix


class EarlyLatePair(NamedTuple):
    """The later and the earlier part of one session."""

    family: str
    later: Counts
    earlier: Counts


class GroupedSession(NamedTuple):
    """A session of a grouping, with its counts."""

    track: SessionTrack
    family: str
    whole: Counts
    fifths: EarlyLatePair | None  # its last and first fifth, if it has both


class Grouping(NamedTuple):
    """All sessions, with their calls numbered by what is compared: tools, or kinds of work."""

    sample: Sample
    numbers: list[int]  # of each kind of call
    sessions: list[GroupedSession]


def group_sessions(sample: Sample, numbers: list[int]) -> Grouping:
    """Count the calls of each session once, by the given numbers."""
    sessions = [
        GroupedSession(
            track,
            family,
            count_calls(track, numbers),
            split_fifths(track, family, numbers, track.early) if track.is_whole else None,
        )
        for track, family in zip(sample.tracks, sample.families, strict=True)
    ]
    return Grouping(sample, numbers, sessions)


def number_tools(sample: Sample) -> list[int]:
    """Assign a number to each kind of call for comparison by tool; rare tools share one number."""
    counts = [0] * len(sample.kinds)
    for track in sample.tracks:
        for kind in track.kinds:
            counts[kind] += 1
    least = max(RARE_CALLS, RARE_SHARE * sum(counts))
    return [kind if count >= least else OTHER_TOOLS for kind, count in enumerate(counts)]


def number_work_kinds(sample: Sample) -> list[int]:
    """Assign a number to each kind of call by its kind of work, which agents have in common."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(work, len(numbers)) for _, work in sample.kinds]


def count_calls(
    track: SessionTrack, numbers: Sequence[int], start: int = 0, stop: int | None = None
) -> Counts:
    """Count errors and calls by tool, from `start` up to `stop`."""
    counts: Counts = {}
    for kind, failed in zip(track.kinds[start:stop], track.failed[start:stop], strict=True):
        number = numbers[kind]
        cell = counts.get(number)
        if cell is None:
            counts[number] = [failed, 1]
        else:
            cell[0] += failed
            cell[1] += 1
    return counts


def split_fifths(
    track: SessionTrack, family: str, numbers: Sequence[int], end: int
) -> EarlyLatePair | None:
    """Split off the last and the first fifth of a session's calls up to `end`."""
    if end < MIN_FIFTHS_CALLS:
        return None
    size = end // END_DIVISOR
    return EarlyLatePair(
        family, count_calls(track, numbers, end - size, end), count_calls(track, numbers, 0, size)
    )


# ── at the same tool mix


def estimate_at_mix(group: CallGroup, weights: Mapping[int, float]) -> Estimate | None:
    """Estimate the group's rate at the mix of `weights`, as far as it has those tools."""
    own_mix = group.count_by_tool()
    known = {tool: weight for tool, weight in weights.items() if tool in own_mix}
    total = sum(weights.values())
    coverage = sum(known.values()) / total if total else 0.0
    measured = estimate_standardized_rate(group.cells, known)
    if measured is None or coverage < MIN_COVERAGE or len(measured.shifts) < 2:
        return None
    low, high = compute_rate_interval(measured, [part[1] for part in group.parts.values()])
    return Estimate(measured.value, low, high, coverage=coverage)


def compare_at_same_mix(a: CallGroup, b: CallGroup) -> tuple[ClusteredEstimate | None, float]:
    """Compare two rates, a - b, over the tools both have, at their combined mix.

    Also return the share of the calls that could be compared.
    """
    mine, other = a.count_by_tool(), b.count_by_tool()
    weights = {tool: mine[tool] + other[tool] for tool in mine if tool in other}
    calls = sum(mine.values()) + sum(other.values())
    coverage = sum(weights.values()) / calls if calls else 0.0
    first, second = (
        estimate_standardized_rate(a.cells, weights),
        estimate_standardized_rate(b.cells, weights),
    )
    if first is None or second is None or coverage < MIN_COVERAGE:
        return None, coverage
    return subtract_estimates(first, second), coverage


# ── inside sessions


def compare_within_session(pairs: Iterable[EarlyLatePair]) -> ClusteredEstimate | None:
    """Compare later with earlier calls inside each session."""
    return estimate_stratified_difference(
        (pair.family, *_sum_counts(pair.later), *_sum_counts(pair.earlier))
        for pair in pairs
        if pair.later and pair.earlier
    )


def compare_within_tool(pairs: Sequence[EarlyLatePair]) -> tuple[ClusteredEstimate | None, float]:
    """Compare later with earlier calls inside each tool of a session.

    Also return the share of the calls that could be compared.
    """
    cells: list[tuple[str, int, int, int, int]] = []
    calls = compared = 0
    for family, later, earlier in pairs:
        calls += _sum_counts(later)[1] + _sum_counts(earlier)[1]
        for tool, cell in later.items():
            before = earlier.get(tool)
            if before is not None:
                cells.append((family, *_as_pair(cell), *_as_pair(before)))
                compared += cell[1] + before[1]
    return estimate_stratified_difference(cells), compared / calls if calls else 0.0


def sum_pairs(pairs: Iterable[EarlyLatePair]) -> tuple[CallGroup, CallGroup]:
    """Sum the later and the earlier parts."""
    later, earlier = CallGroup(), CallGroup()
    for pair in pairs:
        later.add(pair.family, pair.later)
        earlier.add(pair.family, pair.earlier)
    return later, earlier


def _sum_counts(counts: Counts) -> tuple[int, int]:
    errors = calls = 0
    for cell in counts.values():
        errors += cell[0]
        calls += cell[1]
    return errors, calls


def _as_pair(cell: Sequence[int]) -> tuple[int, int]:
    return cell[0], cell[1]
