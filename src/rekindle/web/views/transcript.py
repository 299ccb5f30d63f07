"""One session: its transcript as pages, live, and single messages of it."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rekindle.errors import InvalidInput, NotFound
from rekindle.types import Message
from rekindle.web.addresses import build_session_url
from rekindle.web.changes import get_changes
from rekindle.web.context import get_context, render_page
from rekindle.web.sessions.menu import load_notice, remove_notice
from rekindle.web.transcript import raw_message
from rekindle.web.transcript.live import LiveTranscripts
from rekindle.web.transcript.outline import KINDS
from rekindle.web.transcript.pages import LISTED_PROMPTS, PageBuilder, parse_query

_IMAGE_SECONDS = 3600


async def show_transcript(request: Request) -> Response:
    """Show the transcript of a session, or a part of it."""
    context = get_context(request)
    query = parse_query(request.query_params)
    block = request.headers.get("x-fragment")
    page = await context.run(_get_pages(request).build, request.path_params["id"], query, block)
    fields, notice = request.query_params, None
    if fields.get("did"):
        notice = await context.run(load_notice, context.store, fields["did"], fields.getlist("to"))
    prompts_after = -1 if query.prompts_after is None else query.prompts_after
    values = {
        **page._asdict(),
        "prompts_after": prompts_after,
        "listed_prompts": LISTED_PROMPTS,
        "query_at": query.at,
        "notice": notice,
        "back": remove_notice(f"{request.url.path}?{request.url.query}"),
    }
    return await render_page(request, "transcript.html", values)


async def find_place(request: Request) -> Response:
    """Lead to the next or previous prompt, error or edit."""
    context = get_context(request)
    kind = request.query_params.get("kind", "")
    if kind not in KINDS:
        raise InvalidInput(f"kind: expected {', '.join(KINDS)}, got {kind!r:.40}")
    query = parse_query(request.query_params)

    def find() -> tuple[str, int | None]:
        session = context.store.resolve(request.path_params["id"])
        outline = _get_pages(request).outlines.load(context.store, session)
        if query.before is not None:
            return session.id, outline.find_previous(kind, query.before)
        return session.id, outline.find_next(kind, -1 if query.after is None else query.after)

    session_id, position = await context.run(find)
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"position": position})
    at = "" if position is None else f"?at={position}#m{position}"
    return RedirectResponse(f"{build_session_url(session_id)}{at}", 303)


async def stream_events(request: Request) -> Response:
    """Send new messages as they are stored."""
    context = get_context(request)
    session = await context.run(context.store.session, request.path_params["id"])
    query = parse_query(request.query_params)
    given = request.headers.get("last-event-id", "")
    after = int(given[:18]) if given.isascii() and given.isdigit() else query.after
    stream = _get_live(request).follow(session.id, -1 if after is None else after)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def show_message(request: Request) -> Response:
    """Show one message as it is stored."""
    context = get_context(request)
    session = await context.run(context.store.resolve, request.path_params["id"])
    message = await _load_message(request)
    position = message.position or 0
    text, fields = message.text, await context.run(raw_message.format_json, message)
    values = {
        "session": session,
        "address": build_session_url(session.id),
        "message": message,
        "position": position,
        "text": text[: raw_message.SHOWN_CHARS],
        "text_chars": len(text),
        "fields": fields[: raw_message.SHOWN_CHARS],
        "fields_chars": len(fields),
        "shown_chars": raw_message.SHOWN_CHARS,
        "is_text_only": isinstance(message.content, str),
    }
    return await render_page(request, "message.html", values)


async def download_text(request: Request) -> Response:
    """Send the whole text of a message."""
    message = await _load_message(request)
    return _send_file(raw_message.iter_text(message), f"message-{message.position}.txt")


async def download_json(request: Request) -> Response:
    """Send all fields of a message."""
    message = await _load_message(request)
    return _send_file(raw_message.iter_json(message), f"message-{message.position}.json")


async def show_image(request: Request) -> Response:
    """Send an image that is a part of a message."""
    context = get_context(request)
    params = request.path_params
    image = await context.run(
        raw_message.load_image, context.store, params["id"], params["position"], params["number"]
    )
    headers = {"cache-control": f"private, max-age={_IMAGE_SECONDS}"}
    return Response(image.data, media_type=image.media_type, headers=headers)


async def _load_message(request: Request) -> Message:
    context, params = get_context(request), request.path_params
    if params["position"] >= 2**62:
        raise NotFound("There is no such message.")
    return await context.run(
        raw_message.load_message, context.store, params["id"], params["position"]
    )


def _send_file(pieces: Iterator[bytes], name: str) -> Response:
    """Send plain text that a browser saves and never shows as a page."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8", headers=headers)


def _get_pages(request: Request) -> PageBuilder:
    state = request.app.state
    if not hasattr(state, "transcript_pages"):
        context = get_context(request)
        state.transcript_pages = PageBuilder(context.store, context.config)
    return state.transcript_pages


def _get_live(request: Request) -> LiveTranscripts:
    state = request.app.state
    if not hasattr(state, "live_transcripts"):
        state.live_transcripts = LiveTranscripts(get_context(request), get_changes(request))
    return state.live_transcripts


_MESSAGE = "/sessions/{id:path}/messages/{position:int}"
ROUTES = [
    Route("/sessions/{id:path}/events", stream_events),
    Route("/sessions/{id:path}/next", find_place),
    Route(_MESSAGE, show_message),
    Route(f"{_MESSAGE}/text", download_text),
    Route(f"{_MESSAGE}/json", download_json),
    Route(f"{_MESSAGE}/images/{{number:int}}", show_image),
    Route("/sessions/{id:path}", show_transcript),
]
