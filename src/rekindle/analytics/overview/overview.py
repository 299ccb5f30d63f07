"""Sum up sessions for the people who ran them: time, cost, what fails and what mended it.

Commands are those that belong to a project (`go test`, `npm run build`); what every session runs, such
as `ls` or `git status`, counts only among the tools. Sessions that repeat another one's calls are left
out of the commands and counted. Every rate has its interval, or says that there is too little evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import NamedTuple

from rekindle.analytics.cluster_stats import Rate
from rekindle.analytics.groups import CallGroup
from rekindle.analytics.outcome_rates import OutcomeRate
from rekindle.analytics.sample import Sample, SessionTrack
from rekindle.analytics.usage.report import find_next, find_start, to_date
from rekindle.types import Tokens

from .facts import KnownFailures, Mend, RedTest, SessionFacts

MAX_SESSIONS = 20  # named for a row
MAX_TOP_SESSIONS = 8
MAX_EMPTY_WEEKS = 26


class FailureCount(NamedTuple):
    """A session in which something failed: how often, and how often it was tried."""

    session: str
    failed: int
    calls: int


class GroupRow(NamedTuple):
    """Sessions of a week, a project or an agent."""

    name: str
    sessions: int
    seconds: float
    cost: Decimal
    rate: Rate
    newest: tuple[str, ...]  # sessions


class CommandRow(NamedTuple):
    """A command of a project: how often it failed, where, and what mended it."""

    project: str
    name: str
    rate: Rate
    failing_sessions: int
    newest: tuple[FailureCount, ...]
    mends: tuple[Mend, ...] = ()
    example: str = ""  # what went wrong the last time


class ToolFailures(NamedTuple):
    """A tool: how often it failed, and in which sessions."""

    name: str
    rate: Rate
    failing_sessions: int
    newest: tuple[FailureCount, ...]
    problems: tuple[tuple[str, int], ...] = ()  # what went wrong most often, of the newest failures
    inspected: int = 0  # failures that these were counted in


class OverviewTotals(NamedTuple):
    """The sums over all sessions."""

    sessions: int
    projects: int
    agents: int
    seconds: float
    timed: int  # sessions whose time is known
    tokens: Tokens
    cost: Decimal
    unpriced: int  # tokens without a known price
    calls: int
    refused: int
    unknown: int
    repeated: int  # sessions that repeat another one's calls
    rate: Rate
    first: date | None
    last: date | None
    outcome: OutcomeRate | None = None  # of the sessions


class Overview(NamedTuple):
    """What the reader sees first. Keys of projects are as stored."""

    totals: OverviewTotals
    weeks: tuple[GroupRow, ...]  # in order, named by their Monday
    commands: tuple[CommandRow, ...]
    tools: tuple[ToolFailures, ...]
    mends: tuple[Mend, ...]
    red_tests: tuple[RedTest, ...]
    projects: tuple[GroupRow, ...]
    agents: tuple[GroupRow, ...]
    costly: tuple[str, ...]  # the most expensive sessions
    sessions: Mapping[str, SessionFacts]  # those that a row names


class _Member(NamedTuple):
    """A session with its judged calls."""

    facts: SessionFacts
    track: SessionTrack
    family: str


def compute_overview(
    sample: Sample, facts: Mapping[str, SessionFacts], known: KnownFailures
) -> Overview:
    """Compute the overview of the sessions of a sample, which are in the order of their start."""
    members = [
        _Member(facts[track.id], track, family)
        for track, family in zip(sample.tracks, sample.families, strict=True)
        if track.id in facts
    ]
    overview = Overview(
        totals=_sum_up(members, sample),
        weeks=_build_weeks(members),
        commands=_build_commands(members, known.mends),
        tools=_build_tools(members, sample),
        mends=tuple(known.mends),
        red_tests=tuple(known.red_tests),
        projects=_build_groups(members, lambda one: one.facts.project),
        agents=_build_groups(members, lambda one: one.track.source),
        costly=_find_costly(members),
        sessions={},
    )
    return overview._replace(
        sessions={id: facts[id] for id in _iter_named(overview) if id in facts}
    )


def _sum_up(members: Sequence[_Member], sample: Sample) -> OverviewTotals:
    totals = sample.totals
    every = [one.facts for one in members]
    days = [one.day for one in every if one.seconds is not None]
    return OverviewTotals(
        sessions=len(members),
        projects=len({one.project for one in every if one.project}),
        agents=len({one.session.source for one in every}),
        seconds=sum(one.seconds or 0.0 for one in every),
        timed=sum(one.seconds is not None for one in every),
        tokens=Tokens(*map(sum, zip(*(one.tokens for one in every), strict=True)))
        if every
        else Tokens(),
        cost=sum((one.cost for one in every), Decimal(0)),
        unpriced=sum(one.unpriced for one in every),
        calls=totals.calls - totals.bookkeeping - totals.copies,
        refused=totals.refused,
        unknown=totals.unknown,
        repeated=sum(not one.track.is_whole for one in members),
        rate=_compute_rate(members),
        first=to_date(min(days)) if days else None,
        last=to_date(max(days)) if days else None,
    )


def _compute_rate(members: Iterable[_Member]) -> Rate:
    group = CallGroup()
    for one in members:
        if one.track.failed:
            group.add(one.family, {0: [sum(one.track.failed), len(one.track.failed)]})
    return group.rate


# ── groups of sessions


def _build_groups(
    members: Sequence[_Member], key: Callable[[_Member], str]
) -> tuple[GroupRow, ...]:
    groups: dict[str, list[_Member]] = {}
    for one in members:
        groups.setdefault(key(one), []).append(one)
    rows = [
        _build_group(name, group, sum((one.facts.cost for one in group), Decimal(0)))
        for name, group in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.cost, -row.sessions, row.name)))


def _build_group(name: str, members: Sequence[_Member], cost: Decimal) -> GroupRow:
    newest = tuple(one.track.id for one in reversed(members))[:MAX_SESSIONS]
    seconds = sum(one.facts.seconds or 0.0 for one in members)
    return GroupRow(name, len(members), seconds, cost, _compute_rate(members), newest)


def _build_weeks(members: Sequence[_Member]) -> tuple[GroupRow, ...]:
    """Return the weeks in order, and empty ones between them.

    A session and its calls count in the week in which it started, its cost when it was used. One
    without times counts in none: it seems to have started when it was imported.
    """
    groups: dict[date, list[_Member]] = {}
    costs: dict[date, Decimal] = {}
    for one in members:
        if one.facts.seconds is None:
            continue
        groups.setdefault(find_start(to_date(one.facts.day), "week"), []).append(one)
        for day, cost in one.facts.costs_by_day.items():
            week = find_start(to_date(day), "week")
            costs[week] = costs.get(week, Decimal(0)) + cost
    rows: list[GroupRow] = []
    for week in _fill_weeks(sorted({*groups, *costs})):
        rows.append(
            _build_group(week.isoformat(), groups.get(week, []), costs.get(week, Decimal(0)))
        )
    return tuple(rows)


def _fill_weeks(weeks: Sequence[date]) -> list[date]:
    """Add the weeks between these, unless they are too many."""
    filled: list[date] = []
    for week in weeks:
        gap: list[date] = []
        expected = find_next(filled[-1], "week") if filled else None
        while expected is not None and expected < week and len(gap) <= MAX_EMPTY_WEEKS:
            gap.append(expected)
            expected = find_next(expected, "week")
        filled += gap if len(gap) <= MAX_EMPTY_WEEKS else []
        filled.append(week)
    return filled


def _find_costly(members: Sequence[_Member]) -> tuple[str, ...]:
    ranked = sorted(members, key=lambda one: (-one.facts.cost, -(one.facts.seconds or 0.0)))
    return tuple(one.track.id for one in ranked[:MAX_TOP_SESSIONS] if one.facts.cost)


# ── what fails


class _Failures:
    """How often something was tried and failed, by session."""

    def __init__(self) -> None:
        self._group = CallGroup()
        self._failing: list[FailureCount] = []

    def add(self, one: _Member, failed: int, calls: int) -> None:
        self._group.add(one.family, {0: [failed, calls]})
        if failed:
            self._failing.append(FailureCount(one.track.id, failed, calls))

    def summarize(self) -> tuple[Rate, int, tuple[FailureCount, ...]]:
        newest = tuple(reversed(self._failing))[:MAX_SESSIONS]
        return self._group.rate, len(self._failing), newest


def _build_commands(members: Sequence[_Member], mends: Sequence[Mend]) -> tuple[CommandRow, ...]:
    found: dict[tuple[str, str], _Failures] = {}
    for one in members:
        if one.track.is_whole:
            for command in one.facts.commands:
                key = one.facts.project, command.name
                counts = found.setdefault(key, _Failures())
                counts.add(one, command.failed, command.worked + command.failed)
    mended: dict[tuple[str, str], list[Mend]] = {}
    for mend in mends:
        mended.setdefault((mend.project, mend.command), []).append(mend)
    rows = [
        CommandRow(*key, *counts.summarize(), mends=tuple(mended.get(key, ())))
        for key, counts in found.items()
    ]
    return tuple(sorted((row for row in rows if row.rate.errors), key=_rank_command))


def _rank_command(row: CommandRow) -> tuple[int, int, int, str]:
    """Order by the sessions that it failed in, so that one bad session does not come first."""
    return -row.failing_sessions, -row.rate.errors, -row.rate.calls, row.name


def _build_tools(members: Sequence[_Member], sample: Sample) -> tuple[ToolFailures, ...]:
    found: dict[str, _Failures] = {}
    for one in members:
        counts: dict[str, list[int]] = {}
        for kind, failed in zip(one.track.kinds, one.track.failed, strict=True):
            cell = counts.setdefault(sample.kinds[kind][0], [0, 0])
            cell[0] += failed
            cell[1] += 1
        for name, (failed, calls) in counts.items():
            found.setdefault(name, _Failures()).add(one, failed, calls)
    rows = [ToolFailures(name, *counts.summarize()) for name, counts in found.items()]
    ranked = sorted(rows, key=lambda row: (-row.rate.errors, -row.rate.calls, row.name))
    return tuple(row for row in ranked if row.rate.errors)


def _iter_named(overview: Overview) -> Iterable[str]:
    for group in (*overview.weeks, *overview.projects, *overview.agents):
        yield from group.newest
    for row in (*overview.commands, *overview.tools):
        yield from (one.session for one in row.newest)
    for known in (*overview.mends, *overview.red_tests):
        yield from known.sessions[:MAX_SESSIONS]
    for row in overview.commands:
        yield from (id for mend in row.mends for id in mend.sessions[:MAX_SESSIONS])
    yield from overview.costly
