"""One session: its transcript, and what can be done with it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.web.context import get_context, render_page


async def show_transcript(request: Request) -> Response:
    """Show the transcript of a session."""
    context = get_context(request)
    session = await context.run(context.store.resolve, request.path_params["id"])
    return await render_page(request, "transcript.html", {"session": session})


ROUTES = [Route("/sessions/{id}", show_transcript)]
