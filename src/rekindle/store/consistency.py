"""Is everything true that the database says of itself? And if not, make it so from what it holds."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.errors import StoreDamaged
from rekindle.store.core.engine import Engine, Progress, Transaction
from rekindle.store.core.rows import MESSAGE_COLUMNS, message_of
from rekindle.store.core.text_encoding import unescape
from rekindle.types import Finding

from .learning import mining_results, outcomes
from .sessions import usage
from .transfer import copy_routes

_COUNTED = """
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
_ORPHANS = """
SELECT session, count(*), min(time), max(time) FROM messages m
WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.num = m.session) GROUP BY session
"""
_LOST_REWINDS = """
SELECT id, session, position FROM messages m WHERE rewind IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM rewinds r WHERE r.num = m.rewind)
"""


def verify(engine: Engine, tx: Transaction, progress: Progress | None) -> Iterator[Finding]:
    """Check every count, order, chain, index, route and foreign key, and that all can be read."""
    yield from engine.check(tx)
    yield from _check_counts(tx)
    yield from usage.check(tx)
    yield from _check_links(tx)
    yield from copy_routes.verify(tx)
    yield from _check_messages(tx, progress)


def _check_counts(tx: Transaction) -> Iterator[Finding]:
    for _, name, messages, calls, following, real_messages, real_calls, last in tx.run(_COUNTED):
        where = unescape(name)
        if messages != real_messages:
            detail = f"says {messages} messages, has {real_messages}"
            yield Finding(check="count", where=where, detail=detail)
        if calls != real_calls:
            detail = f"says {calls} tool calls, has {real_calls}"
            yield Finding(check="count", where=where, detail=detail)
        if following <= last:
            detail = f"would write next at {following}, but has a message at {last}"
            yield Finding(check="order", where=where, detail=detail)
    for num, count, _, _ in tx.run(_ORPHANS):
        detail = f"{count} messages belong to a session that is not there"
        yield Finding(check="foreign key", where=f"session number {num}", detail=detail)


def _check_links(tx: Transaction) -> Iterator[Finding]:
    for name in cycles(tx):
        yield Finding(check="chain", where=unescape(name), detail="descends from itself")
    for _, num, position in tx.run(_LOST_REWINDS):
        detail = f"position {position} was taken out by a rewind that is not there"
        yield Finding(check="foreign key", where=f"session number {num}", detail=detail)


def cycles(tx: Transaction) -> list[str]:
    """Sessions that descend from themselves."""
    parents = dict(tx.run("SELECT id, parent FROM sessions WHERE parent IS NOT NULL"))
    fine: set[str] = set()
    found: list[str] = []
    for start in parents:
        path: list[str] = []
        at = start
        while at in parents and at not in fine and at not in path:
            path.append(at)
            at = parents[at]
        if at in path:
            found.append(at)
        fine.update(path)
    return found


def _check_messages(tx: Transaction, progress: Progress | None) -> Iterator[Finding]:
    total = tx.run("SELECT count(*) FROM messages")[0][0]
    rows = tx.stream(f"SELECT m.session, {MESSAGE_COLUMNS} FROM messages m")
    for done, (num, *row) in enumerate(rows):
        try:
            message_of(tuple(row))
        except (StoreDamaged, ValueError, TypeError) as error:
            where = f"session number {num}, position {row[0]}"
            yield Finding(check="message", where=where, detail=str(error), repairable=False)
        if progress and done % 1000 == 0:
            progress(done, total)
    if progress:
        progress(total, total)


def adopt(tx: Transaction, num: int, first: float, last: float) -> None:
    """Make a session for messages that have lost theirs."""
    tx.run(
        "INSERT INTO sessions (num, id, source, owner, started, last_active, next_position,"
        " message_count, tool_call_count) VALUES (?, ?, 'recovered', '', ?, ?, 0, 0, 0)",
        (num, f"recovered_{num}", first, last),
    )


def repair(engine: Engine, tx: Transaction, progress: Progress | None) -> list[str]:
    """Rebuild everything that can be derived, and say what was mended."""
    mended: list[str] = []
    for num, count, first, last in tx.run(_ORPHANS):
        adopt(tx, num, first, last)
        mended.append(f"recovered_{num}: a new session holds {count} messages that had lost theirs")
    for name in cycles(tx):
        tx.run("UPDATE sessions SET changes = changes + 1, parent = NULL WHERE id = ?", (name,))
        mended.append(f"{unescape(name)}: no longer descends from itself")
    lost = tx.run(_LOST_REWINDS)
    if lost:
        tx.many("UPDATE messages SET rewind = NULL WHERE id = ?", [row[:1] for row in lost])
        mended.append(f"{len(lost)} messages came back whose rewind was not there")
    tx.run("DELETE FROM rewinds WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.num = session)")
    mended += _repair_counts(tx)
    mended += usage.repair(tx)
    mended += copy_routes.repair(tx)
    outcomes.forget(tx)
    mining_results.forget(tx)
    engine.reindex(tx, progress)
    return mended


def _repair_counts(tx: Transaction) -> list[str]:
    mended: list[str] = []
    for num, name, messages, calls, following, *real in tx.run(_COUNTED):
        real_messages, real_calls, last = real
        if (messages, calls) == (real_messages, real_calls) and following > last:
            continue
        tx.run(
            "UPDATE sessions SET changes = changes + 1, message_count = ?, tool_call_count = ?,"
            " next_position = ?"
            " WHERE num = ?",
            (real_messages, real_calls, max(following, last + 1), num),
        )
        mended.append(f"{unescape(name)}: counted anew, {real_messages} messages")
    return mended
