"""What many sessions show: where calls fail, and whether that changes as sessions go on.

Every rate is over calls that were judged, without bookkeeping and copies, and stands beside what it
becomes when the two things that mislead are taken out: another mix of tools, and other sessions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rekindle.judging.tool_kinds import work
from rekindle.types import Judged

from .claims import FEWEST_SESSIONS, LONG, MIDDLE, Claim, claims
from .cluster_stats import Estimate, Rate, spread
from .compression import Around, around
from .groups import (
    Counts,
    Group,
    Pair,
    View,
    at_mix,
    by_work,
    counts_of,
    same_session,
    same_session_and_tool,
    strata,
    view,
)
from .profile import TASK_KINDS
from .sample import Sample, Totals, Track, gather

LENGTHS = ("under 30", "30–99", "100 and more")
STEPS = (1, 11, 21, 31, 51, 76, 101, 151, 201, 301, 501)  # the first call of each step


class Row(NamedTuple):
    """One group of sessions: its rate as it is, at the mix of all, and how its sessions change."""

    name: str
    rate: Rate
    same_mix: Estimate | None  # the rate it would have with the tools of all sessions
    change: Estimate | None  # last fifth less first fifth, each session with itself
    same_tool: Estimate | None  # … each tool of a session with itself


class Tool(NamedTuple):
    """One tool; `agent` counts the errors that were the agent's own."""

    name: str
    work: str
    rate: Rate
    agent: int


class Step(NamedTuple):
    """Calls at a place in their session, and the sessions that got that far."""

    first: int
    last: int | None
    alive: int
    rate: Rate
    change: Estimate | None  # against the first step, each tool of a session with itself


class Cell(NamedTuple):
    """Sessions of one source and length."""

    source: str
    length: str
    rate: Rate


class Insight(NamedTuple):
    """All of it."""

    totals: Totals
    rate: Rate
    lengths: tuple[Row, ...]
    tasks: tuple[Row, ...]
    sources: tuple[Row, ...]
    models: tuple[Row, ...]
    tools: tuple[Tool, ...]
    positions: tuple[Step, ...]
    lengths_by_source: tuple[Cell, ...]
    errors: Mapping[str, int]
    compression: Around
    claims: tuple[Claim, ...]


def insight(sessions: Iterable[Judged]) -> Insight:
    """Look at sessions, given in the order of their start."""
    return of_sample(gather(sessions))


def of_sample(sample: Sample) -> Insight:
    """Look at sessions that were gathered."""
    tools, works = view(sample, strata(sample)), view(sample, by_work(sample))
    everything = Group()
    for seen in works.sessions:
        everything.add(seen.family, seen.whole)
    return Insight(
        sample.totals,
        everything.rate,
        _ordered(_rows(tools, _length), LENGTHS),
        _ordered(_rows(tools, lambda track: track.task), (*TASK_KINDS, "mixed")),
        _by_calls(_rows(works, lambda track: track.source)),
        _by_calls(_rows(works, lambda track: track.model)),
        _tools(sample),
        _positions(tools),
        _cells(works),
        dict(sample.errors.most_common()),
        around(tools),
        claims(tools),
    )


# ── groups of sessions


def _length(track: Track) -> str:
    return LENGTHS[(track.messages >= MIDDLE) + (track.messages >= LONG)]


def _rows(view: View, key: Callable[[Track], str]) -> list[Row]:
    groups: defaultdict[str, Group] = defaultdict(Group)
    pairs: dict[str, list[Pair]] = {}
    everything = Group()
    for track, family, whole, fifths in view.sessions:
        name = key(track)
        groups[name].add(family, whole)
        everything.add(family, whole)
        if fifths:
            pairs.setdefault(name, []).append(fifths)
    mix = everything.mix()
    return [_row(name, group, mix, pairs.get(name, [])) for name, group in groups.items()]


def _row(name: str, group: Group, mix: Mapping[int, float], pairs: Sequence[Pair]) -> Row:
    rate = group.rate
    if rate.range is None:
        return Row(name, rate, None, None, None)
    enough = len(pairs) >= FEWEST_SESSIONS
    measured, coverage = same_session_and_tool(pairs) if enough else (None, 0.0)
    change = spread(same_session(pairs)) if enough else None
    return Row(name, rate, at_mix(group, mix), change, spread(measured, coverage))


def _ordered(rows: Iterable[Row], names: Sequence[str]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: names.index(row.name)))


def _by_calls(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.rate.calls, row.name)))


def _cells(view: View) -> tuple[Cell, ...]:
    groups: defaultdict[tuple[str, str], Group] = defaultdict(Group)
    for track, family, whole, _ in view.sessions:
        groups[track.source, _length(track)].add(family, whole)
    found = [Cell(*key, group.rate) for key, group in groups.items()]
    return tuple(sorted(found, key=lambda cell: (cell.source, LENGTHS.index(cell.length))))


# ── tools


def _tools(sample: Sample) -> tuple[Tool, ...]:
    names = list(dict.fromkeys(name for name, _ in sample.kinds))
    places = {name: place for place, name in enumerate(names)}
    numbers = [places[name] for name, _ in sample.kinds]
    groups = [Group() for _ in names]
    agent = [0] * len(names)
    for number, fault in zip(numbers, sample.faults, strict=True):
        agent[number] += fault
    for track, family in zip(sample.tracks, sample.families, strict=True):
        for number, part in counts_of(track, numbers).items():
            groups[number].add(family, {number: part})
    found = [
        Tool(name, work(name), groups[place].rate, agent[place]) for name, place in places.items()
    ]
    return tuple(sorted(found, key=lambda tool: (-tool.rate.calls, tool.name)))


# ── places in a session


def _positions(view: View) -> tuple[Step, ...]:
    groups = [Group() for _ in STEPS]
    pairs: list[list[Pair]] = [[] for _ in STEPS]
    alive = [0] * len(STEPS)
    for track, family, _, _ in view.sessions:
        for step in range(bisect_right(STEPS, track.calls)):
            alive[step] += 1
        before: Counts = {}
        for step, start, stop in _stretches(track.places):
            groups[step].add(family, counts_of(track, view.numbers, start, stop))
            inner = counts_of(track, view.numbers, start, min(stop, track.early))
            if step == 0:
                before = inner
            elif before and inner and track.is_whole:
                pairs[step].append(Pair(family, inner, before))
    steps: list[Step] = []
    for step, first in enumerate(STEPS):
        if alive[step]:
            last = STEPS[step + 1] - 1 if step + 1 < len(STEPS) else None
            rate = groups[step].rate
            measured, coverage = same_session_and_tool(pairs[step])
            enough = len(pairs[step]) >= FEWEST_SESSIONS
            change = spread(measured, coverage) if enough else None
            steps.append(Step(first, last, alive[step], rate, change))
    return tuple(steps)


def _stretches(places: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Which of the calls are in which step: its number, the first call, the one behind the last."""
    start = 0
    while start < len(places):
        step = bisect_right(STEPS, places[start]) - 1
        end = STEPS[step + 1] if step + 1 < len(STEPS) else None
        stop = len(places) if end is None else start
        while end is not None and stop < len(places) and places[stop] < end:
            stop += 1
        yield step, start, stop
        start = stop
