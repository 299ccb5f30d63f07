"""A turn: the model and the tools in a loop, until there is an answer.

Every message is stored the moment it exists, but for the last one: the answer is handed out, so that
whoever runs the turn stores it together with the fact that it has to be delivered. A turn may be
cancelled at any time; what is stored stays valid, since an unanswered call is mended when the
conversation is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from rekindle.agent.model.client import Again, Answer, Done, Event, Model
from rekindle.agent.tools.registry import Toolbox
from rekindle.agent.tools.tool import ToolContext, ToolResult
from rekindle.errors import ContextTooLong, ModelError
from rekindle.types import Message, Price, Session, Tokens, ToolCall, Usage, replace

from .store_executor import Desk

Steering: TypeAlias = Callable[[], Awaitable[Sequence[Message]]]
Shrink: TypeAlias = Callable[[Session, Sequence[Message]], Awaitable["Shrunk | None"]]

EMPTY_ANSWERS = 2  # in a row: then it has nothing to say
GAVE_UP = "(The model gave no answer.)"


class Limits(NamedTuple):
    """When a turn must end; 0 is no limit, but for `iterations`.

    `context` is how many tokens the model can look at, 0 if unknown.
    """

    iterations: int = 60
    tokens: int = 0
    cost: Decimal = Decimal(0)
    context: int = 0
    shrink_at: float = 0.85  # of the context


class Called(NamedTuple):
    """A tool is about to run."""

    call: ToolCall


class Returned(NamedTuple):
    """A tool has run; its result is stored."""

    call: ToolCall
    result: ToolResult


class Shrunk(NamedTuple):
    """The conversation was compressed and goes on in a child; the summary took some tokens."""

    session: Session
    messages: Sequence[Message]
    tokens: Tokens = Tokens()


class Ended(NamedTuple):
    """The turn is over; the last event.

    `message` is the answer, not stored yet. Without a `reason` all went well; else the turn was
    stopped by a limit or a failure, and the message says so to the user.
    """

    session: Session
    message: Message
    tokens: Tokens
    reason: str | None = None
    usage: Mapping[str, Usage] = {}  # by model


Happening: TypeAlias = Event | Called | Returned | Shrunk | Ended


class Setting(NamedTuple):
    """What a turn runs with. `opening` goes before the stored messages and is never stored."""

    model: Model
    toolbox: Toolbox
    context: ToolContext
    opening: Sequence[Message] = ()
    limits: Limits = Limits()
    price: Price = Price()
    steering: Steering | None = None  # what was said meanwhile and belongs into this turn
    shrink: Shrink | None = None


async def turn(desk: Desk, session: Session, setting: Setting) -> AsyncGenerator[Happening]:
    """Run the model on a stored conversation until it answers, and tell what happens."""
    running = _Running(desk, session, setting)
    await running.load()
    async with aclosing(running.go()) as happenings:
        async for happening in happenings:
            yield happening


class _Running:
    """One turn on its way."""

    def __init__(self, desk: Desk, session: Session, setting: Setting) -> None:
        self._desk = desk
        self._session = session
        self._setting = setting
        self._messages: list[Message] = []
        self._taken = Usage()
        self._empty = 0

    async def load(self) -> None:
        self._messages = await self._desk.ask(self._desk.store.messages, self._session)

    async def go(self) -> AsyncGenerator[Happening]:
        tools = self._setting.toolbox.definitions(self._setting.context)
        for _ in range(self._setting.limits.iterations):
            answer: Answer | None = None
            try:
                async with aclosing(self._ask(tools)) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            answer = event.answer
                        yield event
            except ContextTooLong as error:
                shrunk = await self._shrink()
                if shrunk is None:
                    yield self._failed(error)
                    return
                yield shrunk
                continue
            except ModelError as error:
                yield self._failed(error)
                return
            assert answer is not None
            await self._count(answer.tokens)
            if not answer.message.tool_calls:
                if ended := self._ended(answer):
                    yield ended
                    return
                continue
            async with aclosing(self._work(answer.message)) as happenings:
                async for happening in happenings:
                    yield happening
            if reason := self._over_limit():
                yield self._stopped(reason)
                return
            if self._is_nearly_full(answer) and (shrunk := await self._shrink()):
                yield shrunk
            await self._steer()
        count = self._setting.limits.iterations
        yield self._stopped(f"it took {count} steps without an answer")

    def _ask(self, tools: Sequence[dict[str, object]]) -> AsyncGenerator[Event]:
        said = [*self._setting.opening, *self._messages]
        return self._setting.model.stream(said, tools)

    async def _count(self, tokens: Tokens) -> None:
        taken = Usage(tokens, self._setting.price.of(tokens))
        self._taken = self._taken.plus(taken)
        if any(tokens):
            name = self._setting.model.endpoint.model
            add = self._desk.store.add_usage
            await self._desk.ask(add, self._session, *taken, model=name)

    async def _work(self, message: Message) -> AsyncGenerator[Happening]:
        """Store the calls, run them side by side, and store each result as it comes."""
        await self._keep(message)
        for call in message.tool_calls:
            yield Called(call)
        tasks = [asyncio.create_task(self._run(call)) for call in message.tool_calls]
        try:
            for done in asyncio.as_completed(tasks):
                call, result = await done
                await self._keep(result.message(call))
                yield Returned(call, result)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, call: ToolCall) -> tuple[ToolCall, ToolResult]:
        return call, await self._setting.toolbox.run(call, self._setting.context)

    async def _keep(self, message: Message) -> None:
        await self._desk.ask(self._desk.store.append, self._session, message)
        self._messages.append(message)

    async def _steer(self) -> None:
        if self._setting.steering is not None:
            self._messages.extend(await self._setting.steering())

    async def _shrink(self) -> Shrunk | None:
        if self._setting.shrink is None:
            return None
        shrunk = await self._setting.shrink(self._session, self._messages)
        if shrunk is not None:
            self._session, self._messages = shrunk.session, list(shrunk.messages)
            await self._count(shrunk.tokens)
        return shrunk

    def _is_nearly_full(self, answer: Answer) -> bool:
        limits, tokens = self._setting.limits, answer.tokens
        seen = tokens.input + tokens.cache_read + tokens.cache_write + tokens.output
        return bool(limits.context) and seen >= limits.context * limits.shrink_at

    def _over_limit(self) -> str | None:
        limits = self._setting.limits
        total, cost = self._taken.tokens.total, self._taken.cost
        if limits.tokens and total >= limits.tokens:
            return f"it took {total:,} tokens, the limit is {limits.tokens:,}"
        if limits.cost and cost >= limits.cost:
            return f"it cost {amount(cost)}, the limit is {amount(limits.cost)}"
        return None

    def _ended(self, answer: Answer) -> Ended | None:
        """The end of the turn; None to ask once more, because the model said nothing at all."""
        message = answer.message
        if answer.finish == "length" and message.text:
            message = replace(message, content=f"{message.text}\n\n(Cut off at the model's limit.)")
        if message.text.strip():
            return self._end(message)
        self._empty += 1
        if self._empty < EMPTY_ANSWERS and answer.finish != "content_filter":
            return None
        why = "the provider's filter held the answer back"
        if answer.finish != "content_filter":
            why = "the model answered with nothing"
        return self._end(Message("assistant", GAVE_UP), why)

    def _stopped(self, reason: str) -> Ended:
        text = f"I stopped: {reason}. Say “go on” and I continue from here."
        return self._end(Message("assistant", text), reason)

    def _failed(self, error: ModelError) -> Ended:
        text = f"I could not answer: {error} Your message is kept; /retry asks again."
        return self._end(Message("assistant", text), str(error))

    def _end(self, message: Message, reason: str | None = None) -> Ended:
        tokens = self._taken.tokens
        usage = {self._setting.model.endpoint.model: self._taken} if any(tokens) else {}
        return Ended(self._session, message, tokens, reason, usage)


def amount(cost: Decimal) -> str:
    """A cost for people: no more digits than it needs."""
    return f"{cost.quantize(Decimal('0.000001')).normalize():f}"


__all__ = [
    "Again",
    "Called",
    "Ended",
    "Happening",
    "Limits",
    "Returned",
    "Setting",
    "Shrunk",
    "amount",
    "turn",
]
