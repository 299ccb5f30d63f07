"""Between values and rows. Nobody outside `store/` sees a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from rekindle.errors import StoreDamaged
from rekindle.types import JSON, Message, Session, Tokens, ToolCall

from .engine import Row
from .text_encoding import ESCAPE, escape, printable, unescape

PREVIEW = 120
NANO = 1_000_000_000

MESSAGE_COLUMNS = (
    "m.position, m.role, m.time, m.rewind, m.answers, m.platform_id, m.body, m.content"
)
MESSAGE_VALUES = (  # of a new row
    "session, position, role, time, origin, calls, answers, platform_id, tools, body, content"
)
INSERT_MESSAGE = f"INSERT INTO messages ({MESSAGE_VALUES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# First the columns that are fields as they stand, in the order of the fields.
SESSION_COLUMNS = (
    "s.id, s.source, nullif(s.owner, ''), s.user_name, s.model, s.title, s.parent, s.forked_at,"
    " s.started, s.last_active, s.ended, s.end_reason, s.message_count, s.tool_call_count,"
    " s.template, s.arm, s.cwd, s.git_branch, s.preview, s.archived, s.pruned,"
    " s.model_config, s.tokens_input, s.tokens_output, s.tokens_read, s.tokens_write,"
    " s.tokens_reasoning, s.cost_nano, s.is_escaped"
)
_AS_THEY_STAND = 21
_NOTHING_MORE = (None, 0, 0, 0, 0, 0, 0, 0)
_DEFAULTS = (None, Tokens(), Decimal(0))

_new = cast(Any, tuple).__new__
_loads = json.JSONDecoder().decode
_scan = cast(
    Any, json.JSONDecoder()
).scan_once  # for what we wrote ourselves: no white space to look for


def _encoding() -> Callable[[Any], str]:
    """Compact JSON. The standard encoder makes its fast part anew for every value: here, once."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without it
        return encoder.encode
    quote: Any = getattr(json.encoder, "encode_basestring")  # noqa: B009  the stubs do not know it
    chunks = make(None, encoder.default, quote, None, ":", ",", False, False, True)
    return lambda value: "".join(chunks(value, 0))


_dumps = _encoding()


def encode_json(value: Any) -> str:
    """JSON text that any engine holds. (JSON's own escapes would make one of two lone surrogates.)"""
    return escape(_dumps(value))


def decode_json(text: str) -> Any:
    return _loads(unescape(text))


def message_row(
    message: Message,
    num: int,
    position: int,
    time: float,
    tools: str | None,
    origin: int | None = None,
) -> Row:
    """The parameters of INSERT_MESSAGE."""
    return (num, position, *rest_of_row(message, time, tools, origin))


def rest_of_row(message: Message, time: float, tools: str | None, origin: int | None = None) -> Row:
    """The values of a row behind its session and its position."""
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
        escape(role),
        time,
        origin,
        len(calls),
        None if call_id is None else escape(call_id),
        None if platform_id is None else escape(platform_id),
        tools,
        encode_json(body) if body else None,
        escape(content) if is_text else None,
    )


def message_of(row: Row) -> Message:
    """The message of a row of MESSAGE_COLUMNS."""
    position, role, time, rewind, answers, platform_id, body, content = row
    if content is not None and ESCAPE in content:
        content = unescape(content)
    if not role.isascii():
        role = unescape(role)
    if answers is not None:
        answers = unescape(answers)
    if platform_id is not None:
        platform_id = unescape(platform_id)
    rewound = rewind is not None
    if body is None:
        said = (role, content, (), answers, None, None, None, platform_id, None)
        return _new(Message, (*said, time, position, rewound))
    try:
        rest = _scan(body if ESCAPE not in body else unescape(body), 0)[0]
        get = rest.get
        calls = get("tool_calls", ())
        if calls:
            calls = tuple([_new(ToolCall, call) for call in calls])
    except (ValueError, TypeError, AttributeError, StopIteration) as error:
        raise StoreDamaged(f"the message at position {position} is damaged: {error}") from error
    said = (
        role,
        get("content") if content is None else content,
        calls,
        answers,
        get("name"),
        get("reasoning"),
        get("finish_reason"),
        platform_id,
        get("meta"),
        time,
        position,
        rewound,
    )
    return _new(Message, said)


def said(message: Message) -> str:
    """The words of a message that a search should find: its text, its calls, its reasoning."""
    _, content, calls, _, name, reasoning = message[:6]
    text = content if isinstance(content, str) else message.text
    if not (calls or name or reasoning):
        return text
    parts = [text]
    for call in calls:
        parts += [call.name, _values(call.arguments)]
    return "\n".join(filter(None, [*parts, name, reasoning]))


def searchable(content: str | None, body: str | None) -> str:
    """The same, of a row; of one that is damaged, the text: it must not keep others out."""
    try:
        return said(message_of((0, "", 0.0, None, None, None, body, content)))
    except (StoreDamaged, ValueError, TypeError):
        return unescape(content or "")


def _values(arguments: str | Mapping[str, JSON]) -> str:
    """What stands in the arguments of a call, without the JSON around it."""
    given: JSON = arguments
    if isinstance(arguments, str):
        try:
            given = _parsed(arguments)
        except (ValueError, RecursionError):
            return arguments
    try:
        return "\n".join(given.values())  # nearly always: an object with texts alone
    except (TypeError, AttributeError):
        return _values_below(given)


def _parsed(text: str) -> JSON:
    """The JSON value in `text`. Mostly there is no white space around it, and no need to look."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _loads(text)
    return value if end == len(text) else _loads(text)


def _values_below(arguments: JSON) -> str:
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


def preview_of(messages: Sequence[Message]) -> str | None:
    """What a list shows of a session: how its first user message begins."""
    for message in messages:
        if message.role == "user":
            text = " ".join(message.text[: PREVIEW * 4].split())
            if text:
                return printable(text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…")
    return None


def session_of(row: Row) -> Session:
    """The session of a row of SESSION_COLUMNS."""
    more = row[_AS_THEY_STAND:]
    if more == _NOTHING_MORE:
        return _new(Session, row[:_AS_THEY_STAND] + _DEFAULTS)
    config, *tokens, cost, is_escaped = more
    fields = row[:_AS_THEY_STAND]
    if is_escaped:
        fields = tuple(unescape(f) if isinstance(f, str) else f for f in fields)
    config = None if config is None else decode_json(config)
    return _new(Session, (*fields, config, Tokens(*tokens), Decimal(cost) / NANO))


def session_row(session: Session) -> dict[str, Any]:
    """Column values of a session as its creator describes it; counts start at nothing."""
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
        **escaped(texts),
        "model_config": None if config is None else encode_json(config),
        "forked_at": session.forked_at,
        "started": session.started,
        "last_active": session.last_active,
        "ended": session.ended,
        "archived": session.archived,
        "pruned": session.pruned,
    }


def escaped(texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Texts as they can be stored, and whether any of them has to be unescaped when it is read."""
    columns: dict[str, Any] = {
        name: None if text is None else escape(text) for name, text in texts.items()
    }
    return columns if columns == texts else {**columns, "is_escaped": 1}


def nano(cost: Decimal) -> int:
    return int(cost * NANO)
