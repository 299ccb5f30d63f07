"""Stop retrying a message that crashes the process every time, so that other messages proceed.

An attempt is counted in the store before it is made: a crash (out of memory, a fault inside a tool)
leaves nobody to count it afterwards. A process counts a message once, however often it retries it,
and undoes the count when it shuts down cleanly.

A crash costs every message in progress one attempt, including innocent ones. Therefore a message
makes its last attempt while no other message is making its last one: a second crash then counts
against only one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias, TypeVar

from rekindle.store.conversations.inbox import InboundMessage

from .context import GatewayContext

T = TypeVar("T")

# Process the message; it is already done; or it has no attempts left.
AttemptDecision: TypeAlias = Literal["proceed", "done", "exhausted"]


class AttemptTracker:
    """The attempts that this process makes at processing messages."""

    def __init__(self, context: GatewayContext) -> None:
        self._executor = context.executor
        self._inbox = context.executor.store.inbox
        self._max_attempts = context.max_attempts
        self._counted: set[int] = set()
        self._isolation_lock = asyncio.Lock()

    @asynccontextmanager
    async def isolate_last_attempt(self, inbound: InboundMessage) -> AsyncGenerator[None]:
        """Wait until a message may be processed; only its last attempt has to wait."""
        if inbound.num in self._counted or inbound.attempts < max(1, self._max_attempts - 1):
            yield
            return
        async with self._isolation_lock:
            yield

    async def begin(self, inbound: InboundMessage) -> AttemptDecision:
        """Count an attempt at a message, unless this process has counted it before."""
        return (await self.begin_checked(inbound, lambda _: None))[0]

    async def begin_checked(
        self, inbound: InboundMessage, find_refusal: Callable[[InboundMessage], T | None]
    ) -> tuple[AttemptDecision, T | None]:
        """Count an attempt, and return also why its sender is refused: one call of the store."""
        is_counted = inbound.num in self._counted

        def count() -> tuple[int, T | None]:
            attempts = 1 if is_counted else self._inbox.count_attempt(inbound)
            goes_on = 0 < attempts <= self._max_attempts
            return attempts, find_refusal(inbound) if goes_on else None

        attempts, refusal = await self._executor.run(count)
        if is_counted:
            return "proceed", refusal
        if attempts > self._max_attempts:
            return "exhausted", None
        if attempts:
            self._counted.add(inbound.num)
        return ("proceed" if attempts else "done"), refusal

    def finish(self, inbound_messages: Iterable[InboundMessage]) -> None:
        """Forget messages that are done."""
        self._counted.difference_update(inbound.num for inbound in inbound_messages)

    async def undo(self, *messages: InboundMessage) -> None:
        """Undo the attempts at the given messages, or at all, after a clean shutdown or takeover."""
        nums = {one.num for one in messages} & self._counted if messages else {*self._counted}
        self._counted -= nums
        if nums:
            await self._executor.run(self._inbox.undo_attempts, sorted(nums))
