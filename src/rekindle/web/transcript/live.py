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
_NO_MESSAGE = -1  # the position before the first one
_log = logging.getLogger(__name__)


class LiveEvent(NamedTuple):
    """Bytes to send, and the positions of the newest message before them and in them."""

    number: int
    start: int
    position: int
    data: bytes  # nothing if messages are gone, which not every viewer has


def encode_event(position: int, changes: Sequence[PageChange]) -> bytes:
    """Encode changes of a page as one server-sent event."""
    text = replace_surrogates(json.dumps([one._asdict() for one in changes], ensure_ascii=False))
    return f"id: {position}\ndata: {text}\n\n".encode()


class _SessionChannel:
    """A session that somebody looks at."""

    def __init__(self, position: int) -> None:
        self.viewers = 0
        self.position = position
        self.is_new = True  # nobody has looked for new messages yet
        self.number = 0  # of the last event
        self.events: deque[LiveEvent] = deque(maxlen=KEPT_EVENTS)
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.is_over = False

    def publish(self, position: int, changes: Sequence[PageChange]) -> None:
        self._add(position, encode_event(position, changes))
        self.position = position

    def go_back(self, position: int) -> None:
        """Have all viewers looked after: the messages after a position are gone."""
        self._add(self.position, b"")
        self.position = position

    def _add(self, position: int, data: bytes) -> None:
        self.number += 1
        self.events.append(LiveEvent(self.number, self.position, position, data))
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
            last = await self._find_last(session_id, MAX_POSITION)
            channel = self._channels.get(session_id)
            if channel is None or channel.is_over:
                channel = self._channels[session_id] = _SessionChannel(last)
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
        data, position = await self._catch_up(session_id, after, channel.position)
        if data:
            yield data
        while not channel.is_over:
            if number == channel.number:
                try:
                    async with asyncio.timeout(IDLE_SECONDS):
                        await channel.changed.wait()
                except TimeoutError:
                    yield KEEP_ALIVE
                continue
            waiting = [event for event in channel.events if event.number > number]
            if waiting[0].number != number + 1:  # too slow: some are gone
                number = channel.number
                data, position = await self._catch_up(session_id, position, channel.position)
                if data:
                    yield data
                continue
            number = waiting[-1].number
            parts: list[bytes] = []
            for event in waiting:
                data = event.data
                if data and event.start == position:
                    position = event.position
                elif not data or event.start < event.position:
                    # Some are gone, or the viewer has some from a page that was newer.
                    data, position = await self._catch_up(session_id, position, event.position)
                parts.append(data)
            if data := b"".join(parts):
                yield data

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
        is_first, channel.is_new = channel.is_new, False
        while True:
            start = channel.position
            changes, position = await self._context.run(
                self._render_after, session, start, MAX_POSITION
            )
            # Looked for afterwards: what was rendered may have come in place of what is gone.
            last = await self._find_last(session.id, start)
            if last < start:  # undone, or replaced by a summary
                channel.go_back(last)
                continue
            if position > start or not is_first:
                channel.publish(position, [*changes, *_list_fact_changes(session)])
            is_first = True  # the facts were sent
            if position == start:
                return

    async def _catch_up(self, session_id: str, after: int, until: int) -> tuple[bytes, int]:
        """Return the messages that a viewer lacks up to a position, and the one that is reached."""
        if until - after > MAX_CAUGHT_UP or await self._find_last(session_id, after) < after:
            reached = max(after, until)
            return encode_event(reached, [PageChange("", "reload", "")]), reached
        parts: list[bytes] = []
        if after < until:
            session = await self._context.run(self._context.store.session, session_id)
            while after < until:
                render = self._render_after
                changes, reached = await self._context.run(render, session, after, until)
                if reached == after:
                    break
                parts.append(encode_event(reached, changes))
                after = reached
        return b"".join(parts), after

    async def _find_last(self, session_id: str, until: int) -> int:
        """Return the position of the last message up to a position."""
        find = self._context.store.excerpts.find_last
        last = await self._context.run(find, session_id, until)
        return _NO_MESSAGE if last is None else last

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
