"""The model client: asks any endpoint that speaks the Chat Completions protocol.

A request is made valid for the provider (`history.repaired`), sent, and retried with growing pauses
when the failure may pass. An answer is only taken for one when the endpoint has said why the model
stopped: a stream that breaks off is asked for again, and reported when that does not help.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from rekindle.errors import (
    InvalidSetting,
    ModelError,
    ModelOverloaded,
    ModelUnreachable,
    RekindleError,
    StreamBroken,
)
from rekindle.types import JSON, Message

from .chat_completions import chat_message
from .errors import failure_of, transport_errors
from .normalize import repaired
from .providers import Provider, provider_of
from .stream import (
    Again,
    Answer,
    CallDelta,
    Delta,
    Done,
    Event,
    Gathering,
    ReasoningDelta,
    TextDelta,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = [
    "Again",
    "Answer",
    "CallDelta",
    "Done",
    "Endpoint",
    "Event",
    "Model",
    "Patience",
    "ReasoningDelta",
    "TextDelta",
]


class Endpoint(NamedTuple):
    """Where a model answers, and how long it may take.

    `silence_seconds` is the longest wait for the next bytes, `answer_seconds` for a whole answer.
    `provider` is known by address and model unless given. `options` go into every request, such as
    temperature. `reasoning_field` names the field in which reasoning is sent back, where that is
    wanted. Old servers refuse to be asked for `usage` in a stream.
    """

    base_url: str
    model: str
    api_key: str = ""
    provider: Provider | None = None
    connect_seconds: float = 10.0
    silence_seconds: float = 120.0
    answer_seconds: float = 900.0
    options: Mapping[str, JSON] = {}
    reasoning_field: str = ""
    usage: bool = True


class Patience(NamedTuple):
    """How often to ask, and the seconds between.

    Each pause is twice as long as the one before, less a part by chance, so that many clients do
    not come back at once. An endpoint that asks for more than `longest` is given up at once.
    """

    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def pause(self, attempt: int, error: ModelError, chance: float) -> float | None:
        """Seconds until the next attempt; None to give up. `chance` is between 0 and 1."""
        if attempt >= self.attempts or not _may_pass(error):
            return None
        pause = min(self.longest, self.first * 2 ** (attempt - 1)) * (1 - chance / 2)
        asked = error.retry_after if isinstance(error, ModelOverloaded) else None
        if asked is None:
            return pause
        return None if asked > self.longest else asked + pause * chance / 10


def _may_pass(error: ModelError) -> bool:
    return isinstance(error, (ModelOverloaded, ModelUnreachable, StreamBroken))


class Model:
    """One endpoint, asked for answers. Use it in one event loop, and close it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        if not endpoint.model:
            raise InvalidSetting("model.name: not set; name the model to ask")
        self.endpoint = endpoint
        self.provider: Provider = endpoint.provider or provider_of(
            endpoint.base_url, endpoint.model
        )
        self._patience = patience or Patience()
        self._sleep = sleep
        self._clock = clock
        self._random = random or Random()
        if find_spec("openai") is None:
            raise InvalidSetting(
                "model: the package `openai` is not installed; install `rekindle[agent]`"
            )
        self._client: AsyncOpenAI | None = None  # until it is asked

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def ready(self) -> AsyncOpenAI:
        """Load what it takes to ask, beside whatever else goes on: it may take a second."""
        if self._client is None:
            try:
                await asyncio.to_thread(import_module, "openai")
            except ImportError as error:
                why = f"model: the package `openai` cannot be loaded: {error}"
                raise InvalidSetting(why) from error
        if self._client is None:
            self._client = _client(self.endpoint)
        return self._client

    async def answer(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, JSON]] = ()
    ) -> Answer:
        """The whole answer at once. `tools` are definitions in the shape of the protocol."""
        request = self._request(messages, tools)
        attempt = 1
        while True:
            try:
                return await self._ask(request)
            except ModelError as error:
                pause = self._patience.pause(attempt, error, self._random.random())
                if pause is None:
                    raise
            attempt += 1
            await self._sleep(pause)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, JSON]] = ()
    ) -> AsyncGenerator[Event]:
        """The answer as it is written; the last event is `Done`.

        Whoever stops early closes it (`contextlib.aclosing`), which ends the request.
        """
        request = self._request(messages, tools)
        attempt = 1
        while True:
            try:
                async with aclosing(self._listen(request)) as events:
                    async for event in events:
                        yield event
                return
            except ModelError as error:
                pause = self._patience.pause(attempt, error, self._random.random())
                if pause is None:
                    raise
                yield Again(error, pause)
            attempt += 1
            await self._sleep(pause)

    def _request(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, JSON]]
    ) -> dict[str, Any]:
        field = self.endpoint.reasoning_field
        sent = repaired(messages, self.provider)
        request: dict[str, Any] = {
            **self.endpoint.options,
            "model": self.endpoint.model,
            "messages": [chat_message(message, self.provider, field) for message in sent],
        }
        if tools:
            request["tools"] = list(tools)
        return request

    async def _ask(self, request: dict[str, Any]) -> Answer:
        gathering = Gathering()
        async with _Failures(self):
            for _ in gathering.take(await self._create(request)):
                pass
        return self._whole(gathering)

    async def _listen(self, request: dict[str, Any]) -> AsyncGenerator[Delta | Done]:
        gathering = Gathering()
        request = {**request, "stream": True}
        if self.endpoint.usage:
            request["stream_options"] = {"include_usage": True}
        chunks = self._chunks(request)
        async with aclosing(chunks):
            while True:
                try:
                    async with _Failures(self):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                except ModelError as error:
                    if gathering.finish:  # only the count of tokens is missing
                        break
                    raise self._broken(gathering, error) from error
                for delta in gathering.take(chunk):
                    yield delta
        yield Done(self._whole(gathering))

    async def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[object]:
        stream = await self._create(request)
        try:
            deadline = asyncio.get_running_loop().time() + self.endpoint.answer_seconds
            iterator = aiter(stream)
            while True:
                async with asyncio.timeout_at(deadline):
                    try:
                        chunk = await anext(iterator)
                    except StopAsyncIteration:
                        return
                yield chunk
        finally:
            await stream.close()

    async def _create(self, request: Mapping[str, JSON]) -> Any:
        """The answer, or a stream of its parts, as the JSON that came.

        The method of the SDK that is made for this looks at every field of every message before it
        sends them. For a long conversation that takes a hundred times as long as all the rest.
        """
        client = await self.ready()
        from openai import AsyncStream

        async with asyncio.timeout(self.endpoint.answer_seconds):
            return await client.post(
                "/chat/completions",
                content=msgspec.json.encode(request),
                cast_to=object,
                stream=request.get("stream") is True,
                stream_cls=AsyncStream[object],
            )

    def _whole(self, gathering: Gathering) -> Answer:
        if not gathering.finish:
            raise self._broken(gathering)
        return gathering.answer()

    def _broken(self, gathering: Gathering, error: ModelError | None = None) -> ModelError:
        """What ended an answer; once some of it has come, any silence is a break in the middle."""
        so_far = "".join(gathering.texts)
        if error is None:
            text = f"{self.place}: the answer stopped in the middle; ask again"
            return StreamBroken(text, so_far)
        if isinstance(error, StreamBroken) or (so_far and isinstance(error, ModelUnreachable)):
            return StreamBroken(str(error), so_far)
        return error

    @property
    def place(self) -> str:
        """Model and address, for messages to people."""
        return f"model {self.endpoint.model} at {self.endpoint.base_url}"

    def failed(self, error: Exception) -> ModelError:
        """The error of ours for one from below."""
        if isinstance(error, TimeoutError):
            limit = self.endpoint.answer_seconds
            return ModelUnreachable(f"{self.place}: no whole answer within {limit:g} s")
        return failure_of(error, self.place, self._clock())


class _Failures:
    """Turns what the SDK and the layers below it raise into errors of ours."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, RekindleError):
            return
        import openai

        # A broken chunk shows as ValueError (no JSON) or as an attribute or key that is not there.
        known = (openai.OpenAIError, TimeoutError, ValueError, AttributeError, TypeError, KeyError)
        if isinstance(error, (*known, *transport_errors())):
            raise self._model.failed(error) from error


def _client(endpoint: Endpoint) -> AsyncOpenAI:
    import openai

    return openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",  # local endpoints want none, the SDK wants one
        max_retries=0,
        timeout=openai.Timeout(endpoint.silence_seconds, connect=endpoint.connect_seconds),
    )
