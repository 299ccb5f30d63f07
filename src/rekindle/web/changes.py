"""Tell live pages which sessions have changed: one poller of the store for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from starlette.requests import Request

from rekindle.errors import StoreError
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Session

from .context import get_context

POLL_SECONDS = 0.1
RETRY_SECONDS = 1.0  # after an error of the store
_log = logging.getLogger(__name__)


class _Topic:
    """A session that somebody looks at: its latest value, and how often it has changed."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.version = 0
        self.viewers = 0
        self.changed = asyncio.Event()

    def publish(self, session: Session | None) -> None:
        self.session = session
        self.version += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class ChangeFeed:
    """Follows the sessions that pages show, as long as one does; every viewer sees the same poll."""

    def __init__(self, executor: StoreExecutor, poll_seconds: float = POLL_SECONDS) -> None:
        self._executor = executor
        self._poll_seconds = poll_seconds
        self._topics: dict[str, _Topic] = {}
        self._poller: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()

    async def subscribe(self, session_id: str) -> AsyncIterator[Session]:
        """Yield the session now, and whenever it has changed; end when it was deleted.

        Compare `message_count` or read the messages after the last position that was shown: changes
        that follow each other quickly are yielded once, so that a slow viewer never falls behind.
        """
        topic = self._topics.setdefault(session_id, _Topic())
        topic.viewers += 1
        seen = 0
        try:
            self._start_poller()
            while True:
                while topic.version == seen:
                    await topic.changed.wait()
                seen, session = topic.version, topic.session
                if session is None:
                    return
                yield session
        finally:
            topic.viewers -= 1
            if not topic.viewers and self._topics.get(session_id) is topic:
                del self._topics[session_id]
                self._wanted.set()

    def notify(self) -> None:
        """Look for changes now: something was written."""
        self._wanted.set()

    def _start_poller(self) -> None:
        if self._poller is None or self._poller.done():
            self._wanted = asyncio.Event()
            self._poller = asyncio.create_task(self._poll())
        self._wanted.set()

    async def _poll(self) -> None:
        pause = 0.0
        while self._topics:
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            pause = self._poll_seconds
            topics = dict(self._topics)
            if not topics:
                return
            try:
                found = await self._executor.run(self._executor.store.find_sessions, [*topics])
            except StoreError as error:
                _log.warning("Cannot look for changed sessions: %s", error)
                pause = RETRY_SECONDS
                continue
            for id, topic in topics.items():
                session = found.get(id)
                if session is not None and session.pruned is not None:
                    session = None
                if not topic.version or session != topic.session:
                    topic.publish(session)


def get_changes(request: Request) -> ChangeFeed:
    """Return the feed of the server that answers a request."""
    state = request.app.state
    if not hasattr(state, "changes"):
        state.changes = ChangeFeed(get_context(request).executor)
    return state.changes
