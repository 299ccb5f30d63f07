"""Open the route of a conversation for its next turn."""

from __future__ import annotations

from contextlib import suppress
from time import time

from rekindle.errors import NotFound
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.schedule.run_message import RunInfo
from rekindle.routing.reset_policy import find_reset_reason
from rekindle.routing.source import describe_source
from rekindle.types import Route, Source


async def open_route(
    context: GatewayContext, key: str, source: Source, run: RunInfo | None = None
) -> Route:
    """Open a route, with a new session if the current one is stale. `run`: for a job.

    One call of the store, unless the route is stale: every call of a turn delays its answer.
    """
    executor, routes = context.executor, context.executor.store.routes
    policy, now, idle_session = context.resolve_policy(source), time(), ""

    def check_route(route: Route) -> str | None:
        return find_reset_reason(policy, route.updated, now, busy=route.session != idle_session)

    def open_now() -> Route:
        return routes.open(
            key,
            source,
            name=f"job: {run.name}" if run else describe_source(source),
            owner=run.owner if run else context.find_owner(source),
            get_reset_reason=None if run else check_route,
        )

    def open_unless_stale() -> tuple[Route, bool]:
        with suppress(NotFound):
            route = routes.get(key)
            if find_reset_reason(policy, route.updated, now) is not None:
                return route, True
        return open_now(), False

    route, is_stale = await executor.run(open_unless_stale)
    if not is_stale:
        return route
    # Asked outside of a transaction: it waits for the supervisor of the processes.
    if not await context.is_busy(get_owner(route), route.session):
        idle_session = route.session
    return await executor.run(open_now)
