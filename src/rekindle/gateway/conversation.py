"""One conversation: its route, its turns and its messages.

    inbound message → the route's session (new or current, per reset policy) → message appended
    → turn runs, each message committed as it is produced → answer, outbox and end of message committed

After a crash the inbound message is still in the inbox. If its turn had begun, the turn resumes
where it stopped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from time import time
from typing import TypeAlias

from rekindle.agent.compaction import compress_session
from rekindle.agent.model.client import TextDelta
from rekindle.agent.persona import SessionStart, load_persona
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.agent.turn import (
    Compacted,
    Retrying,
    ToolCalled,
    TurnContext,
    TurnEnded,
    TurnEvent,
    run_turn,
)
from rekindle.errors import NotFound
from rekindle.learning.warm_start import NewSession, begin_session, build_opening_messages
from rekindle.routing import reset_notice
from rekindle.routing.context_prompt import build_context_prompt
from rekindle.routing.reset_policy import ResetReason, find_reset_reason
from rekindle.routing.source import describe_source
from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
from rekindle.types import Message, ResetPolicy, Role, Route, Session, Source, Usage

from .access.rules import get_rank
from .context import GatewayContext, get_owner
from .log_format import CURRENT_SESSION
from .memory.facts import render_facts
from .schedule.command_run import INTERRUPTED, run_job_command
from .schedule.run_message import RunInfo, build_run_prompt, is_nothing, read_run

TextSplitter: TypeAlias = Callable[[str], Sequence[str]]

STOPPED_MARK = "(Stopped.)"
_COMMAND_PATTERN = re.compile(r"/[A-Za-z][A-Za-z_-]*(@\S+)?(\s|$)")  # not /etc/hosts


def _keep_whole(text: str) -> Sequence[str]:
    return (text,)


class Conversation:
    """The conversation of one key, with one turn at a time. `splitter` splits long texts."""

    def __init__(
        self, context: GatewayContext, key: str, splitter: TextSplitter = _keep_whole
    ) -> None:
        self.key = key
        self.outbound: list[OutboundMessage] = []  # messages to send, from the last turn
        self.reset: str | None = None  # why the last turn reset the session automatically
        self.partial_answer = ""  # text of the answer in progress
        self._context = context
        self._executor = context.executor
        self._splitter = splitter
        self._joined: list[InboundMessage] = []  # messages that the running turn answers
        self._session: Session | None = None  # of the running turn

    async def open_route(self, source: Source, run: RunInfo | None = None) -> Route:
        """Open the route, with a new session if the current one is stale. `run`: for a job."""
        policy, now = self._context.resolve_policy(source), time()
        idle_session = await self._find_idle_session(source, policy, now)

        def check_route(route: Route) -> str | None:
            return find_reset_reason(policy, route.updated, now, busy=route.session != idle_session)

        owner = run.owner if run else await self._executor.run(self._context.find_owner, source)
        return await self._executor.run(
            self._executor.store.routes.open,
            self.key,
            source,
            name=f"job: {run.name}" if run else describe_source(source),
            owner=owner,
            get_reset_reason=None if run else check_route,
        )

    async def _find_idle_session(
        self, source: Source, policy: ResetPolicy, now: float
    ) -> str | None:
        """Return the session if it is stale without running processes; call before the transaction."""
        try:
            route = await self._executor.run(self._executor.store.routes.get, self.key)
        except NotFound:
            return None
        if find_reset_reason(policy, route.updated, now) is None:
            return None
        busy = await self._context.is_busy(get_owner(route), route.session)
        return None if busy else route.session

    def build_session(self, route: Route) -> Session:
        """Build the route's session value; nothing is stored before its first message."""
        return build_route_session(self._context, route)

    async def run_turn(
        self, inbound: InboundMessage, before_end: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncGenerator[TurnEvent]:
        """Run the turn of a message and yield its events; at the end the answer is in the outbox.

        `before_end` is awaited before the answer is committed: from then on another gateway may
        send it.
        """
        self.outbound, self.partial_answer = [], ""
        inbound, route, session = await self._begin_turn(inbound)
        self._session, self.reset = session, route.reset
        token = CURRENT_SESSION.set(session.id)
        turn_context = TurnContext(
            model=self._context.model,
            toolbox=self._context.toolbox,
            tool_context=self._context.build_tool_context(route, await self._find_turn_role()),
            opening=await self.build_opening(inbound.source, route, session, read_run(inbound)),
            limits=self._context.limits,
            price=self._context.price,
            steering=self._collect_steering if self._context.busy_mode == "steer" else None,
            compress=self._compress,
            advise=self._context.create_advisor(session, await self._find_turn_role()),
        )
        try:
            async with aclosing(run_turn(self._executor, session, turn_context)) as events:
                async for event in events:
                    self._track_answer(event)
                    if isinstance(event, TurnEnded):
                        if before_end is not None:
                            await before_end()
                        await self._finish_turn(inbound, route, event)
                    yield event
        finally:
            CURRENT_SESSION.reset(token)

    async def join_turn(self, inbound_messages: Sequence[InboundMessage]) -> None:
        """Add messages to the turn of the first of them, which has begun."""
        first, *others = inbound_messages
        assert first.session is not None
        session = await self._executor.run(self._executor.store.find_tip, first.session)
        for inbound in others:
            await self._executor.run(self._executor.store.inbox.start_turn, inbound, session)

    def find_role(self, inbound: InboundMessage) -> Role | None:
        """Return the role of a speaker now, or None if they may not talk; this blocks on the store."""
        gate = self._context.gate
        return "owner" if gate is None else gate.find_role(get_speaker(inbound))

    async def find_refusal(self, inbound: InboundMessage) -> str | None:
        """Return why a message must not be answered: what to tell its sender, or an empty text."""
        gate = self._context.gate
        if gate is None:
            return None
        speaker = get_speaker(inbound)
        role = await self._executor.run(gate.find_role, speaker)
        if role is None:  # denied since the message came in
            return ""
        limit = await self._executor.run(gate.find_exceeded_limit, speaker, role)
        if limit is None:
            return None
        return f"You have reached the limit for today: {limit}. It starts anew at midnight UTC."

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

    async def _find_turn_role(self) -> Role:
        """Return the least of the roles of those who are answered by the running turn."""
        least: Role = "owner"
        for inbound in self._joined:
            role = await self._executor.run(self.find_role, inbound) or "guest"
            least = min(least, role, key=get_rank)
        return least

    async def run_command(self, inbound: InboundMessage, run: RunInfo) -> None:
        """Run the command of a job, at most once, and post its output."""
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
        )

    async def forward_report(self, inbound: InboundMessage) -> list[OutboundMessage]:
        """Forward a process report: send it to the chat and append it to its session."""
        self.outbound = await self._executor.run(self._store_report, inbound)
        return self.outbound

    def _store_report(self, inbound: InboundMessage) -> list[OutboundMessage]:
        store, report = self._executor.store, inbound.message
        session_id, messages = str((report.meta or {}).get("session", "")), list[Message]()
        with suppress(NotFound):  # only if the conversation is still in that session
            if store.find_tip(session_id).id == store.routes.get(self.key).session:
                messages, session_id = [report], store.find_tip(session_id).id
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
        for inbound in inbound_messages:
            await self._executor.run(store.inbox.start_turn, inbound, session)
        text = f"{self.partial_answer}\n\n{STOPPED_MARK}".strip()
        parts = self._splitter(text) if is_visible else ()
        self.outbound = await self._executor.run(
            store.inbox.finish_turn,
            inbound_messages,
            session,
            [Message("assistant", text)],
            [
                *await self._build_reset_notices(first, route),
                *((first.source, part) for part in parts),
            ],
            reason=reason,
        )
        return self.outbound

    async def fail(
        self, inbound_messages: Sequence[InboundMessage], error: Exception
    ) -> list[OutboundMessage]:
        """End messages because of an internal error, and notify the user."""
        text = f"Something went wrong ({type(error).__name__}). Please send your message again."
        first = inbound_messages[0]
        route = await self._executor.run(self._executor.store.routes.open, self.key, first.source)
        self.outbound = await self._executor.run(
            self._executor.store.inbox.finish_turn,
            inbound_messages,
            first.session or route.session,
            [],
            [(first.source, text)],
            reason=f"{type(error).__name__}: {error}",
        )
        return self.outbound

    async def abandon(self, inbound: InboundMessage) -> list[OutboundMessage]:
        """End a message that kept crashing the process, with all that joined its turn; tell the user."""
        attempts, store = self._context.max_attempts, self._executor.store
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
            _, route, found = await self._resume_turn(inbound, inbound.session)
            inbound_messages, session = self._joined, found.id
            notices = await self._build_reset_notices(inbound, route)
        self.outbound = await self._executor.run(
            store.inbox.finish_turn,
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
            return await self._resume_turn(inbound, inbound.session)
        route = await self.open_route(inbound.source, read_run(inbound))
        session, inbound = await self._executor.run(
            self._store_message, inbound, route, self.build_session(route)
        )
        self._joined = [inbound]
        return inbound, route, session

    def _store_message(
        self, inbound: InboundMessage, route: Route, session: Session
    ) -> tuple[Session, InboundMessage]:
        """Append an inbound message to its session, with a warm start if the session is new."""
        gateway_context, store = self._context, self._executor.store
        if gateway_context.starter is None or not store.preludes.is_new(session):
            return session, store.inbox.start_turn(inbound, session)
        role = self.find_role(inbound) or "guest"
        tool_context = gateway_context.build_tool_context(route, role)
        tools, text = gateway_context.toolbox.build_definitions(tool_context), inbound.message.text
        new_session = NewSession(
            session, text, build_tool_checks(tools), str(tool_context.cwd), session.owner
        )
        return begin_session(
            store,
            gateway_context.starter,
            new_session,
            lambda session: store.inbox.start_turn(inbound, session),
        )

    async def _resume_turn(
        self, inbound: InboundMessage, session: str
    ) -> tuple[InboundMessage, Route, Session]:
        """Resume an interrupted turn, with all messages that had joined it."""
        store = self._executor.store
        route = await self._executor.run(store.routes.open, self.key, inbound.source)
        tip = await self._executor.run(store.find_tip, session)
        if route.session == session != tip.id:  # crashed right after compression
            route = await self._executor.run(store.routes.follow, self.key, session, tip.id)
        waiting = await self._executor.run(store.inbox.list_waiting, self.key)
        others = [one for one in waiting if one.state == "running" and one.num != inbound.num]
        self._joined = [inbound, *others]
        return inbound, route, tip

    async def _finish_turn(self, inbound: InboundMessage, route: Route, ended: TurnEnded) -> None:
        text = ended.message.text
        parts = () if is_nothing(read_run(inbound), text) else self._splitter(text)
        store = self._executor.store
        self.outbound = await self._executor.run(
            store.inbox.finish_turn,
            self._joined,
            ended.session,
            [ended.message],
            [
                *await self._build_reset_notices(inbound, route),
                *((inbound.source, part) for part in parts),
            ],
            reason=ended.reason,
        )
        self.partial_answer = ""
        await self._executor.run(store.routes.touch, self.key, ended.usage)
        if self._context.gate is not None:
            total = Usage()
            for usage in ended.usage.values():
                total = total.add(usage)
            await self._executor.run(self._context.gate.record_turn, get_speaker(inbound), total)

    async def _build_reset_notices(
        self, inbound: InboundMessage, route: Route
    ) -> list[tuple[Source, str]]:
        """Build the one-time notice to the user after an automatic reset."""
        if route.reset is None:
            return []
        policy = self._context.resolve_policy(inbound.source)
        title = await self._load_title(route.previous)
        return [
            (
                inbound.source,
                reset_notice.build_user_notice(_parse_reset_reason(route.reset), policy, title),
            )
        ]

    async def _load_title(self, session: str | None) -> str | None:
        if session is None:
            return None
        return (await self._executor.run(self._executor.store.session, session)).title

    async def build_opening(
        self, source: Source, route: Route, session: Session, run: RunInfo | None = None
    ) -> list[Message]:
        """Build what precedes the stored messages: prompt, memory, context, and the prelude."""
        context, store = self._context, self._executor.store
        start = await self._executor.run(store.preludes.load, session)
        homes = await self._executor.run(context.homes)
        list_facts = store.memory.list_for_session
        facts = render_facts(await self._executor.run(list_facts, get_owner(route), session.id))
        prompts = [
            await self._executor.run(self._load_persona, source, route, session),
            *([facts] if facts else []),
            build_context_prompt(
                source, platforms=context.platforms, homes=homes, names_speakers=True
            ),
        ]
        if run is not None:
            prompts.append(build_run_prompt(run))
        return build_opening_messages("\n\n".join(prompts), start.messages)

    def _load_persona(self, source: Source, route: Route, session: Session) -> str:
        policy, notice = self._context.resolve_policy(source), ""
        if route.reset is not None:
            notice = reset_notice.build_model_notice(_parse_reset_reason(route.reset), policy)
        folder = self._context.build_tool_context(route, "guest").cwd
        start = SessionStart(folder, time(), policy.time_zone, notice)
        return load_persona(self._executor.store, session, self._context.persona, start)

    async def _collect_steering(self) -> list[Message]:
        """Add messages that arrived during the turn, up to the next command."""
        store = self._executor.store
        messages: list[Message] = []
        for inbound in await self._executor.run(store.inbox.list_waiting, self.key):
            if inbound.state != "waiting" or is_report(inbound.message):
                continue
            if is_command(inbound.message) or not is_same_chat(inbound, self._joined[0]):
                break
            if not await self._may_join(inbound):
                break
            assert self._session is not None
            begun = await self._executor.run(store.inbox.start_turn, inbound, self._session)
            self._joined.append(begun)
            messages.append(begun.message)
        return messages

    async def _may_join(self, inbound: InboundMessage) -> bool:
        """Return whether a message may join the running turn: its tools are those of who began it."""
        role = await self._executor.run(self.find_role, inbound)
        return role is not None and get_rank(role) >= get_rank(await self._find_turn_role())

    async def _compress(self, session: Session, messages: Sequence[Message]) -> Compacted | None:
        compacted = await compress_session(self._executor, self._context.model, session, messages)
        if compacted is not None:
            routes = self._executor.store.routes
            await self._executor.run(routes.follow, self.key, session.id, compacted.session.id)
            self._session = compacted.session
        return compacted


def build_route_session(context: GatewayContext, route: Route) -> Session:
    """Build a route's session value; nothing is stored before its first message."""
    source = route.origin
    return context.executor.store.begin(
        id=route.session,
        source=source.platform,
        owner=get_owner(route),
        user=source.user_name or source.user_id,
        model=context.model.endpoint.model,
        **context.describe_session(),
    )


def get_speaker(inbound: InboundMessage) -> Source:
    """Return the source of who speaks: for the run of a job, of who made it."""
    run = read_run(inbound)
    return inbound.source if run is None else run.maker


def is_command(message: Message) -> bool:
    """Return whether a message is for the gateway and not for the model."""
    if message.role != "user" or (message.meta or {}).get("run"):
        return False
    return _COMMAND_PATTERN.match(message.text) is not None


def is_report(message: Message) -> bool:
    """Return whether a message is a report, which is forwarded and needs no answer."""
    return message.role == "assistant"


def is_same_chat(one: InboundMessage, other: InboundMessage) -> bool:
    """Return whether one answer reaches both; people in one conversation may write in several chats."""
    a, b = one.source, other.source
    return (a.platform, a.chat_id, a.thread_id) == (b.platform, b.chat_id, b.thread_id)


def _parse_reset_reason(reason: str) -> ResetReason:
    return "daily" if reason == "daily" else "idle"
