"""Convert sessions and messages to rows and back. Rows are not visible outside `store/`.

The columns come from the definitions in `tables`; their SQL and converters are built once, at import.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from rekindle.errors import InvalidInput, StoreDamaged
from rekindle.types import (
    JSON,
    MAX_TIMESTAMP,
    ROLES,
    Message,
    Session,
    Tokens,
    ToolCall,
    validate_name,
)

from . import columns
from .columns import Table, TableColumn
from .engine import Row, Transaction
from .tables import MESSAGES, SESSIONS, USAGE_COLUMNS
from .text_encoding import ESCAPE, escape_text, unescape_text

NANO = 1_000_000_000

# The columns that a message is read from; those that were added later follow.
_READ_NAMES = (
    "position",
    "role",
    "time",
    "rewind",
    "tool_call_id",
    "platform_id",
    "body",
    "content",
)

V = TypeVar("V", bound=tuple[Any, ...])
_new = cast(Any, tuple).__new__
_loads = json.JSONDecoder().decode
_decode = msgspec.json.Decoder().decode  # the same values in half the time, but not of all JSON
_scan = cast(Any, json.JSONDecoder()).scan_once  # for JSON we wrote ourselves, without white space


def _make_encoder() -> Callable[[Any], str]:
    """Make an encoder for compact JSON; unlike the standard one, it builds its fast part only once."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the C accelerator
        return encoder.encode
    quote: Any = getattr(json.encoder, "encode_basestring")  # noqa: B009  missing from the stubs
    chunks = make(None, encoder.default, quote, None, ":", ",", False, False, True)
    return lambda value: "".join(chunks(value, 0))


_dumps = _make_encoder()


def encode_json(value: Any) -> str:
    """Encode a value as JSON text that every engine can store.

    (JSON's own escapes would merge two lone surrogates into one character.)
    """
    return escape_text(_dumps(value))


@cache
def load_fast_encoder() -> Callable[[Any], str]:
    """Load an encoder that takes half as long as `encode_json`, worth its import for many values."""
    import msgspec  # not at the top: a first write must not wait for it

    encode = msgspec.json.Encoder().encode

    def encode_fast(value: Any) -> str:
        try:
            data = encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):  # a lone surrogate, say
            return encode_json(value)
        # It writes null for infinity, and escapes every character that cannot be stored but ESCAPE.
        text = data.decode()
        return encode_json(value) if b"null" in data or ESCAPE in text else text

    return encode_fast


def decode_json(text: str) -> Any:
    """Decode JSON text written by `encode_json`."""
    return _loads(unescape_text(text))


def _message_to_values(
    message: Message,
    time: float,
    tools: str | None,
    origin: int | None = None,
    encode: Callable[[Any], str] = encode_json,
) -> Row:
    role, content, calls, call_id, name, reasoning, finish, platform_id, meta = message[:9]
    body: dict[str, Any] = {}
    if calls:
        body["tool_calls"] = calls  # tuples: a list of [id, name, arguments]
    if name is not None:
        body["name"] = name
    if reasoning is not None:
        body["reasoning"] = reasoning
    if finish is not None:
        body["finish_reason"] = finish
    if meta is not None:
        body["meta"] = meta
    is_text = isinstance(content, str)
    if not is_text and content is not None:
        body["content"] = content
    return (
        role if role in ROLES else escape_text(role),
        time,
        origin,
        len(calls),
        None if call_id is None else escape_text(call_id),
        None if platform_id is None else escape_text(platform_id),
        tools,
        encode(body) if body else None,
        escape_text(content) if is_text else None,
    )


