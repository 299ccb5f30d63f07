"""The conversation of one terminal. Input takes the way of every message, through the inbox.

    route → accept → turn → finish → shown → sent

A process killed in between leaves a message in the inbox or an answer in the outbox; the next terminal
that continues the conversation finds them (see `recovery`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from rekindle.agent.turn import TurnEnded
from rekindle.errors import NotFound, RekindleError, SessionHeld, StoreError
from rekindle.gateway.commands import CommandRunner
from rekindle.gateway.conversation import Conversation
from rekindle.gateway.crash_attempts import AttemptTracker
from rekindle.gateway.turns.inbound import is_command
from rekindle.routing import reset_notice
from rekindle.types import JSON, Message

if TYPE_CHECKING:
    from rekindle.gateway.context import GatewayContext
    from rekindle.gateway.turns.session_hold import SessionHold
    from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
    from rekindle.types import Route, Session, Source

    from .process_reports import ProcessReports, ShowText
    from .views import ChatView

STOPPED = "stopped by the user"
PRINTED = "printed"  # the message id of texts shown on a terminal


class TurnResult(IntEnum):
    """The result of a turn, as an exit code."""

    SUCCEEDED = 0
    FAILED = 1
    REJECTED = 2  # invalid input


class TurnInterrupted(Exception):
    """The user stopped the turn; the text so far is kept."""


class ChatConversation:
    """The conversation of this terminal. One turn runs at a time."""

    def __init__(
        self,
        context: GatewayContext,
        source: Source,
        reports: ProcessReports | None = None,
        hold: SessionHold | None = None,
        **facts: JSON,
    ) -> None:
        """Create a conversation; `facts` such as cwd and model are stored with its session."""
        self.context = context
        self.source = source
        self.key = context.build_key(source)
        self.conversation = Conversation(context, self.key, hold=hold)
        self.hold = self.conversation.hold
        self._commands = CommandRunner(context, self.hold)
        self._attempts = AttemptTracker(context)
        self._session_facts = facts
        self._reports = reports
        self._updated_sessions: set[str] = set()  # sessions that have the facts
        self._store = context.executor.store
        self._execute = context.executor.run

    async def open_route(self) -> Route:
        """Open the route of the conversation; it is reset if it is stale."""
        return await self.conversation.open_route(self.source)

    async def switch_to(self, session: Session) -> Route:
        """Continue the conversation in that session; raise `SessionHeld` if another program has it."""
        await self._execute(self.hold.acquire, session.id)
        await self.open_route()
        return await self._execute(self._store.routes.switch, self.key, session)

    async def send(self, text: str, view: ChatView) -> TurnResult:
        """Send a message or a command and show the result."""
        message = Message("user", text)
        route = await self._execute(self._store.routes.open, self.key, self.source)
        if not is_command(message):  # a command alone never resets the conversation
            route = await self.open_route()
            await self._execute(self.hold.acquire, route.session)
            if route.reset is not None:
                view.show_note(await self._format_reset_notice(route))

        async def show_report(text: str) -> None:
            view.show_note(text)

        await self.show_process_reports(show_report)
        instance, lease = self.context.instance, self.context.lease
        accept = self._store.inbox.accept
        accepted = await self._execute(
            accept, self.key, self.source, message, instance=instance, lease_seconds=lease
        )
        try:
            return await self.process(accepted.inbound, view)
        finally:
            await self._hold_current_session()

    async def _hold_current_session(self) -> None:
        """Hold the session where the conversation is now, such as after a command."""
        with suppress(NotFound, SessionHeld, StoreError):  # the next message tells
            route = await self._execute(self._store.routes.get, self.key)
            await self._execute(self.hold.acquire, route.session)

    async def show_process_reports(self, show: ShowText, wait: float = 0.0) -> None:
        """Show process reports of this conversation, waiting up to `wait` seconds for the first one."""
        if self._reports is not None:
            with suppress(NotFound):
                route = await self._execute(self._store.routes.get, self.key)
                await self._reports.deliver(route.session, show, wait)

    async def process(self, inbound: InboundMessage, view: ChatView) -> TurnResult:
        """Process an inbound message. Raise `TurnInterrupted` if the user stops it with Ctrl-C."""
        task = asyncio.ensure_future(self._process_message(inbound, view))
        is_stopped = False

        def on_interrupt() -> None:
            nonlocal is_stopped
            is_stopped = True
            task.cancel()

        view.begin_turn()
        async with _call_on_sigint(on_interrupt):
            try:
                async with self._renew_lease():
                    result = await task
            except asyncio.CancelledError:
                if not is_stopped:  # the process is ending: keep unfinished work
                    await self._attempts.undo(inbound)
                    raise
                view.end_turn("Stopped.")
                await self._stop_message(inbound)
                raise TurnInterrupted from None
            except RekindleError as error:
                view.end_turn(str(error))
                await self._fail_message(inbound, error)
                return TurnResult.FAILED
            await self._finish_message(inbound)
        view.end_turn()
        return result

    async def _process_message(self, inbound: InboundMessage, view: ChatView) -> TurnResult:
        verdict = await self._attempts.begin(inbound)
        if verdict == "exhausted":
            for outbound in await self.conversation.abandon(inbound):
                view.show_reply(outbound.text, ok=False)
        if verdict != "proceed":
            return TurnResult.FAILED
        if not _is_new_command(inbound):
            return await self._run_turn(inbound, view)
        outcome = await self._commands.run(inbound, lambda text: (text,))
        for outbound in outcome.outbound:
            view.show_reply(outbound.text, ok=not outcome.refused)
        if outcome.turn_for is not None:
            return await self._run_turn(outcome.turn_for, view)
        return TurnResult.REJECTED if outcome.refused else TurnResult.SUCCEEDED

    async def _run_turn(self, inbound: InboundMessage, view: ChatView) -> TurnResult:
        ended: TurnEnded | None = None
        if inbound.state == "waiting":  # a turn that has begun ends with its answer
            await self._execute(self._store.check_quota)
        async with aclosing(self.conversation.run_turn(inbound)) as events:
            async for event in events:
                view.show_event(event)
                if isinstance(event, TurnEnded):
                    ended = event
        if ended is None:
            return TurnResult.FAILED
        if self._session_facts and ended.session.id not in self._updated_sessions:
            await self._execute(self._store.update, ended.session, **self._session_facts)
            self._updated_sessions.add(ended.session.id)
        return TurnResult.SUCCEEDED if ended.reason is None else TurnResult.FAILED

    async def _stop_message(self, inbound: InboundMessage) -> None:
        """Cancel the answer at the user's request; the text so far is kept."""
        waiting = await self._execute(self._store.inbox.list_waiting, inbound.key)
        for one in (one for one in waiting if one.num == inbound.num):
            if _is_new_command(one):
                await self._execute(self._store.inbox.close, one, STOPPED)
            else:
                await self.conversation.stop([one], STOPPED)
        await self._finish_message(inbound)

    async def _finish_message(self, inbound: InboundMessage) -> None:
        self._attempts.finish([inbound])
        await self.mark_shown(await self._execute(self._store.inbox.list_outbound, inbound.key))
        await self._execute(self._store.inbox.release_lease, self.key, self.context.instance)

    async def mark_shown(self, outbound_messages: Iterable[OutboundMessage]) -> None:
        """Mark printed messages as delivered."""
        for outbound in outbound_messages:
            if outbound.state == "waiting":
                await self._execute(self._store.inbox.mark_sent, outbound, PRINTED)

    async def _fail_message(self, inbound: InboundMessage, error: RekindleError) -> None:
        try:
            await self.conversation.fail([inbound], error)
            await self._finish_message(inbound)
        except RekindleError:
            pass  # the store still fails: keep the message for the next terminal

    async def _format_reset_notice(self, route: Route) -> str:
        policy = self.context.resolve_policy(self.source)
        title = None
        if route.previous is not None:
            title = (await self._execute(self._store.session, route.previous)).title
        return reset_notice.build_user_notice(
            "daily" if route.reset == "daily" else "idle", policy, title
        )

    @asynccontextmanager
    async def _renew_lease(self) -> AsyncGenerator[None]:
        """Renew the lease of this terminal periodically."""

        async def renew_periodically() -> None:
            while True:
                await asyncio.sleep(self.context.lease / 3)
                await self._execute(
                    self._store.inbox.renew_leases, self.context.instance, self.context.lease
                )

        renewal = asyncio.create_task(renew_periodically())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def leave(self, reason: str) -> Session | None:
        """End the session and return it, or None if nothing was sent."""
        try:
            route = await self._execute(self._store.routes.get, self.key)
            return await self._execute(self._store.end, route.session, reason)
        except NotFound:
            return None


def _is_new_command(inbound: InboundMessage) -> bool:
    return inbound.state == "waiting" and is_command(inbound.message)


@asynccontextmanager
async def _call_on_sigint(stop: Callable[[], None]) -> AsyncGenerator[None]:
    """Let Ctrl-C stop the turn instead of the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
