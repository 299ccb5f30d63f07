"""A client for any endpoint that speaks the Chat Completions protocol.

A request is normalized for the provider (`normalize.normalize_messages`), sent, and retried with
exponential backoff after transient failures. A response counts as complete only when the endpoint
has sent a finish reason; a broken stream is retried, then reported.
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

from .chat_completions import to_chat_message
from .context_meter import ContextMeter
from .errors import get_transport_errors, to_model_error
from .normalize import normalize_messages
from .providers import PROVIDER_RULES, Provider, detect_provider
from .stream import (
    CallDelta,
    Delta,
    ModelResponse,
    ReasoningDelta,
    ResponseBuilder,
    Retrying,
    StreamEnded,
    StreamEvent,
    TextDelta,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = [
    "CallDelta",
    "Endpoint",
    "Model",
    "ModelResponse",
    "ReasoningDelta",
    "RetryPolicy",
    "Retrying",
    "StreamEnded",
    "StreamEvent",
    "TextDelta",
]


class Endpoint(NamedTuple):
    """A model's address, and how long a response may take.

    `silence_seconds` limits the wait for the next bytes, `answer_seconds` that for a whole response.
    `provider` is detected from address and model unless given. `options` go into every request, such as
    temperature. `reasoning_field` names the field in which reasoning is sent back, if the endpoint wants
    it. Old servers reject a request for `usage` in a stream.
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


class RetryPolicy(NamedTuple):
    """The number of attempts for a request, and the delays between attempts.

    Each delay doubles the previous one, minus random jitter so that clients do not retry in lockstep.
    If the endpoint asks for a wait longer than `max_delay`, do not retry.
    """

    max_attempts: int = 5
    first_delay: float = 1.0
    max_delay: float = 60.0

    def get_delay(self, attempt: int, error: ModelError, jitter: float) -> float | None:
        """Return the seconds until the next attempt, None to stop. `jitter` is between 0 and 1."""
        if attempt >= self.max_attempts or not _is_transient(error):
            return None
        delay = min(self.max_delay, self.first_delay * 2 ** (attempt - 1)) * (1 - jitter / 2)
        requested = error.retry_after if isinstance(error, ModelOverloaded) else None
        if requested is None:
            return delay
        return None if requested > self.max_delay else requested + delay * jitter / 10


def _is_transient(error: ModelError) -> bool:
    return isinstance(error, (ModelOverloaded, ModelUnreachable, StreamBroken))


