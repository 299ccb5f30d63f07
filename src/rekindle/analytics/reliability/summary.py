"""Summarize a selection of calls from the index, in total and by every grouping."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rekindle.analytics.cluster_stats import Estimate, Rate, compute_column_rate, subtract_rates
from rekindle.analytics.insights import POSITION_STARTS

from .call_index import NO_WEEK, CallIndex, CountTable

DIMENSIONS = ("tool", "command", "project", "agent", "model", "week", "position")
MAX_WEEKS = 53
TREND_WEEKS = 4


class CallChoice(NamedTuple):
    """Which calls count; None is all."""

    project: str | None = None
    agent: str | None = None
    model: str | None = None
    tool: str | None = None
    command: str | None = None
    week: int | None = None
    position: int | None = None  # the first call of a bucket
    since: float | None = None


class GroupRate(NamedTuple):
    """The calls of one group."""

    name: str
    rate: Rate


class Trend(NamedTuple):
    """The newest weeks against those before; without a difference there are too few calls."""

    weeks: int
    now: Rate
    before: Rate
    change: Estimate | None

    @property
    def is_clear(self) -> bool:
        return self.change is not None and not self.change.range.contains(0.0)


class ReliabilitySummary(NamedTuple):
    """How often the chosen calls failed."""

    rate: Rate
    groups: Mapping[str, tuple[GroupRate, ...]]  # by dimension
    trend: Trend | None


class _Sums:
    """Columns with a value for each family, and the number of sessions."""

    __slots__ = ("calls", "failed", "sessions")

    def __init__(self) -> None:
        self.failed, self.calls = array("I"), array("I")
        self.sessions = 0

    def add(self, failed: int, calls: int, sessions: int) -> None:
        self.failed.append(failed)
        self.calls.append(calls)
        self.sessions += sessions

    @property
    def rate(self) -> Rate:
        return compute_column_rate(self.failed, self.calls, self.sessions)


_Key = tuple[str, int]
_WHOLE: _Key = ("", 0)


def summarize_calls(index: CallIndex, choice: CallChoice) -> ReliabilitySummary:
    """Sum up the chosen calls."""
    sums: dict[_Key, _Sums] = {}
    family, parts = -1, dict[_Key, list[int]]()
    weeks = index.list_weeks()[-2 * TREND_WEEKS :]
    recent = {week: week in weeks[-TREND_WEEKS:] for week in weeks}
    for session in iter_sessions(index, choice, index.order):
        if index.family[session] != family:
            _flush_parts(sums, parts)
            family, parts = index.family[session], {}
        _count_session(index, choice, session, recent, parts)
    _flush_parts(sums, parts)
    return ReliabilitySummary(
        rate=_get_rate(sums, _WHOLE),
        groups={name: _list_groups(index, name, sums) for name in DIMENSIONS},
        trend=_build_trend(sums) if len(weeks) >= TREND_WEEKS + 1 else None,
    )


def _flush_parts(sums: dict[_Key, _Sums], parts: dict[_Key, list[int]]) -> None:
    for key, (failed, calls, sessions) in parts.items():
        found = sums.get(key)
        if found is None:
            found = sums[key] = _Sums()
        found.add(failed, calls, sessions)


def _count_session(
    index: CallIndex,
    choice: CallChoice,
    session: int,
    recent: Mapping[int, bool],
    parts: dict[_Key, list[int]],
) -> None:
    """Add the counts of a session to those of its family."""
    counts: dict[_Key, list[int]] = {}
    failed_all = calls_all = 0
    for name, bucket, failed, calls in iter_counts(index, choice, session):
        failed_all += failed
        calls_all += calls
        _add_counts(counts, ("tool", name), failed, calls)
        _add_counts(counts, ("position", bucket), failed, calls)
    if choice.command is None:
        if calls_all and choice.tool is None and choice.position is None:
            for row in _iter_rows(index.runs, session):
                _add_counts(counts, ("command", row[0]), row[2], row[3])
    else:  # the counts above are of runs
        counts = {("command", index.commands.find(choice.command)): [failed_all, calls_all]}
    if not calls_all:
        return
    week = index.week[session]
    keys: list[_Key] = [
        _WHOLE,
        ("project", index.project[session]),
        ("agent", index.source[session]),
        ("model", index.model[session]),
    ]
    if week != NO_WEEK:
        keys.append(("week", week))
    if week in recent:
        keys.append(("trend", recent[week]))
    for key in keys:
        counts[key] = [failed_all, calls_all]
    for key, (failed, calls) in counts.items():
        part = parts.get(key)
        if part is None:
            parts[key] = [failed, calls, 1]
        else:
            part[0] += failed
            part[1] += calls
            part[2] += 1


def _add_counts(counts: dict[_Key, list[int]], key: _Key, failed: int, calls: int) -> None:
    cell = counts.get(key)
    if cell is None:
        counts[key] = [failed, calls]
    else:
        cell[0] += failed
        cell[1] += calls


def iter_sessions(
    index: CallIndex, choice: CallChoice, order: Sequence[int] | None = None
) -> Iterator[int]:
    """Yield the sessions that a choice selects, in an order or in that of their start."""
    wanted = [
        (column, table.find(name))
        for column, table, name in (
            (index.project, index.projects, choice.project),
            (index.source, index.sources, choice.agent),
            (index.model, index.models, choice.model),
        )
        if name is not None
    ]
    first = 0 if choice.since is None else index.find_since(choice.since)
    week = choice.week
    for session in range(len(index.nums)) if order is None else order:
        if session < first or (week is not None and index.week[session] != week):
            continue
        if all(column[session] == number for column, number in wanted):
            yield session


def iter_counts(
    index: CallIndex, choice: CallChoice, session: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the chosen counts of a session: name, bucket, failed calls, calls."""
    if choice.command is not None:
        number = index.commands.find(choice.command)
        yield from (row for row in _iter_rows(index.runs, session) if row[0] == number)
        return
    if choice.tool is None and choice.position is None:
        yield from _iter_rows(index.calls, session)
        return
    tool = None if choice.tool is None else index.tools.find(choice.tool)
    bucket = None if choice.position is None else find_bucket(choice.position)
    for row in _iter_rows(index.calls, session):
        if (tool is None or row[0] == tool) and (bucket is None or row[1] == bucket):
            yield row


