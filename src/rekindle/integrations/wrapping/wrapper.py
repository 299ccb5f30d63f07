"""Record the exchanges of a model client: `client = rekindle.wrap(OpenAI())`.

The client works as before. Each exchange becomes messages of a session, with its tokens; keys and
other secrets are not stored. A store that fails never makes a call fail.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from rekindle.errors import InvalidInput
from rekindle.integrations.session_access import open_default_store
from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.types import Message, Tokens

from .exchange import (
    ChatStream,
    ModelExchange,
    ResponseStream,
    convert_chat_request,
    convert_response_request,
    read_chat_answer,
    read_response_answer,
)
from .recorder import ExchangeRecorder

T = TypeVar("T")
Answer = tuple[list[Message], str | None, Tokens]
_CHAT_CALLS = ("chat.completions.create", "chat.completions.parse", "completion", "acompletion")
_RESPONSE_CALLS = ("responses.create", "responses.parse")
_MIN_SECRET = 8  # characters; shorter ones are placeholders


def wrap(
    client: T,
    store: Store | AsyncStore | None = None,
    *,
    session: str | None = None,
    owner: str | None = None,
    title: str | None = None,
) -> T:
    """Record the calls of an OpenAI-compatible client, of LiteLLM or of its router, and return it.

    Without `store` it is the store of the settings. With `session` all calls go to that session;
    otherwise each conversation gets its own. `litellm` itself stays as it is: use what is returned.
    """
    calls = {
        name: found
        for name in (*_CHAT_CALLS, *_RESPONSE_CALLS)
        if (found := _find_call(client, name))
    }
    if not calls:
        kind = type(client).__name__
        raise InvalidInput(f"wrap: expected an OpenAI client, litellm or its Router, got {kind}")
    key = getattr(client, "api_key", None)
    secrets = {"api_key": key} if isinstance(key, str) and len(key) >= _MIN_SECRET else {}
    recorder = ExchangeRecorder(
        lambda: _get_store(store), session=session, owner=owner, title=title, secrets=secrets
    )
    target: Any = _ModuleView(client) if isinstance(client, ModuleType) else client
    for name, call in calls.items():
        kind = _RESPONSES if name in _RESPONSE_CALLS else _CHAT
        *path, last = name.split(".")
        place = target
        for part in path:
            place = getattr(place, part)
        setattr(place, last, _RecordedCall(call, kind, recorder))
    return target


class _StreamedAnswer(Protocol):
    def add(self, chunk: Any, /) -> None: ...

    def read(self) -> Answer: ...


class _CallKind(NamedTuple):
    """How to read the requests and answers of an API."""

    read_request: Callable[[Mapping[str, Any]], list[Message]]
    read_answer: Callable[[Any], Answer]
    make_stream: Callable[[], _StreamedAnswer]


def _read_chat_request(fields: Mapping[str, Any]) -> list[Message]:
    return convert_chat_request(fields.get("messages"))


_CHAT = _CallKind(_read_chat_request, read_chat_answer, ChatStream)
_RESPONSES = _CallKind(convert_response_request, read_response_answer, ResponseStream)


class _RecordedCall:
    """A method of a client that records its requests and responses."""

    def __init__(
        self, call: Callable[..., Any], kind: _CallKind, recorder: ExchangeRecorder
    ) -> None:
        self.__wrapped__ = call
        self._kind = kind
        self._recorder = recorder

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The caller may change its list of messages as soon as the call returns.
        request = self._read_request(args, kwargs)
        answer = self.__wrapped__(*args, **kwargs)
        if inspect.isawaitable(answer):
            return self._wait(answer, request, kwargs)
        if kwargs.get("stream") and hasattr(answer, "__iter__"):
            return _RecordedStream(answer, self._kind.make_stream(), self._finish(request, kwargs))
        self._finish(request, kwargs)(self._kind.read_answer, answer)
        return answer

    async def _wait(
        self, pending: Awaitable[Any], request: list[Message] | Exception, kwargs: Mapping[str, Any]
    ) -> Any:
        answer = await pending
        finish = self._finish(request, kwargs)
        if kwargs.get("stream") and hasattr(answer, "__aiter__"):
            return _RecordedAsyncStream(answer, self._kind.make_stream(), finish)
        await asyncio.to_thread(finish, self._kind.read_answer, answer)
        return answer

    def _read_request(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[Message] | Exception:
        names = ("model", "messages")  # LiteLLM takes them by position
        try:
            return self._kind.read_request({**dict(zip(names, args, strict=False)), **kwargs})
        except Exception as error:  # noqa: BLE001 - the client itself must judge its arguments
            return error

    def _finish(
        self, request: list[Message] | Exception, kwargs: Mapping[str, Any]
    ) -> Callable[[Callable[[Any], Answer], Any], None]:
        """Return what records the exchange, given how to read its answer."""

        def record(read: Callable[[Any], Answer], answer: Any) -> None:
            self._recorder.record(lambda: _build_exchange(request, kwargs, read, answer))

        return record


def _build_exchange(
    request: list[Message] | Exception,
    kwargs: Mapping[str, Any],
    read: Callable[[Any], Answer],
    answer: Any,
) -> ModelExchange | None:
    if isinstance(request, Exception):
        raise request
    messages, model, tokens = read(answer)
    if not request and not messages:
        return None
    previous, id = kwargs.get("previous_response_id"), getattr(answer, "id", None)
    return ModelExchange(
        request,
        messages,
        str(model or kwargs.get("model") or "unknown"),
        tokens,
        previous if isinstance(previous, str) else None,
        id if isinstance(id, str) else None,
    )


class _StreamView:
    """A stream with everything the original has; what passes is collected."""

    def __init__(
        self,
        stream: Any,
        builder: _StreamedAnswer,
        finish: Callable[[Callable[[Any], Answer], Any], None],
    ) -> None:
        self._stream = stream
        self._builder = builder
        self._finish: Callable[[Callable[[Any], Answer], Any], None] | None = finish
        self._error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _collect(self, chunk: Any) -> Any:
        try:
            self._builder.add(chunk)
        except Exception as error:  # noqa: BLE001 - the caller gets its chunk all the same
            self._error = error
        return chunk

    def _record(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(self._read, getattr(self._builder, "response", None))

    def _read(self, _: Any) -> Answer:
        if self._error is not None:
            raise self._error
        return self._builder.read()


class _RecordedStream(_StreamView):
    def __iter__(self) -> _RecordedStream:
        return self

    def __next__(self) -> Any:
        try:
            return self._collect(next(self._stream))
        except BaseException:  # its end, or a failure: what came so far is the answer
            self._record()
            raise

    def __enter__(self) -> _RecordedStream:
        if hasattr(self._stream, "__enter__"):
            self._stream.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream; what came so far is the answer."""
        self._record()
        if hasattr(self._stream, "close"):
            self._stream.close()


class _RecordedAsyncStream(_StreamView):
    def __aiter__(self) -> _RecordedAsyncStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return self._collect(await anext(self._stream))
        except BaseException:
            await asyncio.to_thread(self._record)
            raise

    async def __aenter__(self) -> _RecordedAsyncStream:
        if hasattr(self._stream, "__aenter__"):
            await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream; what came so far is the answer."""
        await asyncio.to_thread(self._record)
        if hasattr(self._stream, "close"):
            await self._stream.close()


class _ModuleView:
    """A module with some functions replaced; the module itself stays as it is."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _find_call(client: Any, name: str) -> Callable[..., Any] | None:
    found = client
    for part in name.split("."):
        if isinstance(client, ModuleType) and part == "chat":
            return None  # the module openai has clients in there that need a key
        found = getattr(found, part, None)
    if isinstance(found, _RecordedCall):
        found = found.__wrapped__  # a client that is wrapped anew
    return found if callable(found) else None


def _get_store(store: Store | AsyncStore | None) -> Store:
    found = store or open_default_store()
    return found.store if isinstance(found, AsyncStore) else found
