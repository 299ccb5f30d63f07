"""Home: running work, failures, and new notes."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.config import get_home_and_env
from rekindle.web.context import WebContext, get_context, render_page
from rekindle.web.home.machine import find_agents
from rekindle.web.home.running import load_latest, load_running
from rekindle.web.projects.cached import get_news, get_project_list
from rekindle.web.projects.page_tools import PAGE_TOOLS
from rekindle.web.projects.summary import load_prices

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
        values |= await _load_known_parts(request)
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


async def _load_known_parts(request: Request) -> dict[str, Any]:
    counted, has_failed = await get_project_list(request)
    news, has_no_news = await get_news(request, counted.value) if counted else (None, False)
    if counted is None or news is None:
        return {"counted": None, "has_failed": has_failed or has_no_news}
    projects = counted.value
    return {
        "counted": min(counted.time, news.time),
        "has_failed": has_failed or has_no_news,
        "projects": projects.rows[:MAX_PROJECTS],
        "project_total": len(projects.rows),
        "session_total": projects.sessions,
        "cost": projects.cost,
        "failures": news.value.failures,
        "learned": news.value.learned,
    }


ROUTES = [Route("/", show_home)]
