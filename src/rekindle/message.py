"""The message: its fields, its checks, and its form in the APIs of OpenAI and Anthropic.

`rekindle.types` offers everything here together with the other values; import it from there.
"""

# pyright: reportUnnecessaryIsInstance=false
# `validate_message` guards the API, where callers may be untyped.
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from rekindle.errors import InvalidInput

JSON: TypeAlias = Any  # any JSON value; validated before use
Content: TypeAlias = str | Sequence[Mapping[str, JSON]] | None

ROLES = ("user", "assistant", "tool", "system", "developer", "function")  # the most frequent first
MAX_TIMESTAMP = 253_402_300_800.0  # the year 10000 in UTC seconds; NaN is not less than it
MAX_NAME_CHARS = 512  # ids, owners, sources: fits an index entry on every engine


class ToolCall(NamedTuple):
    """One call inside an assistant message. `arguments` is what the model wrote, usually JSON text."""

    id: str
    name: str
    arguments: str | Mapping[str, JSON] = ""


class _MessageFields(NamedTuple):
    role: str
    content: Content
    tool_calls: tuple[ToolCall, ...]
    tool_call_id: str | None
    name: str | None
    reasoning: str | None
    finish_reason: str | None
    platform_message_id: str | None
    meta: Mapping[str, JSON] | None
    timestamp: float | None
    position: int | None
    rewound: bool


_new_tuple = cast(Any, tuple).__new__
_COMPARED_FIELDS = 9  # the fields before `timestamp`
_PLAIN_DEPTH = 6
_INFINITE = float("inf")
_SCALARS = {str, int, bool, type(None)}  # valid JSON without further checks


class Message(_MessageFields):
    """One message of a conversation, in the OpenAI chat format.

    `timestamp` (UTC seconds), `position` and `rewound` are set by the store and ignored by
    equality, so a message read back equals the one that was stored. `meta` holds protocol data
    beside the text, such as `is_error`. `role` is one of `ROLES`; only a message that another program
    wrote may have a different one (`make_foreign_message`).
    """

    __slots__ = ()

    def __new__(
        cls,
        role: str,
        content: Content = None,
        tool_calls: Iterable[ToolCall] | None = (),
        tool_call_id: str | None = None,
        name: str | None = None,
        reasoning: str | None = None,
        finish_reason: str | None = None,
        platform_message_id: str | None = None,
        meta: Mapping[str, JSON] | None = None,
        timestamp: float | None = None,
        position: int | None = None,
        rewound: bool = False,
    ) -> Message:
        if role not in ROLES:
            _reject_role(role)
        return _new_tuple(
            cls,
            (
                role,
                list(content) if isinstance(content, tuple) else content,
                tuple(tool_calls) if tool_calls else (),
                tool_call_id,
                name,
                reasoning,
                finish_reason,
                platform_message_id,
                meta,
                timestamp,
                position,
                rewound,
            ),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self[:_COMPARED_FIELDS] == other[:_COMPARED_FIELDS]

    def __ne__(self, other: object) -> bool:  # tuple defines its own
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # content may hold lists

    def __iter__(self) -> Iterator[Any]:
        """Raise TypeError: otherwise `json.dumps` would write a list without names."""
        # In a generator: the encoder replaces a TypeError that `__iter__` itself raises.
        raise TypeError("a Message is not a sequence; for JSON, use message.to_openai()")
        yield

    def __getnewargs__(self) -> tuple[Any, ...]:  # for copy and pickle
        return self[:]

    if not TYPE_CHECKING:  # the methods of every named tuple, without iteration

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self[:], strict=True))

        def _replace(self, **changes: Any) -> Message:
            return self._make({**self._asdict(), **changes}.values())

    @classmethod
    def from_openai(cls, fields: Mapping[str, JSON]) -> Message:
        """Build a message from one in OpenAI's chat format.

        Its role, content, name, calls, call id and reasoning are kept; so is a refusal, as content.
        """
        from rekindle.message_formats import parse_openai_fields

        given, calls = parse_openai_fields(fields)
        return cls(**given, tool_calls=[ToolCall(*call) for call in calls])

    def to_openai(self) -> dict[str, JSON]:
        """Return the message in OpenAI's chat format, with the fields that its API accepts."""
        from rekindle.message_formats import build_openai_fields

        return build_openai_fields(self)

    def to_anthropic(self) -> dict[str, JSON]:
        """Return the message in Anthropic's format: a role and content blocks.

        A result is a block of the user. Anthropic has no author names, and takes system messages as a
        field of the request: `load_conversation` returns a whole conversation as it has to be sent.
        """
        from rekindle.message_formats import build_anthropic_fields

        return build_anthropic_fields(self)

    @property
    def text(self) -> str:
        """The readable text of the content, whatever its shape."""
        if isinstance(self.content, str):
            return self.content
        parts = (part.get("text") for part in self.content or () if isinstance(part, Mapping))
        return "\n".join(part for part in parts if isinstance(part, str))


