"""Show new messages to everybody who looks at a session.

One task per session reads and renders what is new, once; every viewer is sent the same bytes. The id
of an event is the position of the newest message in it, so that a viewer who reconnects with it misses
nothing and gets nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from rekindle.errors import RekindleError
from rekindle.pages.text import replace_surrogates
from rekindle.types import Session
from rekindle.web.changes import ChangeFeed
from rekindle.web.context import WebContext
from rekindle.web.rendering import format_number

from .entries import PAGE_MESSAGES, EntryRenderer, PageChange, load_range

KEPT_EVENTS = 64
MAX_POSITION = 2**62
IDLE_SECONDS = 15.0
MAX_CAUGHT_UP = 5 * PAGE_MESSAGES  # somebody further behind loads the page again
KEEP_ALIVE = b": still here\n\n"
_log = logging.getLogger(__name__)


class LiveEvent(NamedTuple):
    """Bytes to send, and the position of the newest message in them."""

    number: int
    position: int
    data: bytes


def encode_event(position: int, changes: Sequence[PageChange]) -> bytes:
    """Encode changes of a page as one server-sent event."""
    text = replace_surrogates(json.dumps([one._asdict() for one in changes], ensure_ascii=False))
    return f"id: {position}\ndata: {text}\n\n".encode()


class _SessionChannel:
    """A session that somebody looks at."""

    def __init__(self, position: int) -> None:
        self.viewers = 0
        self.position = position
        self.count = -1  # messages of the session
        self.number = 0  # of the last event
        self.events: deque[LiveEvent] = deque(maxlen=KEPT_EVENTS)
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.is_over = False

    def publish(self, position: int, changes: Sequence[PageChange]) -> None:
        self.number += 1
        self.position = position
        self.events.append(LiveEvent(self.number, position, encode_event(position, changes)))
        self.wake()

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class LiveTranscripts:
    """Follows the sessions that pages show, as long as one does."""

    def __init__(self, context: WebContext, feed: ChangeFeed) -> None:
        self._context = context
        self._feed = feed
        self._channels: dict[str, _SessionChannel] = {}

    async def follow(self, session_id: str, after: int) -> AsyncIterator[bytes]:
        """Yield events from the message after a position on, until the session is deleted."""
        channel = self._channels.get(session_id)
        if channel is None or channel.is_over:
            last = await self._context.run(self._context.store.excerpts.find_last, session_id)
            channel = self._channels.get(session_id)
            if channel is None or channel.is_over:
                channel = self._channels[session_id] = _SessionChannel(-1 if last is None else last)
        channel.viewers += 1
        try:
            if channel.task is None:
                channel.task = asyncio.create_task(self._run_channel(session_id, channel))
            yield KEEP_ALIVE
            async for data in self._iter_events(session_id, channel, after):
                yield data
        finally:
            channel.viewers -= 1
            if not channel.viewers:
                if self._channels.get(session_id) is channel:
                    del self._channels[session_id]
                if channel.task is not None:
                    channel.task.cancel()

    async def _iter_events(
        self, session_id: str, channel: _SessionChannel, after: int
    ) -> AsyncIterator[bytes]:
        number = channel.number
        position, target = after, channel.position
        if position < target:
            yield await self._catch_up(session_id, position, target)
            position = target
        while not channel.is_over:
            if number == channel.number:
                try:
                    await asyncio.wait_for(channel.changed.wait(), IDLE_SECONDS)
                except TimeoutError:
                    yield KEEP_ALIVE
                continue
            waiting = [event for event in channel.events if event.number > number]
            if not waiting or waiting[0].number != number + 1:  # too slow: some are gone
                number, target = channel.number, channel.position
                yield await self._catch_up(session_id, position, target)
                position = target
                continue
            yield b"".join(event.data for event in waiting)
            number, position = waiting[-1].number, waiting[-1].position

    async def _run_channel(self, session_id: str, channel: _SessionChannel) -> None:
        try:
            async for session in self._feed.subscribe(session_id):
                try:
                    await self._publish(session, channel)
                except RekindleError as error:
                    _log.warning("Cannot show new messages of %s: %s", session_id, error)
        finally:
            channel.is_over = True
            channel.wake()

    async def _publish(self, session: Session, channel: _SessionChannel) -> None:
        if channel.count > session.message_count:
            channel.publish(channel.position, [PageChange("", "reload", "")])
        is_first = channel.count < 0
        channel.count = session.message_count
        while True:
            start = channel.position
            changes, position = await self._context.run(
                self._render_after, session, start, MAX_POSITION
            )
            if position > start or not is_first:
                channel.publish(position, [*changes, *_list_fact_changes(session)])
            is_first = True  # the facts were sent
            if position == start:
                return

    async def _catch_up(self, session_id: str, after: int, until: int) -> bytes:
        """Return the messages that a viewer lacks between two positions."""
        if until - after > MAX_CAUGHT_UP:
            return encode_event(until, [PageChange("", "reload", "")])
        session = await self._context.run(self._context.store.session, session_id)
        parts: list[bytes] = []
        while after < until:
            changes, position = await self._context.run(self._render_after, session, after, until)
            parts.append(encode_event(position, changes))
            if position == after:
                break
            after = position
        return b"".join(parts)

    def _render_after(
        self, session: Session, after: int, until: int
    ) -> tuple[list[PageChange], int]:
        store = self._context.store
        found = load_range(store, session.id, after, PAGE_MESSAGES, until)
        if found.until == after:
            return [], after
        agents = [one for one in store.children(session) if one.sub_agent is not None]
        return EntryRenderer(session, agents).render_changes(found), found.until


def _list_fact_changes(session: Session) -> list[PageChange]:
    return [
        PageChange("fact-messages", "text", format_number(session.message_count)),
        PageChange("fact-calls", "text", format_number(session.tool_call_count)),
    ]
