"""Assemble a model response from the chunks of a stream.

Endpoints differ in the details. Some omit the index of a call, some give every parallel call the
index 0 with a new id; some name the reasoning field `reasoning_content`, others `reasoning`. Fields
of the wrong type count as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, cast

from rekindle.json_fields import as_count
from rekindle.types import JSON, Message, Tokens, ToolCall

from .providers import EXTRA_CONTENT


class ModelResponse(NamedTuple):
    """A model's response: the message to store, its token usage, and the finish reason.

    `finish` is stop, tool_calls, length (the output limit was hit), content_filter, or another value
    from the endpoint. The message may be empty.
    """

    message: Message
    tokens: Tokens
    finish: str
    model: str = ""


class TextDelta(NamedTuple):
    """A piece of the text."""

    text: str


class ReasoningDelta(NamedTuple):
    """A piece of the reasoning."""

    text: str


class CallDelta(NamedTuple):
    """A piece of the call with this number; id and name are empty until known."""

    number: int
    id: str
    name: str
    arguments: str


class Retrying(NamedTuple):
    """The stream broke and the request is retried: discard all deltas so far."""

    error: Exception
    seconds: float


class StreamEnded(NamedTuple):
    """The complete response; the last event of a stream."""

    response: ModelResponse


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta
StreamEvent: TypeAlias = Delta | Retrying | StreamEnded


@dataclass(slots=True)
class _PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extra: object = None


@dataclass(slots=True)
class ResponseBuilder:
    """A response under construction, built from its chunks."""

    texts: list[str] = field(default_factory=list[str])
    reasonings: list[str] = field(default_factory=list[str])
    calls: list[_PartialCall] = field(default_factory=list[_PartialCall])
    number_by_index: dict[int, int] = field(default_factory=dict[int, int])  # index → call number
    finish: str = ""
    model: str = ""
    tokens: Tokens = field(default_factory=Tokens)

    def add_chunk(self, chunk: object) -> Iterator[Delta]:
        """Add a chunk of a stream, or a whole response, and yield its deltas."""
        self.model = self.model or _get_text(chunk, "model")
        if (usage := _get_field(chunk, "usage")) is not None:
            self.tokens = parse_usage(usage)
        choices = _get_list(chunk, "choices")
        if not choices or _get_field(choices[0], "index") not in (0, None):
            return
        delta = _get_field(choices[0], "delta") or _get_field(choices[0], "message")
        for name in ("reasoning_content", "reasoning"):
            if text := _get_text(delta, name):
                self.reasonings.append(text)
                yield ReasoningDelta(text)
                break
        if text := _extract_text(delta):
            self.texts.append(text)
            yield TextDelta(text)
        for call in _get_list(delta, "tool_calls"):
            yield self._add_call_delta(call)
        self.finish = _get_text(choices[0], "finish_reason") or self.finish

    def _add_call_delta(self, delta: object) -> CallDelta:
        id, function = _get_text(delta, "id"), _get_field(delta, "function")
        index = _get_field(delta, "index")
        number = self._assign_number(index if isinstance(index, int) else None, id)
        call = self.calls[number]
        call.id = call.id or id
        call.name = call.name or _get_text(function, "name")
        arguments = _extract_arguments(function)
        call.arguments.append(arguments)
        call.extra = _get_field(delta, EXTRA_CONTENT) or call.extra
        return CallDelta(number, call.id, call.name, arguments)

    def _assign_number(self, index: int | None, id: str) -> int:
        """Return the number of the call that a delta belongs to; a new id starts a new call."""
        last = len(self.calls) - 1
        number = last if index is None else self.number_by_index.get(index, -1)
        if number < 0 or (id and self.calls[number].id not in ("", id)):
            self.calls.append(_PartialCall())
            number = last + 1
        if index is not None:
            self.number_by_index[index] = number
        return number

    def build_response(self) -> ModelResponse:
        """Return the response accumulated so far."""
        calls = [ToolCall(one.id, one.name, "".join(one.arguments)) for one in self.calls]
        extra = {one.id: cast(JSON, one.extra) for one in self.calls if one.extra}
        message = Message(
            "assistant",
            "".join(self.texts) or (None if calls else ""),
            calls,
            reasoning="".join(self.reasonings) or None,
            finish_reason=self.finish,
            meta={EXTRA_CONTENT: extra} if extra else None,
        )
        return ModelResponse(message, self.tokens, self.finish, self.model)


def parse_usage(usage: object) -> Tokens:
    """Return the token counts of a usage object; cached tokens do not count as input."""
    prompt, completion = (
        _get_field(usage, "prompt_tokens_details"),
        _get_field(usage, "completion_tokens_details"),
    )
    read = as_count(_get_field(prompt, "cached_tokens"))
    written = as_count(
        _get_field(prompt, "cache_write_tokens") or _get_field(usage, "cache_creation_input_tokens")
    )
    return Tokens(
        input=max(0, as_count(_get_field(usage, "prompt_tokens")) - read - written),
        output=as_count(_get_field(usage, "completion_tokens")),
        cache_read=read,
        cache_write=written,
        reasoning=as_count(_get_field(completion, "reasoning_tokens")),
    )


def _get_field(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return cast(Mapping[str, object], value).get(name)
    return getattr(value, name, None)


def _get_text(value: object, name: str) -> str:
    text = _get_field(value, name)
    return text if isinstance(text, str) else ""


def _get_list(value: object, name: str) -> list[object]:
    items = _get_field(value, name)
    return cast("list[object]", items) if isinstance(items, list) else []


def _extract_text(delta: object) -> str:
    """Return the text of a message or delta, or its refusal; some endpoints send it in parts."""
    parts = [_get_text(part, "text") for part in _get_list(delta, "content")]
    return _get_text(delta, "content") or "".join(parts) or _get_text(delta, "refusal")


def _extract_arguments(function: object) -> str:
    arguments = _get_field(function, "arguments")
    if isinstance(arguments, Mapping):
        import msgspec

        return msgspec.json.encode(cast(Mapping[str, object], arguments)).decode()
    return arguments if isinstance(arguments, str) else ""
