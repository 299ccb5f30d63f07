"""Sessions as JSONL that can be read in again without loss, by any engine.

One line for the session, one for what it was started with, one for each of its messages in order, one
for each rewind, and one for each model that is known to have taken tokens:

    {"type": "session", "format": 1, "id": …, "title": …, …}
    {"type": "prelude", "revision": 3, "messages": [{"role": "system", "content": …}, …]}
    {"type": "message", "position": 0, "role": "user", "content": …, "timestamp": …, …}
    {"type": "rewind", "id": 1, "kind": "undo", "since": 4, …}
    {"type": "usage", "model": "small", "tokens": {"input": 120, …}, "cost": "0.0004"}

A message that was taken out names its rewind, one that a fork copied names where it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, cast

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import (
    INSERT_MESSAGE,
    MESSAGE_COLUMNS,
    SESSION_COLUMNS,
    decode_json,
    encode_json,
    message_of,
    message_row,
    nano,
    preview_of,
    session_of,
)
from rekindle.store.core.text_encoding import escape, printable, unescape
from rekindle.store.learning import preludes
from rekindle.store.sessions import titles, usage
from rekindle.store.sessions.lineage import recount
from rekindle.store.sessions.sessions import create, tool_names
from rekindle.types import Message, Session, Tokens, ToolCall, Usage, checked, checked_name, plain

FORMAT = 1


class LoadReport(NamedTuple):
    """What came in, and what could not, with the line and the reason."""

    sessions: int
    messages: int
    skipped: list[str]


class CopyReport(NamedTuple):
    """What a copy brought: as a load, and routes and mail (letters and parcels) too."""

    sessions: int
    messages: int
    skipped: list[str]
    routes: int
    mail: int


def dump_one(tx: Transaction, session_id: str) -> Iterator[bytes]:
    """The lines of one session, also of a pruned one."""
    rows = tx.run(
        f"SELECT s.num, s.title_base, {SESSION_COLUMNS} FROM sessions s WHERE s.id = ?",
        (escape(session_id),),
    )
    for num, base, *columns in rows:
        session = session_of(tuple(columns))
        header = {"type": "session", "format": FORMAT, **plain(session)}
        if session.title and titles.split(session.title)[0].casefold() != base:
            header["continues"] = base  # a shortened title does not show it
        yield _line(header)
        revision, prelude = preludes.told(tx, num)
        if prelude:
            given = [_started_with(message) for message in prelude]
            yield _line({"type": "prelude", "revision": revision, "messages": given})
        rewinds = tx.run(
            "SELECT num, kind, since, messages, time, restored FROM rewinds WHERE session = ?"
            " ORDER BY num",
            (num,),
        )
        # Counted anew for each session, so that a copy says the same as the original.
        numbers = {row[0]: number for number, row in enumerate(rewinds, 1)}
        for line in tx.stream(
            f"SELECT m.origin, {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ?"
            " ORDER BY m.position",
            (num,),
        ):
            yield _line(_message_line(tx, line, numbers))
        for old, *line in rewinds:
            names = ("kind", "since", "messages", "time", "restored")
            yield _line(
                {"type": "rewind", "id": numbers[old], **dict(zip(names, line, strict=True))}
            )
        for model, taken in usage.told(tx, num).items():
            yield _line({"type": "usage", "model": model, **plain(taken)})


def _line(value: Mapping[str, Any]) -> bytes:
    return encode_json(value).encode() + b"\n"


def _started_with(message: Message) -> dict[str, Any]:
    return {name: value for name, value in plain(message).items() if name in _GIVEN}


def _message_line(tx: Transaction, row: Row, rewinds: Mapping[int, int]) -> dict[str, Any]:
    origin, rewind = row[0], row[4]
    message = message_of(row[1:])
    fields = {"type": "message", "position": message.position, **plain(message)}
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
            fields["copied_from"] = [unescape(found[0][0]), found[0][1]]
    return fields


class Parcel:
    """The lines of one session, read."""

    def __init__(self, session: Session, continues: str | None) -> None:
        self.session = session
        self.continues = continues
        self.messages: list[tuple[Message, dict[str, Any]]] = []
        self.rewinds: list[dict[str, Any]] = []
        self.usage: dict[str, Usage] = {}
        self.revision: int | None = None
        self.prelude: list[Message] = []
        self._seen: set[int | str | None] = set()

    def add(self, message: Message, place: dict[str, Any]) -> None:
        names: set[int | str | None] = {message.position}
        if place["rewind"] is None:  # a rewrite says again what was taken out
            names.add(message.platform_message_id)
        for name in names & self._seen:
            raise InvalidInput(f"{name!r:.80} was there before")
        self._seen |= names - {None}
        self.messages.append((message, place))


def parcels(lines: Iterable[bytes], skipped: list[str]) -> Iterator[Parcel]:
    """Put the lines of each session together; what cannot be read is noted and left out."""
    parcel: Parcel | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            kind, fields = _read_line(line)
            if kind == "session":
                if parcel:
                    yield parcel
                parcel = None
                continues = fields.pop("continues", None)
                parcel = Parcel(_read_session(fields), continues and str(continues))
            elif parcel is None:
                raise InvalidInput(f"a {kind} without a session before it")
            elif kind == "message":
                parcel.add(*_read_message(fields))
            elif kind == "usage":
                parcel.usage |= _read_usage(fields)
            elif kind == "prelude":
                parcel.revision, parcel.prelude = _read_prelude(fields)
            else:
                parcel.rewinds.append(_read_rewind(fields))
        except (ValueError, TypeError) as error:
            skipped.append(f"line {number}: {error}")
    if parcel:
        yield parcel


def _read_line(line: bytes) -> tuple[str, dict[str, Any]]:
    found = decode_json(line.decode())
    if not isinstance(found, dict):
        raise InvalidInput("expected a JSON object")
    fields = cast(dict[str, Any], found)
    kind = fields.pop("type", None)
    if kind not in _KINDS:
        raise InvalidInput(f"type: expected one of {', '.join(_KINDS)}, got {kind!r:.40}")
    return kind, fields


_TEXT = (str, type(None))
_NUMBER = (int, float, type(None))
_OBJECT = (dict, type(None))
_SESSION: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(Session._fields, _TEXT),
    **dict.fromkeys(("started", "last_active", "ended", "archived", "pruned"), _NUMBER),
    **dict.fromkeys(("forked_at", "message_count", "tool_call_count"), (int, type(None))),
    "model_config": _OBJECT,
    "tokens": (dict,),
    "id": (str,),
    "source": (str,),
}
_MESSAGE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(Message._fields, _TEXT),
    "content": (str, list, type(None)),
    "tool_calls": (list,),
    "meta": _OBJECT,
    "timestamp": _NUMBER,
    "position": (int,),
}
_REWIND: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "kind": (str,),
    "since": (int,),
    "messages": (int,),
    "time": (int, float),
    "restored": _NUMBER,
}
_USAGE: dict[str, tuple[type, ...]] = {"model": (str,), "tokens": (dict,), "cost": _TEXT}
_PRELUDE: dict[str, tuple[type, ...]] = {"revision": (int, type(None)), "messages": (list,)}
_GIVEN = ("role", "content", "tool_calls", "tool_call_id", "name")  # of a message of a prelude
_KINDS = ("session", "prelude", "message", "rewind", "usage")


def _typed(fields: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The fields, if each is known and of its type."""
    for name, value in fields.items():
        if name not in types:
            raise InvalidInput(f"{name!r:.40}: not a field; known are {', '.join(types)}")
        if not isinstance(value, types[name]) or isinstance(value, bool):
            wanted = " or ".join(kind.__name__ for kind in types[name])
            raise InvalidInput(f"{name}: expected {wanted}, got {type(value).__name__}")
        if isinstance(value, (int, float)) and not abs(value) < 2**62:
            raise InvalidInput(f"{name}: expected a number that can be stored, got {value!r:.40}")
    return dict(fields)


