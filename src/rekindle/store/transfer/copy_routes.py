"""What stands of conversations beside their sessions: routes, mail and home channels.

They move with a copy, and are checked against the sessions that they name. Numbers of letters and
parcels stay as they are where they are free, because platforms know half-sent answers by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from rekindle.errors import RekindleError
from rekindle.store.conversations.message_rows import LETTER, PARCEL, letter_of, parcel_of
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.text_encoding import unescape
from rekindle.types import Finding

Write: TypeAlias = Callable[[Callable[[Transaction], Any]], Any]

_TOGETHER = 500
_ROUTE = (
    "key, session, previous, created, updated, origin, display_name, platform, chat_type, reset,"
    " tokens, usage, shown"
)
_INBOX = "num, key, platform_id, source, body, state, session, position, reason, time, attempts"
_OPEN = ("waiting", "running")


class Copied(NamedTuple):
    """How many routes, letters and parcels were new or had changed."""

    routes: int = 0
    mail: int = 0


# -- with a copy


def copy(tx: Transaction, engine: Engine, write: Write) -> Copied:
    """Bring everything of `tx` into another store. What is newer there stays."""
    routes = letters = parcels = 0
    for some in _batches(tx.stream(f"SELECT {_ROUTE} FROM routes ORDER BY key")):
        routes += write(lambda tx, some=some: sum(_bring_route(tx, row) for row in some))
    numbers: dict[int, int] = {}  # of letters, here and there
    for some in _batches(tx.stream(f"SELECT {_INBOX} FROM inbox ORDER BY num")):
        brought: list[_Brought] = write(lambda tx, some=some: [_bring_letter(tx, r) for r in some])
        numbers |= {row[0]: one.num for row, one in zip(some, brought, strict=True)}
        letters += sum(one.is_new for one in brought)
    for some in _batches(tx.stream(f"SELECT {PARCEL} FROM outbox ORDER BY num")):
        parcels += write(lambda tx, some=some: sum(_bring_parcel(tx, row, numbers) for row in some))
    homes = tx.run("SELECT platform, source FROM homes")
    sql = "INSERT INTO homes (platform, source) VALUES (?, ?) ON CONFLICT (platform) DO NOTHING"
    write(lambda tx: tx.many(sql, homes))
    if engine.name == "postgresql":  # which does not count what was inserted with its number
        write(_count_on)
    return Copied(routes, letters + parcels)


class _Brought(NamedTuple):
    num: int
    is_new: bool


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while some := [*islice(rows, _TOGETHER)]:
        yield some


def _bring_route(tx: Transaction, row: Row) -> bool:
    names = _ROUTE.split(", ")
    newer = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    return bool(
        tx.run(
            f"INSERT INTO routes ({_ROUTE}) VALUES ({_marks(names)}) ON CONFLICT (key) DO UPDATE"
            f" SET {newer} WHERE excluded.updated > routes.updated RETURNING key",
            row,
        )
    )


def _bring_letter(tx: Transaction, row: Row) -> _Brought:
    num, key, platform_id, _, body, state, *_, time, _ = row
    sql = "SELECT num, state FROM inbox WHERE key = ?"
    known = tx.run(f"{sql} AND num = ? AND time = ? AND body = ?", (key, num, time, body))
    if not known and platform_id is not None:
        known = tx.run(f"{sql} AND platform_id = ?", (key, platform_id))
    elif not known and _is_taken(tx, "inbox", num):
        known = tx.run(f"{sql} AND time = ? AND body = ?", (key, time, body))
    if known:
        here, has = known[0]
        if has not in _OPEN or state in _OPEN:
            return _Brought(here, False)
        tx.run(  # it was answered there since
            "UPDATE inbox SET state = ?, session = ?, position = ?, reason = ? WHERE num = ?",
            (*row[5:9], here),
        )
        return _Brought(here, True)
    return _Brought(_insert(tx, "inbox", _INBOX, row), True)


def _bring_parcel(tx: Transaction, row: Row, letters: dict[int, int]) -> bool:
    _, key, answers, target, text, state, *_, time = row
    row = (row[0], key, letters.get(answers), *row[3:])
    known = tx.run(
        "SELECT num, state FROM outbox WHERE key = ? AND time = ? AND text = ? AND target = ?"
        " AND (inbox = ? OR inbox IS NULL)",
        (key, time, text, target, row[2]),
    )
    if not known:
        _insert(tx, "outbox", PARCEL, row)
        return True
    here, has = known[0]
    if has != "waiting" or state == "waiting":
        return False
    tx.run(
        "UPDATE outbox SET state = ?, attempts = ?, next_try = ?, platform_id = ?, reason = ?"
        " WHERE num = ?",
        (*row[5:10], here),
    )
    return True


def _insert(tx: Transaction, table: str, columns: str, row: Sequence[Any]) -> int:
    """Insert a row under its own number, or under the next where another has it."""
    names = columns.split(", ")
    if _is_taken(tx, table, row[0]):
        names, row = names[1:], row[1:]
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({_marks(names)}) RETURNING num"
    return tx.run(sql, row)[0][0]


def _is_taken(tx: Transaction, table: str, num: int) -> bool:
    return bool(tx.run(f"SELECT 1 FROM {table} WHERE num = ?", (num,)))


def _marks(names: Sequence[str]) -> str:
    return ", ".join("?" * len(names))


def _count_on(tx: Transaction) -> None:
    for table in ("inbox", "outbox"):
        sequence = f"pg_get_serial_sequence('{table}', 'num')"
        tx.run(
            f"SELECT setval({sequence}, coalesce(greatest(max(num),"
            f" pg_sequence_last_value({sequence}::regclass)), 1)) FROM {table}"
        )


# -- what they name must be there

_LOST_WAYS = """
SELECT key, previous FROM routes r WHERE previous IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.previous)
"""
_LOST_SESSIONS = """
SELECT num, key, session, state FROM inbox i WHERE session IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = i.session) ORDER BY num
"""
_LOST_PLACES = """
SELECT i.num, i.key, i.session, i.position FROM inbox i JOIN sessions s ON s.id = i.session
WHERE i.state IN ('waiting', 'running') AND i.position IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session = s.num AND m.position = i.position)
ORDER BY i.num
"""


def verify(tx: Transaction) -> Iterator[Finding]:
    """Check that routes and mail can be read, and that the sessions they speak of are there."""
    for key, previous in tx.run(_LOST_WAYS):
        detail = f"its way back, session {unescape(previous)}, is not there"
        yield Finding(check="route", where=unescape(key), detail=detail)
    for key, session in _lost_routes(tx):
        detail = f"goes on in session {session}, which is not there"
        yield Finding(check="route", where=key, detail=detail)
    for num, key, session, state in tx.run(_LOST_SESSIONS):
        detail = f"letter {num} ({state}) is in session {unescape(session)}, which is not there"
        yield Finding(check="mail", where=unescape(key), detail=detail)
    for num, key, session, position in tx.run(_LOST_PLACES):
        where = f"position {position} of session {unescape(session)}"
        detail = f"letter {num} is being answered, but its message is not at {where}"
        yield Finding(check="mail", where=unescape(key), detail=detail)
    yield from _unreadable(tx)


def _lost_routes(tx: Transaction) -> list[tuple[str, str]]:
    """Routes whose session is not there though something was said in it.

    (One in which nothing was said has no session yet, and needs none.)
    """
    lost = {(key, session) for _, key, session, _ in tx.run(_LOST_SESSIONS)}
    sql = "SELECT 1 FROM routes WHERE key = ? AND session = ?"
    return [
        (unescape(key), unescape(name)) for key, name in sorted(lost) if tx.run(sql, (key, name))
    ]


def _unreadable(tx: Transaction) -> Iterator[Finding]:
    from rekindle.store.conversations.routes import COLUMNS, route_of

    reading: Iterable[tuple[str, str, Callable[[Row], object]]] = (
        ("route", f"SELECT {COLUMNS} FROM routes", route_of),
        ("mail", f"SELECT {LETTER} FROM inbox", letter_of),
        ("mail", f"SELECT {PARCEL} FROM outbox", parcel_of),
    )
    for check, sql, read in reading:
        for row in tx.stream(sql):
            try:
                read(row)
            except (RekindleError, ValueError, TypeError, LookupError) as error:
                where = (
                    str(row[0]) if check == "route" else f"{unescape(str(row[1]))}, number {row[0]}"
                )
                detail = f"cannot be read: {error}"
                yield Finding(check=check, where=where, detail=detail, repairable=False)


def repair(tx: Transaction) -> list[str]:
    """Take out references to what is not there; an open letter whose place is lost begins anew."""
    ways = len(tx.run(_LOST_WAYS))
    lost = [(num, state) for num, _, _, state in tx.run(_LOST_SESSIONS)]
    lost += [(num, "running") for num, *_ in tx.run(_LOST_PLACES)]
    forget(tx)
    tx.many(
        "UPDATE inbox SET state = 'waiting', session = NULL, position = NULL WHERE num = ?",
        [(num,) for num, state in lost if state in _OPEN],
    )
    mended = [f"{ways} conversations have no way back any more: it was not there"] if ways else []
    if lost:
        mended.append(f"{len(lost)} letters no longer name a place that is not there")
    return mended


def forget(tx: Transaction) -> None:
    """Let routes and finished letters no longer name sessions that are not there."""
    gone = "NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = {})"
    tx.run(
        "UPDATE routes SET previous = NULL WHERE previous IS NOT NULL AND "
        + gone.format("previous")
    )
    tx.run(
        "UPDATE inbox SET session = NULL, position = NULL WHERE session IS NOT NULL"
        " AND state NOT IN ('waiting', 'running') AND " + gone.format("session")
    )
