"""Writing sessions and messages: each function is a work inside somebody's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rekindle.errors import Ambiguous, InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import (
    INSERT_MESSAGE,
    SESSION_COLUMNS,
    decode_json,
    encode_json,
    escaped,
    message_row,
    preview_of,
    session_of,
    session_row,
)
from rekindle.store.core.text_encoding import escape
from rekindle.types import LAST_MOMENT, Message, Session, checked_name

from . import titles

_GROW = (
    "UPDATE sessions SET changes = changes + 1,"
    " next_position = next_position + ?, message_count = message_count + ?,"
    " tool_call_count = tool_call_count + ?,"
    " last_active = CASE WHEN last_active < ? THEN ? ELSE last_active END,"
    " preview = coalesce(preview, ?)"
    " WHERE num = ? AND pruned IS NULL RETURNING next_position"
)
REMEMBERED_CALLS = 10_000
MAX_COST = 10**9  # what a column of billionths holds
_TOGETHER = 250
CHANGEABLE = ("user", "model", "model_config", "cwd", "git_branch", "template", "arm")


class Appended(NamedTuple):
    """Where messages went."""

    num: int
    positions: list[int]


def append(
    engine: Engine,
    tx: Transaction,
    session: Session | str,
    messages: Sequence[Message],
    now: float,
    num: int | None = None,
    called: dict[tuple[int, str], str] | None = None,
    again: bool = False,
    known: dict[str | None, int] | None = None,
) -> Appended:
    """Store messages at the end of a session, creating its row with the first of them.

    `called` remembers the tools of calls that have no result yet, so that a result which does not
    name its tool need not look for the call. `again` stores also what the session has already;
    `known` is what `stored_already` said in this transaction.
    """
    if num is None:
        num = _find_or_create(tx, session)
    old: dict[str | None, int] = {}
    new = messages
    if not again and any(m.platform_message_id is not None for m in messages):
        old = stored_already(tx, num, messages) if known is None else known
        new = without_twins([m for m in messages if m.platform_message_id not in old])
    if not new:
        return Appended(num, [old[message.platform_message_id] for message in messages])
    count, calls, latest, preview = growth_of(new, now)
    grown = tx.run(_GROW, (count, count, calls, latest, latest, preview, num))
    if not grown:
        raise NotFound(f"session {_id(session)} was deleted")
    start = grown[0][0] - count
    put(engine, tx, num, start, new, now, called)
    if len(new) == len(messages):
        return Appended(num, list(range(start, start + len(new))))
    placed = {message.platform_message_id: start + index for index, message in enumerate(new)}
    return Appended(num, _positions(messages, new, start, {**placed, **old}))


class Growth(NamedTuple):
    """What messages add to the row of their session."""

    messages: int
    calls: int
    latest: float
    preview: str | None


def growth_of(messages: Sequence[Message], now: float) -> Growth:
    """What these messages add; those without a time were said now."""
    times = [now if message.timestamp is None else message.timestamp for message in messages]
    calls = sum([len(message.tool_calls) for message in messages])
    return Growth(len(messages), calls, max(times), preview_of(messages))


def put(
    engine: Engine,
    tx: Transaction,
    num: int,
    start: int,
    messages: Sequence[Message],
    now: float,
    called: dict[tuple[int, str], str] | None = None,
) -> None:
    """Write messages from a position on, where the row of their session has counted them."""
    names = tool_names(tx, num, messages, called)
    rows = [
        message_row(
            message,
            num,
            start + index,
            now if message.timestamp is None else message.timestamp,
            names[index],
        )
        for index, message in enumerate(messages)
    ]
    tx.many(INSERT_MESSAGE, rows)
    size = sum([len(row[-1] or row[-2] or "") for row in rows])
    engine.index(tx, num, start, len(rows), size, messages)


def _positions(
    messages: Sequence[Message], new: Sequence[Message], start: int, known: dict[str | None, int]
) -> list[int]:
    # A message without a platform id is always new, and the same one may be given several times.
    unnamed = (at for at, message in enumerate(new, start) if message.platform_message_id is None)
    return [
        next(unnamed) if message.platform_message_id is None else known[message.platform_message_id]
        for message in messages
    ]


def _id(session: Session | str) -> str:
    return session if isinstance(session, str) else session.id


def _find_or_create(tx: Transaction, session: Session | str) -> int:
    found = tx.run("SELECT num FROM sessions WHERE id = ?", (escape(_id(session)),))
    if found:
        return found[0][0]
    if isinstance(session, str):
        raise NotFound(f"no session {session!r}; begin one, or append to the session begun")
    return create(tx, session)


def create(tx: Transaction, session: Session) -> int:
    """Write the row of a session, unless it is there, and return its number."""
    created = insert(tx, session, {})
    return created if created is not None else _find_or_create(tx, session.id)


def insert(tx: Transaction, session: Session, more: Mapping[str, Any]) -> int | None:
    """Write the row of a new session, with `more` columns; its number, None if it is there."""
    columns = session_row(session)
    columns |= {"next_position": 0, "message_count": 0, "tool_call_count": 0, **more}
    title = titles.clean(session.title) if session.title else None
    if title:
        names = ("title", "title_base", "title_number")
        base, number = titles.split(title)
        given = (title, base.casefold(), number)
        if session.pruned is None:  # a title in the bin is nobody's
            given = titles.claim(tx, columns["owner"], title)
        columns |= dict(zip(names, given, strict=True))
    marks = ", ".join("?" * len(columns))
    created = tx.run(
        f"INSERT INTO sessions ({', '.join(columns)}) VALUES ({marks})"
        " ON CONFLICT (id) DO NOTHING RETURNING num",
        list(columns.values()),
    )
    return created[0][0] if created else None


def stored_already(tx: Transaction, num: int, messages: Iterable[Message]) -> dict[str | None, int]:
    """Positions of those messages that a platform has already delivered."""
    # On PostgreSQL this holds back whoever else wants to append to the session.
    sql = "UPDATE sessions SET changes = changes + 1 WHERE num = ? AND pruned IS NULL RETURNING num"
    if not tx.run(sql, (num,)):
        raise NotFound("the session was deleted")
    names = {message.platform_message_id: None for message in messages}
    asked = [escape(name) for name in names if name is not None]
    found: dict[str, int] = {}
    for marks, some in together(asked):
        rows = tx.run(
            "SELECT platform_id, position FROM messages WHERE session = ?"
            f" AND platform_id IN ({marks}) ORDER BY rewind IS NULL, position",
            (num, *some),
        )
        found |= dict(rows)  # of several the last: the newest that is not rewound
    return {name: found[key] for name in names if name and (key := escape(name)) in found}


def together(values: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Values to ask for at once, and the marks for them in a statement.

    One, or many of which the last stands there several times: so both statements stay prepared.
    """
    for start in range(0, len(values), _TOGETHER):
        some = values[start : start + _TOGETHER]
        count = 1 if len(some) == 1 else _TOGETHER
        yield ", ".join("?" * count), [*some, *[some[-1]] * (count - len(some))]


