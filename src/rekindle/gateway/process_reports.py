"""Background processes and the conversations in which they were started.

A process reports to the chat it came from: that it ended, what it wrote in an interval, a line that
was waited for. A report comes in like a message, under an id of its own, and is acknowledged when it
is kept; so it is told once, whatever dies in between. It needs no answer: it goes out, and stands in
the session, where the model reads it before its next turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from rekindle.agent.store_executor import Desk
from rekindle.errors import InvalidInput, NotFound, ProcessError
from rekindle.platforms import Incoming
from rekindle.processes.types import Event, Process, Processes
from rekindle.routing.sanitize import clean
from rekindle.routing.source import from_json, to_json
from rekindle.store import Store
from rekindle.types import Message, Source

logger = logging.getLogger(__name__)

_WAIT = 300.0  # seconds for one question whether there is something to report
_TROUBLE = 1.0
_LONGEST_TROUBLE = 30.0
_COMMAND = 80  # characters of a command line in a report
_OUTPUT = 1000  # characters of output in one


def busy_of(processes: Processes, desk: Desk) -> Callable[[str, str], Awaitable[bool]]:
    """Tells whether a session of an owner, or one that it goes on, has running processes."""

    async def is_busy(owner: str, session: str) -> bool:
        try:
            found = await processes.list(owner=owner, live=True)
        except ProcessError as error:
            # Nobody knows: what may be at work is not taken away from under it.
            logger.warning("background processes cannot be asked for: %s", error)
            return True
        begun = {one.session for one in found}
        return session in begun or await desk.ask(_goes_on, desk.store, begun, session)

    return is_busy


def _goes_on(store: Store, begun: Iterable[str], session: str) -> bool:
    """Whether one of the sessions that began something was summed up into this one."""
    for one in begun:
        with suppress(NotFound):
            if store.tip(one).id == session:
                return True
    return False


# -- where a report goes


def address_of(source: Source) -> str:
    """Where a process that is started here reports to."""
    return json.dumps([source.platform, to_json(source)], ensure_ascii=False)


def _under(platform: str) -> str:
    """How the addresses of a platform begin."""
    return json.dumps([platform], ensure_ascii=False)[:-1] + ","


async def pass_on(
    processes: Processes,
    platforms: Iterable[str],
    take_in: Callable[[Incoming], Awaitable[None]],
) -> None:
    """Take in what processes report to chats of these platforms, for ever."""
    notes = [_under(platform) for platform in platforms]
    trouble = _TROUBLE
    while True:
        try:
            events = await processes.events(wait=_WAIT, notes=notes)
            for event in events:
                await _take(event, take_in)
            if events:
                await processes.ack([event.number for event in events])
            trouble = _TROUBLE
        except Exception as error:  # noqa: BLE001  # reports wait; the gateway must go on
            logger.warning("reports of processes cannot be had: %s; again in %g s", error, trouble)
            await asyncio.sleep(trouble)
            trouble = min(trouble * 2, _LONGEST_TROUBLE)


async def _take(event: Event, take_in: Callable[[Incoming], Awaitable[None]]) -> None:
    try:
        _, source = json.loads(event.note)
        target = from_json(source)
    except (ValueError, InvalidInput) as error:
        logger.error("a report of process %s has no address: %s", event.process.id, error)
        return
    await take_in(Incoming(target, message_of(event)))


# -- what a report says


def message_of(event: Event) -> Message:
    """A report as it stands in the session. Its id is that of no other."""
    about = {"process": event.process.id, "event": event.kind, "session": event.process.session}
    return Message(
        "assistant",
        report(event),
        platform_message_id=f"process:{event.process.id}:{event.number}",
        meta=about,
        timestamp=event.at,
    )


def report(event: Event) -> str:
    """A report for people, and for the model."""
    process = event.process
    name = f"Background process {process.id} ({_command(process.command)})"
    if event.kind == "end":
        return f"{name} {_ending(process)}.{_quoted(event.text, 'Its last output')}"
    if event.kind == "interval":
        wrote = _quoted(event.text, "New output") or " It wrote nothing new."
        return f"{name} is running for {_span(event.at - process.started)}.{wrote}"
    if event.kind == "pattern":
        more = f" ({event.suppressed} more since the last report)" if event.suppressed else ""
        return f"{name} wrote what was waited for{more}.{_quoted(event.text, 'The line')}"
    return f"{name}: {clean(event.text, _OUTPUT)}"


def _ending(process: Process) -> str:
    took = _span((process.ended or process.started) - process.started)
    if process.state == "exited" and process.exit_code is not None:
        return f"exited with {process.exit_code} after {took}"
    if process.state == "killed":
        return f"was killed after {took}"
    why = f": {clean(process.why, 200)}" if process.why else ""
    return f"is {process.state}{why}"


def _command(line: str) -> str:
    """A command as it was typed, without the shell that runs it."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = []
    if len(words) == 3 and words[1] == "-c":
        line = words[2]
    return clean(line, _COMMAND)


def _quoted(text: str, title: str) -> str:
    """Output, marked as such."""
    shown = text.strip("\n").replace("```", "'''")
    if not shown.strip():
        return ""
    if len(shown) > _OUTPUT:
        shown = "…" + shown[-_OUTPUT:]
    return f" {title}:\n```\n{shown}\n```"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
