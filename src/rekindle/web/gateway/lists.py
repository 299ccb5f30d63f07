"""Load the tabs of the gateway's page. Each function reads a bounded part of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rekindle.config import Config
from rekindle.errors import InvalidInput
from rekindle.gateway.access.operator import list_allowed, parse_user
from rekindle.gateway.context import get_terminal_owner
from rekindle.gateway.service.status import merge_errors, query_gateways
from rekindle.routing.source import describe_source
from rekindle.store import Store
from rekindle.store.conversations.inbox import MessageCounts, OutboundMessage
from rekindle.store.conversations.jobs import JobRun, ScheduledJob
from rekindle.store.conversations.links import LinkedIdentity
from rekindle.store.conversations.memory import Fact, MemoryChange
from rekindle.store.conversations.message_rows import ConversationState
from rekindle.store.conversations.people import AccessEvent, DailyUsage, Identity
from rekindle.types import Route, Session

PAGE_SIZE = 50
MAX_JOBS = 200
MAX_RUNS = 30
MAX_OWNERS = 200
DELIVERY_STATES = {
    "": ("waiting", "failed", "sent"),
    "failed": ("failed",),
    "waiting": ("waiting",),
    "sent": ("sent",),
}


class GatewayStatus(NamedTuple):
    """The gateways that run in this home, and what is pending in the store."""

    gateways: Sequence[dict[str, Any]]
    counts: MessageCounts
    requests: int
    questions: int


class ConversationRow(NamedTuple):
    """A conversation, with its current session if that is stored already."""

    route: Route
    place: str
    session: Session | None
    state: ConversationState


class GatewayPage(NamedTuple):
    """A part of a list, and the address of the next part, if there is more."""

    rows: Sequence[Any]
    more: str | None


class Person(NamedTuple):
    """A person who may talk or is denied, with their usage."""

    identity: Identity
    today: DailyUsage
    total: DailyUsage


class PeoplePage(NamedTuple):
    """The people who are allowed, waiting or denied, and the latest decisions."""

    requests: Sequence[Identity]
    people: Sequence[Person]
    more: str | None
    by_settings: Sequence[dict[str, str]]
    links: Sequence[LinkedIdentity]
    events: Sequence[AccessEvent]


class JobPage(NamedTuple):
    """A job and its last runs."""

    job: ScheduledJob
    runs: Sequence[JobRun]


class MemoryPage(NamedTuple):
    """What is remembered for an owner."""

    owner: str
    own_name: str
    facts: Sequence[Fact]
    proposals: Sequence[Fact]
    changes: Sequence[MemoryChange]
    owners: Sequence[tuple[str, int]]


def load_status(config: Config, store: Store) -> GatewayStatus:
    """Return what runs and what is pending."""
    return GatewayStatus(
        gateways=query_gateways(config.home),
        counts=store.inbox.get_counts(),
        requests=len(store.people.list_requests()),
        questions=len(store.approvals.list_open()),
    )


def load_conversations(store: Store, offset: int) -> GatewayPage:
    """Return conversations, those that were active last first."""
    routes = store.routes.list(limit=PAGE_SIZE + 1, offset=offset)
    shown = routes[:PAGE_SIZE]
    sessions = store.find_sessions([route.session for route in shown])
    states = store.inbox.describe_conversations([route.key for route in shown])
    rows = [
        ConversationRow(
            route, describe_source(route.origin), sessions.get(route.session), states[route.key]
        )
        for route in shown
    ]
    has_more = len(routes) > PAGE_SIZE
    return GatewayPage(rows, f"/gateway?offset={offset + PAGE_SIZE}" if has_more else None)


def load_deliveries(store: Store, state: str, before: int | None) -> GatewayPage:
    """Return outgoing messages, the newest first."""
    if state not in DELIVERY_STATES:
        raise InvalidInput(f"unknown state {state!r:.40}; use waiting, failed or sent")
    found: list[OutboundMessage] = store.inbox.list_by_state(
        DELIVERY_STATES[state], PAGE_SIZE + 1, before=before
    )
    shown, more = found[:PAGE_SIZE], None
    if len(found) > PAGE_SIZE:
        more = f"/gateway/deliveries?state={state}&before={shown[-1].num}"
    return GatewayPage(shown, more)


def load_jobs(store: Store) -> Sequence[ScheduledJob]:
    """Return the jobs that run next, then those that are paused or done."""
    return store.jobs.list(limit=MAX_JOBS)


def load_job(store: Store, id: str) -> JobPage:
    """Return a job with its last runs."""
    job = store.jobs.find(id)
    return JobPage(job, store.jobs.list_runs(job, MAX_RUNS))


def load_people(config: Config, store: Store, after: str) -> PeoplePage:
    """Return who may talk, in order of platform and user, and who asks to."""
    start = parse_user(after) if after else ("", "")
    found = store.people.list(limit=PAGE_SIZE + 1, after=start)
    shown = found[:PAGE_SIZE]
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    usage = store.people.sum_usage([one.person for one in shown], day)
    last = shown[-1] if len(found) > PAGE_SIZE else None
    return PeoplePage(
        requests=[] if after else store.people.list_requests(),
        people=[Person(one, *usage[one.person]) for one in shown if one.role is not None],
        more=None if last is None else f"{last.platform}:{last.user_id}",
        by_settings=[] if after else list_allowed(config.gateway.allow),
        links=[] if after else store.links.list_all(),
        events=[] if after else store.people.list_events(20),
    )


def load_errors(config: Config, store: Store) -> list[dict[str, Any]]:
    """Return the last errors with their causes, the newest first."""
    return merge_errors(query_gateways(config.home), store.gateway_errors.list(PAGE_SIZE))


def load_memory(config: Config, store: Store, owner: str) -> MemoryPage:
    """Return the facts of an owner; by default, those of this user's terminal."""
    own_name = get_terminal_owner(config)
    name = owner or own_name
    return MemoryPage(
        owner=name,
        own_name=own_name,
        facts=store.memory.list(name),
        proposals=store.memory.list(name, proposed=True),
        changes=store.memory.list_changes(name, 20),
        owners=store.memory.list_owners()[:MAX_OWNERS],
    )
