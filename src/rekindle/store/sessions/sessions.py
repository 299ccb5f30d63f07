"""Write sessions and messages; each function runs inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.filter import iter_in_clauses
from rekindle.store.core.rows import (
    INSERT_MESSAGE,
    SESSION_COLUMNS,
    SESSION_ROWS,
    check_value,
    decode_json,
    drop_duplicates,
    measure_text,
    message_to_row,
    row_to_session,
)
from rekindle.store.core.text_encoding import escape_text
from rekindle.types import Message, Session

from . import titles
from .requests import NO_REQUESTS, SessionDelta, compute_delta

_EXTEND_SESSION = (
    "UPDATE sessions SET changes = changes + 1,"
    " next_position = next_position + ?, message_count = message_count + ?,"
    " tool_call_count = tool_call_count + ?,"
    " last_active = CASE WHEN last_active < ? THEN ? ELSE last_active END"
)
_PRESENT_ROW = " WHERE num = ? AND pruned IS NULL"
_EXTENDED = f"{_PRESENT_ROW} RETURNING next_position"
_SELECT_NEXT = f"SELECT next_position FROM sessions{_PRESENT_ROW}"
_LOCK_SESSION = f"UPDATE sessions SET changes = changes + 1{_EXTENDED}"
_SELECT_NEXT_AND_STORED = (
    "SELECT next_position, (SELECT 1 FROM messages m WHERE m.session = ? AND m.platform_id = ? LIMIT 1)"
    f" FROM sessions{_PRESENT_ROW}"
)
# Only with a request: naming an indexed column writes the index again.
_EXTEND_REQUESTS = (
    ", preview = CASE WHEN last_request IS NULL THEN coalesce(?, preview, ?) ELSE preview END,"
    " last_request = coalesce(?, last_request)"
)
_DELETED = "the session was deleted"
MAX_PENDING_CALLS = 10_000
MAX_COST = 10**9  # limit of a column of billionths
UPDATABLE_FIELDS = [field for field, column in SESSION_ROWS.columns.items() if column.updatable]


class AppendResult(NamedTuple):
    """The session and positions of appended messages."""

    num: int
    positions: list[int]


def append_messages(
    engine: Engine,
    tx: Transaction,
    session: Session | str,
    messages: Sequence[Message],
    now: float,
    num: int | None = None,
    pending_calls: dict[tuple[int, str], str] | None = None,
    allow_duplicates: bool = False,
    known_positions: dict[str | None, int] | None = None,
) -> AppendResult:
    """Append messages to a session, creating its row with the first of them.

    `pending_calls` maps calls without a result to their tools, so that a result that does not name its
    tool needs no search for the call. `allow_duplicates` also stores messages the session already has;
    `known_positions` is the result of `find_stored_positions` in this transaction.
    """
    if num is None:
        num, is_new = _find_or_create_session(tx, session)
        if is_new:
            known_positions = {}
    old: dict[str | None, int] = {}
    new = messages
    start: int | None = None
    if not allow_duplicates and [m for m in messages if m.platform_message_id is not None]:
        if known_positions is None:
            start, old = _find_place(tx, num, messages)
        else:
            old = known_positions
        if old or len(messages) > 1:
            new = drop_duplicates([m for m in messages if m.platform_message_id not in old])
    if not new:
        return AppendResult(num, [old[message.platform_message_id] for message in messages])
    start = _extend_session(tx, num, compute_delta(new, now), start)
    write_messages(engine, tx, num, start, new, now, pending_calls)
    if len(new) == len(messages):
        return AppendResult(num, list(range(start, start + len(new))))
    new_positions = {
        message.platform_message_id: start + index for index, message in enumerate(new)
    }
    return AppendResult(num, _collect_positions(messages, new, start, {**new_positions, **old}))


def _extend_session(
    tx: Transaction, num: int, delta: SessionDelta, next_position: int | None
) -> int:
    """Count new messages in the row of their session; return the position of the first."""
    count, calls, latest, requests = delta
    sql, params = _EXTEND_SESSION, [count, count, calls, latest, latest]
    if requests != NO_REQUESTS:
        sql, params = sql + _EXTEND_REQUESTS, [*params, *requests]
    params.append(num)
    if tx.is_exclusive:  # SQLite keeps what a statement returns in a table, which costs more
        start = _lock_session(tx, num) if next_position is None else next_position
        tx.run(sql + _PRESENT_ROW, params)
        return start
    updated = tx.run(sql + _EXTENDED, params)
    if not updated:
        raise NotFound(_DELETED)
    return updated[0][0] - count


def _find_place(
    tx: Transaction, num: int, messages: Sequence[Message]
) -> tuple[int, dict[str | None, int]]:
    """Lock a session; return its next position, and those of messages that it has already."""
    if not tx.is_exclusive or len(messages) > 1:
        return _lock_session(tx, num), _select_positions(tx, num, messages)
    name = escape_text(messages[0].platform_message_id or "")
    if not (found := tx.run(_SELECT_NEXT_AND_STORED, (num, name, num))):
        raise NotFound(_DELETED)
    start, is_stored = found[0]
    return start, _select_positions(tx, num, messages) if is_stored else {}


def _lock_session(tx: Transaction, num: int) -> int:
    """Keep other writers from appending to a session; return the position of its next message."""
    found = tx.run(_SELECT_NEXT if tx.is_exclusive else _LOCK_SESSION, (num,))
    if not found:
        raise NotFound(_DELETED)
    return found[0][0]


class AppendOperation:
    """An append as a value, so that an engine may write several of them with one statement."""

    __slots__ = ("_engine", "_session", "messages", "now", "num", "pending_calls")

    def __init__(
        self,
        engine: Engine,
        session: Session | str,
        messages: Sequence[Message],
        now: float,
        num: int | None,
        pending_calls: dict[tuple[int, str], str],
    ) -> None:
        self._engine, self._session = engine, session
        self.messages, self.now, self.num = messages, now, num
        self.pending_calls = pending_calls

    @property
    def session_id(self) -> str:
        return get_session_id(self._session)

    def __call__(self, tx: Transaction) -> AppendResult:
        return append_messages(
            self._engine, tx, self._session, self.messages, self.now, self.num, self.pending_calls
        )


def write_messages(
    engine: Engine,
    tx: Transaction,
    num: int,
    start: int,
    messages: Sequence[Message],
    now: float,
    pending_calls: dict[tuple[int, str], str] | None = None,
) -> None:
    """Write messages starting at a position; the session's row must already count them."""
    names = collect_tool_names(tx, num, messages, pending_calls)
    rows = [
        message_to_row(
            message,
            num,
            start + index,
            now if message.timestamp is None else message.timestamp,
            names[index],
        )
        for index, message in enumerate(messages)
    ]
    tx.run_many(INSERT_MESSAGE, rows)
    engine.index(tx, num, start, len(rows), measure_text(rows), messages)


