"""Processes: what runs in the background, its output, its terminal, and what can be done with it."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rekindle.config import get_home_and_env, get_login_name
from rekindle.errors import InputClosed, InvalidInput, NotFound
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.lookup import describe_state, find_process, parse_signal
from rekindle.processes.operations import Processes
from rekindle.processes.types import RING_SIZE, Process
from rekindle.web.context import get_form, render_page
from rekindle.web.processes.ansi import convert_text
from rekindle.web.processes.feeds import ViewKind, get_feeds
from rekindle.web.processes.listing import format_span, list_page
from rekindle.web.processes.output_views import MAX_LOG_LINES, render_line, render_start

SIGNALS = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL")
MAX_TYPED_CHARS = 100_000
_TERMINAL_ROWS = TerminalSize().rows


async def show_processes(request: Request) -> Response:
    """List the processes."""
    feeds, query = get_feeds(request), request.query_params
    only_live = query.get("show") == "running"
    page = _read_number(query.get("page", "0"), 1_000_000)
    found = await list_page(feeds.processes, feeds.last_lines, only_live=only_live, page=page)
    values = {
        "found": found, "only_live": only_live, "page": page, "describe": describe_state,
        "folder": os.getcwd(),
    }  # fmt: skip
    return await render_page(request, "processes.html", values)


async def show_process(request: Request) -> Response:
    """Show one process with its log, or with its terminal."""
    processes = get_feeds(request).processes
    one = await find_process(processes, request.path_params["id"], None)
    is_terminal = one.pty and one.live and request.query_params.get("view") == "terminal"
    log = "" if is_terminal else await _render_log(processes, one)
    values = {
        "one": one, "describe": describe_state, "log": log, "is_terminal": is_terminal,
        "signals": SIGNALS, "rows": _TERMINAL_ROWS,
        "span": format_span((one.ended or time.time()) - one.started),
    }  # fmt: skip
    return await render_page(request, "process.html", values)


async def _render_log(processes: Processes, one: Process) -> str:
    """Return the last lines as they are now, for readers without the script."""
    with suppress(NotFound):
        since = max(0, one.bytes - RING_SIZE)
        found = await processes.read_log(one.id, since=since, plain=False)
        lines = [render_line(html) for html in convert_text(found.output)[-MAX_LOG_LINES:]]
        return "".join([render_start(found.start), *lines] if found.start else lines)
    return ""


# -- streams


async def stream_log(request: Request) -> Response:
    """Send changes of the log."""
    return await _stream_events(request, "log")


async def stream_screen(request: Request) -> Response:
    """Send changes of the terminal's screen."""
    return await _stream_events(request, "terminal")


async def _stream_events(request: Request, kind: ViewKind) -> Response:
    feeds = get_feeds(request)
    one = await find_process(feeds.processes, request.path_params["id"], None)
    if kind == "terminal" and not one.pty:
        raise InvalidInput(f"process {one.id} has no terminal")

    async def iter_events() -> AsyncGenerator[str, None]:
        async with aclosing(feeds.open_feed(kind, one).stream_events()) as events:
            async for event in events:
                yield event

    return StreamingResponse(iter_events(), media_type="text/event-stream")


# -- changes


async def start_process(request: Request) -> Response:
    """Start the process that the form describes."""
    form, processes = get_form(request), get_feeds(request).processes
    try:
        command = shlex.split(form.get("command", ""))
    except ValueError as error:
        raise InvalidInput(f"The command cannot be read: {error}") from None
    if not command:
        raise InvalidInput("The command is empty.")
    backend, folder = form.get("backend") or "local", form.get("folder", "")
    is_local = backend == "local"
    other = await find_process(processes, form["after"], None) if form.get("after") else None
    started = await processes.start(
        command,
        owner=get_login_name(),
        cwd=str(Path(folder or ".").expanduser().absolute()) if is_local else folder,
        env=dict(get_home_and_env()[1]) if is_local else {},
        pty=TerminalSize() if form.get("terminal") else None,
        backend=backend,
        name=form.get("name", ""),
        after=other.id if other else "",
    )
    view = "?view=terminal" if started.pty else ""
    return RedirectResponse(f"/processes/{started.id}{view}", 303)


async def send_line(request: Request) -> Response:
    """Send a line of input, or close the input."""
    processes, one = await _find_named(request)
    form = get_form(request)
    if form.get("close"):
        await processes.close_stdin(one.id)
    else:
        written, total = await processes.submit(one.id, form.get("line", "")[:MAX_TYPED_CHARS])
        if written < total:
            raise InvalidInput(f"{one.id} is not reading its input: {written} of {total} bytes")
    return _redirect_to(one)


async def send_keys(request: Request) -> Response:
    """Send keys that were pressed on a page, once and in order."""
    processes, one = await _find_named(request)
    form = get_form(request)
    number = _read_number(form.get("number", ""), 10**12)
    if not get_feeds(request).accept_keys(form.get("keyboard", "")[:64], number):
        return JSONResponse({"accepted": 0, "total": 0})
    data = form.get("keys", "")[:MAX_TYPED_CHARS]
    try:
        accepted, total = await processes.write(one.id, data)
    except InputClosed as error:
        return JSONResponse({"error": str(error)}, 409)
    return JSONResponse({"accepted": accepted, "total": total})


async def resize_terminal(request: Request) -> Response:
    """Give the terminal the size that fits into a page."""
    form = get_form(request)
    rows, columns = (_read_number(form.get(name, ""), 10_000) for name in ("rows", "columns"))
    _, one = await _find_named(request)
    with suppress(InputClosed):
        await get_feeds(request).resize(one, rows, columns)
    return JSONResponse({})


async def kill_process(request: Request) -> Response:
    """Kill a process with everything it started, or send it a signal."""
    processes, one = await _find_named(request)
    name = get_form(request).get("signal", "")
    if name:
        with suppress(InputClosed):  # it has ended meanwhile
            await processes.signal(one.id, parse_signal(name))
    else:
        await processes.kill(one.id)
    return _redirect_to(one)


async def restart_process(request: Request) -> Response:
    """Start the command of a process again."""
    processes, one = await _find_named(request)
    return _redirect_to(await processes.restart(one.id, env=dict(get_home_and_env()[1])))


async def _find_named(request: Request) -> tuple[Processes, Process]:
    processes = get_feeds(request).processes
    return processes, await find_process(processes, request.path_params["id"], None)


def _redirect_to(one: Process) -> Response:
    return RedirectResponse(f"/processes/{one.id}", 303)


def _read_number(text: str, limit: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidInput(f"{text!r:.40} is not a number")
    return min(int(text), limit)


ROUTES = [
    Route("/processes", show_processes),
    Route("/processes", start_process, methods=["POST"]),
    Route("/processes/{id}", show_process),
    Route("/processes/{id}/log", stream_log),
    Route("/processes/{id}/screen", stream_screen),
    Route("/processes/{id}/input", send_line, methods=["POST"]),
    Route("/processes/{id}/keys", send_keys, methods=["POST"]),
    Route("/processes/{id}/size", resize_terminal, methods=["POST"]),
    Route("/processes/{id}/kill", kill_process, methods=["POST"]),
    Route("/processes/{id}/restart", restart_process, methods=["POST"]),
]
