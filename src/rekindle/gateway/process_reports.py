"""Reports from background processes to the conversations that started them.

A process reports to the chat it came from: that it exited, what it wrote in an interval, or a line
that matched a watched pattern. A report is accepted like a message, under an id of its own, and
acknowledged once it is stored, so that a crash neither loses nor repeats it. It needs no answer: it
is sent to the chat and appended to the session, where the model reads it before its next turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from rekindle.errors import InvalidInput, NotFound, ProcessError
from rekindle.platforms import PlatformMessage
from rekindle.processes.operations import Processes
from rekindle.processes.types import Process, ProcessEvent
from rekindle.routing.sanitize import clean_text
from rekindle.routing.source import from_json, to_json
from rekindle.shell.command_reader import unwrap_shell
from rekindle.store import Store
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Message, Source

logger = logging.getLogger(__name__)

_POLL_SECONDS = 300.0  # seconds to wait for events in one request
_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 30.0
_MAX_COMMAND_CHARS = 80  # characters of a command line in a report
_MAX_OUTPUT_CHARS = 1000  # characters of output in a report


def make_busy_check(
    processes: Processes, executor: StoreExecutor
) -> Callable[[str, str], Awaitable[bool]]:
    """Return a check for whether a session of an owner, or an ancestor of it, has running processes."""

    async def is_busy(owner: str, session: str) -> bool:
        try:
            found = await processes.list(owner=owner, live=True)
        except ProcessError as error:
            # Unknown: assume it is busy, so that running work keeps its session.
            logger.warning("cannot list background processes: %s", error)
            return True
        started_in = {one.session for one in found}
        return session in started_in or await executor.run(
            _is_continuation, executor.store, started_in, session
        )

    return is_busy


def _is_continuation(store: Store, ancestors: Iterable[str], session: str) -> bool:
    """Return whether one of the ancestors was compressed into this session."""
    for one in ancestors:
        with suppress(NotFound):
            if store.find_tip(one).id == session:
                return True
    return False


# -- report addresses


def build_report_address(source: Source) -> str:
    """Build the address that a process started in this chat reports to."""
    return json.dumps([source.platform, to_json(source)], ensure_ascii=False)


def _build_address_prefix(platform: str) -> str:
    """Build the prefix that all addresses of a platform share."""
    return json.dumps([platform], ensure_ascii=False)[:-1] + ","


async def forward_reports(
    processes: Processes,
    platforms: Iterable[str],
    accept: Callable[[PlatformMessage], Awaitable[None]],
) -> None:
    """Accept reports from processes to chats of these platforms, forever."""
    prefixes = [_build_address_prefix(platform) for platform in platforms]
    delay = _RETRY_SECONDS
    while True:
        try:
            events = await processes.fetch_events(wait=_POLL_SECONDS, notes=prefixes)
            for event in events:
                await _accept_report(event, accept)
            if events:
                await processes.ack_events([event.number for event in events])
            delay = _RETRY_SECONDS
        except Exception as error:  # noqa: BLE001  # reports can wait; the loop must survive
            logger.warning("cannot fetch process reports: %s; retrying in %g s", error, delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)


async def _accept_report(
    event: ProcessEvent, accept: Callable[[PlatformMessage], Awaitable[None]]
) -> None:
    try:
        _, source = json.loads(event.note)
        target = from_json(source)
    except (ValueError, InvalidInput) as error:
        logger.error("report of process %s has an invalid address: %s", event.process.id, error)
        return
    await accept(PlatformMessage(target, report_to_message(event)))


# -- report messages


def report_to_message(event: ProcessEvent) -> Message:
    """Convert a report to the message stored in the session, with a unique id."""
    meta = {"process": event.process.id, "event": event.kind, "session": event.process.session}
    return Message(
        "assistant",
        render_report(event),
        platform_message_id=f"process:{event.process.id}:{event.number}",
        meta=meta,
        timestamp=event.at,
    )


def render_report(event: ProcessEvent) -> str:
    """Render a report for people and for the model."""
    process = event.process
    name = f"Background process {process.id} ({_format_command(process.command)})"
    if event.kind == "end":
        return f"{name} {_describe_ending(process)}.{_quote_output(event.text, 'Last output')}"
    if event.kind == "interval":
        output = _quote_output(event.text, "New output") or " No new output."
        return (
            f"{name} has been running for {_format_duration(event.at - process.started)}.{output}"
        )
    if event.kind == "pattern":
        more = f" ({event.suppressed} more since the last report)" if event.suppressed else ""
        return (
            f"{name} matched a watched pattern{more}.{_quote_output(event.text, 'Matching line')}"
        )
    return f"{name}: {clean_text(event.text, _MAX_OUTPUT_CHARS)}"


def _describe_ending(process: Process) -> str:
    duration = _format_duration((process.ended or process.started) - process.started)
    if process.state == "exited" and process.exit_code is not None:
        return f"exited with {process.exit_code} after {duration}"
    if process.state == "killed":
        return f"was killed after {duration}"
    reason = f": {clean_text(process.reason, 200)}" if process.reason else ""
    return f"is {process.state}{reason}"


def _format_command(line: str) -> str:
    """Format a command as it was typed, without the shell that runs it."""
    return clean_text(unwrap_shell(line), _MAX_COMMAND_CHARS)


def _quote_output(text: str, title: str) -> str:
    """Quote output in a code block."""
    output = text.strip("\n").replace("```", "'''")
    if not output.strip():
        return ""
    if len(output) > _MAX_OUTPUT_CHARS:
        output = "…" + output[-_MAX_OUTPUT_CHARS:]
    return f" {title}:\n```\n{output}\n```"


def _format_duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