def without_twins(messages: Sequence[Message]) -> list[Message]:
    """Drop a message whose platform id occurs before it in the same call."""
    seen: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        name = message.platform_message_id
        if name is None or name not in seen:
            kept.append(message)
        if name is not None:
            seen.add(name)
    return kept


def tool_names(
    tx: Transaction | None,
    num: int,
    messages: Sequence[Message],
    called: dict[tuple[int, str], str] | None = None,
) -> list[str | None]:
    """For each message the tools it calls or answers, each between spaces.

    Without a transaction they are taken for the first of their session.
    """
    called = {} if called is None else called
    names: list[str | None] = []
    for message in messages:
        calls = message.tool_calls
        if not calls and message.role != "tool":
            names.append(None)
            continue
        found: list[str] = []
        for call in calls:
            called[num, call.id] = call.name
            found.append(_as_word(call.name))
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            name = message.name or called.pop((num, call_id), None)
            name = name or (tx and _called_before(tx, num, call_id))
            found += [_as_word(name)] if name else []
        names.append(f" {' '.join(found)} " if found else None)
    if len(called) > REMEMBERED_CALLS:
        called.clear()
    return names


@lru_cache(maxsize=1024)
def _as_word(name: str) -> str:
    return "_".join(escape(name).split())


def _called_before(tx: Transaction, num: int, call_id: str) -> str | None:
    """The tool that a result answers, where the result itself does not say."""
    if not call_id:
        return None
    for last in range(3):  # nearly always the first of them
        bodies = tx.run(
            "SELECT body FROM messages WHERE session = ? AND calls > 0"
            f" ORDER BY position DESC LIMIT 1 OFFSET {last}",
            (num,),
        )
        for id, name, _ in decode_json(bodies[0][0])["tool_calls"] if bodies else ():
            if id == call_id:
                return name
    return None