def _read_session(fields: dict[str, Any]) -> Session:
    if fields.pop("format", FORMAT) != FORMAT:
        raise InvalidInput(f"format: this Rekindle reads format {FORMAT}")
    fields = _typed(fields, _SESSION)
    checked_name("id", fields.get("id", ""))
    fields["tokens"], fields["cost"] = _taken(fields)
    return Session(**fields)


def _taken(fields: Mapping[str, Any]) -> Usage:
    try:
        return Usage(Tokens(**fields.get("tokens", {})), Decimal(fields.get("cost") or 0))
    except (TypeError, InvalidOperation):
        raise InvalidInput("tokens and cost: expected numbers") from None


def _read_usage(fields: dict[str, Any]) -> dict[str, Usage]:
    fields = _typed(fields, _USAGE)
    taken = _taken(fields)
    if not (taken.cost.is_finite() and all(type(count) is int for count in taken.tokens)):
        raise InvalidInput("tokens and cost: expected numbers")
    if not all(0 <= count < 2**62 for count in (*taken.tokens, taken.cost)):
        raise InvalidInput("tokens and cost: expected numbers from 0")
    return {fields.get("model", ""): taken}


def _read_prelude(fields: dict[str, Any]) -> tuple[int | None, list[Message]]:
    fields = _typed(fields, _PRELUDE)
    messages: list[Message] = []
    for given in fields.get("messages", ()):
        if not isinstance(given, dict):
            raise InvalidInput("messages: expected objects")
        said = _typed(cast("dict[str, Any]", given), {name: _MESSAGE[name] for name in _GIVEN})
        said["tool_calls"] = [ToolCall(**call) for call in said.get("tool_calls", ())]
        messages.append(checked(Message(**said)))
    return fields.get("revision"), messages


