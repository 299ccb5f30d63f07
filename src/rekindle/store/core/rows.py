"""Convert values to rows and back. Rows are not visible outside `store/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from rekindle.errors import StoreDamaged
from rekindle.types import JSON, Message, Session, Tokens, ToolCall

from .engine import Row
from .text_encoding import ESCAPE, escape_text, replace_unstorable, unescape_text

PREVIEW_LENGTH = 120
NANO = 1_000_000_000

MESSAGE_COLUMNS = (
    "m.position, m.role, m.time, m.rewind, m.tool_call_id, m.platform_id, m.body, m.content"
)
MESSAGE_VALUES = (  # columns of a new row
    "session, position, role, time, origin, calls, tool_call_id, platform_id, tools, body, content"
)
INSERT_MESSAGE = f"INSERT INTO messages ({MESSAGE_VALUES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# First the columns that need no conversion, in the order of the fields.
SESSION_COLUMNS = (
    "s.id, s.source, nullif(s.owner, ''), s.user_name, s.model, s.title, s.parent, s.forked_at,"
    " s.started, s.last_active, s.ended, s.end_reason, s.message_count, s.tool_call_count,"
    " s.template, s.arm, s.cwd, s.git_branch, s.preview, s.archived, s.pruned,"
    " s.model_config, s.tokens_input, s.tokens_output, s.tokens_cache_read, s.tokens_cache_write,"
    " s.tokens_reasoning, s.cost_nano, s.is_escaped"
)
_PLAIN_COLUMN_COUNT = 21
_EMPTY_REST = (None, 0, 0, 0, 0, 0, 0, 0)
_DEFAULT_REST = (None, Tokens(), Decimal(0))

_new = cast(Any, tuple).__new__
_loads = json.JSONDecoder().decode
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


def decode_json(text: str) -> Any:
    """Decode JSON text written by `encode_json`."""
    return _loads(unescape_text(text))


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


def message_to_values(
    message: Message, time: float, tools: str | None, origin: int | None = None
) -> Row:
    """Return the values of a message's row after session and position."""
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
        escape_text(role),
        time,
        origin,
        len(calls),
        None if call_id is None else escape_text(call_id),
        None if platform_id is None else escape_text(platform_id),
        tools,
        encode_json(body) if body else None,
        escape_text(content) if is_text else None,
    )


def row_to_message(row: Row) -> Message:
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
        rest = _scan(body if ESCAPE not in body else unescape_text(body), 0)[0]
        get = rest.get
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
        return get_search_text(row_to_message((0, "", 0.0, None, None, None, body, content)))
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


def make_preview(messages: Sequence[Message]) -> str | None:
    """Return the start of the first user message, for lists."""
    for message in messages:
        if message.role == "user":
            text = " ".join(message.text[: PREVIEW_LENGTH * 4].split())
            if text:
                return replace_unstorable(
                    text if len(text) <= PREVIEW_LENGTH else text[: PREVIEW_LENGTH - 1] + "…"
                )
    return None


def row_to_session(row: Row) -> Session:
    """Convert a row of SESSION_COLUMNS to a session."""
    rest = row[_PLAIN_COLUMN_COUNT:]
    if rest == _EMPTY_REST:
        return _new(Session, row[:_PLAIN_COLUMN_COUNT] + _DEFAULT_REST)
    config, *tokens, cost, is_escaped = rest
    fields = row[:_PLAIN_COLUMN_COUNT]
    if is_escaped:
        fields = tuple(unescape_text(f) if isinstance(f, str) else f for f in fields)
    config = None if config is None else decode_json(config)
    return _new(Session, (*fields, config, Tokens(*tokens), Decimal(cost) / NANO))


def session_to_columns(session: Session) -> dict[str, Any]:
    """Return the column values of a new session, without counts."""
    texts = {
        "id": session.id,
        "source": session.source,
        "owner": session.owner or "",
        "user_name": session.user,
        "model": session.model,
        "parent": session.parent,
        "end_reason": session.end_reason,
        "template": session.template,
        "arm": session.arm,
        "cwd": session.cwd,
        "git_branch": session.git_branch,
    }
    config = session.model_config
    return {
        **escape_columns(texts),
        "model_config": None if config is None else encode_json(config),
        "forked_at": session.forked_at,
        "started": session.started,
        "last_active": session.last_active,
        "ended": session.ended,
        "archived": session.archived,
        "pruned": session.pruned,
    }


def escape_columns(texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Escape column texts for storage, and set `is_escaped` if any of them changed."""
    columns: dict[str, Any] = {
        name: None if text is None else escape_text(text) for name, text in texts.items()
    }
    return columns if columns == texts else {**columns, "is_escaped": 1}


def to_nano(cost: Decimal) -> int:
    """Convert a cost to billionths."""
    return int(cost * NANO)
