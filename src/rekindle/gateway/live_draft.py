"""Show an answer while it is being written, on platforms that can edit messages.

The draft is sent under the nonce of the answer's first outbound message. Whoever delivers that
message, before or after a restart, finds the same chat message and edits it to the complete answer,
so a partial answer never remains. A draft is not started while earlier answers are still unsent:
they go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

from rekindle.agent.model.client import TextDelta
from rekindle.agent.turn import Retrying, ToolCalled, TurnEnded, TurnEvent
from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.store.conversations.inbox import InboundMessage

logger = logging.getLogger(__name__)

DRAFT_SUFFIX = " …"
SETTLE_SECONDS = 2.0


def build_answer_nonce(inbound: InboundMessage) -> str:
    """Build the nonce of the message that begins the answer to an inbound message."""
    return f"answer-{inbound.num}-{round(inbound.time * 1000):x}"


class LiveDraft:
    """The chat message in which an answer grows. Its failures never affect the answer."""

    def __init__(
        self,
        platform: Platform,
        inbound: InboundMessage,
        interval: float,
        can_begin: Callable[[], Awaitable[bool]],
        is_ours: Callable[[], Awaitable[bool]],
    ) -> None:
        """Create a draft; `is_ours` returns whether no other gateway has taken over the answer."""
        self.message_id: str | None = None
        self.was_sent = False  # or may have been
        self._platform = platform
        self.inbound = inbound
        self._interval = interval
        self._can_begin = can_begin
        self._is_ours = is_ours
        self._text = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_event(self, event: TurnEvent) -> None:
        """Handle a turn event: schedule an update with the answer so far."""
        if isinstance(event, TextDelta):
            self._text += event.text
        elif isinstance(event, (Retrying, ToolCalled)):
            self._text = ""
        if isinstance(event, TurnEnded) or not self._text.strip():
            return
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run_updates())

    async def settle(self) -> None:
        """Stop updating, and wait briefly for an update in progress; the answer must not be blocked."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=SETTLE_SECONDS)

    async def close(self) -> None:
        """Stop updating, and wait for an update in progress, so that it overwrites nothing later."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_updates(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._interval)
                await self._changed.wait()
                self._changed.clear()
                await _run_uncancelled(self._send_update())
        except PlatformError as error:
            logger.info("cannot show the answer draft: %s", error)
        except Exception:  # a draft is optional: it must never affect the answer
            logger.exception("answer draft failed")

    async def _send_update(self) -> None:
        text = self._text[: self._platform.limit - len(DRAFT_SUFFIX)].rstrip() + DRAFT_SUFFIX
        target = self.inbound.source
        if not await self._is_ours():
            return
        if self.message_id is None:
            if not await self._can_begin():
                return
            self.was_sent = True
            self.message_id = await self._platform.send(
                target, text, build_answer_nonce(self.inbound)
            )
        await self._platform.edit(target, self.message_id, text)


async def _run_uncancelled(coroutine: Coroutine[object, object, None]) -> None:
    """Run a coroutine to its end, even if this task is cancelled."""
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
