"""Report where calls fail across many sessions, and whether that changes within sessions.

Every rate counts judged calls, without bookkeeping and copies, and is shown next to the rate adjusted
for the two usual confounders: a different mix of tools, and different sessions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rekindle.judging.tool_kinds import get_tool_work
from rekindle.types import JudgedSession

from .claims import LONG_MESSAGES, MIDDLE_MESSAGES, MIN_COMPARED_SESSIONS, Claim, evaluate_claims
from .cluster_stats import Estimate, Rate, to_estimate
from .compression import CompressionSummary, summarize_compressions
from .groups import (
    CallGroup,
    Counts,
    EarlyLatePair,
    Grouping,
    compare_within_session,
    compare_within_tool,
    count_calls,
    estimate_at_mix,
    group_sessions,
    number_tools,
    number_work_kinds,
)
from .outcome_rates import OutcomeRate
from .profile import TASK_KINDS
from .sample import Sample, SessionTrack, Totals, collect_sample

LENGTHS = ("under 30", "30–99", "100 and more")
POSITION_STARTS = (1, 11, 21, 31, 51, 76, 101, 151, 201, 301, 501)  # the first call of each bucket


class SessionGroupRow(NamedTuple):
    """One group of sessions: its rate, the rate at the overall tool mix, and its change."""

    name: str
    rate: Rate
    same_mix: Estimate | None  # the rate it would have at the tool mix of all sessions
    change: Estimate | None  # last fifth minus first fifth, within sessions
    same_tool: Estimate | None  # … within each tool of a session


class ToolRow(NamedTuple):
    """One tool; `agent` counts the errors that were the agent's own."""

    name: str
    kind: str
    rate: Rate
    agent: int


class PositionRow(NamedTuple):
    """The calls in a range of positions, and the sessions that reached it."""

    first: int
    last: int | None
    sessions: int
    rate: Rate
    change: Estimate | None  # from the first bucket, within each tool of a session


class SourceLengthRow(NamedTuple):
    """The sessions of one source and length."""

    source: str
    length: str
    rate: Rate


class Insights(NamedTuple):
    """All results."""

    totals: Totals
    rate: Rate
    lengths: tuple[SessionGroupRow, ...]
    tasks: tuple[SessionGroupRow, ...]
    sources: tuple[SessionGroupRow, ...]
    models: tuple[SessionGroupRow, ...]
    tools: tuple[ToolRow, ...]
    positions: tuple[PositionRow, ...]
    lengths_by_source: tuple[SourceLengthRow, ...]
    errors: Mapping[str, int]
    compression: CompressionSummary
    claims: tuple[Claim, ...]
    outcomes: tuple[OutcomeRate, ...] = ()  # of whole sessions


def compute_insights(sessions: Iterable[JudgedSession]) -> Insights:
    """Compute insights from sessions, given in the order of their start."""
    return summarize_sample(collect_sample(sessions))


def summarize_sample(sample: Sample) -> Insights:
    """Compute insights from a collected sample."""
    tools, work_kinds = (
        group_sessions(sample, number_tools(sample)),
        group_sessions(sample, number_work_kinds(sample)),
    )
    everything = CallGroup()
    for session in work_kinds.sessions:
        everything.add(session.family, session.whole)
    return Insights(
        sample.totals,
        everything.rate,
        _sort_by_names(_build_rows(tools, _get_length_label), LENGTHS),
        _sort_by_names(_build_rows(tools, lambda track: track.task), (*TASK_KINDS, "mixed")),
        _sort_by_calls(_build_rows(work_kinds, lambda track: track.source)),
        _sort_by_calls(_build_rows(work_kinds, lambda track: track.model)),
        _build_tool_rows(sample),
        _build_position_rows(tools),
        _build_source_length_rows(work_kinds),
        dict(sample.errors.most_common()),
        summarize_compressions(tools),
        evaluate_claims(tools),
    )


# ── groups of sessions


def _get_length_label(track: SessionTrack) -> str:
    return LENGTHS[(track.messages >= MIDDLE_MESSAGES) + (track.messages >= LONG_MESSAGES)]


def _build_rows(grouping: Grouping, key: Callable[[SessionTrack], str]) -> list[SessionGroupRow]:
    groups: defaultdict[str, CallGroup] = defaultdict(CallGroup)
    pairs: dict[str, list[EarlyLatePair]] = {}
    everything = CallGroup()
    for track, family, whole, fifths in grouping.sessions:
        name = key(track)
        groups[name].add(family, whole)
        everything.add(family, whole)
        if fifths:
            pairs.setdefault(name, []).append(fifths)
    mix = everything.count_by_tool()
    return [_build_row(name, group, mix, pairs.get(name, [])) for name, group in groups.items()]


