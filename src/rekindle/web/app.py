"""The application: routes of all views, behind the guard."""

from __future__ import annotations

import logging
from pathlib import PurePosixPath

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from rekindle.errors import InvalidInput, NotFound, RekindleError

from . import views
from .changes import ChangeFeed
from .context import WebContext, get_form, redirect_back, render_page
from .freshness import FreshnessOptions, SessionFreshness, run_background
from .guard import AccessGuard, GuardOptions
from .rendering import STATIC_TYPES, THEMES, load_static_files

_log = logging.getLogger(__name__)
_YEAR = 365 * 86400


def build_app(
    context: WebContext, options: GuardOptions, freshness: FreshnessOptions | None = None
) -> AccessGuard:
    """Return the application that a server runs; with `freshness`, it imports what agents write."""
    app = Starlette(
        lifespan=run_background,
        routes=[
            Route("/static/{name}", serve_static_file),
            Route("/theme", set_theme, methods=["POST"]),
            Route("/favicon.ico", serve_icon),
            *views.ROUTES,
        ],
        exception_handlers={
            HTTPException: show_http_error,
            RekindleError: show_error,
            Exception: show_failure,
        },
    )
    app.state.context = context
    app.state.changes = ChangeFeed(context.executor)
    app.state.freshness = None
    if freshness is not None and not context.readonly:
        app.state.freshness = SessionFreshness(context.store, freshness, app.state.changes)
    return AccessGuard(app, options)


async def serve_static_file(request: Request) -> Response:
    """Send one of the files that pages load."""
    name = request.path_params["name"]
    content = load_static_files().get(name)
    if content is None:
        return PlainTextResponse("Not found.\n", 404)
    headers = {"cache-control": f"public, max-age={_YEAR}, immutable"} if request.url.query else {}
    return Response(content, media_type=STATIC_TYPES[PurePosixPath(name).suffix], headers=headers)


async def serve_icon(request: Request) -> Response:
    """Lead browsers that ask for the old name to the icon."""
    return RedirectResponse("/static/icon.svg")


async def set_theme(request: Request) -> Response:
    """Remember whether pages are light or dark."""
    theme = get_form(request).get("theme", "")
    response = redirect_back(request, "/")
    response.set_cookie(
        "rekindle_theme", theme if theme in THEMES else "", max_age=_YEAR, samesite="strict"
    )
    return response


async def show_http_error(request: Request, error: Exception) -> Response:
    """Show that a page does not exist, or cannot be called that way."""
    assert isinstance(error, HTTPException)
    title = {404: "Page not found", 405: "Not possible here"}.get(error.status_code, error.detail)
    return await _show_message(request, error.status_code, title, "")


async def show_error(request: Request, error: Exception) -> Response:
    """Show an error of ours in its own words."""
    status, title = 500, "That did not work"
    if isinstance(error, NotFound):
        status, title = 404, "Not found"
    elif isinstance(error, InvalidInput):
        status, title = 400, "That cannot be done"
    else:
        status = 503
    return await _show_message(request, status, title, str(error))


async def show_failure(request: Request, error: Exception) -> Response:
    """Show that something failed that should not; the cause is in the log."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _show_message(
        request, 500, "Something went wrong", "The log of `rekindle web` has the cause."
    )


async def _show_message(request: Request, status: int, title: str, text: str) -> Response:
    return await render_page(request, "error.html", {"title": title, "text": text}, status=status)
