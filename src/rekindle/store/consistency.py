"""Check the database for consistency, and repair what can be derived from its contents."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.errors import StoreDamaged
from rekindle.store.core.engine import Engine, Progress, Transaction
from rekindle.store.core.rows import MESSAGE_COLUMNS, row_to_message
from rekindle.store.core.text_encoding import unescape_text
from rekindle.types import Finding

from .learning import observations, outcomes, session_outcomes
from .sessions import usage
from .sessions.requests import refresh_all_requests
from .transfer import copy_routes

_SELECT_COUNTS = """
SELECT s.num, s.id, s.message_count, s.tool_call_count, s.next_position,
       coalesce(c.messages, 0), coalesce(c.calls, 0), coalesce(c.last, -1)
FROM sessions s LEFT JOIN (
    SELECT session AS num,
           sum(CASE WHEN rewind IS NULL THEN 1 ELSE 0 END) AS messages,
           sum(CASE WHEN rewind IS NULL THEN calls ELSE 0 END) AS calls,
           max(position) AS last
    FROM messages GROUP BY session
) c ON c.num = s.num
"""
_SELECT_ORPHANS = """
SELECT session, count(*), min(time), max(time) FROM messages m
WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.num = m.session) GROUP BY session
"""
_SELECT_LOST_REWINDS = """
SELECT id, session, position FROM messages m WHERE rewind IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM rewinds r WHERE r.num = m.rewind)
"""


def verify_store(engine: Engine, tx: Transaction, progress: Progress | None) -> Iterator[Finding]:
    """Check every count, order, chain, index, route and foreign key, and read every message."""
    yield from engine.check(tx)
    yield from _check_counts(tx)
    yield from usage.check_usage(tx)
    yield from _check_links(tx)
    yield from copy_routes.verify_conversations(tx)
    yield from _check_messages(tx, progress)


def _check_counts(tx: Transaction) -> Iterator[Finding]:
    for _, name, messages, calls, next_position, real_messages, real_calls, last in tx.run(
        _SELECT_COUNTS
    ):
        where = unescape_text(name)
        if messages != real_messages:
            detail = f"recorded {messages} messages, found {real_messages}"
            yield Finding(check="count", where=where, detail=detail)
        if calls != real_calls:
            detail = f"recorded {calls} tool calls, found {real_calls}"
            yield Finding(check="count", where=where, detail=detail)
        if next_position <= last:
            detail = f"next position is {next_position}, but there is a message at {last}"
            yield Finding(check="order", where=where, detail=detail)
    for num, count, _, _ in tx.run(_SELECT_ORPHANS):
        detail = f"{count} messages belong to a missing session"
        yield Finding(check="foreign key", where=f"session number {num}", detail=detail)


def _check_links(tx: Transaction) -> Iterator[Finding]:
    for name in find_cycles(tx):
        yield Finding(check="chain", where=unescape_text(name), detail="descends from itself")
    for _, num, position in tx.run(_SELECT_LOST_REWINDS):
        detail = f"position {position} was removed by a missing rewind"
        yield Finding(check="foreign key", where=f"session number {num}", detail=detail)


def find_cycles(tx: Transaction) -> list[str]:
    """Return the ids of sessions that descend from themselves."""
    parents = dict(tx.run("SELECT id, parent FROM sessions WHERE parent IS NOT NULL"))
    visited: set[str] = set()
    found: list[str] = []
    for start in parents:
        path: list[str] = []
        current = start
        while current in parents and current not in visited and current not in path:
            path.append(current)
            current = parents[current]
        if current in path:
            found.append(current)
        visited.update(path)
    return found


def _check_messages(tx: Transaction, progress: Progress | None) -> Iterator[Finding]:
    total = tx.run("SELECT count(*) FROM messages")[0][0]
    rows = tx.stream(f"SELECT m.session, {MESSAGE_COLUMNS} FROM messages m")
    for done, (num, *row) in enumerate(rows):
        try:
            row_to_message(tuple(row))
        except (StoreDamaged, ValueError, TypeError) as error:
            where = f"session number {num}, position {row[0]}"
            yield Finding(check="message", where=where, detail=str(error), repairable=False)
        if progress and done % 1000 == 0:
            progress(done, total)
    if progress:
        progress(total, total)


def create_recovered_session(tx: Transaction, num: int, first: float, last: float) -> None:
    """Create a session for messages whose session is missing."""
    tx.run(
        "INSERT INTO sessions (num, id, source, owner, started, last_active, next_position,"
        " message_count, tool_call_count) VALUES (?, ?, 'recovered', '', ?, ?, 0, 0, 0)",
        (num, f"recovered_{num}", first, last),
    )


def repair_store(engine: Engine, tx: Transaction, progress: Progress | None) -> list[str]:
    """Rebuild everything that can be derived, and return what was repaired."""
    repairs: list[str] = []
    for num, count, first, last in tx.run(_SELECT_ORPHANS):
        create_recovered_session(tx, num, first, last)
        repairs.append(f"recovered_{num}: created for {count} messages whose session was missing")
    for name in find_cycles(tx):
        tx.run("UPDATE sessions SET changes = changes + 1, parent = NULL WHERE id = ?", (name,))
        repairs.append(f"{unescape_text(name)}: no longer descends from itself")
    lost = tx.run(_SELECT_LOST_REWINDS)
    if lost:
        tx.run_many("UPDATE messages SET rewind = NULL WHERE id = ?", [row[:1] for row in lost])
        repairs.append(f"{len(lost)} messages restored because their rewind was missing")
    tx.run("DELETE FROM rewinds WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.num = session)")
    repairs += _repair_counts(tx)
    refresh_all_requests(tx)
    repairs += usage.repair_usage(tx)
    repairs += copy_routes.repair_conversations(tx)
    outcomes.delete_verdicts(tx)
    session_outcomes.delete_session_outcomes(tx)
    observations.delete_all_observations(tx)
    engine.reindex(tx, progress)
    return repairs


def _repair_counts(tx: Transaction) -> list[str]:
    repairs: list[str] = []
    for num, name, messages, calls, next_position, *real in tx.run(_SELECT_COUNTS):
        real_messages, real_calls, last = real
        if (messages, calls) == (real_messages, real_calls) and next_position > last:
            continue
        tx.run(
            "UPDATE sessions SET changes = changes + 1, message_count = ?, tool_call_count = ?,"
            " next_position = ?"
            " WHERE num = ?",
            (real_messages, real_calls, max(next_position, last + 1), num),
        )
        repairs.append(f"{unescape_text(name)}: recounted, {real_messages} messages")
    return repairs