class Model:
    """A client for one endpoint. Use it in one event loop, and close it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        retry_policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        if not endpoint.model:
            raise InvalidSetting("model.name: not set; set it to the model to use")
        self.endpoint = endpoint
        self.provider: Provider = endpoint.provider or detect_provider(
            endpoint.base_url, endpoint.model
        )
        # Some providers sign their own calls and reject any other.
        self.accepts_foreign_calls = not PROVIDER_RULES[self.provider].needs_signature
        self.meter = ContextMeter()
        self._retry_policy = retry_policy or RetryPolicy()
        self._sleep = sleep
        self._clock = clock
        self._random = random or Random()
        if find_spec("openai") is None:
            raise InvalidSetting(
                "model: the package `openai` is not installed; install `rekindle[agent]`"
            )
        self._client: AsyncOpenAI | None = None  # loaded on first use

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def load_client(self) -> AsyncOpenAI:
        """Load the SDK in a thread and return its client; the first call may take a second."""
        if self._client is None:
            try:
                await asyncio.to_thread(import_module, "openai")
            except ImportError as error:
                message = f"model: could not load the package `openai`: {error}"
                raise InvalidSetting(message) from error
        if self._client is None:
            self._client = _create_client(self.endpoint)
        return self._client

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, JSON]] = ()
    ) -> ModelResponse:
        """Query the model and return the whole response. `tools` are Chat Completions definitions."""
        request = self._build_request(messages, tools)
        attempt = 1
        while True:
            try:
                return await self._complete_once(request)
            except ModelError as error:
                delay = self._retry_policy.get_delay(attempt, error, self._random.random())
                if delay is None:
                    raise
            attempt += 1
            await self._sleep(delay)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, JSON]] = ()
    ) -> AsyncGenerator[StreamEvent]:
        """Query the model and yield events as they arrive; the last one is `StreamEnded`.

        To stop early, close the generator (`contextlib.aclosing`), which aborts the request.
        """
        request = self._build_request(messages, tools)
        attempt = 1
        while True:
            try:
                async with aclosing(self._stream_once(request)) as events:
                    async for event in events:
                        yield event
                return
            except ModelError as error:
                delay = self._retry_policy.get_delay(attempt, error, self._random.random())
                if delay is None:
                    raise
                yield Retrying(error, delay)
            attempt += 1
            await self._sleep(delay)

    def _build_request(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, JSON]]
    ) -> dict[str, Any]:
        field = self.endpoint.reasoning_field
        outgoing = normalize_messages(messages, self.provider)
        request: dict[str, Any] = {
            **self.endpoint.options,
            "model": self.endpoint.model,
            "messages": [to_chat_message(message, self.provider, field) for message in outgoing],
        }
        if tools:
            request["tools"] = list(tools)
        return request

    async def _complete_once(self, request: dict[str, Any]) -> ModelResponse:
        builder = ResponseBuilder()
        async with _ErrorTranslator(self):
            for _ in builder.add_chunk(await self._post_request(request)):
                pass
        return self._finish_response(builder)

    async def _stream_once(self, request: dict[str, Any]) -> AsyncGenerator[Delta | StreamEnded]:
        builder = ResponseBuilder()
        request = {**request, "stream": True}
        if self.endpoint.usage:
            request["stream_options"] = {"include_usage": True}
        chunks = self._iter_chunks(request)
        async with aclosing(chunks):
            while True:
                try:
                    async with _ErrorTranslator(self):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                except ModelError as error:
                    if builder.finish:  # only the token usage is missing
                        break
                    raise self._to_stream_error(builder, error) from error
                for delta in builder.add_chunk(chunk):
                    yield delta
        yield StreamEnded(self._finish_response(builder))

    async def _iter_chunks(self, request: dict[str, Any]) -> AsyncGenerator[object]:
        stream = await self._post_request(request)
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

    async def _post_request(self, request: Mapping[str, JSON]) -> Any:
        """Post the request and return the response, or a stream of its chunks, as decoded JSON.

        The SDK's own method validates every field of every message before sending. For a long
        conversation that takes a hundred times as long as everything else.
        """
        client = await self.load_client()
        from openai import AsyncStream

        async with asyncio.timeout(self.endpoint.answer_seconds):
            return await client.post(
                "/chat/completions",
                content=msgspec.json.encode(request),
                cast_to=object,
                stream=request.get("stream") is True,
                stream_cls=AsyncStream[object],
            )

    def _finish_response(self, builder: ResponseBuilder) -> ModelResponse:
        if not builder.finish:
            raise self._to_stream_error(builder)
        return builder.build_response()

    def _to_stream_error(
        self, builder: ResponseBuilder, error: ModelError | None = None
    ) -> ModelError:
        """Return the error for an incomplete response; after some text, it is a broken stream."""
        so_far = "".join(builder.texts)
        if error is None:
            text = f"{self.label}: the response stopped midway; try again"
            return StreamBroken(text, so_far)
        if isinstance(error, StreamBroken) or (so_far and isinstance(error, ModelUnreachable)):
            return StreamBroken(str(error), so_far)
        return error

    @property
    def label(self) -> str:
        """Model and address, for messages to people."""
        return f"model {self.endpoint.model} at {self.endpoint.base_url}"

    def translate_error(self, error: Exception) -> ModelError:
        """Return our error for one from the SDK or below."""
        if isinstance(error, TimeoutError):
            limit = self.endpoint.answer_seconds
            return ModelUnreachable(f"{self.label}: no complete response within {limit:g} s")
        return to_model_error(error, self.label, self._clock())


class _ErrorTranslator:
    """A context manager that turns errors of the SDK and the layers below into ours."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, RekindleError):
            return
        import openai

        # A malformed chunk raises ValueError (not JSON), or lacks an attribute or key.
        known = (openai.OpenAIError, TimeoutError, ValueError, AttributeError, TypeError, KeyError)
        if isinstance(error, (*known, *get_transport_errors())):
            raise self._model.translate_error(error) from error


def _create_client(endpoint: Endpoint) -> AsyncOpenAI:
    import ssl
    from urllib.request import getproxies

    import openai

    http_client = None
    if endpoint.base_url.startswith("http://") and not getproxies():
        # Reading the system's certificates takes longer than the rest of a start. Without them, a
        # redirection to https fails.
        no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        http_client = openai.DefaultAsyncHttpxClient(verify=no_certificates)
    return openai.AsyncOpenAI(
        http_client=http_client,
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",  # the SDK requires a key, local endpoints do not
        max_retries=0,
        timeout=openai.Timeout(endpoint.silence_seconds, connect=endpoint.connect_seconds),
    )