def _read_message(fields: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
    place = {"rewind": fields.pop("rewind", None), "copied_from": fields.pop("copied_from", None)}
    if place["copied_from"] is not None:
        name, position = place["copied_from"]
        place["copied_from"] = str(name), int(position)
    fields = _typed(fields, _MESSAGE)
    fields["tool_calls"] = [ToolCall(**call) for call in fields.get("tool_calls", ())]
    if not 0 <= fields.get("position", -1) < 2**62:
        raise InvalidInput(f"position: expected a number from 0, got {fields.get('position')!r}")
    if "role" not in fields:
        raise InvalidInput("role: missing")
    return checked(Message(**fields)), place


def _read_rewind(fields: dict[str, Any]) -> dict[str, Any]:
    missing = _REWIND.keys() - fields.keys() - {"restored"}
    if missing:
        raise InvalidInput(f"{', '.join(sorted(missing))}: missing")
    return {"restored": None, **_typed(fields, _REWIND)}


def load_one(engine: Engine, tx: Transaction, parcel: Parcel, skipped: list[str]) -> int:
    """Bring one session in and return how many of its messages were new."""
    session = parcel.session
    found = tx.run("SELECT num, next_position FROM sessions WHERE id = ?", (escape(session.id),))
    num, known = found[0] if found else (create(tx, session), 0)
    if known and not _agrees(tx, num, known, parcel):
        skipped.append(f"session {session.id}: the store has another conversation under this id")
        return 0
    new = [
        (message, place) for message, place in parcel.messages if (message.position or 0) >= known
    ]
    if found and not new:
        return 0
    rewinds: dict[int, int] = {}
    for entry in parcel.rewinds:
        rewinds[entry["id"]] = _insert_rewind(tx, num, entry, rewinds.values())
    names = tool_names(tx, num, [message for message, _ in new])
    rows = [_placed(tx, num, *each, session) for each in zip(new, names, strict=True)]
    _insert(engine, tx, rows)
    for message, place in parcel.messages:  # also of those known: they may be rewound or back since
        rewind = rewinds.get(place["rewind"])
        if known or rewind is not None:
            tx.run(
                "UPDATE messages SET rewind = ? WHERE session = ? AND position = ?",
                (rewind, num, message.position),
            )
    if parcel.prelude:  # one that the session has stays
        preludes.put(tx, session.id, parcel.prelude, parcel.revision, session.started)
    if parcel.continues and not found:
        tx.run(
            "UPDATE sessions SET changes = changes + 1, title_base = ? WHERE num = ? AND title = ?",
            (parcel.continues, num, session.title),
        )
    _describe(tx, num, session, [message for message, _ in new])
    if usage.is_within(session, parcel.usage):
        usage.put(tx, num, parcel.usage)
    else:
        skipped.append(f"session {session.id}: its models are said to have taken more than it did")
        usage.put(tx, num, {})
    return len(new)


def _agrees(tx: Transaction, num: int, known: int, parcel: Parcel) -> bool:
    """Is what the store has the beginning of what comes in?"""
    shared = [message for message, _ in parcel.messages if (message.position or 0) < known]
    for message in (shared[:1] + shared[-1:]) if shared else ():
        rows = tx.run(
            f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session = ? AND m.position = ?",
            (num, message.position),
        )
        if not rows or message_of(rows[0]) != message:
            return False
    return True


def _insert_rewind(tx: Transaction, num: int, entry: dict[str, Any], taken: Collection[int]) -> int:
    names = ("kind", "since", "messages", "time", "restored")
    values = [entry[name] for name in names]
    old = tx.run(
        "SELECT num FROM rewinds WHERE session = ? AND kind = ? AND since = ? AND time = ?",
        (num, entry["kind"], entry["since"], entry["time"]),
    )
    for (known,) in old:
        if known not in taken:
            tx.run("UPDATE rewinds SET restored = ? WHERE num = ?", (entry["restored"], known))
            return known
    return tx.run(
        f"INSERT INTO rewinds (session, {', '.join(names)}) VALUES (?, ?, ?, ?, ?, ?) RETURNING num",
        [num, *values],
    )[0][0]


def _placed(
    tx: Transaction,
    num: int,
    placed: tuple[Message, dict[str, Any]],
    tools: str | None,
    session: Session,
) -> Row:
    message, place = placed
    time = session.started if message.timestamp is None else message.timestamp
    origin = None
    if place["copied_from"] is not None:
        name, position = place["copied_from"]
        found = tx.run(
            "SELECT m.id FROM messages m JOIN sessions s ON s.num = m.session"
            " WHERE s.id = ? AND m.position = ?",
            (escape(name), position),
        )
        origin = found[0][0] if found else None
    at = message.position or 0
    return message_row(message, num, at, time, tools, origin)


def _insert(engine: Engine, tx: Transaction, rows: list[Row]) -> None:
    tx.many(INSERT_MESSAGE, rows)
    if rows:
        size = sum(len(row[-1] or row[-2] or "") for row in rows)
        engine.index(tx, rows[0][0], rows[0][1], len(rows), size)


def _describe(tx: Transaction, num: int, session: Session, new: list[Message]) -> None:
    """Take over what the line of the session says beyond what creating it took."""
    recount(tx, num)
    tx.run(
        "UPDATE sessions SET changes = changes + 1,"
        " last_active = ?, ended = ?, end_reason = ?, tokens_input = ?,"
        " tokens_output = ?, tokens_read = ?, tokens_write = ?, tokens_reasoning = ?, cost_nano = ?,"
        " archived = ?, pruned = ?, preview = coalesce(preview, ?), next_position = ("
        "   SELECT coalesce(max(m.position) + 1, 0) FROM messages m WHERE m.session = num)"
        " WHERE num = ?",
        (
            session.last_active,
            session.ended,
            None if session.end_reason is None else escape(session.end_reason),
            *session.tokens,
            nano(session.cost),
            session.archived,
            session.pruned,
            printable(session.preview) if session.preview else preview_of(new),
            num,
        ),
    )
