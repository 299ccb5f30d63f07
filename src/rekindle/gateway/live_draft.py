"""An answer shown while it is being written, on platforms that can edit.

The draft is sent under the nonce of the answer's first parcel. So whoever delivers that parcel, in
this life or the next, finds the same message and puts the whole answer into it: half an answer never
stays behind as one. It is not begun while earlier answers are still on their way: they come first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

from rekindle.agent.model.client import TextDelta
from rekindle.agent.turn import Again, Called, Ended, Happening
from rekindle.errors import PlatformError
from rekindle.platforms import Platform
from rekindle.store.conversations.inbox import Letter

logger = logging.getLogger(__name__)

WRITING = " …"
SETTLE_SECONDS = 2.0


def nonce_of(letter: Letter) -> str:
    """The nonce of the message that begins the answer to a letter."""
    return f"answer-{letter.num}-{round(letter.time * 1000):x}"


class Draft:
    """The message in which an answer grows. Whatever goes wrong with it, the answer comes anyway."""

    def __init__(
        self,
        platform: Platform,
        letter: Letter,
        every: float,
        may_begin: Callable[[], Awaitable[bool]],
    ) -> None:
        self.message_id: str | None = None
        self.was_sent = False  # or may have been
        self._platform = platform
        self.letter = letter
        self._every = every
        self._may_begin = may_begin
        self._text = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, happening: Happening) -> None:
        """Something happened in the turn: show what there is of the answer, before long."""
        if isinstance(happening, TextDelta):
            self._text += happening.text
        elif isinstance(happening, (Again, Called)):
            self._text = ""
        if isinstance(happening, Ended) or not self._text.strip():
            return
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._show())

    async def settle(self) -> None:
        """Show no more, and wait a little for what is under way; the answer must not wait for ever."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=SETTLE_SECONDS)

    async def close(self) -> None:
        """Show no more; what is under way is waited for, so that it cannot undo what comes next."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _show(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._every)
                await self._changed.wait()
                self._changed.clear()
                await _whole(self._put())
        except PlatformError as error:
            logger.info("the draft of an answer cannot be shown: %s", error)
        except Exception:  # a draft is a courtesy: it must never cost the answer
            logger.exception("the draft of an answer failed")

    async def _put(self) -> None:
        text = self._text[: self._platform.limit - len(WRITING)].rstrip() + WRITING
        target = self.letter.source
        if self.message_id is None:
            if not await self._may_begin():
                return
            self.was_sent = True
            self.message_id = await self._platform.send(target, text, nonce_of(self.letter))
        await self._platform.edit(target, self.message_id, text)


async def _whole(work: Coroutine[object, object, None]) -> None:
    """Do all of it, even when cancelled in the middle."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
