"""The list of sessions: filters, search as one types, and what was done to sessions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.web.addresses import build_session_url
from rekindle.web.context import get_context, render_page
from rekindle.web.sessions.filters import (
    OUTCOMES,
    PERIODS,
    STATUSES,
    parse_cursor,
    read_filters,
)
from rekindle.web.sessions.menu import load_notice, remove_notice
from rekindle.web.sessions.rows import ListChoices
from rekindle.web.sessions.state import get_list_state


async def show_sessions(request: Request) -> Response:
    """Show the list, or what a search finds.

    A script that asks for the results while somebody types gets what can be found quickly, and asks
    again with `thorough` when they pause.
    """
    context, state = get_context(request), get_list_state(request.app)
    fields = request.query_params
    filters = read_filters(fields)
    is_fragment = "x-fragment" in request.headers
    cursor = parse_cursor(fields.get("before", ""))
    is_thorough = not is_fragment or fields.get("thorough") == "yes"
    page = await state.load_page(request, filters, cursor, is_thorough=is_thorough)
    choices = ListChoices() if is_fragment else await state.get_choices()
    notice = None
    if "did" in fields:
        notice = await context.run(load_notice, context.store, fields["did"], fields.getlist("to"))
    values = {
        "filters": filters,
        "page": page,
        "choices": choices,
        "notice": notice,
        "statuses": STATUSES,
        "outcomes": OUTCOMES,
        "periods": PERIODS,
        "is_first": cursor is None,
        "older": filters.build_query(before=page.next) if page.next else "",
        "back": remove_notice(f"{request.url.path}?{request.url.query}"),
        "session_url": build_session_url,
    }
    return await render_page(request, "sessions.html", values)


ROUTES = [Route("/sessions", show_sessions)]