def make_foreign_message(role: str, *others: Any, **fields: Any) -> Message:
    """Make a message with the role that another program gave it, which may be any text."""
    if role in ROLES:
        return Message(role, *others, **fields)
    return Message._make((role, *Message("user", *others, **fields)[1:]))


def _reject_role(role: object) -> NoReturn:
    raise InvalidInput(f"message.role: expected one of {', '.join(ROLES)}; got {role!r:.80}")


def validate_message(message: Message | Mapping[str, JSON]) -> Message:
    """Return the message, built from OpenAI's format if it is a mapping.

    Raise an error that names the invalid field.
    """
    if not isinstance(message, Message):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise InvalidInput(f"expected a Message or a mapping in OpenAI's format, got {kind}")
        message = Message.from_openai(message)
    role, content, calls, call_id, name, reasoning, finish, platform_id, meta, timestamp = message[
        :10
    ]
    if not isinstance(role, str) or not 0 < len(role) <= 64:
        raise InvalidInput(f"message.role: expected 1 to 64 characters, got {role!r:.80}")
    if content is not None and not isinstance(content, str):
        _check_parts(content)
    if calls:
        _check_calls(calls)
    # Hot path, run for every stored message: skip absent fields without a function call.
    if not (
        (call_id is None or isinstance(call_id, str))
        and (name is None or isinstance(name, str))
        and (reasoning is None or isinstance(reasoning, str))
        and (finish is None or isinstance(finish, str))
    ):
        _check_text(message, "tool_call_id", "name", "reasoning", "finish_reason")
    if platform_id is not None and not (
        isinstance(platform_id, str) and 0 < len(platform_id) <= MAX_NAME_CHARS
    ):
        validate_name("message.platform_message_id", platform_id)
    if meta is not None:
        if not isinstance(meta, Mapping):
            raise InvalidInput(f"message.meta: expected a mapping, got {type(meta).__name__}")
        _check_json("message.meta", meta)
    if timestamp is not None and not (
        isinstance(timestamp, (int, float)) and abs(timestamp) < MAX_TIMESTAMP
    ):
        raise InvalidInput(f"message.timestamp: expected UTC seconds, got {timestamp!r:.80}")
    return message


def _check_parts(content: object) -> None:
    if not isinstance(content, list):
        kind = type(content).__name__
        raise InvalidInput(f"message.content: expected text or a list of parts, got {kind}")
    for part in cast(list[object], content):
        if not isinstance(part, Mapping):
            kind = type(part).__name__
            raise InvalidInput(f"message.content: expected a mapping for each part, got {kind}")
    _check_json("message.content", cast(object, content))


def _check_json(field: str, value: object, *, allow_nan: bool = False) -> None:
    if _is_plain(value, _PLAIN_DEPTH):
        return
    import json

    try:
        json.dumps(value, allow_nan=allow_nan)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{field}: not valid JSON: {error}") from None


def _is_plain(value: object, depth: int) -> bool:
    """Return whether a value is JSON for sure; encoding it to find out takes several times as long."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is float:
        return abs(cast(float, value)) < _INFINITE
    if not depth:
        return False
    if kind is list:
        return all(_is_plain(item, depth - 1) for item in cast(list[object], value))
    # Another mapping than a dictionary can be the outermost value alone.
    if kind is not dict and not (depth == _PLAIN_DEPTH and isinstance(value, Mapping)):
        return False
    for key, item in cast(Mapping[object, object], value).items():
        if type(key) is not str or not (type(item) in _SCALARS or _is_plain(item, depth - 1)):
            return False
    return True


def _check_calls(calls: Iterable[ToolCall]) -> None:
    for call in calls:
        if not isinstance(call, ToolCall):
            raise InvalidInput(f"message.tool_calls: expected ToolCall, got {type(call).__name__}")
        if not isinstance(call.id, str) or not isinstance(call.name, str):
            raise InvalidInput(f"message.tool_calls: id and name must be text, got {call!r:.80}")
        if isinstance(call.arguments, Mapping):
            _check_json("message.tool_calls.arguments", call.arguments, allow_nan=True)
        elif not isinstance(call.arguments, str):
            kind = type(call.arguments).__name__
            raise InvalidInput(
                f"message.tool_calls.arguments: expected text or a mapping, got {kind}"
            )


def _check_text(message: Message, *fields: str) -> None:
    for field in fields:
        value = getattr(message, field)
        if not (value is None or isinstance(value, str)):
            raise InvalidInput(f"message.{field}: expected text, got {type(value).__name__}")


def validate_name(field: str, value: str) -> str:
    """Return `value` if every engine can index it as a name."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
        raise InvalidInput(f"{field}: expected 1 to {MAX_NAME_CHARS} characters, got {value!r:.80}")
    return value
