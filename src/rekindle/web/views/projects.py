"""Projects: their list, and the pages of each."""

from __future__ import annotations

import shlex
import time
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rekindle.errors import InvalidInput
from rekindle.learning.notes.decisions import load_project_notes
from rekindle.learning.notes.recall import recall_in_project
from rekindle.learning.notes.replay_figures import METRIC_TITLES, load_replay
from rekindle.projects import KnownProjects, shorten_project
from rekindle.store import Filter
from rekindle.web.addresses import (
    build_list_url,
    build_project_url,
    find_project,
)
from rekindle.web.context import WebContext, get_context, get_form, redirect_back, render_page
from rekindle.web.projects.cached import forget_news, get_details, get_project_list
from rekindle.web.projects.details import list_sessions
from rekindle.web.projects.page_tools import PAGE_TOOLS
from rekindle.web.projects.playbook import (
    apply_decision,
    build_sections,
    count_states,
    load_note_details,
)
from rekindle.web.projects.replay_run import ReplayRuns
from rekindle.web.projects.summary import describe_place, filter_rows, load_prices
from rekindle.web.projects.weeks import draw_weeks

MAX_ROWS = 200
SESSIONS_PER_PAGE, MAX_PAGES = 50, 10_000
LATEST_SESSIONS, LATEST_NOTES = 6, 6
MAX_MESSAGE_CHARS = 20_000
TABS = {
    "overview": "Overview",
    "sessions": "Sessions",
    "playbook": "Playbook",
    "start": "Next start",
    "time": "Over time",
    "replay": "Replay",
}
ORDERS = {
    "": "last activity",
    "sessions": "sessions",
    "cost": "cost",
    "failures": "failures",
    "name": "name",
}


# -- the list


async def show_projects(request: Request) -> Response:
    """Show all projects."""
    computed, has_failed = await get_project_list(request)
    text, order = request.query_params.get("q", "")[:200], request.query_params.get("order", "")
    found = filter_rows(computed.value.rows, text, order) if computed else []
    values = {
        "counted": computed and computed.time,
        "has_failed": has_failed,
        "total": len(computed.value.rows) if computed else 0,
        "rated_sessions": computed and computed.value.rated_sessions,
        "rows": found[:MAX_ROWS],
        "more": max(0, len(found) - MAX_ROWS),
        "q": text,
        "order": order,
        "orders": ORDERS,
        "tools": PAGE_TOOLS,
    }
    return await render_page(request, "projects.html", values)


# -- one project


async def show_project(request: Request) -> Response:
    """Show one tab of a project."""
    context = get_context(request)
    name = request.path_params["name"]
    if not name:
        return RedirectResponse("/projects", 307)
    known = await context.run(context.store.load_projects)
    key = find_project(known, name)
    address = build_project_url(key)
    if unquote(address) != f"/projects/{name}":  # a short name
        query = request.url.query
        return RedirectResponse(f"{address}?{query}" if query else address, 307)
    tab = request.query_params.get("tab", "overview")
    tab = tab if tab in TABS else "overview"
    values: dict[str, Any] = {
        "key": key,
        "name": shorten_project(key),
        "place": describe_place(key),
        "address": address,
        "tab": tab,
        "tabs": [
            (build_project_url(key, _leave_out_default(one)), TABS[one], None) for one in TABS
        ],
        "current": build_project_url(key, _leave_out_default(tab)),
        "here": f"{address}?{urlencode(request.query_params.multi_items())}",
        "tools": PAGE_TOOLS,
    }
    values |= await _LOADERS[tab](request, context, known, key)
    return await render_page(request, f"project_{tab}.html", values)


def _leave_out_default(tab: str) -> str:
    return "" if tab == "overview" else tab


async def _load_overview(
    request: Request, context: WebContext, known: KnownProjects, key: str
) -> dict[str, Any]:
    computed, _ = await get_project_list(request)
    details, has_failed = await get_details(request, known, key)

    def load() -> dict[str, Any]:
        where = Filter(projects=known.get_keys(key))
        prices = load_prices(context.config)
        latest = context.store.recent(LATEST_SESSIONS, where=where, fold=True)
        notes = load_project_notes(context.store, key)
        told = [
            one for one in notes.notes if notes.get_state(one) not in ("retired", "quarantined")
        ]
        waiting = len(notes.decisions.waiting)
        return {
            "latest": list_sessions(context.store, latest, prices),
            "notes": told[:LATEST_NOTES],
            "note_total": len(told),
            "waiting": waiting,
        }

    return {
        **await context.run(load),
        "row": computed and computed.value.find(key),
        "counted": details and details.time,
        "has_failed": has_failed,
        "details": details and details.value,
        "failures": details and details.value and details.value.failures,
    }


