"""Calls added up by family and tool, ready to be compared: as they are, and at the same tool mix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .cluster_stats import (
    Estimate,
    Measured,
    Rate,
    minus,
    rate_of,
    ratio,
    spread_of_rate,
    standardised,
    within,
)
from .profile import END_SHARE
from .sample import Sample, Track

# Tools that are rarer than this are one: a rate over a handful of calls says nothing.
RARE_CALLS, RARE_SHARE = 20, 0.005
OTHER = -1
FEWEST_CALLS = 10  # for a first and a last fifth that can be compared
COVERED = 0.8  # a mix that is known for less than this is not compared

Counts: TypeAlias = dict[int, list[int]]  # errors and calls by tool


class Group:
    """Sessions, or parts of them, added up."""

    def __init__(self) -> None:
        self.parts: dict[str, list[int]] = {}
        self.cells: dict[str, Counts] = {}
        self.sessions = 0

    def add(self, family: str, counts: Counts) -> None:
        """Add one session, or the part of it that belongs here."""
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
        return rate_of(self.parts, self.sessions)

    @property
    def measured(self) -> Measured | None:
        return ratio(self.parts)

    def mix(self) -> dict[int, int]:
        """How many calls each tool has."""
        mix: dict[int, int] = {}
        for cells in self.cells.values():
            for tool, (_, calls) in cells.items():
                mix[tool] = mix.get(tool, 0) + calls
        return mix


class Pair(NamedTuple):
    """The later and the earlier part of one session."""

    family: str
    later: Counts
    earlier: Counts


class Seen(NamedTuple):
    """A session as it is seen in a view."""

    track: Track
    family: str
    whole: Counts
    fifths: Pair | None  # its last and first fifth, where it has both


class View(NamedTuple):
    """All sessions, with their calls numbered by what is to be compared: tools, or kinds of work."""

    sample: Sample
    numbers: list[int]  # of each kind of call
    sessions: list[Seen]


def view(sample: Sample, numbers: list[int]) -> View:
    """Add up each session once."""
    sessions = [
        Seen(
            track,
            family,
            counts_of(track, numbers),
            fifths(track, family, numbers, track.early) if track.is_whole else None,
        )
        for track, family in zip(sample.tracks, sample.families, strict=True)
    ]
    return View(sample, numbers, sessions)


def strata(sample: Sample) -> list[int]:
    """For each kind of call the number it is compared under: its own, or that of the rare ones."""
    counts = [0] * len(sample.kinds)
    for track in sample.tracks:
        for kind in track.kinds:
            counts[kind] += 1
    least = max(RARE_CALLS, RARE_SHARE * sum(counts))
    return [kind if count >= least else OTHER for kind, count in enumerate(counts)]


def by_work(sample: Sample) -> list[int]:
    """For each kind of call the number of its kind of work: what different agents have in common."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(work, len(numbers)) for _, work in sample.kinds]


def counts_of(
    track: Track, numbers: Sequence[int], start: int = 0, stop: int | None = None
) -> Counts:
    """Errors and calls by tool, of the calls from `start` to `stop`."""
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


def fifths(track: Track, family: str, numbers: Sequence[int], end: int) -> Pair | None:
    """The last and the first fifth of a session's calls up to `end`."""
    if end < FEWEST_CALLS:
        return None
    size = end // END_SHARE
    return Pair(
        family, counts_of(track, numbers, end - size, end), counts_of(track, numbers, 0, size)
    )


# ── at the same mix


def at_mix(group: Group, weights: Mapping[int, float]) -> Estimate | None:
    """The rate that the group would have at the mix of `weights`, as far as it has those tools."""
    mine = group.mix()
    known = {tool: weight for tool, weight in weights.items() if tool in mine}
    whole = sum(weights.values())
    coverage = sum(known.values()) / whole if whole else 0.0
    measured = standardised(group.cells, known)
    if measured is None or coverage < COVERED or len(measured.shifts) < 2:
        return None
    low, high = spread_of_rate(measured, [part[1] for part in group.parts.values()])
    return Estimate(measured.value, low, high, coverage=coverage)


def same_mix(a: Group, b: Group) -> tuple[Measured | None, float]:
    """The difference of the rates, a - b, over the tools both have, at the mix of both together.

    The second number is the share of the calls that could be compared.
    """
    mine, other = a.mix(), b.mix()
    weights = {tool: mine[tool] + other[tool] for tool in mine if tool in other}
    calls = sum(mine.values()) + sum(other.values())
    coverage = sum(weights.values()) / calls if calls else 0.0
    first, second = standardised(a.cells, weights), standardised(b.cells, weights)
    if first is None or second is None or coverage < COVERED:
        return None, coverage
    return minus(first, second), coverage


# ── inside sessions


def same_session(pairs: Iterable[Pair]) -> Measured | None:
    """Later less earlier, each session compared with itself."""
    return within(
        (pair.family, *_sum(pair.later), *_sum(pair.earlier))
        for pair in pairs
        if pair.later and pair.earlier
    )


def same_session_and_tool(pairs: Sequence[Pair]) -> tuple[Measured | None, float]:
    """Later less earlier, each tool of a session compared with itself; and the share compared."""
    cells: list[tuple[str, int, int, int, int]] = []
    calls = compared = 0
    for family, later, earlier in pairs:
        calls += _sum(later)[1] + _sum(earlier)[1]
        for tool, cell in later.items():
            before = earlier.get(tool)
            if before is not None:
                cells.append((family, *_two(cell), *_two(before)))
                compared += cell[1] + before[1]
    return within(cells), compared / calls if calls else 0.0


def sides(pairs: Iterable[Pair]) -> tuple[Group, Group]:
    """The later and the earlier parts, each added up."""
    later, earlier = Group(), Group()
    for pair in pairs:
        later.add(pair.family, pair.later)
        earlier.add(pair.family, pair.earlier)
    return later, earlier


def _sum(counts: Counts) -> tuple[int, int]:
    errors = calls = 0
    for cell in counts.values():
        errors += cell[0]
        calls += cell[1]
    return errors, calls


def _two(cell: Sequence[int]) -> tuple[int, int]:
    return cell[0], cell[1]
