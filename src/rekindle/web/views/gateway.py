"""Gateway: conversations, deliveries, schedules, people, and what waits for the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.errors import NotFound
from rekindle.gateway.access.rules import ROLES
from rekindle.gateway.schedule.planning import format_moment
from rekindle.web.context import get_context, get_form, redirect_back, render_page
from rekindle.web.gateway import changes, lists


async def show_conversations(request: Request) -> Response:
    """List conversations."""
    context = get_context(request)
    offset = _read_optional(request, "offset") or 0
    found = await context.run(lists.load_conversations, context.store, offset)
    return await _render_tab(request, "conversations", {"found": found, "offset": offset})


async def show_deliveries(request: Request) -> Response:
    """List what was sent, what waits, and what failed."""
    context, state = get_context(request), request.query_params.get("state", "")
    before = _read_optional(request, "before")
    found = await context.run(lists.load_deliveries, context.store, state, before)
    return await _render_tab(request, "deliveries", {"found": found, "state": state})


async def show_jobs(request: Request) -> Response:
    """List scheduled jobs."""
    context = get_context(request)
    jobs = await context.run(lists.load_jobs, context.store)
    return await _render_tab(request, "schedules", {"jobs": jobs, "format_in_zone": format_moment})


async def show_job(request: Request) -> Response:
    """Show a job with its last runs."""
    context = get_context(request)
    found = await context.run(lists.load_job, context.store, request.path_params["id"])
    values = {"job": found.job, "runs": found.runs, "format_in_zone": format_moment}
    return await _render_tab(request, "job", values)


async def show_people(request: Request) -> Response:
    """List who may talk and who asks to."""
    context, after = get_context(request), request.query_params.get("after", "")
    found = await context.run(lists.load_people, context.config, context.store, after)
    return await _render_tab(request, "people", {"found": found, "roles": ROLES})


async def show_errors(request: Request) -> Response:
    """List the last errors."""
    context = get_context(request)
    errors = await context.run(lists.load_errors, context.config, context.store)
    return await _render_tab(request, "errors", {"errors": errors})


async def show_questions(request: Request) -> Response:
    """List tool calls that wait for an owner's approval."""
    context = get_context(request)
    questions = await context.run(context.store.approvals.list_open)
    return await _render_tab(request, "approvals", {"questions": questions})


async def show_memory(request: Request) -> Response:
    """Show the facts of an owner."""
    context, owner = get_context(request), request.query_params.get("owner", "")
    found = await context.run(lists.load_memory, context.config, context.store, owner)
    return await _render_tab(request, "memory", {"found": found})


async def _render_tab(request: Request, name: str, values: Mapping[str, Any]) -> Response:
    context = get_context(request)
    status = await context.run(lists.load_status, context.config, context.store)
    return await render_page(request, f"gateway_{name}.html", {"status": status, **values})


# -- changes


async def retry_delivery(request: Request) -> Response:
    """Send failed messages again."""
    context = get_context(request)
    await context.run(changes.retry_delivery, context.store, get_form(request))
    return redirect_back(request, "/gateway/deliveries")


async def change_job(request: Request) -> Response:
    """Run, pause, resume or remove a job."""
    context, names = get_context(request), request.path_params
    await context.run(changes.change_job, context.store, names["id"], names["change"])
    return redirect_back(request, "/gateway/schedules")


async def change_people(request: Request) -> Response:
    """Let somebody in, or keep them out."""
    await _apply_change(request, changes.PEOPLE_CHANGES)
    return redirect_back(request, "/gateway/people")


async def change_memory(request: Request) -> Response:
    """Change facts."""
    await _apply_change(request, changes.MEMORY_CHANGES)
    return redirect_back(request, "/gateway/memory")


async def _apply_change(request: Request, known: Mapping[str, changes.Change]) -> None:
    context, change = get_context(request), known.get(request.path_params["change"])
    if change is None:
        raise NotFound(f"There is no {request.path_params['change']!r:.40} here.")
    await context.run(change, context.store, get_form(request))


def _read_optional(request: Request, name: str) -> int | None:
    if name not in request.query_params:
        return None
    return changes.read_number(request.query_params, name)


ROUTES = [
    Route("/gateway", show_conversations),
    Route("/gateway/deliveries", show_deliveries),
    Route("/gateway/deliveries/retry", retry_delivery, methods=["POST"]),
    Route("/gateway/schedules", show_jobs),
    Route("/gateway/schedules/{id}", show_job),
    Route("/gateway/schedules/{id}/{change}", change_job, methods=["POST"]),
    Route("/gateway/people", show_people),
    Route("/gateway/people/{change}", change_people, methods=["POST"]),
    Route("/gateway/errors", show_errors),
    Route("/gateway/approvals", show_questions),
    Route("/gateway/memory", show_memory),
    Route("/gateway/memory/{change}", change_memory, methods=["POST"]),
]