def _collect_positions(
    messages: Sequence[Message], new: Sequence[Message], start: int, known: dict[str | None, int]
) -> list[int]:
    # A message without a platform id is always new, and the same one may be passed several times.
    unnamed = (at for at, message in enumerate(new, start) if message.platform_message_id is None)
    return [
        next(unnamed) if message.platform_message_id is None else known[message.platform_message_id]
        for message in messages
    ]


def get_session_id(session: Session | str) -> str:
    """Return the id of a session that is given by its value or its id."""
    return session if isinstance(session, str) else session.id


def _find_or_create_session(tx: Transaction, session: Session | str) -> tuple[int, bool]:
    """Return the number of a session, and whether this created it."""
    found = tx.run("SELECT num FROM sessions WHERE id = ?", (escape_text(get_session_id(session)),))
    if found:
        return found[0][0], False
    if isinstance(session, str):
        raise NotFound(f"no session {session!r}; append to the session that begin() returns")
    created = insert_session(tx, session, {})
    return (created, True) if created is not None else _find_or_create_session(tx, session.id)


def create_session(tx: Transaction, session: Session) -> int:
    """Create the row of a session unless it exists, and return its number."""
    created = insert_session(tx, session, {})
    return created if created is not None else _find_or_create_session(tx, session.id)[0]


def insert_session(
    tx: Transaction, session: Session, extra_columns: Mapping[str, Any]
) -> int | None:
    """Insert the row of a new session with `extra_columns`; return its number, or None if it exists."""
    columns = SESSION_ROWS.build_new(session)
    columns |= {"next_position": 0, "message_count": 0, "tool_call_count": 0, **extra_columns}
    title = titles.clean_title(session.title) if session.title else None
    if title:
        names = ("title", "title_base", "title_number")
        base, number = titles.split_title(title)
        title_values = (title, base.casefold(), number)
        if session.pruned is None:  # a pruned session does not occupy its title
            title_values = titles.claim_title(tx, columns["owner"], title)
        columns |= dict(zip(names, title_values, strict=True))
    created = tx.run(_build_insert(tuple(columns)), list(columns.values()))
    return created[0][0] if created else None


@lru_cache(maxsize=64)
def _build_insert(names: Sequence[str]) -> str:
    return (
        f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        " ON CONFLICT (id) DO NOTHING RETURNING num"
    )


def find_stored_positions(
    tx: Transaction, num: int, messages: Iterable[Message]
) -> dict[str | None, int]:
    """Return the positions of those messages that the platform already delivered."""
    _lock_session(tx, num)
    return _select_positions(tx, num, messages)


