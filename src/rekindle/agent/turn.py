"""Run a turn: call the model and the tools in a loop until there is an answer.

Every message is stored as soon as it exists, except the last: the answer is returned, so that the
caller stores it together with its pending delivery. A turn may be cancelled at any time; the stored
messages stay valid, because an unanswered call is repaired when the conversation is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal
from functools import partial
from typing import NamedTuple, TypeAlias

from rekindle.agent.model.client import Model, ModelResponse, Retrying, StreamEnded, StreamEvent
from rekindle.agent.model.context_meter import estimate_messages, estimate_tools
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.tool import ToolContext, ToolResult
from rekindle.errors import CompressionFailed, ContextTooLong, ModelError
from rekindle.knowledge.notes.records import ADVICE_MARK
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Message, Price, Session, Tokens, ToolCall, Usage, replace_fields

from .context_space import ContextLimits, ContextSpace

SteeringSource: TypeAlias = Callable[[], Awaitable[Sequence[Message]]]
# Makes the messages fit into the space, or raises `CompressionFailed`.
CompressCallback: TypeAlias = Callable[
    [Session, Sequence[Message], ContextSpace], Awaitable["Compacted | None"]
]

NOT_RUN = "Not run, because it failed in earlier sessions. Call it again to run it all the same."
MAX_REJECTIONS = 3  # of one request as too long; then the turn ends
MAX_EMPTY_RESPONSES = 2  # consecutive; then the turn ends
NO_ANSWER = "(The model gave no answer.)"


class Advisor(NamedTuple):
    """What earlier sessions know about calls: each returns a text, empty if nothing is known."""

    after_call: Callable[[ToolCall, ToolResult], str] | None = None  # of its failure
    before_call: Callable[[ToolCall], str] | None = None  # that it is known to fail


class TurnLimits(NamedTuple):
    """The limits of a turn; 0 means none, except for `iterations`.

    `context` is the size of the model's context in tokens, 0 if unknown; `answer` of them are kept for
    the answer.
    """

    iterations: int = 60
    tokens: int = 0
    cost: Decimal = Decimal(0)
    context: int = 0
    compress_at: float = 0.85  # fraction of the context
    answer: int = 8_192

    def build_space(self, overhead: int, ratio: float, reported: int) -> ContextSpace | None:
        """Build the space of the stored messages in a request, or None if no size is known."""
        limits = ContextLimits(self.context, self.answer, self.compress_at)
        return limits.build_space(overhead, ratio, reported)


class ToolCalled(NamedTuple):
    """A tool is about to run."""

    call: ToolCall


class ToolReturned(NamedTuple):
    """A tool has run; its result is stored."""

    call: ToolCall
    result: ToolResult


class Compacted(NamedTuple):
    """The conversation was compressed and continues in a child; `tokens` is the cost of the summary."""

    session: Session
    messages: Sequence[Message]
    tokens: Tokens = Tokens()


class TurnEnded(NamedTuple):
    """The turn is over; the last event.

    `message` is the answer, not yet stored. `reason` is None on success; otherwise a limit or a failure
    ended the turn, and the message tells the user.
    """

    session: Session
    message: Message
    tokens: Tokens
    reason: str | None = None
    usage: Mapping[str, Usage] = {}  # by model
    error: ModelError | None = None  # the model's failure, if that ended the turn


TurnEvent: TypeAlias = StreamEvent | ToolCalled | ToolReturned | Compacted | TurnEnded


class TurnContext(NamedTuple):
    """Everything a turn runs with. `opening` precedes the stored messages and is never stored.

    Usage counts for the session, and for the conversation `key` if there is one. `append` stores a
    message instead of the store's own, and raises if the turn has been taken over.
    `guard` is called in the transaction of each message and raises an error if the session may no longer
    be written to. `count_usage` is called in the transaction that counts the usage.
    """

    model: Model
    toolbox: Toolbox
    tool_context: ToolContext
    opening: Sequence[Message] = ()
    limits: TurnLimits = TurnLimits()
    price: Price = Price()
    steering: SteeringSource | None = None  # messages that arrived during the turn
    compress: CompressCallback | None = None
    advisor: Advisor = Advisor()
    key: str | None = None
    append: Callable[[Session, Message], object] | None = None
    guard: Callable[[], None] | None = None
    count_usage: Callable[[Usage], None] | None = None


async def run_turn(
    executor: StoreExecutor,
    session: Session,
    context: TurnContext,
    messages: Sequence[Message] | None = None,
) -> AsyncGenerator[TurnEvent]:
    """Run the model on a stored conversation until it answers, and yield the events.

    `messages` are those of the session, if they are known.
    """
    if messages is None:
        messages = await executor.run(executor.store.messages, session)
    runner = _TurnRunner(executor, session, context, messages)
    async with aclosing(runner.run()) as events:
        async for event in events:
            yield event


class _TurnRunner:
    """One turn in progress."""

    def __init__(
        self,
        executor: StoreExecutor,
        session: Session,
        context: TurnContext,
        messages: Sequence[Message],
    ) -> None:
        self._executor = executor
        self._session = session
        self._context = context
        self._messages = [*messages]
        self._usage = Usage()
        self._empty_responses = 0

    async def run(self) -> AsyncGenerator[TurnEvent]:
        tools = self._context.toolbox.build_definitions(self._context.tool_context)
        for _ in range(self._context.limits.iterations):
            response: ModelResponse | None = None
            try:
                async with aclosing(self._ask_model(tools)) as events:
                    async for event in events:
                        if isinstance(event, StreamEnded):
                            response = event.response
                        yield event
            except ModelError as error:
                yield self._fail(error)
                return
            assert response is not None
            await self._record_usage(response.tokens)
            if not response.message.tool_calls:
                if ended := self._finish(response):
                    yield ended
                    return
                continue
            async with aclosing(self._run_calls(response.message)) as turn_events:
                async for turn_event in turn_events:
                    yield turn_event
            if reason := self._find_exceeded_limit():
                yield self._stop(reason)
                return
            await self._add_steering()
        count = self._context.limits.iterations
        yield self._stop(f"it took {count} steps without an answer")

    async def _ask_model(
        self, tools: Sequence[dict[str, object]]
    ) -> AsyncGenerator[StreamEvent | Compacted]:
        """Stream a response; compress the conversation first if it does not fit.

        If the provider rejects it as too long all the same, believe its numbers and compress again.
        """
        overhead = estimate_messages(self._context.opening) + estimate_tools(tools)
        rejection: ContextTooLong | None = None
        rejections, limit = 0, 0
        while True:
            space = self._build_space(overhead, limit)
            if space is not None and space.estimate(self._messages) > space.tokens:
                yield await self._compress(space, rejection if limit else None)
            estimate = overhead + estimate_messages(self._messages)
            messages = [*self._context.opening, *self._messages]
            try:
                async with aclosing(self._context.model.stream(messages, tools)) as events:
                    async for event in events:
                        if isinstance(event, StreamEnded):
                            self._record_tokens(estimate, event.response.tokens)
                        yield event
                return
            except ContextTooLong as error:
                rejection = error
                rejections += 1
                if rejections > MAX_REJECTIONS or self._context.compress is None:
                    raise
                limit = self._learn_limit(error, overhead, estimate)

    def _build_space(self, overhead: int, limit: int) -> ContextSpace | None:
        """Return the space for the stored messages; None if its size is unknown or cannot be kept."""
        if self._context.compress is None:
            return None
        meter = self._context.model.meter
        reported = min(filter(None, (meter.reported_context, limit)), default=0)
        ratio = meter.get_ratio(self._session.id)
        return self._context.limits.build_space(overhead, ratio, reported)

    def _record_tokens(self, estimate: int, tokens: Tokens) -> None:
        used = tokens.input + tokens.cache_read + tokens.cache_write
        self._context.model.meter.record_tokens(self._session.id, estimate, used)

    def _learn_limit(self, error: ContextTooLong, overhead: int, estimate: int) -> int:
        """Return a context in which the rejected request does not fit."""
        meter = self._context.model.meter
        if error.used:
            meter.record_tokens(self._session.id, estimate, error.used)
        if error.limit:
            meter.reported_context = min(meter.reported_context or error.limit, error.limit)
        space = self._build_space(overhead, 0)
        if error.limit and space is not None and space.estimate(self._messages) > space.tokens:
            return 0  # what the provider has said is enough to know
        return int(estimate * meter.get_ratio(self._session.id) * 2 / 3)

    async def _record_usage(self, tokens: Tokens) -> None:
        usage = Usage(tokens, self._context.price.compute_cost(tokens))
        self._usage = self._usage.add(usage)
        if any(tokens):
            await self._executor.run(self._executor.store.transaction, partial(self._count, usage))

    def _count(self, usage: Usage) -> None:
        context, store = self._context, self._executor.store
        name = context.model.endpoint.model
        if context.key is not None:
            store.routes.add_usage(context.key, self._session, usage, name)
        else:
            store.add_usage(self._session, *usage, model=name)
        if context.count_usage is not None:
            context.count_usage(usage)

    async def _run_calls(self, message: Message) -> AsyncGenerator[TurnEvent]:
        """Store the calls, run them concurrently, and store each result as it arrives."""
        await self._store_message(message)
        for call in message.tool_calls:
            yield ToolCalled(call)
        tasks = [asyncio.create_task(self._run_call(call)) for call in message.tool_calls]
        try:
            for done in asyncio.as_completed(tasks):
                call, result = await done
                await self._store_message(result.to_message(call))
                yield ToolReturned(call, result)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_call(self, call: ToolCall) -> tuple[ToolCall, ToolResult]:
        if stopped := await self._stop_call(call):
            return call, stopped
        result = await self._context.toolbox.run(call, self._context.tool_context)
        return call, await self._add_advice(call, result)

    async def _add_advice(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Add known notes about a failure to the result of a failed call."""
        advise = self._context.advisor.after_call
        advice = "" if advise is None else await self._executor.run(advise, call, result)
        if not advice:
            return result
        return result._replace(content=f"{result.content}\n\n{ADVICE_MARK} {advice}")

    async def _stop_call(self, call: ToolCall) -> ToolResult | None:
        """Return what is said in place of running a call that is known to fail, once in a session."""
        advise = self._context.advisor.before_call
        advice = "" if advise is None else await self._executor.run(advise, call)
        content = f"{NOT_RUN}\n\n{ADVICE_MARK} {advice}"
        if not advice or any(one.role == "tool" and one.text == content for one in self._messages):
            return None
        return ToolResult(content, {"is_error": True, "denial": "rule"})

    async def _store_message(self, message: Message) -> None:
        await self._executor.run(self._append, message)
        self._messages.append(message)

    def _append(self, message: Message) -> None:
        store, guard = self._executor.store, self._context.guard
        append = self._context.append or store.append
        if guard is None:
            append(self._session, message)
            return

        def append_guarded() -> None:
            append(self._session, message)
            guard()

        store.transaction(append_guarded)

    async def _add_steering(self) -> None:
        if self._context.steering is not None:
            self._messages.extend(await self._context.steering())

    async def _compress(
        self, space: ContextSpace, rejection: ContextTooLong | None = None
    ) -> Compacted:
        """Compress the conversation; `rejection`: the space is a guess after this one."""
        assert self._context.compress is not None
        try:
            compacted = await self._context.compress(self._session, self._messages, space)
        except CompressionFailed as error:
            await self._record_usage(Tokens(*error.tokens))
            if rejection is None or error.can_retry:
                raise
            text = f"{rejection} What must be kept is too large; /undo removes the last message."
            raise CompressionFailed(text) from error
        if compacted is None:
            raise CompressionFailed("The conversation is too long for the model.")
        ratio = self._context.model.meter.get_ratio(self._session.id)
        self._session, self._messages = compacted.session, list(compacted.messages)
        self._context.model.meter.set_ratio(self._session.id, ratio)
        await self._record_usage(compacted.tokens)
        return compacted

    def _find_exceeded_limit(self) -> str | None:
        limits = self._context.limits
        total, cost = self._usage.tokens.total, self._usage.cost
        if limits.tokens and total >= limits.tokens:
            return f"it took {total:,} tokens, the limit is {limits.tokens:,}"
        if limits.cost and cost >= limits.cost:
            return f"it cost {format_cost(cost)}, the limit is {format_cost(limits.cost)}"
        return None

    def _finish(self, response: ModelResponse) -> TurnEnded | None:
        """Return the end of the turn, or None to retry after an empty response."""
        message = response.message
        if response.finish == "length" and message.text:
            message = replace_fields(
                message, content=f"{message.text}\n\n(Cut off at the model limit.)"
            )
        if message.text.strip():
            return self._build_end(message)
        self._empty_responses += 1
        if self._empty_responses < MAX_EMPTY_RESPONSES and response.finish != "content_filter":
            return None
        reason = "the provider's content filter blocked the answer"
        if response.finish != "content_filter":
            reason = "the model answered with nothing"
        return self._build_end(Message("assistant", NO_ANSWER), reason)

    def _stop(self, reason: str) -> TurnEnded:
        text = f"I stopped: {reason}. Reply “continue” to go on."
        return self._build_end(Message("assistant", text), reason)

    def _fail(self, error: ModelError) -> TurnEnded:
        text = f"I could not answer: {error}"
        if not isinstance(error, CompressionFailed) or error.can_retry:
            text += " Your message is saved; use /retry to try again."
        return self._build_end(Message("assistant", text), str(error))._replace(error=error)

    def _build_end(self, message: Message, reason: str | None = None) -> TurnEnded:
        tokens = self._usage.tokens
        usage = {self._context.model.endpoint.model: self._usage} if any(tokens) else {}
        return TurnEnded(self._session, message, tokens, reason, usage)


def format_cost(cost: Decimal) -> str:
    """Format a cost for people, without trailing zeros."""
    return f"{cost.quantize(Decimal('0.000001')).normalize():f}"


__all__ = [
    "Compacted",
    "Retrying",
    "ToolCalled",
    "ToolReturned",
    "TurnContext",
    "TurnEnded",
    "TurnEvent",
    "TurnLimits",
    "format_cost",
    "run_turn",
]
