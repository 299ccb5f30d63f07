"""Fold sub-agents under the sessions that started them.

A folded session has the tokens and the cost of its sub-agents, which are not listed themselves; an
unfolded one has its own. So the sum over a list counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rekindle.cli.insights.usage import (
    fill_costs,
    fill_model_costs,
    get_offset,
    load_price_list,
)
from rekindle.cli.output import format_count, get_display_name
from rekindle.types import Session, Usage, replace_fields

if TYPE_CHECKING:
    from rekindle.store import Store


class FoldedSession(NamedTuple):
    """A session, the same with its cost and what its sub-agents used, and these with their cost."""

    session: Session
    total: Session
    sub_agents: tuple[Session, ...] = ()

    @property
    def cost_source(self) -> str | None:
        """The source of a cost: the agent or the price list."""
        return "agent" if self.session.cost else "prices" if self.total.cost else None


class SessionTable(NamedTuple):
    """Sessions titled as a table shows them, and what stands behind the titles of some."""

    sessions: list[Session]
    tails: dict[str, str]


def build_session_table(
    store: Store, sessions: Sequence[Session], *, expand: bool = False
) -> SessionTable:
    """Name and price sessions for a table, and count their sub-agents, or list these with `expand`."""
    folded = merge_sub_agents(store, sessions, expand=expand)
    names, listed = store.load_names([one.session for one in folded]), {one.id for one in sessions}
    rows: list[Session] = []
    tails: dict[str, str] = {}
    for session, total, sub_agents in folded:
        name = get_display_name(session, names)
        title = name if session.id in listed else f"↳ {format_sub_agent(session)}: {name}"
        rows.append(replace_fields(session, title=title, cost=total.cost))
        if sub_agents and not expand:
            tails[session.id] = f"  +{format_count(len(sub_agents), 'sub-agent')}"
    return SessionTable(rows, tails)


def format_sub_agent(session: Session) -> str:
    """Format the kind of a sub-agent: `sub-agent`, or `sub-agent explorer` if it is known."""
    kind = session.sub_agent
    return "sub-agent" if kind in (None, "agent") else f"sub-agent {kind}"


def merge_sub_agents(
    store: Store, sessions: Sequence[Session], *, expand: bool = False
) -> list[FoldedSession]:
    """Return sessions with their sub-agents; with `expand`, these follow and nothing is added up."""
    children = store.find_sub_agents([one.id for one in sessions])
    used = _load_usage(store, [one for ones in children.values() for one in ones])
    folded: list[FoldedSession] = []
    for one, priced in zip(sessions, fill_costs(store, sessions), strict=True):
        stored = children.get(one.id, [])
        inner = tuple(
            replace_fields(sub, tokens=used[sub.id].tokens, cost=used[sub.id].cost)
            for sub in stored
        )
        total = priced if expand else _add_usage(priced, inner)
        folded.append(FoldedSession(one, total, inner))
        if expand:
            folded += map(FoldedSession, stored, inner)
    return folded


def _load_usage(store: Store, sub_agents: Sequence[Session]) -> dict[str, Usage]:
    """Return what sub-agents used themselves, without a history that was copied from their parent."""
    from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key

    if not sub_agents:
        return {}
    sums = store.sum_session_usage([one.id for one in sub_agents], get_offset)
    totals = compute_totals_by_key(sums, load_price_list())
    found = {one.id: totals.get(one.id, UsageTotal()) for one in sub_agents}
    return {id: Usage(total.tokens, total.cost) for id, total in found.items()}


def _add_usage(session: Session, sub_agents: Iterable[Session]) -> Session:
    total = Usage(session.tokens, session.cost)
    for one in sub_agents:
        total = total.add(Usage(one.tokens, one.cost))
    return replace_fields(session, tokens=total.tokens, cost=total.cost)


def load_model_usage(store: Store, folded: FoldedSession) -> dict[str, Usage]:
    """Return the usage and cost of each model in a session and its sub-agents."""
    from rekindle.analytics.usage.report import compute_totals_by_key

    session = folded.session
    found = fill_model_costs(store, session, store.usage(session))
    if folded.sub_agents:
        sums = store.sum_session_usage([one.id for one in folded.sub_agents], get_offset)
        by_model = [one._replace(key=one.model) for one in sums]
        for model, total in compute_totals_by_key(by_model, load_price_list()).items():
            found[model] = found.get(model, Usage()).add(Usage(total.tokens, total.cost))
    return found


def describe_sub_agents(sub_agents: Iterable[Session]) -> list[dict[str, Any]]:
    """Return the JSON of sub-agents, each with its own usage."""
    return [
        {
            "id": one.id,
            "sub_agent": one.sub_agent,
            "parent": one.parent,
            "title": one.title,
            "first_request": one.preview,
            "started": one.started,
            "message_count": one.message_count,
            "tool_call_count": one.tool_call_count,
            "model": one.model,
            "tokens": one.tokens._asdict(),
            "cost": one.cost,
        }
        for one in sub_agents
    ]
