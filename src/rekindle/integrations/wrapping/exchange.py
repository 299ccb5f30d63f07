"""What a call of a model client asked and answered, as messages and tokens.

Requests and answers are values of many libraries: dictionaries, or objects with the same fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from rekindle.errors import InvalidInput
from rekindle.integrations.responses_items import item_to_message
from rekindle.json_fields import as_objects
from rekindle.types import Message, Tokens, ToolCall

Fields = Mapping[str, Any]


class ModelExchange(NamedTuple):
    """A request and its answer; `previous` and `id` name answers of the Responses API."""

    request: list[Message]
    answer: list[Message]
    model: str
    tokens: Tokens
    previous: str | None = None
    id: str | None = None


def to_fields(value: Any) -> Fields:
    """Return a value as a mapping: a dictionary, or an object that can be dumped."""
    if isinstance(value, Mapping):
        return cast(Fields, value)
    for name in ("model_dump", "to_dict", "dict"):
        if callable(dump := getattr(value, name, None)):
            return cast(Fields, dump())
    raise InvalidInput(f"expected a mapping, got {type(value).__name__}")


def convert_chat_request(messages: Any) -> list[Message]:
    """Return the messages of a request to the Chat Completions API."""
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return []
    return [
        Message.from_openai(_drop_nulls(to_fields(one))) for one in cast(Sequence[Any], messages)
    ]


def convert_response_request(fields: Fields) -> list[Message]:
    """Return the messages of a request to the Responses API."""
    given, instructions = fields.get("input"), fields.get("instructions")
    messages = [Message("system", instructions)] if isinstance(instructions, str) else []
    if isinstance(given, str):
        return [*messages, Message("user", given)]
    if isinstance(given, Sequence):
        items = [_drop_nulls(to_fields(one)) for one in cast(Sequence[Any], given)]
        messages += [item_to_message(item) for item in items]
    return messages


def read_chat_answer(answer: Any) -> tuple[list[Message], str | None, Tokens]:
    """Return the answer, the model and the tokens of a completion."""
    fields = to_fields(answer)
    messages: list[Message] = []
    for choice in as_objects(fields.get("choices"))[:1]:
        found = Message.from_openai(_drop_nulls(to_fields(choice.get("message") or {})))
        messages.append(found._replace(finish_reason=choice.get("finish_reason")))
    return messages, fields.get("model"), read_chat_tokens(fields.get("usage"))


def read_response_answer(answer: Any) -> tuple[list[Message], str | None, Tokens]:
    """Return the answer, the model and the tokens of a response."""
    fields = to_fields(answer)
    messages = [item_to_message(_drop_nulls(item)) for item in as_objects(fields.get("output"))]
    return messages, fields.get("model"), _read_response_tokens(fields.get("usage"))


def read_chat_tokens(usage: Any) -> Tokens:
    """Return the tokens of a completion; zeros if it does not say."""
    if usage is None:
        return Tokens()
    fields = to_fields(usage)
    cached = _get_count(fields.get("prompt_tokens_details"), "cached_tokens")
    return Tokens(
        input=max(0, _get_count(fields, "prompt_tokens") - cached),
        output=_get_count(fields, "completion_tokens"),
        cache_read=cached,
        reasoning=_get_count(fields.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _read_response_tokens(usage: Any) -> Tokens:
    if usage is None:
        return Tokens()
    fields = to_fields(usage)
    cached = _get_count(fields.get("input_tokens_details"), "cached_tokens")
    return Tokens(
        input=max(0, _get_count(fields, "input_tokens") - cached),
        output=_get_count(fields, "output_tokens"),
        cache_read=cached,
        reasoning=_get_count(fields.get("output_tokens_details"), "reasoning_tokens"),
    )


class ChatStream:
    """The answer that the chunks of a streamed completion add up to."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[list[str], list[str], list[str]]] = {}
        self._finish: str | None = None
        self._model: str | None = None
        self._tokens = Tokens()

    def add(self, chunk: Any) -> None:
        """Add a chunk."""
        fields = to_fields(chunk)
        self._model = fields.get("model") or self._model
        if fields.get("usage") is not None:
            self._tokens = read_chat_tokens(fields["usage"])
        for choice in as_objects(fields.get("choices"))[:1]:
            self._finish = choice.get("finish_reason") or self._finish
            self._add_delta(to_fields(choice.get("delta") or {}))

    def read(self) -> tuple[list[Message], str | None, Tokens]:
        """Return the answer so far, the model and the tokens."""
        calls = [
            ToolCall("".join(id), "".join(name), "".join(arguments))
            for _, (id, name, arguments) in sorted(self._calls.items())
        ]
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        if not (text or reasoning or calls):
            return [], self._model, self._tokens
        message = Message(
            "assistant",
            text or None,
            calls,
            reasoning=reasoning or None,
            finish_reason=self._finish,
        )
        return [message], self._model, self._tokens

    def _add_delta(self, delta: Fields) -> None:
        if isinstance(text := delta.get("content"), str):
            self._text.append(text)
        if isinstance(text := delta.get("reasoning_content") or delta.get("reasoning"), str):
            self._reasoning.append(text)
        for call in as_objects(delta.get("tool_calls")):
            parts = self._calls.setdefault(call.get("index") or 0, ([], [], []))
            function = to_fields(call.get("function") or {})
            given = (call.get("id"), function.get("name"), function.get("arguments"))
            for part, text in zip(parts, given, strict=True):
                if isinstance(text, str):
                    part.append(text)


class ResponseStream:
    """The answer that the events of a streamed response end with."""

    def __init__(self) -> None:
        self.response: Any = None

    def add(self, event: Any) -> None:
        """Add an event; the last ones carry the whole response."""
        found = getattr(event, "response", None)
        if found is None and isinstance(event, Mapping):
            found = cast(Fields, event).get("response")
        if found is not None:
            self.response = found

    def read(self) -> tuple[list[Message], str | None, Tokens]:
        """Return the answer, the model and the tokens."""
        return (
            ([], None, Tokens()) if self.response is None else read_response_answer(self.response)
        )


def make_key(message: Message) -> str:
    """Return what identifies a message in a conversation that a caller sends again."""
    calls = [(call.id, call.name) for call in message.tool_calls]
    return json.dumps([message.role, message.text, calls, message.tool_call_id])


def _drop_nulls(fields: Fields) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _get_count(fields: Any, name: str) -> int:
    if fields is None:
        return 0
    count = to_fields(fields).get(name)
    return count if isinstance(count, int) else 0