# -- finding one


def by_id(tx: Transaction, session_id: str, owner: str | None = None) -> tuple[int, Session]:
    """The number and the value of a session; another owner's is not found."""
    rows = tx.run(
        f"SELECT s.num, {SESSION_COLUMNS} FROM sessions s WHERE s.id = ? AND s.pruned IS NULL",
        (escape(session_id),),
    )
    session = session_of(rows[0][1:]) if rows else None
    if session is None or (owner is not None and session.owner != owner):
        raise NotFound(f"no session {session_id!r}")
    return rows[0][0], session


def by_name(tx: Transaction, name: str, owner: str | None = None) -> Session:
    """A session by its id, its title, or the beginning of its id."""
    exact = [s for s in _by_exact_id(tx, name) if owner is None or s.owner == owner]
    mine = exact or _by_title(tx, name, owner) or _by_prefix(tx, name, owner)
    if not mine:
        raise NotFound(f"no session with the id or title {name!r}")
    if len(mine) > 1:
        shown = ", ".join(f"{s.id} ({s.title or s.preview or 'untitled'})" for s in mine[:5])
        raise Ambiguous(f"{name!r} could be {shown}{' …' if len(mine) > 5 else ''}")
    return mine[0]


def _select(tx: Transaction, condition: str, params: Sequence[Any]) -> list[Session]:
    sql = f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.pruned IS NULL AND {condition}"
    return [session_of(row) for row in tx.run(sql, params)]


def _by_exact_id(tx: Transaction, name: str) -> list[Session]:
    return _select(tx, "s.id = ?", (escape(name),))


def _by_title(tx: Transaction, name: str, owner: str | None) -> list[Session]:
    title = titles.clean(name)
    if title is None:
        return []
    scope, params = ("", []) if owner is None else (" AND s.owner = ?", [escape(owner)])
    base, number = titles.split(title)
    if number > 1:
        exact = _select(tx, f"s.title = ? AND s.title IS NOT NULL{scope}", [title, *params])
        if exact:
            return exact
    found = _select(
        tx,
        f"s.title_base = ? AND s.title IS NOT NULL{scope}"
        + (f" AND s.title_number = {number}" if number > 1 else "")
        + " ORDER BY s.title_number DESC, s.last_active DESC LIMIT 100",
        [base.casefold() if number > 1 else title.casefold(), *params],
    )
    # The newest of each owner's line.
    return list({session.owner: session for session in reversed(found)}.values())


def _by_prefix(tx: Transaction, name: str, owner: str | None) -> list[Session]:
    if not name:
        return []
    scope, params = ("", []) if owner is None else (" AND s.owner = ?", [escape(owner)])
    start = escape(name)
    return _select(
        tx, f"s.id >= ? AND s.id < ?{scope} LIMIT 6", [start, start + "\U0010ffff", *params]
    )


