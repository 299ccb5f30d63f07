"""What can be done with a session: rename, archive, fork, undo, share and so on."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rekindle.config import get_home_and_env
from rekindle.errors import InvalidInput
from rekindle.pages.text import escape_control_chars, get_display_name
from rekindle.redaction.redactor import Redactor
from rekindle.transcripts.export.redact import SessionRedactor
from rekindle.transcripts.share import share_session
from rekindle.types import Session, replace_fields
from rekindle.web.addresses import build_session_url
from rekindle.web.context import get_context, get_form, redirect_back, render_page
from rekindle.web.sessions.menu import ACTIONS, add_notice, load_menu
from rekindle.web.sessions.state import get_list_state

PICKED = "pick."  # fields of the sessions that are picked in the list


async def show_actions(request: Request) -> Response:
    """Show what can be done with a session; the list shows this in a dialog."""
    context = get_context(request)
    session = await context.run(context.store.session, request.path_params["id"])
    menu = await context.run(load_menu, context.store, session, context.config, time.time())
    back = request.query_params.get("back", menu.url)
    return await render_page(request, "session_menu.html", {"menu": menu, "back": back})


def build_action_view(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the view of an action: it acts, and leads back to the page it was on."""
    action = ACTIONS[name]

    async def run_action(request: Request) -> Response:
        context, id = get_context(request), request.path_params["id"]
        session = await context.run(action.run, context.store, id, get_form(request))
        if name == "fork":
            return RedirectResponse(
                add_notice(build_session_url(session.id), name, [session.id]), 303
            )
        return _redirect_with_notice(request, build_session_url(id), name, [id])

    return run_action


async def archive_sessions(request: Request) -> Response:
    """Archive the sessions that are picked in the list."""
    return await _run_on_picked(request, "archive")


async def restore_sessions(request: Request) -> Response:
    """Bring back the sessions that were archived or deleted together."""
    return await _run_on_picked(request, "restore")


async def _run_on_picked(request: Request, name: str) -> Response:
    context, form = get_context(request), get_form(request)
    ids = [id for field, id in form.items() if field.startswith(PICKED)]
    if not ids:
        raise InvalidInput("No session is selected.")

    def run_all() -> None:
        for id in ids:
            ACTIONS[name].run(context.store, id, {})

    await context.run(run_all)
    return _redirect_with_notice(request, "/sessions", name, ids)


def _redirect_with_notice(request: Request, default: str, name: str, ids: list[str]) -> Response:
    response = redirect_back(request, default)
    response.headers["location"] = quote(
        add_notice(response.headers["location"], name, ids), safe=":/%#?=@[]!$&'()*+,;"
    )
    return response


async def download_page(request: Request) -> Response:
    """Send a session as one page without secrets, as `rekindle share` writes it."""
    context, state = get_context(request), get_list_state(request.app)
    session = await context.run(context.store.session, request.path_params["id"])

    def prepare() -> tuple[str, Iterator[str]]:
        (row,) = state.create_loader().build_rows([session])
        named = _fill_name(
            context.store.load_names([session]), replace_fields(session, cost=row.cost)
        )
        redactor = SessionRedactor(Redactor.from_environment(*get_home_and_env()))
        shared = share_session(context.store, named, redactor)
        return shared.file_name, shared.pieces

    name, pieces = await context.run(prepare)
    return StreamingResponse(
        (escape_control_chars(piece).encode("utf-8", "backslashreplace") for piece in pieces),
        media_type="text/html; charset=utf-8",
        headers={"content-disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}"},
    )


def _fill_name(names: dict[str, str], session: Session) -> Session:
    has_name = session.preview or session.title
    return replace_fields(session, title=get_display_name(session, names)) if has_name else session


ROUTES = [
    Route("/sessions/archive", archive_sessions, methods=["POST"]),
    Route("/sessions/restore", restore_sessions, methods=["POST"]),
    Route("/sessions/{id:path}/actions", show_actions),
    Route("/sessions/{id:path}/share", download_page),
    *(
        Route(f"/sessions/{{id:path}}/{name}", build_action_view(name), methods=["POST"])
        for name in ACTIONS
    ),
]
