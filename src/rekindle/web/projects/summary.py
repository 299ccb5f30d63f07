"""All projects with their sessions, activity, cost, failures and notes, computed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from rekindle.analytics.cluster_stats import Rate, compute_rate
from rekindle.analytics.usage.pricing import PriceList
from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key, to_day
from rekindle.config import Config
from rekindle.config.local_time import get_offset
from rekindle.config.prices import load_price_table
from rekindle.learning.notes.playbooks import load_told_notes
from rekindle.projects import FOLDER_PREFIX, KnownProjects, shorten_project
from rekindle.store import Filter, Store

ACTIVITY_DAYS = 28
MAX_RATED_SESSIONS = 20_000  # newest ones, of all projects
MAX_NOTED_PROJECTS = 100  # latest ones: whose notes are counted
_HOUR, _DAY = 3_600, 86_400


class ProjectRow(NamedTuple):
    """A project as lists show it."""

    key: str
    name: str
    place: str  # where it is: the host of its repository, or the folder
    sessions: int
    agents: tuple[str, ...]  # the most frequent first
    last_active: float
    cost: Decimal
    is_cost_complete: bool
    rate: Rate  # of failed calls
    starts: tuple[int, ...]  # sessions a day, the last is today
    notes: int | None = None  # None if they were not counted

    @property
    def is_folder(self) -> bool:
        return self.key.startswith(FOLDER_PREFIX)


class ProjectList(NamedTuple):
    """All projects, the most recently active first."""

    rows: tuple[ProjectRow, ...]
    sessions: int  # of all of them, and without a project
    cost: Decimal
    rated_sessions: int | None  # the number of newest sessions that rates are of; None for all

    def find(self, key: str) -> ProjectRow | None:
        """Return the row of a project."""
        return next((row for row in self.rows if row.key == key), None)


def load_prices(config: Config) -> PriceList:
    """Load the shipped prices, and the user's own that go before them."""
    return PriceList(load_price_table()[1], config.prices)


def compute_project_list(store: Store, prices: PriceList, now: float) -> ProjectList:
    """Summarize all projects. This reads a lot: compute it in the background."""
    known = store.load_projects()
    agents: dict[str, Counter[str]] = {}
    last: dict[str, float] = {}
    for one in store.count_by_project():
        project = known.get_project(one.key) if one.key else ""
        agents.setdefault(project, Counter())[one.source] += one.sessions
        last[project] = max(last.get(project, 0.0), one.last_active)
    totals = _sum_costs(store, prices, known)
    oldest = store.recent(1, offset=MAX_RATED_SESSIONS)
    rates = _compute_rates(store, known, oldest[0].last_active if oldest else 0.0)
    starts = _count_days(store, known, now)
    rows = [
        _build_row(project, counted, last[project], totals, rates, starts)
        for project, counted in agents.items()
        if project
    ]
    rows.sort(key=lambda row: (-row.last_active, row.name))
    rows = [*_count_notes(store, rows[:MAX_NOTED_PROJECTS]), *rows[MAX_NOTED_PROJECTS:]]
    return ProjectList(
        rows=tuple(rows),
        sessions=sum(counted.total() for counted in agents.values()),
        cost=sum((one.cost for one in totals.values()), Decimal(0)),
        rated_sessions=MAX_RATED_SESSIONS if oldest else None,
    )


def _build_row(
    project: str,
    agents: Counter[str],
    last_active: float,
    totals: Mapping[str, UsageTotal],
    rates: Mapping[str, Rate],
    starts: Mapping[str, Sequence[int]],
) -> ProjectRow:
    total = totals.get(project, UsageTotal())
    return ProjectRow(
        key=project,
        name=shorten_project(project),
        place=describe_place(project),
        sessions=agents.total(),
        agents=tuple(agent for agent, _ in agents.most_common()),
        last_active=last_active,
        cost=total.cost,
        is_cost_complete=not any(total.unpriced),
        rate=rates.get(project, Rate(0, 0, 0)),
        starts=tuple(starts.get(project, (0,) * ACTIVITY_DAYS)),
    )


def describe_place(project: str) -> str:
    """Return the part of a project's key that its name leaves out."""
    if project.startswith(FOLDER_PREFIX):
        return project.removeprefix(FOLDER_PREFIX)
    return project.partition("/")[0]


def _sum_costs(store: Store, prices: PriceList, known: KnownProjects) -> dict[str, UsageTotal]:
    days = [to_day(day) for day in prices.list_changes()]
    sums = store.sum_usage(get_offset, by="project", where=Filter(), days=days)
    joined = [one._replace(key=known.get_project(one.key)) if one.key else one for one in sums]
    return compute_totals_by_key(joined, prices)


def _compute_rates(store: Store, known: KnownProjects, since: float) -> dict[str, Rate]:
    parts: dict[str, dict[str, list[int]]] = {}
    sessions: Counter[str] = Counter()
    for one in store.count_calls(since):
        project = known.get_project(one.key)
        part = parts.setdefault(project, {}).setdefault(one.conversation, [0, 0])
        part[0] += one.errors
        part[1] += one.calls
        sessions[project] += one.sessions
    return {project: compute_rate(part, sessions[project]) for project, part in parts.items()}


def _count_days(store: Store, known: KnownProjects, now: float) -> dict[str, list[int]]:
    """Return the sessions that each project started on each of the last days, local time."""
    today = int(now + get_offset(now)) // _DAY
    first = today - ACTIVITY_DAYS + 1
    found: dict[str, list[int]] = {}
    for one in store.count_starts(now - (ACTIVITY_DAYS + 1) * _DAY):
        start = one.hour * _HOUR
        day = (start + get_offset(start)) // _DAY
        if first <= day <= today:
            days = found.setdefault(known.get_project(one.key), [0] * ACTIVITY_DAYS)
            days[day - first] += one.sessions
    return found


def _count_notes(store: Store, rows: Iterable[ProjectRow]) -> Iterable[ProjectRow]:
    for row in rows:
        yield row._replace(notes=len(load_told_notes(store, row.key)))


def filter_rows(rows: Iterable[ProjectRow], text: str, order: str) -> list[ProjectRow]:
    """Return the projects whose name or place contains a text, in the chosen order."""
    wanted = text.casefold().split()
    found = [
        row for row in rows if all(word in f"{row.place}/{row.name}".casefold() for word in wanted)
    ]
    if order == "sessions":
        found.sort(key=lambda row: -row.sessions)
    elif order == "cost":
        found.sort(key=lambda row: -row.cost)
    elif order == "failures":
        found.sort(key=lambda row: (row.rate.low is None, -(row.rate.rate or 0.0)))
    elif order == "name":
        found.sort(key=lambda row: row.name.casefold())
    return found
