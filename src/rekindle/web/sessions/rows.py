"""What the list shows of sessions: read for a whole page together, whatever the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from markupsafe import Markup

from rekindle.analytics.usage.pricing import PriceList
from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key
from rekindle.coding_agents.resume import get_source_title
from rekindle.config.local_time import get_offset
from rekindle.pages.text import get_display_name
from rekindle.projects import KnownProjects
from rekindle.store import Filter, Store
from rekindle.types import Session

from .filters import ListCursor, ListFilters, apply_cursor, build_cursor, is_live

PAGE_SIZE = 30


class MessageHit(NamedTuple):
    """A message that was found: where it is, who wrote it, and the matching part with marks."""

    session: str
    position: int
    role: str
    snippet: Markup


class SessionRow(NamedTuple):
    """A session in the list."""

    session: Session
    name: str
    shown_name: str | Markup  # with what a search has found marked
    agent: str
    project: str  # its key, or empty
    project_name: str
    is_live: bool
    outcome: str  # succeeded, failed, unknown
    errors: int
    cost: Decimal  # with that of its sub-agents
    sub_agents: int
    hits: tuple[MessageHit, ...] = ()


class ListPage(NamedTuple):
    """A part of the list, and where the next one begins."""

    rows: list[SessionRow]
    next: str = ""
    is_partial: bool = False  # a longer search would find more


class RowLoader:
    """Reads rows from a store."""

    def __init__(self, store: Store, known: KnownProjects, prices: PriceList, now: float) -> None:
        self.store = store
        self.known = known
        self._prices = prices
        self._now = now

    def load_page(
        self, filters: ListFilters, cursor: ListCursor | None, limit: int = PAGE_SIZE
    ) -> ListPage:
        """Return a page of the list, most recently active first; sub-agents are with their parents."""
        where, skip = apply_cursor(filters.to_filter(self.known), cursor)
        is_folded = filters.status not in ("archived", "deleted")
        sessions = self.store.recent(limit + 1, offset=skip, where=where, fold=is_folded)
        shown, rest = sessions[:limit], sessions[limit:]
        return ListPage(
            self.build_rows(shown), build_cursor(shown, cursor).format() if rest else ""
        )

    def build_rows(self, sessions: Sequence[Session]) -> list[SessionRow]:
        """Return the rows of sessions, in the same order."""
        ids = [one.id for one in sessions]
        if not ids:
            return []
        names = self.store.load_names(sessions)
        outcomes = self.store.session_outcomes.load(ids)
        errors = self.store.count_errors(ids)
        sub_agents = self.store.find_sub_agents(ids)
        costs = self._load_costs(sessions, [one for ones in sub_agents.values() for one in ones])
        rows: list[SessionRow] = []
        for one in sessions:
            name = get_display_name(one, names)
            project = self.known.find_session_project(one)
            inner = sub_agents.get(one.id, [])
            outcome = outcomes.get(one.id)
            rows.append(
                SessionRow(
                    session=one,
                    name=name,
                    shown_name=name,
                    agent=get_source_title(one.source),
                    project=project or "",
                    project_name=self.known.get_name(project) if project else "",
                    is_live=is_live(one, self._now),
                    outcome=outcome.verdict if outcome else "unknown",
                    errors=errors.get(one.id, 0),
                    cost=sum((costs[sub.id] for sub in inner), costs[one.id]),
                    sub_agents=len(inner),
                )
            )
        return rows

    def _load_costs(
        self, sessions: Sequence[Session], sub_agents: Sequence[Session]
    ) -> dict[str, Decimal]:
        """Return what sessions cost: as their agents report it, or else by the price list."""
        ids = [one.id for one in (*sessions, *sub_agents)]
        totals = compute_totals_by_key(self.store.sum_session_usage(ids, get_offset), self._prices)
        found = {id: totals.get(id, UsageTotal()).cost for id in ids}
        return {**found, **{one.id: one.cost for one in sessions if one.cost}}


class ListChoices(NamedTuple):
    """What the filters offer, each a value and its name, and how many sessions there are."""

    agents: tuple[tuple[str, str], ...] = ()
    projects: tuple[tuple[str, str], ...] = ()
    models: tuple[tuple[str, str], ...] = ()
    owners: tuple[tuple[str, str], ...] = ()
    sessions: int = 0


MODEL_SAMPLE = 1_000  # newest sessions whose models and owners are offered
MAX_PROJECTS = 200


def load_choices(store: Store) -> ListChoices:
    """Read what the filters offer; this goes through all sessions, so it is not done per request."""
    counted = store.count_by_project(Filter(archived=None))
    known = store.load_projects()
    newest = store.recent(MODEL_SAMPLE)
    last_active: dict[str, float] = {}
    for one in counted:
        if one.key is not None:
            project = known.get_project(one.key)
            last_active[project] = max(one.last_active, last_active.get(project, 0.0))
    projects = sorted(last_active, key=lambda key: -last_active[key])[:MAX_PROJECTS]
    named = sorted(
        ((key, known.get_name(key)) for key in projects), key=lambda pair: pair[1].lower()
    )
    return ListChoices(
        agents=tuple(sorted((one, get_source_title(one)) for one in {c.source for c in counted})),
        projects=tuple(named),
        models=tuple(sorted({(one.model, one.model) for one in newest if one.model})),
        owners=tuple(sorted({(one.owner, one.owner) for one in newest if one.owner})),
        sessions=sum(one.sessions for one in counted),
    )