def find_bucket(place: int) -> int:
    """Return the bucket that begins with a call's place, -1 if none does."""
    return POSITION_STARTS.index(place) if place in POSITION_STARTS else -1


def _iter_rows(table: CountTable, session: int) -> Iterator[tuple[int, int, int, int]]:
    rows = slice(table.start[session], table.stop[session])
    return zip(
        table.name[rows], table.bucket[rows], table.failed[rows], table.calls[rows], strict=True
    )


# ── results


def _get_rate(sums: Mapping[_Key, _Sums], key: _Key) -> Rate:
    found = sums.get(key)
    return Rate(0, 0, 0) if found is None else found.rate


def _list_groups(
    index: CallIndex, dimension: str, sums: Mapping[_Key, _Sums]
) -> tuple[GroupRate, ...]:
    keys = [number for name, number in sums if name == dimension]
    if dimension in ("week", "position"):
        chosen = sorted(keys)[-MAX_WEEKS:]
        names = {
            key: str(POSITION_STARTS[key] if dimension == "position" else key) for key in chosen
        }
    else:
        table = {
            "tool": index.tools,
            "command": index.commands,
            "project": index.projects,
            "agent": index.sources,
            "model": index.models,
        }[dimension]
        names = {key: table.names[key] for key in keys}
        chosen = keys
    rows = [GroupRate(names[key], sums[dimension, key].rate) for key in chosen]
    if dimension in ("week", "position"):
        return tuple(rows)
    return tuple(sorted(rows, key=_rank_group))


def _rank_group(row: GroupRate) -> tuple[bool, int, int, str]:
    """Order by failures; a rate without an interval comes after those that are known better."""
    return row.rate.range is None, -row.rate.errors, -row.rate.calls, row.name


def _build_trend(sums: Mapping[_Key, _Sums]) -> Trend:
    now, before = _get_rate(sums, ("trend", 1)), _get_rate(sums, ("trend", 0))
    return Trend(TREND_WEEKS, now, before, subtract_rates(now, before))
