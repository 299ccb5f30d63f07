"""One conversation: its route, its turns and its messages.

    inbound message → the route's session (new or current, per reset policy) → message appended
    → turn runs, each message committed as it is produced → answer, outbox and end of message committed

After a crash the inbound message is still in the inbox. If its turn had begun, the turn resumes
where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias

from rekindle.agent.compaction import compress_session
from rekindle.agent.context_space import ContextSpace
from rekindle.agent.model.client import TextDelta
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.agent.tools.tool import ToolContext
from rekindle.agent.turn import (
    Compacted,
    Retrying,
    ToolCalled,
    TurnContext,
    TurnEnded,
    TurnEvent,
    run_turn,
)
from rekindle.errors import NotFound, SessionHeld
from rekindle.learning.warm_start import NewSession, begin_session
from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
from rekindle.types import Message, Role, Route, Session, Source

from .access.approvals import make_approver
from .access.speakers import find_least_role, find_role, get_speaker, may_join
from .context import GatewayContext, get_owner
from .log_format import CURRENT_SESSION
from .monitoring.error_texts import INTERNAL_ERROR, describe_for_operator, describe_for_user
from .schedule.command_run import INTERRUPTED, run_job_command
from .schedule.run_message import RunInfo, is_nothing, read_run
from .turns.current_route import open_route, open_unless_stale
from .turns.inbound import is_command, is_report, is_same_chat
from .turns.opening import build_opening, build_reset_notices, prepare_prompt
from .turns.session_hold import SessionHold
from .turns.session_wait import SessionWait

TextSplitter: TypeAlias = Callable[[str], Sequence[str]]

STOPPED_MARK = "(Stopped.)"


def _keep_whole(text: str) -> Sequence[str]:
    return (text,)


class Conversation:
    """The conversation of one key, with one turn at a time. `splitter` splits long texts."""

    def __init__(
        self,
        context: GatewayContext,
        key: str,
        splitter: TextSplitter = _keep_whole,
        hold: SessionHold | None = None,
    ) -> None:
        self.key = key
        self.hold = hold or SessionHold(context, key)
        self.outbound: list[OutboundMessage] = []  # messages to send, from the last turn
        self.reset: str | None = None  # why the last turn reset the session automatically
        self.partial_answer = ""  # text of the answer in progress
        self._context = context
        self._executor = context.executor
        self._inbox = context.executor.store.inbox
        self._splitter = splitter
        self._joined: list[InboundMessage] = []  # messages that the running turn answers
        self._session: Session | None = None  # of the running turn
        self._prompt = "", ""  # the id of a session, and its prompt

    async def open_route(self, source: Source, run: RunInfo | None = None) -> Route:
        """Open the route, with a new session if the current one is stale. `run`: for a job."""
        return await open_route(self._context, self.key, source, run)

    def build_session(self, route: Route) -> Session:
        """Build the route's session value; nothing is stored before its first message."""
        source = route.origin
        return self._executor.store.begin(
            id=route.session,
            source=source.platform,
            owner=get_owner(route),
            user=source.user_name or source.user_id,
            model=self._context.model.endpoint.model,
            **self._context.describe_session(),
        )

    async def run_turn(
        self, inbound: InboundMessage, before_end: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncGenerator[TurnEvent]:
        """Run the turn of a message and yield its events; at the end the answer is in the outbox.

        `before_end` is awaited before the answer is committed: from then on another gateway may
        send it.
        """
        self.outbound, self.partial_answer = [], ""
        # A terminal keeps its session for as long as it is open.
        is_terminal = self._context.session_wait is None
        async with nullcontext() if is_terminal else self.hold.keep():
            inbound, route, session = await self._begin_turn(inbound)
            async with aclosing(
                self._run_begun_turn(inbound, route, session, before_end)
            ) as events:
                async for event in events:
                    yield event

    async def _run_begun_turn(
        self,
        inbound: InboundMessage,
        route: Route,
        session: Session,
        before_end: Callable[[], Awaitable[None]] | None,
    ) -> AsyncGenerator[TurnEvent]:
        self._session, self.reset = session, route.reset
        token, gate = CURRENT_SESSION.set(session.id), self._context.gate
        role, opening, person, messages = await self._executor.run(
            self._prepare, inbound, route, session
        )
        turn_context = TurnContext(
            model=self._context.model,
            toolbox=self._context.toolbox,
            tool_context=self._build_tool_context(route, role),
            opening=opening,
            limits=self._context.limits,
            price=self._context.price,
            steering=self._collect_steering if self._context.busy_mode == "steer" else None,
            compress=self._compress,
            advisor=self._context.create_advisor(session, role),
            key=self.key,
            append=partial(self._inbox.append_in_turn, inbound, self._context.instance),
            guard=self.hold.check,
            count_usage=partial(gate.record_usage, person) if gate is not None else None,
        )
        try:
            turn = run_turn(self._executor, session, turn_context, messages)
            async with aclosing(turn) as events:
                async for event in events:
                    self._track_answer(event)
                    if isinstance(event, TurnEnded):
                        if before_end is not None:
                            await before_end()
                        await self._finish_turn(inbound, route, event, person)
                    yield event
        finally:
            CURRENT_SESSION.reset(token)

    def _prepare(
        self, inbound: InboundMessage, route: Route, session: Session
    ) -> tuple[Role, list[Message], str, list[Message]]:
        """Return the role that a turn has, what precedes its messages, who caused it, and them.

        One call for all, because each call from the event loop costs as much as a query.
        """
        gate, run, (of, prompt) = self._context.gate, read_run(inbound), self._prompt
        known = prompt if of == session.id else None
        return (
            find_least_role(self._context, self._joined),
            build_opening(self._context, inbound.source, route, session, run, known),
            "" if gate is None else gate.find_person(get_speaker(inbound)),
            self._executor.store.messages(session),
        )

    def _build_tool_context(self, route: Route, role: Role) -> ToolContext:
        """Build the tool context of the running turn."""
        tool_context = self._context.build_tool_context(route, role)
        if self._context.gate is None or tool_context.approve is not None:
            return tool_context  # a terminal asks its user
        if tool_context.approval not in ("always", "dangerous"):
            return tool_context
        return tool_context._replace(approve=make_approver(self._context, self._joined[0]))

    async def join_turn(self, inbound_messages: Sequence[InboundMessage]) -> None:
        """Add messages to the turn of the first of them, which has begun."""
        first, *others = inbound_messages
        assert first.session is not None
        store = self._executor.store
        session = await self._executor.run(store.find_tip, first.session)
        if not await self._try_to_hold(session.id):
            return  # they wait for a turn of their own
        for inbound in others:
            start = partial(store.inbox.start_turn, inbound, session)
            await self._executor.run(self.hold.write, start)

    async def refuse(self, inbound: InboundMessage, text: str) -> list[OutboundMessage]:
        """End a message without a turn; tell its sender why, unless the text is empty."""
        self.outbound = await self._executor.run(
            self._executor.store.inbox.finish_turn,
            [inbound],
            inbound.session or "",
            [],
            [(inbound.source, text)] if text else [],
            reason=text or "the sender may no longer talk",
        )
        return self.outbound

    async def run_command(self, inbound: InboundMessage, run: RunInfo) -> bool:
        """Run the command of a job, at most once, and post its output; return whether it succeeded."""
        output, reason = INTERRUPTED, "interrupted"
        if not inbound.attempts:  # a crash in the midst of it is not known to be harmless
            route = await self.open_route(inbound.source, run)
            folder = self._context.build_tool_context(route, "owner").cwd
            try:
                output, reason = await run_job_command(inbound.message.text, folder)
            except asyncio.CancelledError:
                await self._post_output(inbound, INTERRUPTED, "interrupted")
                raise
        await self._post_output(inbound, output, reason)
        return reason is None

    async def _post_output(self, inbound: InboundMessage, output: str, reason: str | None) -> None:
        run = read_run(inbound)
        is_quiet = run is not None and run.is_silent and reason is None
        text = f"{output}\n\n({reason})" if reason and output != INTERRUPTED else output
        parts = () if is_quiet else self._splitter(text)
        self.outbound = await self._executor.run(
            self._executor.store.inbox.finish_turn,
            [inbound],
            "",
            [],
            [(inbound.source, part) for part in parts],
            reason=reason,
            output=text,
        )

    async def forward_report(self, inbound: InboundMessage) -> list[OutboundMessage]:
        """Forward a process report: send it to the chat and append it to its session."""
        self.outbound = await self._executor.run(self._store_report, inbound)
        return self.outbound

    def _store_report(self, inbound: InboundMessage) -> list[OutboundMessage]:
        store, report = self._executor.store, inbound.message
        session_id, messages = str((report.meta or {}).get("session", "")), list[Message]()
        with suppress(NotFound):  # only if the conversation is still in that session
            tip = store.find_tip(session_id).id
            is_held = self.hold.find_other(tip) is not None
            if tip == store.routes.get(self.key).session and not is_held:
                messages, session_id = [report], tip
        parts = [(inbound.source, part) for part in self._splitter(report.text)]
        return store.inbox.finish_turn([inbound], session_id, messages, parts)

    async def stop(
        self, inbound_messages: Sequence[InboundMessage], reason: str, *, is_visible: bool = False
    ) -> list[OutboundMessage]:
        """End messages without an answer, keeping them and any partial answer in the session.

        `is_visible`: part of the answer has been shown, so send its end as well.
        """
        store, first = self._executor.store, inbound_messages[0]
        route = await self._executor.run(store.routes.open, self.key, first.source)
        session = self.build_session(route)
        if first.session is not None:
            session = await self._executor.run(store.find_tip, first.session)
        is_held = await self._try_to_hold(session.id)
        for inbound in inbound_messages if is_held else ():
            start = partial(store.inbox.start_turn, inbound, session)
            await self._executor.run(self.hold.write, start)
        text = f"{self.partial_answer}\n\n{STOPPED_MARK}".strip()
        parts = self._splitter(text) if is_visible else ()
        notices = await build_reset_notices(self._context, first.source, route)
        self.outbound = await self._end_turn(
            inbound_messages,
            session,
            [Message("assistant", text)] if is_held else [],
            [*notices, *((first.source, part) for part in parts)],
            reason=reason,
        )
        return self.outbound

    async def fail(
        self, inbound_messages: Sequence[InboundMessage], error: Exception
    ) -> list[OutboundMessage]:
        """End messages because of an internal error, and notify the user."""
        first = inbound_messages[0]
        route = await self._executor.run(self._executor.store.routes.open, self.key, first.source)
        self.outbound = await self._executor.run(
            self._executor.store.inbox.finish_turn,
            inbound_messages,
            first.session or route.session,
            [],
            [(first.source, INTERNAL_ERROR)],
            reason=describe_for_operator(error, self._context.model.endpoint.api_key),
        )
        return self.outbound

    async def abandon(self, inbound: InboundMessage) -> list[OutboundMessage]:
        """End a message that kept crashing the process, with those that joined it; notify the user."""
        attempts = self._context.max_attempts
        times = "once" if attempts == 1 else f"{attempts} times"
        text = (
            f"I couldn't answer this message: the program crashed {times} while processing it."
            " Please send it again, maybe rephrased."
        )
        inbound_messages, session, notices = (
            [inbound],
            inbound.session or "",
            list[tuple[Source, str]](),
        )
        if inbound.session is not None:  # its turn has begun: no later turn may resume it
            route, found = await self._resume_turn(inbound, inbound.session)
            inbound_messages, session = self._joined, found.id
            session = session if await self._try_to_hold(session) else ""
            notices = await build_reset_notices(self._context, inbound.source, route)
        self.outbound = await self._end_turn(
            inbound_messages,
            session,
            [Message("assistant", text)] if session else [],
            [*notices, *((inbound.source, part) for part in self._splitter(text))],
            reason=f"abandoned: the program crashed {times} while processing it",
            is_undeliverable=True,
        )
        return self.outbound

    def _track_answer(self, event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            self.partial_answer += event.text
        elif isinstance(event, (Retrying, ToolCalled)):
            self.partial_answer = ""

    async def _begin_turn(self, inbound: InboundMessage) -> tuple[InboundMessage, Route, Session]:
        if inbound.state == "running" and inbound.session is not None:
            route, session = await self._resume_turn(inbound, inbound.session)
            begin = partial(self._resume_in_session, inbound)
        else:
            self._joined = [inbound]
            begun = await self._executor.run(self._begin_at_once, inbound)
            if begun is not None:
                self._joined = [begun[0]]
                return begun
            route = await self.open_route(inbound.source, read_run(inbound))
            session, begin = self.build_session(route), partial(self._store_message, inbound)
        waiting = SessionWait(self._context, self.hold, inbound)
        route, (session, inbound) = await waiting.begin(route, session, begin)
        self._joined[0] = inbound
        return inbound, route, session

    def _begin_at_once(
        self, inbound: InboundMessage
    ) -> tuple[InboundMessage, Route, Session] | None:
        """Begin a turn in one call of the store, unless its session is stale or held by another."""
        run = read_run(inbound)
        route, is_stale = open_unless_stale(self._context, self.key, inbound.source, run)
        if is_stale:
            return None
        try:
            session, begun = self._store_message(inbound, route, self.build_session(route))
        except SessionHeld:
            return None
        return begun, route, session

    def _resume_in_session(
        self, inbound: InboundMessage, route: Route, session: Session
    ) -> tuple[Session, InboundMessage]:
        """Acquire the session of a turn that had begun; after a wait it may be a copy."""
        self.hold.acquire(session.id)
        if session.forked_at is None or inbound.session == session.id:
            return session, inbound
        move = self._executor.store.inbox.start_turn_at
        return session, move(inbound, session.id, inbound.position or 0)

    async def _try_to_hold(self, session_id: str) -> bool:
        try:
            await self._executor.run(self.hold.acquire, session_id)
        except SessionHeld:
            return False
        return True

    async def _end_turn(
        self,
        inbound_messages: Sequence[InboundMessage],
        session: Session | str,
        messages: Sequence[Message],
        replies: Sequence[tuple[Source, str]],
        record: Callable[[], None] | None = None,
        **options: Any,
    ) -> list[OutboundMessage]:
        """End a turn in the session that is held, and release it unless this is a terminal."""
        finish = self._executor.store.inbox.finish_turn

        def end() -> list[OutboundMessage]:
            outbound = finish(inbound_messages, session, messages, replies, **options)
            if record is not None:
                record()
            return outbound

        is_terminal = self._context.session_wait is None
        return await self._executor.run(self.hold.write if is_terminal else self.hold.finish, end)

    def _store_message(
        self, inbound: InboundMessage, route: Route, session: Session
    ) -> tuple[Session, InboundMessage]:
        """Append an inbound message to its session, with a warm start if the session is new."""
        gateway_context, store = self._context, self._executor.store
        prompt, save_prompt = prepare_prompt(gateway_context, inbound.source, route, session)
        self._prompt = session.id, prompt

        def start(session: Session) -> InboundMessage:
            started = store.inbox.start_turn(inbound, session)
            save_prompt()
            return started

        if gateway_context.starter is None or not store.preludes.is_new(session):
            return session, self.hold.begin(session.id, partial(start, session))
        self.hold.acquire(session.id)
        role = find_role(gateway_context, inbound) or "guest"
        tool_context = gateway_context.build_tool_context(route, role)
        tools, text = gateway_context.toolbox.build_definitions(tool_context), inbound.message.text
        new_session = NewSession(
            session, text, build_tool_checks(tools), str(tool_context.cwd), session.owner
        )
        return begin_session(store, gateway_context.starter, new_session, start)

    async def _resume_turn(self, inbound: InboundMessage, session: str) -> tuple[Route, Session]:
        """Resume an interrupted turn, with all messages that had joined it."""
        store = self._executor.store
        route = await self._executor.run(store.routes.open, self.key, inbound.source)
        tip = await self._executor.run(store.find_tip, session)
        if route.session == session != tip.id:  # crashed right after compression
            route = await self._executor.run(store.routes.follow, self.key, session, tip.id)
        waiting = await self._executor.run(store.inbox.list_waiting, self.key)
        others = [one for one in waiting if one.state == "running" and one.num != inbound.num]
        self._joined = [inbound, *others]
        return route, tip

    async def _finish_turn(
        self, inbound: InboundMessage, route: Route, ended: TurnEnded, person: str
    ) -> None:
        message, reason = ended.message, ended.reason
        if ended.error is not None and self._context.gate is not None:  # a terminal shows details
            message = Message("assistant", describe_for_user(ended.error))
            reason = describe_for_operator(ended.error, self._context.model.endpoint.api_key)
        parts = () if is_nothing(read_run(inbound), message.text) else self._splitter(message.text)
        notices = await build_reset_notices(self._context, inbound.source, route)
        self.outbound = await self._end_turn(
            self._joined,
            ended.session,
            [message],
            [*notices, *((inbound.source, part) for part in parts)],
            record=partial(self._record_turn, person),
            reason=reason,
            instance=self._context.instance,
        )
        self.partial_answer = ""

    def _record_turn(self, person: str) -> None:
        """Count a turn in the transaction that ends it: a kill must not lose it."""
        with suppress(NotFound):
            self._executor.store.routes.touch(self.key)
        if self._context.gate is not None:
            self._context.gate.record_turn(person)

    async def _collect_steering(self) -> list[Message]:
        """Add messages that arrived during the turn, up to the next command."""
        store = self._executor.store
        messages: list[Message] = []
        for inbound in await self._executor.run(store.inbox.list_waiting, self.key):
            if inbound.state != "waiting" or is_report(inbound.message):
                continue
            if is_command(inbound.message) or not is_same_chat(inbound, self._joined[0]):
                break
            if not await self._executor.run(may_join, self._context, inbound, self._joined):
                break
            assert self._session is not None
            start = partial(store.inbox.start_turn, inbound, self._session)
            begun = await self._executor.run(self.hold.write, start)
            self._joined.append(begun)
            messages.append(begun.message)
        return messages

    async def _compress(
        self, session: Session, messages: Sequence[Message], space: ContextSpace
    ) -> Compacted | None:
        compacted = await compress_session(
            self._executor,
            self._context.model,
            session,
            messages,
            space,
            on_request=False,
            write_child=self.hold.write_child,
        )
        if compacted is not None:
            routes = self._executor.store.routes
            await self._executor.run(routes.follow, self.key, session.id, compacted.session.id)
            self._session = compacted.session
        return compacted
