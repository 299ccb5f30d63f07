"""Sum up the newest sessions, of one project or of all: weeks, and what keeps failing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from rekindle.analytics.overview.overview import (
    CommandRow,
    GroupRow,
    Overview,
    OverviewTotals,
    compute_overview,
)
from rekindle.analytics.sample import collect_sample
from rekindle.analytics.usage.pricing import PriceList
from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key
from rekindle.config.local_time import get_offset
from rekindle.learning.notes.session_facts import (
    collect_facts,
    load_command_failures,
    load_known_failures,
)
from rekindle.learning.verdicts.call_details import CallDetail
from rekindle.projects import KnownProjects
from rekindle.store import Filter, Store
from rekindle.types import JudgedSession, Session, replace_fields

MAX_SESSIONS = 1_000  # newest ones that a project's figures are of
MAX_FAILING_SESSIONS = 400  # newest ones, of all projects, in which to look for failures
MAX_COMMANDS, MAX_EXAMPLES = 8, 3
MIN_FAILING_SESSIONS = 2  # what failed in one session does not keep failing


class FailingCommand(NamedTuple):
    """A command that fails again and again: how often, the newest failures, and what mended it."""

    row: CommandRow
    examples: tuple[CallDetail, ...]


class RecurringFailures(NamedTuple):
    """What keeps failing in the newest sessions."""

    sessions: int
    commands: tuple[FailingCommand, ...]


class ProjectDetails(NamedTuple):
    """The figures of a project over its newest sessions."""

    totals: OverviewTotals
    weeks: tuple[GroupRow, ...]
    agents: tuple[GroupRow, ...]
    failures: RecurringFailures
    costly: tuple[SessionLine, ...]


class SessionLine(NamedTuple):
    """A session with what to call it, its project and its cost."""

    session: Session
    name: str
    project: str | None
    cost: Decimal


def list_sessions(
    store: Store,
    sessions: Sequence[Session],
    prices: PriceList,
    known: KnownProjects | None = None,
) -> list[SessionLine]:
    """Return sessions with their names, projects and costs."""
    names = store.load_names(sessions)
    unpriced = [one.id for one in sessions if not one.cost]
    totals = compute_totals_by_key(store.sum_session_usage(unpriced, get_offset), prices)
    return [
        SessionLine(
            session=one,
            name=one.title or names.get(one.id) or one.preview or one.id,
            project=known.find_session_project(one) if known else None,
            cost=one.cost or totals.get(one.id, UsageTotal()).cost,
        )
        for one in sessions
    ]


def compute_details(
    store: Store, prices: PriceList, known: KnownProjects, project: str
) -> ProjectDetails | None:
    """Sum up a project; None if it has no sessions."""
    where = Filter(projects=known.get_keys(project))
    overview = _compute_overview(store, where, prices, known, MAX_SESSIONS)
    if overview is None:
        return None
    chosen = [overview.sessions[id] for id in overview.costly]
    named = store.load_names([one.session for one in chosen])
    return ProjectDetails(
        totals=overview.totals,
        weeks=overview.weeks,
        agents=overview.agents,
        failures=RecurringFailures(
            overview.totals.sessions, _list_failing(store, overview, MIN_FAILING_SESSIONS)
        ),
        costly=tuple(
            SessionLine(one.session, named.get(one.session.id, one.session.id), None, one.cost)
            for one in chosen
        ),
    )


def compute_failures(store: Store, prices: PriceList) -> RecurringFailures:
    """Find what keeps failing in the newest sessions of all projects."""
    known = store.load_projects()
    overview = _compute_overview(store, Filter(), prices, known, MAX_FAILING_SESSIONS)
    if overview is None:
        return RecurringFailures(0, ())
    found = _list_failing(store, overview, MIN_FAILING_SESSIONS)
    return RecurringFailures(overview.totals.sessions, found)


def _compute_overview(
    store: Store, where: Filter, prices: PriceList, known: KnownProjects, limit: int
) -> Overview | None:
    newest = store.recent(limit, where=where)
    if not newest:
        return None
    chosen = replace_fields(where, since=newest[-1].last_active)
    sessions: list[Session] = []
    sample = collect_sample(_keep_sessions(store.iter_judged_sessions(chosen), sessions))
    facts = collect_facts(store, sessions, prices, get_offset, known.find_session_project)
    return compute_overview(sample, facts, load_known_failures(store, facts))


def _keep_sessions(
    judged: Iterable[JudgedSession], sessions: list[Session]
) -> Iterator[JudgedSession]:
    for one in judged:
        sessions.append(one.session)
        yield one


def _list_failing(
    store: Store, overview: Overview, least_sessions: int
) -> tuple[FailingCommand, ...]:
    rows = [row for row in overview.commands if row.failing_sessions >= least_sessions]
    return tuple(
        FailingCommand(row, tuple(load_command_failures(store, row, MAX_EXAMPLES)))
        for row in rows[:MAX_COMMANDS]
    )