def _row_to_message(row: Row) -> Message:
    """Convert a row of MESSAGE_COLUMNS to a message."""
    position, role, time, rewind, tool_call_id, platform_id, body, content = row
    if content is not None and ESCAPE in content:
        content = unescape_text(content)
    if not role.isascii():
        role = unescape_text(role)
    if tool_call_id is not None:
        tool_call_id = unescape_text(tool_call_id)
    if platform_id is not None:
        platform_id = unescape_text(platform_id)
    rewound = rewind is not None
    if body is None:
        fields = (role, content, (), tool_call_id, None, None, None, platform_id, None)
        return _new(Message, (*fields, time, position, rewound))
    try:
        get = _decode_body(body if ESCAPE not in body else unescape_text(body)).get
        calls = get("tool_calls", ())
        if calls:
            calls = tuple([_new(ToolCall, call) for call in calls])
    except (ValueError, TypeError, AttributeError, StopIteration) as error:
        raise StoreDamaged(f"the message at position {position} is damaged: {error}") from error
    fields = (
        role,
        get("content") if content is None else content,
        calls,
        tool_call_id,
        get("name"),
        get("reasoning"),
        get("finish_reason"),
        platform_id,
        get("meta"),
        time,
        position,
        rewound,
    )
    return _new(Message, fields)


def _decode_body(body: str) -> Any:
    try:
        return _decode(body)
    except (
        msgspec.DecodeError,
        ValueError,
        RecursionError,
    ):  # lone surrogates, infinite numbers, or damage
        return _scan(body, 0)[0]


def get_search_text(message: Message) -> str:
    """Return the searchable text of a message: its text, calls and reasoning."""
    _, content, calls, _, name, reasoning = message[:6]
    text = content if isinstance(content, str) else message.text
    if not (calls or name or reasoning):
        return text
    parts = [text]
    for call in calls:
        parts += [call.name, _join_argument_values(call.arguments)]
    return "\n".join(filter(None, [*parts, name, reasoning]))


def get_row_search_text(content: str | None, body: str | None) -> str:
    """Return the searchable text of a row; of a damaged row only its content."""
    try:
        return get_search_text(_row_to_message((0, "", 0.0, None, None, None, body, content)))
    except (StoreDamaged, ValueError, TypeError):
        return unescape_text(content or "")


def _join_argument_values(arguments: str | Mapping[str, JSON]) -> str:
    """Join the values of a call's arguments, without the JSON around them."""
    value: JSON = arguments
    if isinstance(arguments, str):
        try:
            value = _parse_json(arguments)
        except (ValueError, RecursionError):
            return arguments
    try:
        return "\n".join(value.values())  # the usual case: an object of strings
    except (TypeError, AttributeError):
        return _join_nested_values(value)


