"""Home: what runs, what fails, what was learned."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.config import get_home_and_env
from rekindle.web.background import get_cached_values, get_patience
from rekindle.web.context import WebContext, get_context, render_page
from rekindle.web.home.learned import LearnedNotes, find_learned_notes
from rekindle.web.home.machine import find_agents
from rekindle.web.home.running import load_latest, load_running
from rekindle.web.projects.details import RecurringFailures, compute_failures
from rekindle.web.projects.page_tools import PAGE_TOOLS
from rekindle.web.projects.summary import ProjectList, compute_project_list, load_prices

MAX_PROJECTS = 8
_BLOCKS = ("now", "known", "latest")


async def show_home(request: Request) -> Response:
    """Show the page, or the part of it that is asked for again."""
    context = get_context(request)
    fragment = request.headers.get("x-fragment", "")
    if not fragment and not await context.run(context.store.has_any_sessions):
        agents = await context.run(find_agents, *get_home_and_env())
        return await render_page(request, "home_start.html", {"agents": agents})
    values: dict[str, Any] = {"tools": PAGE_TOOLS}
    wanted = (fragment,) if fragment in _BLOCKS else _BLOCKS
    if "now" in wanted or "latest" in wanted:
        values |= await context.run(_load_live_parts, context, wanted)
    if "known" in wanted:
        values |= await _load_known_parts(request, context)
    return await render_page(request, "home.html", values)


def _load_live_parts(context: WebContext, wanted: tuple[str, ...]) -> dict[str, Any]:
    known = context.store.load_projects()
    prices = load_prices(context.config)
    values: dict[str, Any] = {}
    if "now" in wanted:
        values["running"] = load_running(context.store, context.config, prices, known, time.time())
    if "latest" in wanted:
        values["latest"] = load_latest(context.store, prices, known)
    return values


async def _load_known_parts(request: Request, context: WebContext) -> dict[str, Any]:
    cached, patience = get_cached_values(request), get_patience(request)
    store, config = context.store, context.config

    def compute() -> tuple[ProjectList, RecurringFailures, LearnedNotes]:
        prices, now = load_prices(config), time.time()
        projects = compute_project_list(store, prices, now)
        active = [(row.key, row.last_active) for row in projects.rows]
        learned = find_learned_notes(store, active, now)
        return projects, compute_failures(store, prices), learned

    value = cached.find("home")
    computed = await value.get(compute, patience)
    if computed is None:
        return {"counted": None, "has_failed": value.has_failed}
    projects, failures, learned = computed.value
    return {
        "counted": computed.time,
        "has_failed": value.has_failed,
        "projects": projects.rows[:MAX_PROJECTS],
        "project_total": len(projects.rows),
        "session_total": projects.sessions,
        "cost": projects.cost,
        "failures": failures,
        "learned": learned,
    }


ROUTES = [Route("/", show_home)]