def _select_positions(
    tx: Transaction, num: int, messages: Iterable[Message]
) -> dict[str | None, int]:
    names = {message.platform_message_id: None for message in messages}
    escaped_ids = [escape_text(name) for name in names if name is not None]
    found: dict[str, int] = {}
    for placeholders, batch in iter_in_clauses(escaped_ids):
        rows = tx.run(
            "SELECT rewind IS NULL, position, platform_id FROM messages WHERE session = ?"
            f" AND platform_id IN ({placeholders})",
            (num, *batch),
        )
        # The last row wins: the newest that is not rewound. There are rarely any to sort.
        found |= {name: position for _, position, name in sorted(rows)}
    if not found:
        return {}
    return {name: found[key] for name in names if name and (key := escape_text(name)) in found}


def find_sessions(tx: Transaction, ids: Sequence[str]) -> dict[str, Session]:
    """Return those of these sessions that exist, by id."""
    found: list[Session] = []
    for placeholders, batch in iter_in_clauses([escape_text(id) for id in ids]):
        found += SESSION_ROWS.find(tx, f"WHERE s.id IN ({placeholders})", batch)
    return {session.id: session for session in found}


def collect_tool_names(
    tx: Transaction | None,
    num: int,
    messages: Sequence[Message],
    pending_calls: dict[tuple[int, str], str] | None = None,
) -> list[str | None]:
    """Return for each message the tools that it calls or answers, each between spaces.

    Without a transaction the messages are assumed to be the first of their session.
    """
    pending_calls = {} if pending_calls is None else pending_calls
    names: list[str | None] = []
    for message in messages:
        calls = message.tool_calls
        if not calls and message.role != "tool":
            names.append(None)
            continue
        found: list[str] = []
        for call in calls:
            pending_calls[num, call.id] = call.name
            found.append(_to_word(call.name))
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            name = message.name or pending_calls.pop((num, call_id), None)
            name = name or (tx and _find_called_tool(tx, num, call_id))
            found += [_to_word(name)] if name else []
        names.append(f" {' '.join(found)} " if found else None)
    if len(pending_calls) > MAX_PENDING_CALLS:
        pending_calls.clear()
    return names


@lru_cache(maxsize=1024)
def _to_word(name: str) -> str:
    return "_".join(escape_text(name).split())


def _find_called_tool(tx: Transaction, num: int, call_id: str) -> str | None:
    """Return the tool that a result answers, if the result itself does not name it."""
    if not call_id:
        return None
    for offset in range(3):  # usually the first
        bodies = tx.run(
            "SELECT body FROM messages WHERE session = ? AND calls > 0"
            f" ORDER BY position DESC LIMIT 1 OFFSET {offset}",
            (num,),
        )
        for id, name, _ in decode_json(bodies[0][0])["tool_calls"] if bodies else ():
            if id == call_id:
                return name
    return None


def get_session(tx: Transaction, session_id: str, owner: str | None = None) -> tuple[int, Session]:
    """Return the number and value of a session; a session of another owner is not found."""
    rows = tx.run(
        f"SELECT s.num, {SESSION_COLUMNS} FROM sessions s WHERE s.id = ? AND s.pruned IS NULL",
        (escape_text(session_id),),
    )
    session = row_to_session(rows[0][1:]) if rows else None
    if session is None or (owner is not None and session.owner != owner):
        raise NotFound(f"no session {session_id!r}")
    return rows[0][0], session


_PRESENT, _REMOVED = "s.pruned IS NULL", "(s.pruned IS NOT NULL OR s.archived IS NOT NULL)"


def resolve_session(
    tx: Transaction, name: str, owner: str | None = None, *, removed: bool = False
) -> Session:
    """Find a session by id, title or id prefix, among those archived or pruned if `removed`."""
    state = _REMOVED if removed else _PRESENT
    exact = _select_sessions(tx, state, "s.id = ?", (escape_text(name),))
    exact = [s for s in exact if owner is None or s.owner == owner]
    matches = (
        exact or _find_by_title(tx, name, owner, state) or _find_by_prefix(tx, name, owner, state)
    )
    if not matches:
        raise NotFound(f"Session not found: {name!r}")
    if len(matches) > 1:
        options = ", ".join(f"{s.id} ({s.title or s.preview or 'untitled'})" for s in matches[:5])
        raise AmbiguousName(f"{name!r} is ambiguous: {options}{' …' if len(matches) > 5 else ''}")
    return matches[0]


def _select_sessions(
    tx: Transaction, state: str, condition: str, params: Sequence[Any]
) -> list[Session]:
    return SESSION_ROWS.find(tx, f"WHERE {state} AND {condition}", params)


