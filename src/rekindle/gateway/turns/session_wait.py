"""Begin a turn in a session that another program may hold: wait for it, then go on in a copy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from rekindle.errors import InvalidInput, NotFound, SessionHeld
from rekindle.gateway.context import GatewayContext
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.types import Route, Session

from .session_hold import SessionHold

logger = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_SECONDS = 0.5
WAITING_NOTICE = (
    "This conversation is open in another program. I wait up to {seconds:.0f} seconds for it."
)
COPY_NOTICE = "It is still open there, so I go on in a copy of it. /back returns to the original."


class SessionWait:
    """The wait of a conversation for its session, with a notice to the user."""

    def __init__(self, context: GatewayContext, hold: SessionHold, inbound: InboundMessage) -> None:
        self._context = context
        self._executor = context.executor
        self._hold = hold
        self._inbound = inbound

    async def begin(
        self, route: Route, session: Session, begin: Callable[[Route, Session], T]
    ) -> tuple[Route, T]:
        """Call `begin` until it can acquire the session, and return the route and its result.

        If the session is not free in time, continue in a copy. Raise `SessionHeld` where nobody waits.
        """
        seconds = self._context.session_wait
        deadline, is_told = time.monotonic() + (seconds or 0.0), False
        while True:
            try:
                return route, await self._executor.run(begin, route, session)
            except SessionHeld as error:
                if seconds is None:
                    raise
                if not is_told:
                    logger.info("waiting: %s", error)
                    await self._notify_user(WAITING_NOTICE.format(seconds=seconds))
                    is_told = True
            if time.monotonic() < deadline:
                await asyncio.sleep(min(_POLL_SECONDS, seconds))
                continue
            route, session = await self._executor.run(self._copy_session, route, session)
            logger.info("going on in a copy of the session: %s", session.id)
            await self._notify_user(COPY_NOTICE)

    async def _notify_user(self, text: str) -> None:
        # Not as a reply: the platform would take the answer for a repetition of it.
        post = self._executor.store.inbox.post
        await self._executor.run(post, self._inbound.key, self._inbound.source, text)

    def _copy_session(self, route: Route, session: Session) -> tuple[Route, Session]:
        store, key = self._executor.store, route.key

        def fork() -> tuple[Route, Session]:
            copy = store.fork(session)
            if route.session != session.id:
                return route, copy
            return store.routes.follow(key, session.id, copy.id), copy

        try:
            return store.transaction(fork)
        except (InvalidInput, NotFound):  # nothing to copy yet
            new_route = store.routes.reset(key)
            return new_route, session._replace(id=new_route.session)
