"""Sessions as JSONL that any engine loads without loss.

One line for the session, one for its prelude, one for each of its messages in order, one for each
rewind, one for each model with known usage, and one for each quarter of an hour with usage:

    {"type": "session", "format": 1, "id": …, "title": …, …}
    {"type": "prelude", "revision": 3, "messages": [{"role": "system", "content": …}, …]}
    {"type": "message", "position": 0, "role": "user", "content": …, "timestamp": …, …}
    {"type": "rewind", "id": 1, "kind": "undo", "since": 4, …}
    {"type": "usage", "model": "small", "tokens": {"input": 120, …}, "cost": "0.0004"}
    {"type": "usage_entry", "quarter": 1947042, "model": "small", "tokens": {…}, "cost": "0", …}

A removed message names its rewind; a message copied by a fork names its origin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, cast

from rekindle.errors import InvalidInput
from rekindle.json_fields import describe_json_error
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import (
    INSERT_MESSAGE,
    MESSAGE_COLUMNS,
    MESSAGE_ROWS,
    SESSION_COLUMNS,
    SESSION_ROWS,
    USAGE_COLUMNS,
    decode_json,
    encode_json,
    measure_text,
    message_to_row,
    row_to_message,
    row_to_session,
    usage_to_row,
)
from rekindle.store.core.text_encoding import escape_text, replace_unstorable, unescape_text
from rekindle.store.learning import preludes
from rekindle.store.sessions import titles, usage, usage_entries
from rekindle.store.sessions.lineage import recount_session
from rekindle.store.sessions.sessions import collect_tool_names, create_session, set_columns
from rekindle.types import (
    Message,
    Session,
    Tokens,
    ToolCall,
    Usage,
    UsageEntry,
    make_foreign_message,
    to_json_value,
    validate_message,
    validate_name,
)

FORMAT_VERSION = 1


class LoadReport(NamedTuple):
    """The numbers of loaded sessions and messages, and what was skipped, with line and reason."""

    sessions: int
    messages: int
    skipped: list[str]


class CopyReport(NamedTuple):
    """The result of a copy: a load report with the numbers of routes, queued messages and the like."""

    sessions: int
    messages: int
    skipped: list[str]
    routes: int
    queued_messages: int
    people: int = 0
    jobs: int = 0
    memories: int = 0
    decisions: int = 0  # about notes
    experiments: int = 0
    framework_rows: int = 0  # of checkpoints and documents


def dump_session(tx: Transaction, session_id: str) -> Iterator[bytes]:
    """Yield the lines of one session, even if it is pruned."""
    rows = tx.run(
        f"SELECT s.num, s.title_base, {SESSION_COLUMNS} FROM sessions s WHERE s.id = ?",
        (escape_text(session_id),),
    )
    for num, base, *columns in rows:
        session = row_to_session(tuple(columns))
        header = {"type": "session", "format": FORMAT_VERSION, **to_json_value(session)}
        if session.title and titles.split_title(session.title)[0].casefold() != base:
            header["continues"] = base  # not contained in a shortened title
        yield _encode_line(header)
        revision, prelude = preludes.load_prelude(tx, num)
        if prelude:
            prelude_messages = [_build_prelude_message(message) for message in prelude]
            yield _encode_line(
                {"type": "prelude", "revision": revision, "messages": prelude_messages}
            )
        rewinds = tx.run(
            "SELECT num, kind, since, messages, time, restored FROM rewinds WHERE session = ?"
            " ORDER BY num",
            (num,),
        )
        # Numbered per session, so that a copy dumps the same as the original.
        numbers = {row[0]: number for number, row in enumerate(rewinds, 1)}
        for line in tx.stream(
            f"SELECT m.origin, {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ?"
            " ORDER BY m.position",
            (num,),
        ):
            yield _encode_line(_build_message_line(tx, line, numbers))
        for old, *line in rewinds:
            names = ("kind", "since", "messages", "time", "restored")
            yield _encode_line(
                {"type": "rewind", "id": numbers[old], **dict(zip(names, line, strict=True))}
            )
        for model, used in usage.load_usage_by_model(tx, num).items():
            yield _encode_line({"type": "usage", "model": model, **to_json_value(used)})
        for entry in usage_entries.load_entries(tx, num):
            yield _encode_line({"type": "usage_entry", **to_json_value(entry)})


def _encode_line(value: Mapping[str, Any]) -> bytes:
    return encode_json(value).encode() + b"\n"


def _build_prelude_message(message: Message) -> dict[str, Any]:
    return {
        name: value for name, value in to_json_value(message).items() if name in _PRELUDE_FIELDS
    }


def _build_message_line(tx: Transaction, row: Row, rewinds: Mapping[int, int]) -> dict[str, Any]:
    origin, rewind = row[0], row[4]
    message = row_to_message(row[1:])
    fields = {"type": "message", "position": message.position, **to_json_value(message)}
    del fields["rewound"]
    if rewind is not None:
        fields["rewind"] = rewinds.get(rewind)
    if origin is not None:
        found = tx.run(
            "SELECT s.id, m.position FROM messages m JOIN sessions s ON s.num = m.session"
            " WHERE m.id = ?",
            (origin,),
        )
        if found:
            fields["copied_from"] = [unescape_text(found[0][0]), found[0][1]]
    return fields


class SessionDump:
    """The parsed lines of one session."""

    def __init__(self, session: Session, continues: str | None) -> None:
        self.session = session
        self.continues = continues
        self.messages: list[tuple[Message, dict[str, Any]]] = []
        self.rewinds: list[dict[str, Any]] = []
        self.usage: dict[str, Usage] = {}
        self.usage_entries: list[UsageEntry] = []
        self.revision: int | None = None
        self.prelude: list[Message] = []
        self._seen: set[int | str | None] = set()

    def add(self, message: Message, links: dict[str, Any]) -> None:
        """Add a message; raise `InvalidInput` if its position or platform id was added before."""
        names: set[int | str | None] = {message.position}
        if links["rewind"] is None:  # a rewrite may repeat removed messages
            names.add(message.platform_message_id)
        for name in names & self._seen:
            raise InvalidInput(f"duplicate {name!r:.80}")
        self._seen |= names - {None}
        self.messages.append((message, links))


def iter_session_dumps(lines: Iterable[bytes], skipped: list[str]) -> Iterator[SessionDump]:
    """Group the lines by session; record lines that cannot be read in `skipped`."""
    dump: SessionDump | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            kind, fields = _read_line(line)
            if kind == "session":
                if dump:
                    yield dump
                dump = None
                continues = fields.pop("continues", None)
                dump = SessionDump(_read_session(fields), continues and str(continues))
            elif dump is None:
                raise InvalidInput(f"{kind} line without a session line before it")
            elif kind == "message":
                dump.add(*_read_message(fields))
            elif kind == "usage":
                dump.usage |= _read_usage(fields)
            elif kind == "usage_entry":
                dump.usage_entries.append(_read_usage_entry(fields))
            elif kind == "prelude":
                dump.revision, dump.prelude = _read_prelude(fields)
            else:
                dump.rewinds.append(_read_rewind(fields))
        except (ValueError, TypeError) as error:
            skipped.append(f"line {number}: {describe_json_error(error)}")
    if dump:
        yield dump


def _read_line(line: bytes) -> tuple[str, dict[str, Any]]:
    found = decode_json(line.decode())
    if not isinstance(found, dict):
        raise InvalidInput("expected a JSON object")
    fields = cast(dict[str, Any], found)
    kind = fields.pop("type", None)
    if kind not in _LINE_TYPES:
        raise InvalidInput(f"type: expected one of {', '.join(_LINE_TYPES)}, got {kind!r:.40}")
    return kind, fields


_TEXT = (str, type(None))
_NUMBER = (int, float, type(None))
_OBJECT = (dict, type(None))
_SESSION_TYPES: dict[str, tuple[type, ...]] = {
    **{name: (*one.kind.types, type(None)) for name, one in SESSION_ROWS.columns.items()},
    "id": (str,),
    "source": (str,),
    "tokens": (dict,),
    "cost": _TEXT,
}
_MESSAGE_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(Message._fields, _TEXT),
    **{one.value_field: (*one.kind.types, type(None)) for one in MESSAGE_ROWS.added},
    "content": (str, list, type(None)),
    "tool_calls": (list,),
    "meta": _OBJECT,
    "timestamp": _NUMBER,
    "position": (int,),
}
_REWIND_TYPES: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "kind": (str,),
    "since": (int,),
    "messages": (int,),
    "time": (int, float),
    "restored": _NUMBER,
}
_USAGE_TYPES: dict[str, tuple[type, ...]] = {"model": (str,), "tokens": (dict,), "cost": _TEXT}
_PRELUDE_TYPES: dict[str, tuple[type, ...]] = {"revision": (int, type(None)), "messages": (list,)}
_PRELUDE_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name")  # of a prelude message
_LINE_TYPES = ("session", "prelude", "message", "rewind", "usage", "usage_entry")
_ENTRY_TYPES: dict[str, tuple[type, ...]] = {
    **_USAGE_TYPES,
    **dict.fromkeys(("quarter", "cache_write_1h", "above"), (int,)),
}


def _check_types(
    fields: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]
) -> dict[str, Any]:
    """Return the fields if each is known and has the right type."""
    for name, value in fields.items():
        if name not in types:
            raise InvalidInput(f"{name!r:.40}: unknown field; expected one of {', '.join(types)}")
        if not isinstance(value, types[name]) or isinstance(value, bool):
            wanted = " or ".join(kind.__name__ for kind in types[name])
            raise InvalidInput(f"{name}: expected {wanted}, got {type(value).__name__}")
        if isinstance(value, (int, float)) and not abs(value) < 2**62:
            raise InvalidInput(f"{name}: expected a number that can be stored, got {value!r:.40}")
    return dict(fields)


def _read_session(fields: dict[str, Any]) -> Session:
    if fields.pop("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise InvalidInput(f"format: this Rekindle reads format {FORMAT_VERSION}")
    fields = _check_types(fields, _SESSION_TYPES)
    validate_name("id", fields.get("id", ""))
    fields["tokens"], fields["cost"] = _read_tokens_and_cost(fields)
    return Session(**fields)


def _read_tokens_and_cost(fields: Mapping[str, Any]) -> Usage:
    try:
        return Usage(Tokens(**fields.get("tokens", {})), Decimal(fields.get("cost") or 0))
    except (TypeError, InvalidOperation):
        raise InvalidInput("tokens and cost: expected numbers") from None


def _read_usage(fields: dict[str, Any]) -> dict[str, Usage]:
    fields = _check_types(fields, _USAGE_TYPES)
    used = _read_tokens_and_cost(fields)
    if not (used.cost.is_finite() and all(type(count) is int for count in used.tokens)):
        raise InvalidInput("tokens and cost: expected numbers")
    if not all(0 <= count < 2**62 for count in (*used.tokens, used.cost)):
        raise InvalidInput("tokens and cost: expected numbers from 0")
    return {fields.get("model", ""): used}


def _read_usage_entry(fields: dict[str, Any]) -> UsageEntry:
    fields = _check_types(fields, _ENTRY_TYPES)
    counts = {name: fields.pop(name, 0) for name in ("quarter", "cache_write_1h", "above")}
    if any(count < 0 for count in counts.values()):
        raise InvalidInput(f"{', '.join(counts)}: expected numbers from 0")
    ((model, used),) = _read_usage(fields).items()
    return UsageEntry(model=model, tokens=used.tokens, cost=used.cost, **counts)


def _read_prelude(fields: dict[str, Any]) -> tuple[int | None, list[Message]]:
    fields = _check_types(fields, _PRELUDE_TYPES)
    messages: list[Message] = []
    for entry in fields.get("messages", ()):
        if not isinstance(entry, dict):
            raise InvalidInput("messages: expected objects")
        message_fields = _check_types(
            cast("dict[str, Any]", entry), {name: _MESSAGE_TYPES[name] for name in _PRELUDE_FIELDS}
        )
        message_fields["tool_calls"] = [
            ToolCall(**call) for call in message_fields.get("tool_calls", ())
        ]
        messages.append(validate_message(Message(**message_fields)))
    return fields.get("revision"), messages


def _read_message(fields: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
    links = {"rewind": fields.pop("rewind", None), "copied_from": fields.pop("copied_from", None)}
    if links["copied_from"] is not None:
        name, position = links["copied_from"]
        links["copied_from"] = str(name), int(position)
    fields = _check_types(fields, _MESSAGE_TYPES)
    fields["tool_calls"] = [ToolCall(**call) for call in fields.get("tool_calls", ())]
    if not 0 <= fields.get("position", -1) < 2**62:
        raise InvalidInput(f"position: expected a number from 0, got {fields.get('position')!r}")
    if "role" not in fields:
        raise InvalidInput("role: missing")
    return validate_message(make_foreign_message(**fields)), links


def _read_rewind(fields: dict[str, Any]) -> dict[str, Any]:
    missing = _REWIND_TYPES.keys() - fields.keys() - {"restored"}
    if missing:
        raise InvalidInput(f"{', '.join(sorted(missing))}: missing")
    return {"restored": None, **_check_types(fields, _REWIND_TYPES)}


def load_session(engine: Engine, tx: Transaction, dump: SessionDump, skipped: list[str]) -> int:
    """Load one session and return the number of its new messages."""
    session = dump.session
    found = tx.run(
        "SELECT num, next_position FROM sessions WHERE id = ?", (escape_text(session.id),)
    )
    num, known = found[0] if found else (create_session(tx, session), 0)
    if known and not _matches_stored(tx, num, known, dump):
        skipped.append(f"session {session.id}: the store has a different conversation with this id")
        return 0
    new = [(message, links) for message, links in dump.messages if (message.position or 0) >= known]
    if found and not new:
        return 0
    rewinds: dict[int, int] = {}
    for entry in dump.rewinds:
        rewinds[entry["id"]] = _insert_rewind(tx, num, entry, rewinds.values())
    names = collect_tool_names(tx, num, [message for message, _ in new])
    rows = [_build_message_row(tx, num, *each, session) for each in zip(new, names, strict=True)]
    _insert_messages(engine, tx, rows)
    for message, links in dump.messages:  # known ones too: rewound or restored since
        rewind = rewinds.get(links["rewind"])
        if known or rewind is not None:
            tx.run(
                "UPDATE messages SET rewind = ? WHERE session = ? AND position = ?",
                (rewind, num, message.position),
            )
    if dump.prelude:  # an existing prelude is kept
        preludes.store_prelude(tx, session.id, dump.prelude, dump.revision, session.started)
    if dump.continues and not found:
        tx.run(
            "UPDATE sessions SET changes = changes + 1, title_base = ? WHERE num = ? AND title = ?",
            (dump.continues, num, session.title),
        )
    _update_session(tx, num, session)
    if usage.is_within_total(session, dump.usage):
        usage.replace_usage(tx, num, dump.usage)
    else:
        skipped.append(f"session {session.id}: the usage of its models exceeds its total")
        usage.replace_usage(tx, num, {})
    usage_entries.raise_entries(tx, num, dump.usage_entries)
    return len(new)


def _matches_stored(tx: Transaction, num: int, known: int, dump: SessionDump) -> bool:
    """Return whether the stored messages are the beginning of the loaded ones."""
    shared = [message for message, _ in dump.messages if (message.position or 0) < known]
    for message in (shared[:1] + shared[-1:]) if shared else ():
        rest = "WHERE m.session = ? AND m.position = ?"
        if MESSAGE_ROWS.find(tx, rest, (num, message.position)) != [message]:
            return False
    return True


def _insert_rewind(tx: Transaction, num: int, entry: dict[str, Any], used: Collection[int]) -> int:
    names = ("kind", "since", "messages", "time", "restored")
    values = [entry[name] for name in names]
    old = tx.run(
        "SELECT num FROM rewinds WHERE session = ? AND kind = ? AND since = ? AND time = ?",
        (num, entry["kind"], entry["since"], entry["time"]),
    )
    for (known,) in old:
        if known not in used:
            tx.run("UPDATE rewinds SET restored = ? WHERE num = ?", (entry["restored"], known))
            return known
    return tx.run(
        f"INSERT INTO rewinds (session, {', '.join(names)}) VALUES (?, ?, ?, ?, ?, ?) RETURNING num",
        [num, *values],
    )[0][0]


def _build_message_row(
    tx: Transaction,
    num: int,
    linked_message: tuple[Message, dict[str, Any]],
    tools: str | None,
    session: Session,
) -> Row:
    message, links = linked_message
    time = session.started if message.timestamp is None else message.timestamp
    origin = None
    if links["copied_from"] is not None:
        name, position = links["copied_from"]
        found = tx.run(
            "SELECT m.id FROM messages m JOIN sessions s ON s.num = m.session"
            " WHERE s.id = ? AND m.position = ?",
            (escape_text(name), position),
        )
        origin = found[0][0] if found else None
    position_or_zero = message.position or 0
    return message_to_row(message, num, position_or_zero, time, tools, origin)


def _insert_messages(engine: Engine, tx: Transaction, rows: list[Row]) -> None:
    tx.run_many(INSERT_MESSAGE, rows)
    if rows:
        engine.index(tx, rows[0][0], rows[0][1], len(rows), measure_text(rows))


def _update_session(tx: Transaction, num: int, session: Session) -> None:
    """Update the session's row with the fields that creating it did not set."""
    recount_session(tx, num)
    kept = ("last_active", "ended", "end_reason", "archived", "pruned")
    counts = usage_to_row(session.tokens, session.cost)
    columns = SESSION_ROWS.build_columns({name: getattr(session, name) for name in kept})
    set_columns(tx, num, columns | dict(zip(USAGE_COLUMNS, counts, strict=True)))
    preview = replace_unstorable(session.preview) if session.preview else None
    tx.run(
        "UPDATE sessions SET changes = changes + 1, preview = coalesce(preview, ?), next_position = ("
        "   SELECT coalesce(max(m.position) + 1, 0) FROM messages m WHERE m.session = num)"
        " WHERE num = ?",
        (preview, num),
    )
