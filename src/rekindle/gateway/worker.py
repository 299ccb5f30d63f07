"""Process the messages of one conversation in order, for as long as any are pending.

A turn runs as a task of its own, so that a new message can stop it. Read-only commands run
alongside it; commands that change the conversation stop it first, together with whatever is queued
before them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from rekindle.agent.turn import TurnEnded
from rekindle.errors import (
    ModelError,
    PlatformError,
    QuotaExceeded,
    StoreError,
    TurnTakenOver,
)
from rekindle.platforms import Platform
from rekindle.platforms.splitting import split_text
from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
from rekindle.types import Usage

from .access.speakers import TurnRefusal, find_refusal
from .command_handlers import TurnState
from .commands import CommandRunner, get_command_timing
from .context import GatewayContext
from .conversation import Conversation, TextSplitter
from .crash_attempts import AttemptTracker
from .live_draft import LiveDraft
from .log_format import CURRENT_KEY
from .monitoring.error_texts import describe_for_operator
from .outbox_sender import OutboxSender
from .schedule.run_message import read_run
from .sending.progress import show_progress
from .turns.inbound import is_command, is_report, is_same_chat

logger = logging.getLogger(__name__)

MAX_FAILURES = 3  # of a turn, by internal errors
_RETRY_SECONDS = 1.0
_DEFAULT_LIMIT = 4000  # characters per message of a platform that is not connected


class WorkerContext(NamedTuple):
    """What all workers of a gateway share. `turn_slots` limits how many turns run at once."""

    gateway_context: GatewayContext
    commands: CommandRunner
    sender: OutboxSender
    attempts: AttemptTracker
    find_platform: Callable[[str], Platform | None]
    turn_slots: asyncio.Semaphore
    edit_seconds: float = 1.0  # between two edits of a live draft; 0: no draft


class Worker:
    """The worker of one conversation."""

    def __init__(
        self,
        context: WorkerContext,
        key: str,
        flush: Callable[[], Coroutine[Any, Any, None]] | None = None,
        pending: Sequence[InboundMessage] = (),
    ) -> None:
        """Create a worker; `flush` runs first, until a message arrives. `pending`: what waits."""
        self.key = key
        self._flush = flush
        self._pending = pending
        self.has_new_work = False  # something arrived while the worker was ending
        self.is_stopping = False  # shutting down: start no new turn
        self._context = context
        self._executor = context.gateway_context.executor
        self._inbox = context.gateway_context.executor.store.inbox
        self._turn: asyncio.Task[None] | None = None
        self._inbound: InboundMessage | None = None  # message of the turn
        self._draft: LiveDraft | None = None
        self._immediate_commands: dict[int, asyncio.Task[None]] = {}  # tasks by message number
        self._failures = 0
        self._metrics = context.gateway_context.metrics
        self._conversation = Conversation(context.gateway_context, key)

    @property
    def turn(self) -> asyncio.Task[None] | None:
        """The task of the running turn."""
        return self._turn

    @property
    def inbound(self) -> InboundMessage | None:
        """The message of the running turn, or of the last one."""
        return self._inbound

    def on_new_message(self, inbound: InboundMessage) -> None:
        """Handle a message that arrives during a turn: run or stop what it calls for."""
        turn, running, self._pending = self._turn, self._inbound, ()
        if self._flush is not None:
            self._flush = None
            if turn is not None:
                turn.cancel()
            return
        if turn is None or running is None or inbound.num in self._immediate_commands:
            return
        if inbound.state != "waiting" or inbound.num == running.num:
            return
        if not is_command(inbound.message):
            if is_report(inbound.message):
                return
            if self._context.gateway_context.busy_mode == "interrupt" and is_same_chat(
                inbound, running
            ):
                turn.cancel()
            return
        timing = get_command_timing(inbound.message)
        if timing == "stop_turn":
            turn.cancel()
        elif timing == "immediate":
            task = asyncio.create_task(self._run_command(inbound, TurnState(running=True)))
            self._immediate_commands[inbound.num] = task

    async def run(self) -> None:
        """Work until nothing is pending. The worker holds the conversation's lease and releases it."""
        CURRENT_KEY.set(self.key)
        try:
            await self._run_flush()
            while not self.is_stopping:
                inbound_messages = await self._fetch_pending()
                if inbound_messages:
                    await self._process_next(inbound_messages)
                elif not self.has_new_work:
                    return
                self.has_new_work = False
        finally:
            for task in self._immediate_commands.values():
                task.cancel()

    async def _run_flush(self) -> None:
        """Run the flush, if there is one and no message has arrived."""
        if self._flush is None:
            return
        self._turn = asyncio.create_task(self._flush())
        try:
            await asyncio.wait([self._turn])
            if not self._turn.cancelled() and (error := self._turn.exception()) is not None:
                logger.error("the flush of the memory failed", exc_info=error)
        finally:
            self._turn.cancel()
            self._turn = self._flush = None

    async def _fetch_pending(self) -> Sequence[InboundMessage]:
        if self._pending and not self.has_new_work:
            pending, self._pending = self._pending, ()
            return pending
        await asyncio.gather(*self._immediate_commands.values(), return_exceptions=True)
        self._immediate_commands.clear()
        while True:
            try:
                return await self._executor.run(
                    self._inbox.release_lease, self.key, self._context.gateway_context.instance
                )
            except StoreError as error:
                logger.warning("cannot read the inbox: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _process_next(self, inbound_messages: Sequence[InboundMessage]) -> None:
        """Process the next message, as the store has it."""
        try:
            command, index = _find_next_command(inbound_messages)
            if command is not None and (
                index == 0 or get_command_timing(command.message) != "after_turn"
            ):
                stopped = 0
                if get_command_timing(command.message) == "stop_turn":
                    stopped = await self._stop_pending(inbound_messages[:index], command)
                await self._run_command(command, TurnState(stopped))
            elif is_report(inbound_messages[0].message):
                self._context.sender.send(
                    await self._forward_report(inbound_messages[0]), inbound_messages[0]
                )
            else:
                await self._answer_first(inbound_messages)
        except asyncio.CancelledError:
            raise
        except TurnTakenOver as error:  # the lease is not ours any more: nothing is fetched next
            logger.warning("%s", error)
        except Exception as error:  # noqa: BLE001  # the conversation must survive any error
            await self._handle_failure(inbound_messages, error)
        else:
            self._failures = 0

    async def _answer_first(self, inbound_messages: Sequence[InboundMessage]) -> None:
        """Run the turn of the first message; messages that interrupted it join."""
        first = inbound_messages[0]
        if first.state == "running" and self._context.gateway_context.busy_mode == "interrupt":
            joining = [first]
            for inbound in inbound_messages[1:]:
                if is_report(inbound.message):
                    continue
                if is_command(inbound.message) or not is_same_chat(inbound, first):
                    break
                joining.append(inbound)
            await self._conversation.join_turn(joining)
        self._conversation = Conversation(
            self._context.gateway_context, self.key, self._build_splitter(first)
        )
        self._inbound, self._draft = first, self._create_draft(first)
        self._turn = asyncio.create_task(self._run_turn(first))
        for inbound in inbound_messages[1:]:  # arrived before the turn began
            self.on_new_message(inbound)
        try:
            await self._turn
        except asyncio.CancelledError:
            if not self._turn.done() or not self._turn.cancelled() or _is_cancelled():
                await self._cancel_turn()
                raise
            # The turn was stopped, not the worker: the inbox decides what is next.
        finally:
            self._turn = None

    async def _forward_report(self, inbound: InboundMessage) -> Sequence[OutboundMessage]:
        return await Conversation(
            self._context.gateway_context, self.key, self._build_splitter(inbound)
        ).forward_report(inbound)

    async def _cancel_turn(self) -> None:
        turn = self._turn
        if turn is not None:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    async def _run_turn(self, inbound: InboundMessage) -> None:
        conversation, attempts, began = self._conversation, self._context.attempts, monotonic()
        result, usage = "abandoned", dict[str, Usage]()
        # Wait for isolation before taking a slot, so that others are not blocked.
        async with attempts.isolate_last_attempt(inbound), self._context.turn_slots:
            if self.is_stopping:
                return
            decision, refusal = await attempts.begin_checked(inbound, self._find_refusal)
            if decision == "done":
                return
            logger.info("turn of message %d started", inbound.num)
            if decision == "exhausted":
                await self._abandon(inbound)
            elif refusal is not None:
                logger.info("message %d is refused", inbound.num)
                self._metrics.count_refusal(refusal.role)
                result = "refused"
                await conversation.refuse(inbound, refusal.text)
            elif (run := read_run(inbound)) is not None and run.kind == "command":
                attempts.finish([inbound])  # the count must stand: it keeps others from running it
                result = "answered" if await conversation.run_command(inbound, run) else "failed"
            else:
                platform = self._context.find_platform(inbound.source.platform)
                try:
                    async with show_progress(platform, inbound):
                        result, usage = await self._stream_turn(inbound)
                except QuotaExceeded as error:  # of sessions, or in the midst of the turn
                    result = "refused"
                    await conversation.refuse(inbound, str(error))
        logger.info("turn of message %d ended", inbound.num)
        self._metrics.count_turn(result, monotonic() - began, usage)
        if read_run(inbound) is not None:
            self._metrics.count_job_run("done" if result == "answered" else result)
        attempts.finish([inbound])
        draft, self._draft = self._draft, None
        self._context.sender.send(conversation.outbound, inbound, draft)

    def _find_refusal(self, inbound: InboundMessage) -> TurnRefusal | None:
        return find_refusal(self._context.gateway_context, inbound)

    async def _stream_turn(self, inbound: InboundMessage) -> tuple[str, dict[str, Usage]]:
        """Run the turn; return its result for the metrics, and its usage."""
        conversation, draft = self._conversation, self._draft
        ended: TurnEnded | None = None
        try:
            before_end = draft.settle if draft is not None else None
            async with aclosing(conversation.run_turn(inbound, before_end)) as events:
                async for event in events:
                    if draft is not None and conversation.reset is None:
                        draft.on_event(event)
                    if isinstance(event, TurnEnded):
                        ended = event
                        if event.error is not None:
                            self._log_model_error(inbound, event.error)
        finally:
            if draft is not None:
                await draft.close()
                await self._restore_answer(draft)
        if ended is None:
            return "failed", {}
        return "failed" if ended.reason else "answered", dict(ended.usage)

    def _log_model_error(self, inbound: InboundMessage, error: ModelError) -> None:
        cause = describe_for_operator(error, self._context.gateway_context.model.endpoint.api_key)
        kind = {"kind": type(error).__name__}
        logger.error("turn of message %d failed: %s", inbound.num, cause, extra=kind)

    async def _restore_answer(self, draft: LiveDraft) -> None:
        """Show the answer of another gateway again if our draft may have overwritten it."""
        if not draft.was_sent:
            return
        with suppress(PlatformError, StoreError):
            if await self._is_ours():
                return
            posted = await self._executor.run(self._inbox.list_outbound, self.key)
            first = next((one for one in posted if one.reply_to == draft.inbound.num), None)
            platform = self._context.find_platform(draft.inbound.source.platform)
            if first is None or platform is None or first.platform_message_id is None:
                return  # whoever sends the answer edits the draft
            if first.platform_message_id == draft.message_id:
                await platform.edit(first.target, first.platform_message_id, first.text)

    async def _abandon(self, inbound: InboundMessage) -> None:
        logger.error("abandoning message %d: it crashed the process every time", inbound.num)
        await self._conversation.abandon(inbound)

    async def _stop_pending(
        self, inbound_messages: Sequence[InboundMessage], command: InboundMessage
    ) -> int:
        """End the messages queued before a stop command; return their number."""
        to_stop = [
            one
            for one in inbound_messages
            if one.state == "running" or not (is_command(one.message) or is_report(one.message))
        ]
        if not to_stop:
            return 0
        draft, self._draft = self._draft or self._create_draft(to_stop[0]), None
        is_visible = draft is not None and draft.was_sent
        reason = f"stopped by {command.message.text[:40].strip()}"
        self._metrics.count_turn("stopped")
        outbound_messages = await self._conversation.stop(to_stop, reason, is_visible=is_visible)
        self._context.sender.send(outbound_messages, to_stop[0] if is_visible else None, draft)
        return len(to_stop)

    async def _run_command(self, inbound: InboundMessage, turn_state: TurnState) -> None:
        logger.info("command %s", inbound.message.text[:40].split(maxsplit=1)[0])
        splitter, attempts = self._build_splitter(inbound), self._context.attempts
        async with attempts.isolate_last_attempt(inbound):
            decision = await attempts.begin(inbound)
            if decision == "exhausted":
                conversation = Conversation(self._context.gateway_context, self.key, splitter)
                logger.error(
                    "abandoning command %d: it crashed the process every time", inbound.num
                )
                self._context.sender.send(await conversation.abandon(inbound), inbound)
            elif decision == "proceed":
                result = await self._context.commands.run(inbound, splitter, turn_state)
                self._context.sender.send(result.outbound, inbound)
                if result.turn_for is None:
                    attempts.finish([inbound])

    async def _handle_failure(
        self, inbound_messages: Sequence[InboundMessage], error: Exception
    ) -> None:
        self._failures += 1
        logger.error(
            "message %d failed (%d)", inbound_messages[0].num, self._failures, exc_info=error
        )
        await asyncio.sleep(_RETRY_SECONDS * self._failures)
        if self._failures < MAX_FAILURES or isinstance(error, StoreError):
            return  # try again; the store may come back
        try:
            outbound_messages = await self._conversation.fail([inbound_messages[0]], error)
        except Exception:  # the store may be down; the message stays and is retried
            logger.exception("cannot abandon message %d", inbound_messages[0].num)
            return
        self._failures = 0
        self._metrics.count_turn("failed")
        self._context.sender.send(outbound_messages)

    def _build_splitter(self, inbound: InboundMessage) -> TextSplitter:
        platform = self._context.find_platform(inbound.source.platform)
        return platform.split if platform else partial(split_text, limit=_DEFAULT_LIMIT)

    def _create_draft(self, inbound: InboundMessage) -> LiveDraft | None:
        platform = self._context.find_platform(inbound.source.platform)
        if platform is None or not platform.can_edit or not self._context.edit_seconds:
            return None
        if read_run(inbound) is not None:  # nobody waits for it, and it may have nothing to say
            return None
        draft = LiveDraft(
            platform, inbound, self._context.edit_seconds, self._is_outbox_sent, self._is_ours
        )
        draft.was_sent = inbound.state == "running"  # perhaps before a restart
        if self._draft is not None and self._draft.inbound.num == inbound.num:
            draft.was_sent = draft.was_sent or self._draft.was_sent
            draft.message_id = self._draft.message_id
        return draft

    async def _is_ours(self) -> bool:
        holder = await self._executor.run(self._inbox.get_lease_holder, self.key)
        return holder == self._context.gateway_context.instance

    async def _is_outbox_sent(self) -> bool:
        return await self._executor.run(self._inbox.is_all_sent, self.key)


def _find_next_command(
    inbound_messages: Sequence[InboundMessage],
) -> tuple[InboundMessage | None, int]:
    """Return the next command and its index: an immediate one first, then one that stops the turn."""
    waiting = [
        (index, inbound)
        for index, inbound in enumerate(inbound_messages)
        if inbound.state == "waiting" and is_command(inbound.message)
    ]
    for timing in ("immediate", "stop_turn"):
        for index, inbound in waiting:
            if get_command_timing(inbound.message) == timing:
                return inbound, index
    return (waiting[0][1], waiting[0][0]) if waiting else (None, 0)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
