"""Copy, check and repair routes, inbox and outbox messages, and home channels.

They move with a copy of the store and are checked against the sessions they reference. Message
numbers are kept where they are free, because platforms identify partly sent answers by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from rekindle.errors import RekindleError
from rekindle.store.conversations.message_rows import INBOX_ROWS, OUTBOX_ROWS
from rekindle.store.core.bulk import build_insert
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.tables import HOME_CHATS, INBOX, OUTBOX, ROUTES
from rekindle.store.core.text_encoding import unescape_text
from rekindle.types import Finding

from .copy_people import copy_people
from .copy_tables import iter_batches

Write: TypeAlias = Callable[[Callable[[Transaction], Any]], Any]

_ROUTE_COLUMNS = ROUTES.list_names("changes")
_UPSERT_ROUTE = (
    f"{ROUTES.build_upsert('key', 'changes')} WHERE excluded.updated > routes.updated RETURNING key"
)
_INBOX_COLUMNS, _OUTBOX_COLUMNS = INBOX.list_names(), OUTBOX.list_names()
_OPEN_STATES = ("waiting", "running")


class CopiedCounts(NamedTuple):
    """The numbers of routes, messages and the like that were new or had changed."""

    routes: int = 0
    messages: int = 0
    people: int = 0
    jobs: int = 0
    memories: int = 0  # owners of facts


# -- copying


def copy_conversations(tx: Transaction, engine: Engine, write: Write) -> CopiedCounts:
    """Copy routes, messages, people, jobs and memory into another store. Newer data there is kept."""
    route_count = inbound_count = outbound_count = 0
    for batch in iter_batches(tx.stream(f"SELECT {_ROUTE_COLUMNS} FROM routes ORDER BY key")):
        route_count += write(
            lambda tx, some=batch: sum(len(tx.run(_UPSERT_ROUTE, r)) for r in some)
        )
    numbers: dict[int, int] = {}  # number of an inbox message here -> in the target
    for batch in iter_batches(tx.stream(f"SELECT {_INBOX_COLUMNS} FROM inbox ORDER BY num")):
        copied: list[_CopiedRow] = write(
            lambda tx, some=batch: [_copy_inbound(tx, r) for r in some]
        )
        numbers |= {row[0]: one.num for row, one in zip(batch, copied, strict=True)}
        inbound_count += sum(one.is_new for one in copied)
    for batch in iter_batches(tx.stream(f"SELECT {_OUTBOX_COLUMNS} FROM outbox ORDER BY num")):
        outbound_count += write(
            lambda tx, some=batch: sum(_copy_outbound(tx, row, numbers) for row in some)
        )
    homes = tx.run("SELECT platform, source FROM home_chats")
    sql = f"{HOME_CHATS.build_insert()} ON CONFLICT (platform) DO NOTHING"
    write(lambda tx: tx.run_many(sql, homes))
    people = copy_people(tx, write, numbers)
    if engine.name == "postgresql":  # its sequences ignore explicitly inserted numbers
        write(_advance_sequences)
    return CopiedCounts(route_count, inbound_count + outbound_count, *people)


class _CopiedRow(NamedTuple):
    num: int
    is_new: bool


def _copy_inbound(tx: Transaction, row: Row) -> _CopiedRow:
    num, key, platform_id, _, body, state, *_, time, _ = row
    sql = "SELECT num, state FROM inbox WHERE key = ?"
    known = tx.run(f"{sql} AND num = ? AND time = ? AND body = ?", (key, num, time, body))
    if not known and platform_id is not None:
        known = tx.run(f"{sql} AND platform_id = ?", (key, platform_id))
    elif not known and _is_num_taken(tx, "inbox", num):
        known = tx.run(f"{sql} AND time = ? AND body = ?", (key, time, body))
    if known:
        target_num, target_state = known[0]
        if target_state not in _OPEN_STATES or state in _OPEN_STATES:
            return _CopiedRow(target_num, False)
        tx.run(  # it was answered in the source since
            "UPDATE inbox SET state = ?, session = ?, position = ?, reason = ? WHERE num = ?",
            (*row[5:9], target_num),
        )
        return _CopiedRow(target_num, True)
    return _CopiedRow(_insert_row(tx, "inbox", _INBOX_COLUMNS, row), True)


def _copy_outbound(tx: Transaction, row: Row, inbound_nums: dict[int, int]) -> bool:
    _, key, reply_to, target, text, state, *_, time, _ = row
    row = (row[0], key, inbound_nums.get(reply_to), *row[3:])
    known = tx.run(
        "SELECT num, state FROM outbox WHERE key = ? AND time = ? AND text = ? AND target = ?"
        " AND (inbox = ? OR inbox IS NULL)",
        (key, time, text, target, row[2]),
    )
    if not known:
        _insert_row(tx, "outbox", _OUTBOX_COLUMNS, row)
        return True
    target_num, target_state = known[0]
    if target_state != "waiting" or state == "waiting":
        return False
    tx.run(
        "UPDATE outbox SET state = ?, attempts = ?, next_try = ?, platform_id = ?, reason = ?"
        " WHERE num = ?",
        (*row[5:10], target_num),
    )
    return True


def _insert_row(tx: Transaction, table: str, columns: str, row: Sequence[Any]) -> int:
    """Insert a row under its own number, or the next one if it is taken."""
    names = columns.split(", ")
    if _is_num_taken(tx, table, row[0]):
        names, row = names[1:], row[1:]
    sql = f"{build_insert(table, ', '.join(names))} RETURNING num"
    return tx.run(sql, row)[0][0]


def _is_num_taken(tx: Transaction, table: str, num: int) -> bool:
    if getattr(tx, "shares_numbers", False):  # with other tenants, whose rows it does not see
        return True
    return bool(tx.run(f"SELECT 1 FROM {table} WHERE num = ?", (num,)))


def _advance_sequences(tx: Transaction) -> None:
    for table in ("inbox", "outbox"):
        sequence = f"pg_get_serial_sequence('{table}', 'num')"
        tx.run(
            f"SELECT setval({sequence}, coalesce(greatest(max(num),"
            f" pg_sequence_last_value({sequence}::regclass)), 1)) FROM {table}"
        )


# -- checking references

_SELECT_LOST_PREVIOUS = """
SELECT key, previous FROM routes r WHERE previous IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.previous)
"""
_SELECT_LOST_SESSIONS = """
SELECT num, key, session, state FROM inbox i WHERE session IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = i.session) ORDER BY num
"""
_SELECT_LOST_POSITIONS = """
SELECT i.num, i.key, i.session, i.position FROM inbox i JOIN sessions s ON s.id = i.session
WHERE i.state IN ('waiting', 'running') AND i.position IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session = s.num AND m.position = i.position)
ORDER BY i.num
"""


def verify_conversations(tx: Transaction) -> Iterator[Finding]:
    """Check that routes and messages can be read and that the sessions they reference exist."""
    for key, previous in tx.run(_SELECT_LOST_PREVIOUS):
        detail = f"its previous session {unescape_text(previous)} is missing"
        yield Finding(check="route", where=unescape_text(key), detail=detail)
    for key, session in _find_lost_routes(tx):
        detail = f"its session {session} is missing"
        yield Finding(check="route", where=key, detail=detail)
    for num, key, session, state in tx.run(_SELECT_LOST_SESSIONS):
        detail = f"inbox message {num} ({state}) is in missing session {unescape_text(session)}"
        yield Finding(check="queue", where=unescape_text(key), detail=detail)
    for num, key, session, position in tx.run(_SELECT_LOST_POSITIONS):
        where = f"position {position} of session {unescape_text(session)}"
        detail = f"inbox message {num} is being answered, but is not at {where}"
        yield Finding(check="queue", where=unescape_text(key), detail=detail)
    yield from _check_readable(tx)


def _find_lost_routes(tx: Transaction) -> list[tuple[str, str]]:
    """Return the routes whose session is missing although it had messages.

    (A session without messages is not stored, and need not be.)
    """
    lost = {(key, session) for _, key, session, _ in tx.run(_SELECT_LOST_SESSIONS)}
    sql = "SELECT 1 FROM routes WHERE key = ? AND session = ?"
    return [
        (unescape_text(key), unescape_text(name))
        for key, name in sorted(lost)
        if tx.run(sql, (key, name))
    ]


def _check_readable(tx: Transaction) -> Iterator[Finding]:
    from rekindle.store.conversations.routes import ROUTE_ROWS

    readers: Iterable[tuple[str, str, Callable[[Row], object]]] = (
        ("route", f"SELECT {ROUTE_ROWS.select} FROM routes", ROUTE_ROWS.read),
        ("queue", f"SELECT {INBOX_ROWS.select} FROM inbox", INBOX_ROWS.read),
        ("queue", f"SELECT {OUTBOX_ROWS.select} FROM outbox", OUTBOX_ROWS.read),
    )
    for check, sql, read in readers:
        for row in tx.stream(sql):
            try:
                read(row)
            except (RekindleError, ValueError, TypeError, LookupError) as error:
                where = (
                    str(row[0])
                    if check == "route"
                    else f"{unescape_text(str(row[1]))}, number {row[0]}"
                )
                detail = f"cannot be read: {error}"
                yield Finding(check=check, where=where, detail=detail, repairable=False)


def repair_conversations(tx: Transaction) -> list[str]:
    """Remove references to missing sessions; reprocess open messages whose position is lost."""
    lost_previous = len(tx.run(_SELECT_LOST_PREVIOUS))
    lost = [(num, state) for num, _, _, state in tx.run(_SELECT_LOST_SESSIONS)]
    lost += [(num, "running") for num, *_ in tx.run(_SELECT_LOST_POSITIONS)]
    clear_dead_references(tx)
    tx.run_many(
        "UPDATE inbox SET state = 'waiting', session = NULL, position = NULL WHERE num = ?",
        [(num,) for num, state in lost if state in _OPEN_STATES],
    )
    repairs = (
        [f"{lost_previous} conversations lost their previous session: it was missing"]
        if lost_previous
        else []
    )
    if lost:
        repairs.append(f"{len(lost)} inbox messages no longer reference a missing position")
    return repairs


def clear_dead_references(tx: Transaction) -> None:
    """Clear references of routes and finished messages to sessions that no longer exist."""
    gone = "NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = {})"
    tx.run(
        "UPDATE routes SET previous = NULL WHERE previous IS NOT NULL AND "
        + gone.format("previous")
    )
    tx.run(
        "UPDATE inbox SET session = NULL, position = NULL WHERE session IS NOT NULL"
        " AND state NOT IN ('waiting', 'running') AND " + gone.format("session")
    )