def _build_row(
    name: str, group: CallGroup, mix: Mapping[int, float], pairs: Sequence[EarlyLatePair]
) -> SessionGroupRow:
    rate = group.rate
    if rate.range is None:
        return SessionGroupRow(name, rate, None, None, None)
    enough = len(pairs) >= MIN_COMPARED_SESSIONS
    measured, coverage = compare_within_tool(pairs) if enough else (None, 0.0)
    change = to_estimate(compare_within_session(pairs)) if enough else None
    return SessionGroupRow(
        name, rate, estimate_at_mix(group, mix), change, to_estimate(measured, coverage)
    )


def _sort_by_names(
    rows: Iterable[SessionGroupRow], names: Sequence[str]
) -> tuple[SessionGroupRow, ...]:
    return tuple(sorted(rows, key=lambda row: names.index(row.name)))


def _sort_by_calls(rows: Iterable[SessionGroupRow]) -> tuple[SessionGroupRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.rate.calls, row.name)))


def _build_source_length_rows(grouping: Grouping) -> tuple[SourceLengthRow, ...]:
    groups: defaultdict[tuple[str, str], CallGroup] = defaultdict(CallGroup)
    for track, family, whole, _ in grouping.sessions:
        groups[track.source, _get_length_label(track)].add(family, whole)
    found = [SourceLengthRow(*key, group.rate) for key, group in groups.items()]
    return tuple(sorted(found, key=lambda cell: (cell.source, LENGTHS.index(cell.length))))


# ── tools


def _build_tool_rows(sample: Sample) -> tuple[ToolRow, ...]:
    names = list(dict.fromkeys(name for name, _ in sample.kinds))
    indexes = {name: index for index, name in enumerate(names)}
    numbers = [indexes[name] for name, _ in sample.kinds]
    groups = [CallGroup() for _ in names]
    agent_errors = [0] * len(names)
    for number, fault in zip(numbers, sample.faults, strict=True):
        agent_errors[number] += fault
    for track, family in zip(sample.tracks, sample.families, strict=True):
        for number, part in count_calls(track, numbers).items():
            groups[number].add(family, {number: part})
    found = [
        ToolRow(name, get_tool_work(name), groups[index].rate, agent_errors[index])
        for name, index in indexes.items()
    ]
    return tuple(sorted(found, key=lambda tool: (-tool.rate.calls, tool.name)))


# ── positions in a session


def _build_position_rows(grouping: Grouping) -> tuple[PositionRow, ...]:
    groups = [CallGroup() for _ in POSITION_STARTS]
    pairs: list[list[EarlyLatePair]] = [[] for _ in POSITION_STARTS]
    alive = [0] * len(POSITION_STARTS)
    for track, family, _, _ in grouping.sessions:
        for bucket in range(bisect_right(POSITION_STARTS, track.calls)):
            alive[bucket] += 1
        before: Counts = {}
        for bucket, start, stop in _split_by_bucket(track.places):
            groups[bucket].add(family, count_calls(track, grouping.numbers, start, stop))
            inner = count_calls(track, grouping.numbers, start, min(stop, track.early))
            if bucket == 0:
                before = inner
            elif before and inner and track.is_whole:
                pairs[bucket].append(EarlyLatePair(family, inner, before))
    rows: list[PositionRow] = []
    for bucket, first in enumerate(POSITION_STARTS):
        if alive[bucket]:
            last = POSITION_STARTS[bucket + 1] - 1 if bucket + 1 < len(POSITION_STARTS) else None
            rate = groups[bucket].rate
            measured, coverage = compare_within_tool(pairs[bucket])
            enough = len(pairs[bucket]) >= MIN_COMPARED_SESSIONS
            change = to_estimate(measured, coverage) if enough else None
            rows.append(PositionRow(first, last, alive[bucket], rate, change))
    return tuple(rows)


def _split_by_bucket(places: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Yield each bucket of positions with the index of its first call and the end index."""
    start = 0
    while start < len(places):
        bucket = bisect_right(POSITION_STARTS, places[start]) - 1
        end = POSITION_STARTS[bucket + 1] if bucket + 1 < len(POSITION_STARTS) else None
        stop = len(places) if end is None else start
        while end is not None and stop < len(places) and places[stop] < end:
            stop += 1
        yield bucket, start, stop
        start = stop
