"""Before a session expires, give the agent one chance to save what it should remember.

    due soon, quiet, never flushed → claim (mark and lease in one transaction) → one turn with the
    `memory` tool alone, whose messages are not stored

The mark is set before the turn begins: a gateway that dies in the midst of it does not flush again. A
message that arrives meanwhile ends the flush.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from time import time

from rekindle.agent.model.client import StreamEnded
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.tool import ToolContext
from rekindle.errors import ContextTooLong, ModelError
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.turns.opening import build_opening
from rekindle.routing.reset_policy import find_reset_time
from rekindle.types import Message, Role, Route, Session, Tokens, Usage

from .facts import is_own_message
from .tool import TOOL_NAME

logger = logging.getLogger(__name__)

# Starts a claimed flush of a route; the result is done when it has ended.
FlushStarter = Callable[[Route], Awaitable[None]]

MARGIN_SECONDS = 300.0  # before a session expires
POLL_SECONDS = 10.0
_QUIET_SECONDS = 120.0  # since the last message; less if the session lives only shortly
_LATE_SECONDS = (
    3600.0  # how long after its end a session may still be flushed, by a gateway that was down
)
_HORIZON_SECONDS = 31 * 86_400.0
_MAX_CONCURRENT = 4
_MAX_STEPS = 4
_MAX_CUTS = 4  # halvings of a history that is too long for the model
_TURN_SECONDS = 180.0
_MAX_SKIPPED = 10_000

INSTRUCTION = (
    "[Rekindle] This session is about to end, and nobody reads your answer. If the person told you"
    " something in it that will matter in later sessions (who they are, what they prefer, what they"
    " decided) and that you do not remember yet, save it now with the memory tool, one short fact per"
    " call, in their own words. Save nothing that only files, pages or tool results say. If there is"
    " nothing to save, answer with the one word NOTHING."
)


class MemoryFlusher:
    """Finds the sessions that expire soon, claims them and runs their flushes."""

    def __init__(
        self, context: GatewayContext, prefixes: Sequence[str], *, margin: float = MARGIN_SECONDS
    ) -> None:
        self._context = context
        self._executor = context.executor
        self._memory = context.executor.store.memory
        self._prefixes = prefixes
        self._margin = margin
        self._skipped: set[str] = set()  # sessions in which nobody wrote

    async def run_due(self, start: FlushStarter, working: Collection[str]) -> None:
        """Flush every session that expires soon, except of conversations in `working`."""
        if TOOL_NAME not in self._context.toolbox.tools:
            return
        running: set[asyncio.Future[None]] = set()
        try:
            for route in await self._list_due():
                if len(running) >= _MAX_CONCURRENT:
                    _, running = await asyncio.wait(running, return_when="FIRST_COMPLETED")
                if route.key not in working and await self._claim(route):
                    logger.info("flushing the memory of %s", route.session)
                    running.add(asyncio.ensure_future(start(route)))
            if running:
                await asyncio.wait(running)
        finally:
            for waiting in running:
                waiting.cancel()

    async def _list_due(self) -> list[Route]:
        now = time()
        routes = await self._executor.run(
            self._memory.list_unflushed, self._prefixes, now - _HORIZON_SECONDS
        )
        return [route for route in routes if self._is_due(route, now)]

    def _is_due(self, route: Route, now: float) -> bool:
        policy = self._context.resolve_policy(route.origin)
        found = find_reset_time(policy, route.updated, now)
        if found is None or route.session in self._skipped:
            return False
        quiet = min(_QUIET_SECONDS, (found.moment - route.updated) / 2)
        return (
            found.moment - self._margin <= now < found.moment + _LATE_SECONDS
            and now - route.updated >= quiet
        )

    async def _claim(self, route: Route) -> bool:
        if await self._find_role(route) is None:
            return False
        if await self._context.is_busy(get_owner(route), route.session):
            return False  # it does not expire while background processes run
        if not await self._executor.run(self._has_new_message, route.session):
            if len(self._skipped) >= _MAX_SKIPPED:
                self._skipped.clear()
            self._skipped.add(route.session)
            return False
        return await self._executor.run(
            self._memory.claim_flush,
            route,
            instance=self._context.instance,
            lease_seconds=self._context.lease,
        )

    async def _find_role(self, route: Route) -> Role | None:
        """Return the role of the last speaker, or None if nothing is to be remembered for them."""
        gate = self._context.gate
        if gate is None:
            return "owner"
        role = await self._executor.run(gate.find_role, route.origin)
        if role is None or role == "guest":
            return None
        limit = await self._executor.run(gate.find_exceeded_limit, route.origin, role)
        return role if limit is None else None

    def _has_new_message(self, session_id: str) -> bool:
        """Return whether a person wrote something that no flush has seen."""
        store = self._executor.store
        session = store.session(session_id)
        is_seen = session.parent is not None and self._memory.is_flushed(session.parent)
        return any(
            is_own_message(message)
            and (not is_seen or (message.timestamp or 0.0) >= session.started)
            for message in store.messages(session)
        )

    # -- the turn

    async def flush(self, route: Route) -> None:
        """Run the flush of a session that was claimed."""
        role = await self._find_role(route)
        if role is None:
            return
        store = self._executor.store
        session = await self._executor.run(store.session, route.session)
        history = await self._executor.run(store.messages, session)
        opening = await self._executor.run(
            build_opening, self._context, route.origin, route, session
        )
        tool_context = self._context.build_tool_context(route, role)
        toolbox = Toolbox({TOOL_NAME: self._context.toolbox.tools[TOOL_NAME]})
        usage = Usage()
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                for _ in range(_MAX_CUTS):
                    messages = [*opening, *history, Message("user", INSTRUCTION)]
                    try:
                        usage = await self._run_steps(messages, toolbox, tool_context)
                        break
                    except ContextTooLong:
                        history = _drop_older_half(history)
        except (ModelError, TimeoutError) as error:
            logger.warning("the memory of %s was not flushed: %s", session.id, error)
        await self._record_usage(route, session, usage)

    async def _run_steps(
        self, messages: list[Message], toolbox: Toolbox, tool_context: ToolContext
    ) -> Usage:
        usage, tools = Usage(), toolbox.build_definitions(tool_context)
        for _ in range(_MAX_STEPS):
            reply, tokens = await self._ask_model(messages, tools)
            usage = usage.add(self._context.compute_usage(tokens)[1])
            if reply is None or not reply.tool_calls:
                break
            messages.append(reply)
            for call in reply.tool_calls:
                result = await toolbox.run(call, tool_context)
                messages.append(result.to_message(call))
        return usage

    async def _ask_model(
        self, messages: Sequence[Message], tools: Sequence[dict[str, object]]
    ) -> tuple[Message | None, Tokens]:
        async with aclosing(self._context.model.stream(messages, tools)) as events:
            async for event in events:
                if isinstance(event, StreamEnded):
                    return event.response.message, event.response.tokens
        return None, Tokens()

    async def _record_usage(self, route: Route, session: Session, usage: Usage) -> None:
        if not any(usage.tokens):
            return
        store, name = self._executor.store, self._context.model.endpoint.model
        gate = self._context.gate

        def record() -> None:
            store.routes.add_usage(route.key, session, usage, name)
            if gate is not None:
                person = gate.find_person(route.origin)
                gate.record_turn(person)
                gate.record_usage(person, usage)

        await self._executor.run(store.transaction, record)


def _drop_older_half(messages: Sequence[Message]) -> list[Message]:
    """Return the later half of a history, from a message of the user on."""
    later = list(messages[(len(messages) + 1) // 2 :])
    while later and later[0].role != "user":
        later.pop(0)
    return later
