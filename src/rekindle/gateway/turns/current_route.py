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
    """Open a route, with a new session if the current one is stale. `run`: for a job."""
    executor = context.executor
    route, is_stale = await executor.run(open_unless_stale, context, key, source, run)
    if not is_stale:
        return route
    # Asked outside of a transaction: it waits for the supervisor of the processes.
    is_busy = await context.is_busy(get_owner(route), route.session)
    return await executor.run(
        _open_route, context, key, source, run, "" if is_busy else route.session
    )


def open_unless_stale(
    context: GatewayContext, key: str, source: Source, run: RunInfo | None = None
) -> tuple[Route, bool]:
    """Open a route unless its session is stale, and return it and whether it is."""
    with suppress(NotFound):
        route = context.executor.store.routes.get(key)
        if find_reset_reason(context.resolve_policy(source), route.updated, time()) is not None:
            return route, True
    return _open_route(context, key, source, run), False


def _open_route(
    context: GatewayContext, key: str, source: Source, run: RunInfo | None, idle_session: str = ""
) -> Route:
    policy, now = context.resolve_policy(source), time()

    def check_route(route: Route) -> str | None:
        return find_reset_reason(policy, route.updated, now, busy=route.session != idle_session)

    return context.executor.store.routes.open(
        key,
        source,
        name=f"job: {run.name}" if run else describe_source(source),
        owner=run.owner if run else context.find_owner(source),
        get_reset_reason=None if run else check_route,
    )