def _find_by_title(tx: Transaction, name: str, owner: str | None, state: str) -> list[Session]:
    title = titles.clean_title(name)
    if title is None:
        return []
    scope, params = ("", []) if owner is None else (" AND s.owner = ?", [escape_text(owner)])
    base, number = titles.split_title(title)
    if number > 1:
        exact = _select_sessions(
            tx, state, f"s.title = ? AND s.title IS NOT NULL{scope}", [title, *params]
        )
        if exact:
            return exact
    found = _select_sessions(
        tx,
        state,
        f"s.title_base = ? AND s.title IS NOT NULL{scope}"
        + (f" AND s.title_number = {number}" if number > 1 else "")
        + " ORDER BY s.title_number DESC, s.last_active DESC LIMIT 100",
        [base.casefold() if number > 1 else title.casefold(), *params],
    )
    # The newest title of each owner's series.
    return list({session.owner: session for session in reversed(found)}.values())


def _find_by_prefix(tx: Transaction, name: str, owner: str | None, state: str) -> list[Session]:
    if not name:
        return []
    scope, params = ("", []) if owner is None else (" AND s.owner = ?", [escape_text(owner)])
    start = escape_text(name)
    return _select_sessions(
        tx, state, f"s.id >= ? AND s.id < ?{scope} LIMIT 6", [start, start + "\U0010ffff", *params]
    )


def is_stored(tx: Transaction, session_id: str) -> bool:
    """Return whether a session has a row; another process may have written one that was begun here."""
    sql = "SELECT 1 FROM sessions WHERE id = ? AND pruned IS NULL"
    return bool(tx.run(sql, (escape_text(session_id),)))


def check_session(session: Session) -> Session:
    """Return `session`, or raise `InvalidInput` naming the invalid field."""
    SESSION_ROWS.check(session)
    if session.id == session.parent:
        raise InvalidInput(f"session.parent: {session.id!r:.80} cannot be its own parent")
    if not (session.cost.is_finite() and 0 <= session.cost < MAX_COST):
        raise InvalidInput(f"session.cost: expected an amount up to {MAX_COST}, got {session.cost}")
    if not all(0 <= count < 2**62 for count in session.tokens):
        raise InvalidInput(f"session.tokens: expected numbers from 0, got {session.tokens!r:.200}")
    return session


def check_text(field: str, value: object) -> None:
    """Raise `InvalidInput` unless the value is text or None."""
    if not (value is None or isinstance(value, str)):
        raise InvalidInput(f"{field}: expected text, got {type(value).__name__}")


def change_session(tx: Transaction, num: int, columns: dict[str, Any]) -> Session:
    """Set columns of a session and return the updated session."""
    set_columns(tx, num, columns)
    return get_session_by_num(tx, num)


def set_columns(tx: Transaction, num: int, columns: dict[str, Any]) -> None:
    """Set columns of a session."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    sql = f"UPDATE sessions SET changes = changes + 1, {assignments} WHERE num = ?"
    tx.run(sql, [*columns.values(), num])


def get_session_by_num(tx: Transaction, num: int) -> Session:
    """Return a session by its number."""
    return SESSION_ROWS.find(tx, "WHERE s.num = ?", (num,))[0]


def rename_session(tx: Transaction, session_id: str, title: str | None) -> Session:
    """Give a session a title, or remove it."""
    num, session = get_session(tx, session_id)
    check_text("title", title)
    if title is None:
        return change_session(tx, num, {"title": None, "title_base": None, "title_number": None})
    cleaned = titles.clean_title(title)
    if cleaned is None:
        raise InvalidInput("a title needs at least one visible character")
    if cleaned == session.title:
        return session
    owner = escape_text(session.owner or "")
    if titles.is_title_taken(tx, owner, cleaned):
        raise titles.build_taken_error(tx, owner, cleaned)
    base, number = titles.split_title(cleaned)
    columns = {"title": cleaned, "title_base": base.casefold(), "title_number": number}
    return change_session(tx, num, columns)


def end_session(tx: Transaction, session_id: str, reason: str, now: float) -> Session:
    """End a session; the first reason wins."""
    num, session = get_session(tx, session_id)
    if session.ended is not None:
        return session
    return change_session(tx, num, SESSION_ROWS.build_columns({"ended": now, "end_reason": reason}))


def reopen_session(tx: Transaction, session_id: str) -> Session:
    """Remove the end of a session."""
    num, _ = get_session(tx, session_id)
    return change_session(tx, num, {"ended": None, "end_reason": None})


def update_session(tx: Transaction, session_id: str, fields: dict[str, Any]) -> Session:
    """Change fields of a session."""
    for name, value in fields.items():
        if name not in UPDATABLE_FIELDS:
            raise InvalidInput(f"{name} cannot be changed; allowed: {', '.join(UPDATABLE_FIELDS)}")
        check_value("session", SESSION_ROWS.columns[name], value)
    columns = SESSION_ROWS.build_columns(fields)
    num, session = get_session(tx, session_id)
    return change_session(tx, num, columns) if columns else session
