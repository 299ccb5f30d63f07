"""What every view can use: the store, the settings, and how to build a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rekindle.config import Config
from rekindle.store import Store
from rekindle.store.store_executor import StoreExecutor

from .rendering import PageRenderer

P = ParamSpec("P")
T = TypeVar("T")


class WebContext(NamedTuple):
    """The server's own objects, the same for all requests."""

    config: Config
    executor: StoreExecutor
    renderer: PageRenderer
    readonly: bool

    @property
    def store(self) -> Store:
        return self.executor.store

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that may block on a thread, so that other requests go on."""
        return await self.executor.run(call, *args, **kwargs)


def get_context(request: Request) -> WebContext:
    """Return the context of the server that answers a request."""
    return request.app.state.context


def get_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; the guard has checked its token."""
    return request.state.form


async def render_page(
    request: Request, template: str, values: Mapping[str, Any], *, status: int = 200
) -> Response:
    """Render a page, or the one block of it that a script asks for in `X-Fragment`."""
    context = get_context(request)
    fragment = request.headers.get("x-fragment")
    shared = {
        "path": request.url.path,
        "form_token": request.state.visitor.form_token,
        "theme": request.cookies.get("rekindle_theme", ""),
        "readonly": context.readonly,
    }
    text = await context.run(context.renderer.render, template, {**shared, **values}, fragment)
    return HTMLResponse(text, status)


def redirect_back(request: Request, default: str) -> Response:
    """Lead back to the page that a form was on, after it was carried out."""
    target = get_form(request).get("back", default)
    if not target.startswith("/") or target.startswith("//"):
        target = default
    return RedirectResponse(target, 303)
