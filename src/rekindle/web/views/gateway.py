"""Gateway."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.web.context import render_page


async def show_gateway(request: Request) -> Response:
    """Show the page."""
    return await render_page(request, "gateway.html", {})


ROUTES = [Route("/gateway", show_gateway)]
