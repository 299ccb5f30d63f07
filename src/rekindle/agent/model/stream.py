"""An answer of the model, put together from what comes over the wire.

Endpoints differ in the details. Some leave out the index of a call, some give every parallel call
the index 0 with a new id; some call the reasoning `reasoning_content`, others `reasoning`. What has
the wrong shape counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, cast

from rekindle.json_fields import count
from rekindle.types import JSON, Message, Tokens, ToolCall

from .providers import EXTRA


class Answer(NamedTuple):
    """One answer: the message to store, what it cost, and why the model stopped.

    `finish` is stop, tool_calls, length (it ran into its limit), content_filter, or what else the
    endpoint says. The message may be empty.
    """

    message: Message
    tokens: Tokens
    finish: str
    model: str = ""


class TextDelta(NamedTuple):
    """More of the text."""

    text: str


class ReasoningDelta(NamedTuple):
    """More of the reasoning."""

    text: str


class CallDelta(NamedTuple):
    """More of the call with this number; id and name as far as they are known."""

    number: int
    id: str
    name: str
    arguments: str


class Again(NamedTuple):
    """The stream broke off and the model is asked again: all deltas so far are void."""

    error: Exception
    seconds: float


class Done(NamedTuple):
    """The whole answer; the last event."""

    answer: Answer


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta
Event: TypeAlias = Delta | Again | Done


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extra: object = None


@dataclass(slots=True)
class Gathering:
    """What has come of an answer so far."""

    texts: list[str] = field(default_factory=list[str])
    reasonings: list[str] = field(default_factory=list[str])
    calls: list[_Call] = field(default_factory=list[_Call])
    places: dict[int, int] = field(default_factory=dict[int, int])  # index → number of its call
    finish: str = ""
    model: str = ""
    tokens: Tokens = field(default_factory=Tokens)

    def take(self, chunk: object) -> Iterator[Delta]:
        """Add one chunk of a stream, or a whole answer, and tell what it brought."""
        self.model = self.model or _text(chunk, "model")
        if (usage := _get(chunk, "usage")) is not None:
            self.tokens = tokens_of(usage)
        choices = _list(chunk, "choices")
        if not choices or _get(choices[0], "index") not in (0, None):
            return
        said = _get(choices[0], "delta") or _get(choices[0], "message")
        for name in ("reasoning_content", "reasoning"):
            if text := _text(said, name):
                self.reasonings.append(text)
                yield ReasoningDelta(text)
                break
        if text := _content(said):
            self.texts.append(text)
            yield TextDelta(text)
        for call in _list(said, "tool_calls"):
            yield self._take_call(call)
        self.finish = _text(choices[0], "finish_reason") or self.finish

    def _take_call(self, delta: object) -> CallDelta:
        id, function = _text(delta, "id"), _get(delta, "function")
        index = _get(delta, "index")
        number = self._number(index if isinstance(index, int) else None, id)
        call = self.calls[number]
        call.id = call.id or id
        call.name = call.name or _text(function, "name")
        arguments = _arguments(function)
        call.arguments.append(arguments)
        call.extra = _get(delta, EXTRA) or call.extra
        return CallDelta(number, call.id, call.name, arguments)

    def _number(self, index: int | None, id: str) -> int:
        """Which call a delta belongs to; a new one where the id is new."""
        last = len(self.calls) - 1
        number = last if index is None else self.places.get(index, -1)
        if number < 0 or (id and self.calls[number].id not in ("", id)):
            self.calls.append(_Call())
            number = last + 1
        if index is not None:
            self.places[index] = number
        return number

    def answer(self) -> Answer:
        calls = [ToolCall(one.id, one.name, "".join(one.arguments)) for one in self.calls]
        extra = {one.id: cast(JSON, one.extra) for one in self.calls if one.extra}
        message = Message(
            "assistant",
            "".join(self.texts) or (None if calls else ""),
            calls,
            reasoning="".join(self.reasonings) or None,
            finish_reason=self.finish,
            meta={EXTRA: extra} if extra else None,
        )
        return Answer(message, self.tokens, self.finish, self.model)


def tokens_of(usage: object) -> Tokens:
    """Token counts as an endpoint tells them; what came from a cache is not counted as input."""
    told, made = _get(usage, "prompt_tokens_details"), _get(usage, "completion_tokens_details")
    read = count(_get(told, "cached_tokens"))
    written = count(_get(told, "cache_write_tokens") or _get(usage, "cache_creation_input_tokens"))
    return Tokens(
        input=max(0, count(_get(usage, "prompt_tokens")) - read - written),
        output=count(_get(usage, "completion_tokens")),
        cache_read=read,
        cache_write=written,
        reasoning=count(_get(made, "reasoning_tokens")),
    )


def _get(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return cast(Mapping[str, object], value).get(name)
    return getattr(value, name, None)


def _text(value: object, name: str) -> str:
    text = _get(value, name)
    return text if isinstance(text, str) else ""


def _list(value: object, name: str) -> list[object]:
    items = _get(value, name)
    return cast("list[object]", items) if isinstance(items, list) else []


def _content(said: object) -> str:
    """The text of a message or delta, a refusal too; some endpoints send it in parts."""
    parts = [_text(part, "text") for part in _list(said, "content")]
    return _text(said, "content") or "".join(parts) or _text(said, "refusal")


def _arguments(function: object) -> str:
    arguments = _get(function, "arguments")
    if isinstance(arguments, Mapping):
        import msgspec

        return msgspec.json.encode(cast(Mapping[str, object], arguments)).decode()
    return arguments if isinstance(arguments, str) else ""
