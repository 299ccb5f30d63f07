"""The verdicts on tool calls, stored next to the messages and updated when sessions change.

Judging itself happens elsewhere. A session is stale if it has changed since it was judged, or was
judged by other rules; judging resumes at the first position whose verdict may still change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.rows import (
    MESSAGE_COLUMNS,
    SESSION_COLUMNS,
    decode_json,
    encode_json,
    row_to_message,
    row_to_session,
)
from rekindle.store.core.tables import CALLS, JUDGED_SESSIONS
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import JudgedCall, JudgedSession, Message

_COUNT_REWINDS = (
    "(SELECT coalesce(2 * count(*) + count(r.restored), 0) FROM rewinds r WHERE r.session = s.num)"
)
_INSERT_CALL = CALLS.build_insert()
_SAVE_STATE = JUDGED_SESSIONS.build_upsert("session")
BATCH_SIZE = 200  # sessions whose calls are read with one statement


class StaleSession(NamedTuple):
    """A session to judge from position `since` on; earlier verdicts stay."""

    num: int
    session: str
    since: int
    messages: int
    compressions: tuple[int, ...]  # before `since`
    changes: int
    rewinds: int


class JudgedCalls(NamedTuple):
    """The judged calls of a session."""

    stale_session: StaleSession
    calls: Sequence[JudgedCall]
    since: int  # position to resume from
    compressions: Sequence[int]


def find_stale_sessions(
    tx: Transaction,
    rules: str,
    where: Filter,
    session: str | None,
    now: float,
) -> list[StaleSession]:
    """Return the sessions whose verdicts are out of date."""
    condition, params = where.to_sql(now)
    if session is not None:
        condition, params = "s.id = ? AND s.pruned IS NULL", [escape_text(session)]
    rows = tx.run(
        "SELECT s.num, s.id, s.message_count, s.changes, j.rules, j.rewinds, j.since, j.compressions,"
        f" {_COUNT_REWINDS} FROM sessions s"
        f" LEFT JOIN judged_sessions j ON j.session = s.num WHERE {condition}"
        " AND (j.session IS NULL OR j.rules <> ? OR j.changes <> s.changes) ORDER BY s.num",
        (*params, rules),
    )
    found: list[StaleSession] = []
    for num, id, count, changes, judged_by, judged_rewinds, since, compressions, rewinds in rows:
        if judged_by != rules or judged_rewinds != rewinds:
            since, compressions = 0, "[]"
        before = tuple(at for at in decode_json(compressions) if at < since)
        found.append(StaleSession(num, unescape_text(id), since, count, before, changes, rewinds))
    return found


def save_verdicts(tx: Transaction, rules: str, verdicts: Sequence[JudgedCalls]) -> None:
    """Replace the verdicts from `since` on with new ones."""
    for stale, calls, since, compressions in verdicts:
        rows = tx.run("SELECT num FROM sessions WHERE id = ?", (escape_text(stale.session),))
        if not rows:
            continue  # deleted in the meantime
        num = rows[0][0]
        tx.run("DELETE FROM calls WHERE session = ? AND position >= ?", (num, stale.since))
        tx.run_many(
            _INSERT_CALL,
            [_call_to_row(num, call) for call in calls],
        )
        state = (rules, stale.changes, stale.rewinds, since, encode_json(list(compressions)))
        tx.run(_SAVE_STATE, (num, *state))


def iter_judged_sessions(
    tx: Transaction, where: Filter, session: str | None, now: float
) -> Iterator[JudgedSession]:
    """Yield sessions with their judged calls, in order of their start."""
    condition, params = where.to_sql(now)
    if session is not None:
        condition, params = "s.id = ? AND s.pruned IS NULL", [escape_text(session)]
    rows = tx.run(
        f"SELECT s.num, j.compressions, {SESSION_COLUMNS} FROM sessions s"
        f" LEFT JOIN judged_sessions j ON j.session = s.num WHERE {condition} ORDER BY s.started, s.num",
        params,
    )
    for start in range(0, len(rows), BATCH_SIZE):
        batch = rows[start : start + BATCH_SIZE]
        placeholders = ", ".join("?" * len(batch))
        found = tx.run(
            f"SELECT {CALLS.list_names()} FROM calls WHERE session IN ({placeholders})"
            " ORDER BY session, position, number",
            [row[0] for row in batch],
        )
        calls = {num: list(group) for num, group in groupby(found, key=lambda row: row[0])}
        for num, compressions, *columns in batch:
            judged_session = row_to_session(tuple(columns))
            session_calls = tuple(
                [_row_to_call(judged_session.id, row) for row in calls.get(num, ())]
            )
            yield JudgedSession(
                judged_session, session_calls, tuple(decode_json(compressions or "[]"))
            )


def count_errors(tx: Transaction, ids: Sequence[str]) -> dict[str, int]:
    """Return how many calls of sessions failed, by id; sessions without one are left out."""
    found: dict[str, int] = {}
    for start in range(0, len(ids), BATCH_SIZE):
        batch = [escape_text(id) for id in ids[start : start + BATCH_SIZE]]
        rows = tx.run(
            "SELECT s.id, count(*) FROM sessions s JOIN calls c ON c.session = s.num"
            f" WHERE s.id IN ({', '.join('?' * len(batch))}) AND c.failed = 1 GROUP BY s.id",
            batch,
        )
        found |= {unescape_text(id): count for id, count in rows}
    return found


def load_messages_at(tx: Transaction, session: str, positions: Iterable[int]) -> dict[int, Message]:
    """Return the messages of a session at these positions, by position."""
    wanted = sorted(set(positions))
    found: dict[int, Message] = {}
    for start in range(0, len(wanted), BATCH_SIZE):
        batch = wanted[start : start + BATCH_SIZE]
        rows = tx.run(
            f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session ="
            " (SELECT num FROM sessions WHERE id = ? AND pruned IS NULL) AND m.rewind IS NULL"
            f" AND m.position IN ({', '.join('?' * len(batch))})",
            (escape_text(session), *batch),
        )
        messages = map(row_to_message, rows)
        found |= {message.position: message for message in messages if message.position is not None}
    return found


def delete_verdicts(tx: Transaction) -> None:
    """Delete all verdicts; they are derived again when needed."""
    tx.run("DELETE FROM calls")
    tx.run("DELETE FROM judged_sessions")


def _call_to_row(num: int, call: JudgedCall) -> Row:
    _, position, number, id, tool, kind, digest, outcome, failed, *rest = call
    texts = (escape_text(id), escape_text(tool), kind, digest, outcome)
    return (num, position, number, *texts, None if failed is None else int(failed), *rest)


def _row_to_call(session: str, row: Row) -> JudgedCall:
    _, position, number, id, tool, kind, digest, outcome, failed, *rest = row
    about = (unescape_text(id), unescape_text(tool), kind, digest, outcome)
    known: Any = None if failed is None else bool(failed)
    return JudgedCall(session, position, number, *about, known, *rest)