def _parse_json(text: str) -> JSON:
    """Parse JSON, trying first without skipping white space."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _loads(text)
    return value if end == len(text) else _loads(text)


def _join_nested_values(arguments: JSON) -> str:
    found: list[str] = []
    rest: list[Any] = [arguments]
    while rest:
        value: Any = rest.pop()
        if isinstance(value, dict):
            rest.extend(reversed(cast(dict[str, Any], value).values()))
        elif isinstance(value, list):
            rest.extend(reversed(cast(list[Any], value)))
        elif value is not None:
            found.append(str(value))
    return "\n".join(found)


def to_nano(cost: Decimal) -> int:
    """Convert a cost to billionths."""
    return int(cost * NANO)


def usage_to_row(tokens: Tokens, cost: Decimal) -> Row:
    """Return the values of USAGE_COLUMNS."""
    return (*tokens, to_nano(cost))


# -- columns and fields


def list_field_columns(table: Table, value: Any) -> list[TableColumn]:
    """Return the columns that hold fields of a value, in the order of the fields."""
    found = {column.value_field: column for column in table.columns}
    return [found[name] for name in value._fields if name in found]


def check_value(owner: str, column: TableColumn, value: Any) -> None:
    """Raise `InvalidInput` unless the value is None or one that the column can store."""
    kind = column.kind
    if value is None or kind is columns.JSON:
        return
    if column.is_name:
        validate_name(f"{owner}.{column.value_field}", value)
    elif kind is columns.REAL:
        if not (isinstance(value, (int, float)) and abs(value) < MAX_TIMESTAMP):
            expected = f"expected UTC seconds, got {value!r:.80}"
            raise InvalidInput(f"{owner}.{column.value_field}: {expected}")
    elif not isinstance(value, kind.types):
        expected = f"expected {'text' if str in kind.types else 'a number'}"
        got = type(value).__name__
        raise InvalidInput(f"{owner}.{column.value_field}: {expected}, got {got}")


def encode_value(column: TableColumn, value: Any) -> Any:
    """Return what the column stores for a value."""
    if value is None:
        return "" if column.is_blank else None
    if column.kind is columns.JSON:
        return encode_json(value)
    return escape_text(value) if isinstance(value, str) else value


def _decode_value(column: TableColumn, stored: Any) -> Any:
    if column.kind is columns.JSON:
        return None if stored is None else decode_json(stored)
    return unescape_text(stored) if isinstance(stored, str) else stored


class ValueRows(Generic[V]):
    """The SELECT list of a table for a named tuple, and the conversion of its rows.

    Texts are unescaped; `converters` convert the stored values of other fields.
    """

    def __init__(self, table: Table, value: type[V], **converters: Callable[[Any], Any]) -> None:
        found = list_field_columns(table, value)
        self.select = ", ".join(f"{table.name}.{column.name}" for column in found)
        self._from = f"SELECT {self.select} FROM {table.name} "
        self._value = value
        self._converters = [
            converters.get(column.value_field, unescape_text if str in column.kind.types else None)
            for column in found
        ]

    def read(self, row: Row) -> V:
        """Convert a row of `select`."""
        pairs = zip(self._converters, row, strict=True)
        return _new(
            self._value,
            [
                stored if stored is None or not convert else convert(stored)
                for convert, stored in pairs
            ],
        )

    def find(self, tx: Transaction, rest: str, params: Sequence[Any] = ()) -> list[V]:
        """Return the values that a statement finds; `rest` is what follows its FROM clause."""
        return [self.read(row) for row in tx.run(self._from + rest, params)]


# -- sessions


class SessionRows:
    """The SQL and the converters of sessions, built from the definition of their table."""

    def __init__(self, table: Table, value: Any = Session) -> None:
        found = list_field_columns(table, value)
        plain = [column for column in found if column.kind is not columns.JSON]
        json_columns = [column for column in found if column.kind is columns.JSON]
        self.columns = {column.value_field: column for column in (*plain, *json_columns)}
        if [*self.columns, "tokens", "cost"] != [*value._fields]:
            raise TypeError("session: plain fields come first, then JSON, then tokens and cost")
        self.select = ", ".join(
            f"nullif(s.{column.name}, '')" if column.is_blank else f"s.{column.name}"
            for column in self.columns.values()
        ) + "".join(f", s.{name}" for name in (*USAGE_COLUMNS, "is_escaped"))
        self.read = _make_session_reader(len(plain), len(json_columns), value)
        self._ordered = (*self.columns.values(),)
        self._new_columns = [(i, one) for i, one in enumerate(self._ordered) if not one.derived]

    def find(self, tx: Transaction, rest: str, params: Sequence[Any] = ()) -> list[Session]:
        """Return the sessions that a statement finds; `rest` is what follows FROM sessions s."""
        rows = tx.run(f"SELECT {self.select} FROM sessions s {rest}", params)
        return [self.read(row) for row in rows]

    def check(self, session: Session) -> None:
        """Raise `InvalidInput` naming the first field that cannot be stored."""
        for column, value in zip(self._ordered, session, strict=False):
            if value is not None:
                check_value("session", column, value)

    def build_new(self, session: Session) -> dict[str, Any]:
        """Return the columns of a new session, without those that are derived."""
        return _encode_columns([(column, session[at]) for at, column in self._new_columns])

    def build_columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns that store the values of these fields."""
        return _encode_columns([(self.columns[name], value) for name, value in values.items()])


def _encode_columns(pairs: Sequence[tuple[TableColumn, Any]]) -> dict[str, Any]:
    """Return the columns that store these values, and `is_escaped` if it must be set for them."""
    stored: dict[str, Any] = {}
    is_escaped = False
    for column, value in pairs:
        stored[column.name] = text = encode_value(column, value)
        if text is not value and text != value and isinstance(value, str):
            is_escaped = True
    return {**stored, "is_escaped": 1} if is_escaped else stored