async def _load_sessions(
    request: Request, context: WebContext, known: KnownProjects, key: str
) -> dict[str, Any]:
    page = request.query_params.get("page", "")
    number = min(int(page), MAX_PAGES) if page.isascii() and page.isdigit() else 1
    offset = max(0, number - 1) * SESSIONS_PER_PAGE

    def load() -> list[Any]:
        where = Filter(projects=known.get_keys(key))
        found = context.store.recent(SESSIONS_PER_PAGE + 1, offset=offset, where=where, fold=True)
        return list_sessions(context.store, found, load_prices(context.config))

    found = await context.run(load)
    newer = build_project_url(key, "sessions", page=f"{number - 1}") if number > 1 else ""
    is_last = len(found) <= SESSIONS_PER_PAGE
    return {
        "sessions": found[:SESSIONS_PER_PAGE],
        "list_url": build_list_url(key),
        "newer": newer,
        "older": "" if is_last else build_project_url(key, "sessions", page=f"{number + 1}"),
    }


async def _load_playbook(
    request: Request, context: WebContext, known: KnownProjects, key: str
) -> dict[str, Any]:
    query = request.query_params
    notes = await context.run(load_project_notes, context.store, key)
    note = query.get("note", "")
    return {
        "states": count_states(notes),
        "state": query.get("state", ""),
        "kind": query.get("kind", ""),
        "sections": build_sections(notes, query.get("kind", ""), query.get("state", "")),
        "details": await context.run(load_note_details, context.store, notes, note)
        if note
        else None,
    }


async def _load_start(
    request: Request, context: WebContext, known: KnownProjects, key: str
) -> dict[str, Any]:
    message = request.query_params.get("message", "")[:MAX_MESSAGE_CHARS]
    recall = await context.run(recall_in_project, context.store, key, message)
    return {"message": message, "recall": recall}


async def _load_time(
    request: Request, context: WebContext, known: KnownProjects, key: str
) -> dict[str, Any]:
    computed, has_failed = await get_details(request, known, key)
    details = computed.value if computed else None
    return {
        "counted": computed and computed.time,
        "has_failed": has_failed,
        "details": details,
        "plots": draw_weeks(details.weeks, key) if details else None,
    }


async def _load_replay(
    request: Request, context: WebContext, known: KnownProjects, key: str
) -> dict[str, Any]:
    replay = await context.run(load_replay, context.config.home, key)
    known_rates = replay.results[0].rates if replay else {}  # an older program knew fewer
    return {
        "replay": replay,
        "titles": {name: title for name, title in METRIC_TITLES.items() if name in known_rates},
        # Somebody may paste it into a shell, whatever the project is called.
        "command": f"rekindle warm replay --project {shlex.quote(key)}",
        "run": _get_replay_runs(request).get_state(key),
    }


_LOADERS = {
    "overview": _load_overview,
    "sessions": _load_sessions,
    "playbook": _load_playbook,
    "start": _load_start,
    "time": _load_time,
    "replay": _load_replay,
}


# -- changes


async def change_project(request: Request) -> Response:
    """Carry out a decision about a note, or start a replay."""
    context, form = get_context(request), get_form(request)
    known = await context.run(context.store.load_projects)
    key = find_project(known, request.path_params["name"])
    action = form.get("action", "")
    if action == "replay":
        if not await context.run(_get_replay_runs(request).start, key):
            raise InvalidInput("Other replays are running. Try again when they are done.")
        return redirect_back(request, build_project_url(key, "replay"))
    note, text = form.get("note", ""), form.get("text", "")
    await context.run(apply_decision, context.store, key, action, note, text, time.time())
    forget_news(request)
    return redirect_back(request, build_project_url(key, "playbook"))


def _get_replay_runs(request: Request) -> ReplayRuns:
    state = request.app.state
    if not hasattr(state, "replay_runs"):
        state.replay_runs = ReplayRuns(get_context(request).config)
    return state.replay_runs


ROUTES = [
    Route("/projects", show_projects),
    Route("/projects/{name:path}", show_project),
    Route("/projects/{name:path}", change_project, methods=["POST"]),
]