def is_stored(tx: Transaction, session_id: str) -> bool:
    """Does a session have its row? Someone else may have written to one that was begun here."""
    sql = "SELECT 1 FROM sessions WHERE id = ? AND pruned IS NULL"
    return bool(tx.run(sql, (escape(session_id),)))


# -- changing one


def checked_session(session: Session) -> Session:
    """Return `session`, or refuse it with the field that is wrong."""
    for field in ("id", "source", "owner", "parent"):
        if (name := getattr(session, field)) is not None:
            checked_name(f"session.{field}", name)
    if session.id == session.parent:
        raise InvalidInput(f"session.parent: {session.id!r:.80} cannot be its own parent")
    for field in ("user", "model", "title", "cwd", "git_branch", "template", "arm", "end_reason"):
        checked_text(f"session.{field}", getattr(session, field))
    for field in ("started", "ended"):
        moment = getattr(session, field)
        if moment is not None and not (
            isinstance(moment, (int, float)) and abs(moment) < LAST_MOMENT
        ):
            raise InvalidInput(f"session.{field}: expected UTC seconds, got {moment!r:.80}")
    if not (session.cost.is_finite() and 0 <= session.cost < MAX_COST):
        raise InvalidInput(f"session.cost: expected an amount up to {MAX_COST}, got {session.cost}")
    if not all(0 <= count < 2**62 for count in session.tokens):
        raise InvalidInput(f"session.tokens: expected numbers from 0, got {session.tokens!r:.200}")
    return session


def checked_text(field: str, value: object) -> None:
    if not (value is None or isinstance(value, str)):
        raise InvalidInput(f"{field}: expected text, got {type(value).__name__}")


def change(tx: Transaction, num: int, columns: dict[str, Any]) -> Session:
    """Set columns of a session and return it as it is now."""
    assign(tx, num, columns)
    return by_num(tx, num)


def assign(tx: Transaction, num: int, columns: dict[str, Any]) -> None:
    """Set columns of a session."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    sql = f"UPDATE sessions SET changes = changes + 1, {assignments} WHERE num = ?"
    tx.run(sql, [*columns.values(), num])


def by_num(tx: Transaction, num: int) -> Session:
    rows = tx.run(f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.num = ?", (num,))
    return session_of(rows[0])


def rename(tx: Transaction, session_id: str, title: str | None) -> Session:
    num, session = by_id(tx, session_id)
    checked_text("title", title)
    if title is None:
        return change(tx, num, {"title": None, "title_base": None, "title_number": None})
    cleaned = titles.clean(title)
    if cleaned is None:
        raise InvalidInput("a title needs at least one visible character")
    if cleaned == session.title:
        return session
    owner = escape(session.owner or "")
    if titles.is_taken(tx, owner, cleaned):
        raise titles.taken(tx, owner, cleaned)
    base, number = titles.split(cleaned)
    columns = {"title": cleaned, "title_base": base.casefold(), "title_number": number}
    return change(tx, num, columns)


def end(tx: Transaction, session_id: str, reason: str, now: float) -> Session:
    """End a session; the first reason wins."""
    num, session = by_id(tx, session_id)
    if session.ended is not None:
        return session
    return change(tx, num, {"ended": now, **escaped({"end_reason": reason})})


def reopen(tx: Transaction, session_id: str) -> Session:
    num, _ = by_id(tx, session_id)
    return change(tx, num, {"ended": None, "end_reason": None})


def update(tx: Transaction, session_id: str, fields: dict[str, Any]) -> Session:
    columns: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in CHANGEABLE:
            raise InvalidInput(f"{name} cannot be changed; allowed: {', '.join(CHANGEABLE)}")
        if name != "model_config":
            checked_text(f"session.{name}", value)
        if name == "model_config":
            columns[name] = None if value is None else encode_json(value)
        else:
            columns |= escaped({"user_name" if name == "user" else name: value})
    num, session = by_id(tx, session_id)
    return change(tx, num, columns) if columns else session