def _make_session_reader(plain_count: int, json_count: int, value: Any) -> Callable[[Row], Session]:
    empty_rest = (*[None] * json_count, *[0] * len(USAGE_COLUMNS), 0)
    default_rest = (*[None] * json_count, Tokens(), Decimal(0))

    def row_to_session(row: Row) -> Session:
        rest = row[plain_count:]
        if rest == empty_rest:  # as most are, and lists consist of many
            return _new(value, row[:plain_count] + default_rest)
        *tokens, cost, is_escaped = rest[json_count:]
        fields = row[:plain_count]
        if is_escaped:
            fields = tuple(unescape_text(f) if isinstance(f, str) else f for f in fields)
        json_values = [None if text is None else decode_json(text) for text in rest[:json_count]]
        return _new(value, (*fields, *json_values, Tokens(*tokens), Decimal(cost) / NANO))

    return row_to_session


SESSION_ROWS = SessionRows(SESSIONS)
SESSION_COLUMNS = SESSION_ROWS.select
row_to_session = SESSION_ROWS.read


# -- messages


class MessageRows:
    """The SQL and the converters of messages, built from the definition of their table.

    The fields that exist since the first version are converted by the functions above, which know
    them by name because that is fastest; fields that were added later are converted by their columns.
    """

    def __init__(self, table: Table, value: Any = Message) -> None:
        self.added = [column for column in list_field_columns(table, value) if column.since > 1]
        names = (*_READ_NAMES, *(column.name for column in self.added))
        self.select = ", ".join(f"m.{name}" for name in names)
        self.inserted = table.list_names("id", "rewind")
        self.insert = table.build_insert("id", "rewind")
        self._value = value
        self.read = self._read_added if self.added else _row_to_message
        self.write = self._write_added if self.added else _message_to_values

    def find(self, tx: Transaction, rest: str, params: Sequence[Any] = ()) -> list[Message]:
        """Return the messages that a statement finds; `rest` is what follows FROM messages m."""
        rows = tx.run(f"SELECT {self.select} FROM messages m {rest}", params)
        return [self.read(row) for row in rows]

    def _read_added(self, row: Row) -> Message:
        message = _row_to_message(row[: len(_READ_NAMES)])
        stored = row[len(_READ_NAMES) :]  # may be short: the inbox holds rows of older versions
        missing = [None] * (len(self.added) - len(stored))
        added = map(_decode_value, self.added, (*stored, *missing))
        return _new(self._value, (*message[:], *added))

    def _write_added(
        self,
        message: Message,
        time: float,
        tools: str | None,
        origin: int | None = None,
        encode: Callable[[Any], str] = encode_json,
    ) -> Row:
        values = [*_message_to_values(message, time, tools, origin, encode)]
        for column in self.added:
            value = getattr(message, column.value_field)
            check_value("message", column, value)
            values.append(encode_value(column, value))
        return tuple(values)


MESSAGE_ROWS = MessageRows(MESSAGES)
MESSAGE_COLUMNS = MESSAGE_ROWS.select
MESSAGE_VALUES = MESSAGE_ROWS.inserted  # columns of a new row
INSERT_MESSAGE = MESSAGE_ROWS.insert
row_to_message = MESSAGE_ROWS.read
message_to_values = MESSAGE_ROWS.write  # the values of a message's row after session and position
_BODY, _CONTENT = (MESSAGE_VALUES.split(", ").index(name) for name in ("body", "content"))


def message_to_row(
    message: Message,
    num: int,
    position: int,
    time: float,
    tools: str | None,
    origin: int | None = None,
) -> Row:
    """Return the parameters of INSERT_MESSAGE for a message."""
    return (num, position, *message_to_values(message, time, tools, origin))


def measure_text(rows: Sequence[Row]) -> int:
    """Return the length of the texts of rows of MESSAGE_VALUES."""
    return sum([len(row[_CONTENT] or row[_BODY] or "") for row in rows])


def drop_duplicates(messages: Sequence[Message]) -> list[Message]:
    """Drop messages whose platform id occurs earlier in the same call."""
    seen: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        name = message.platform_message_id
        if name is None or name not in seen:
            kept.append(message)
        if name is not None:
            seen.add(name)
    return kept
