"""What became of the calls: kept beside the messages, renewed where there is something new.

Nothing here judges. A session is due when it has changed since it was judged, or was judged by other
rules; judging goes on at the first position whose judgement may still change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.filter import Filter, among
from rekindle.store.core.rows import SESSION_COLUMNS, decode_json, encode_json, session_of
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import Call, Judged

_REWINDS = (
    "(SELECT coalesce(2 * count(*) + count(r.restored), 0) FROM rewinds r WHERE r.session = s.num)"
)
_COLUMNS = (
    "position, number, id, tool, work, digest, outcome, failed, error_kind, fault, rule,"
    " confidence, duration, answered"
)
TOGETHER = 200  # sessions whose calls are read with one statement


class Due(NamedTuple):
    """A session that has to be judged, from `since` on; what is judged before that stays."""

    num: int
    session: str
    since: int
    messages: int
    compressions: tuple[int, ...]  # before `since`
    changes: int
    rewinds: int


class Verdicts(NamedTuple):
    """What judging a session gave."""

    due: Due
    calls: Sequence[Call]
    since: int  # where to begin when there is more
    compressions: Sequence[int]


def due(
    tx: Transaction,
    rules: str,
    where: Filter,
    session: str | None,
    nums: Sequence[int] | None,
    now: float,
) -> list[Due]:
    """The sessions whose judgements are not up to date."""
    condition, params = where.sql(now)
    if session is not None:
        condition, params = "s.id = ? AND s.pruned IS NULL", [escape(session)]
    rows = tx.run(
        "SELECT s.num, s.id, s.message_count, s.changes, j.rules, j.rewinds, j.since, j.compressions,"
        f" {_REWINDS} FROM sessions s LEFT JOIN judged j ON j.session = s.num WHERE {condition}"
        f" AND {among(nums, 's.num')}"
        " AND (j.session IS NULL OR j.rules <> ? OR j.changes <> s.changes) ORDER BY s.num",
        (*params, rules),
    )
    found: list[Due] = []
    for num, id, count, changes, judged_by, had, since, compressions, rewinds in rows:
        if judged_by != rules or had != rewinds:
            since, compressions = 0, "[]"
        before = tuple(at for at in decode_json(compressions) if at < since)
        found.append(Due(num, unescape(id), since, count, before, changes, rewinds))
    return found


def keep(tx: Transaction, rules: str, verdicts: Sequence[Verdicts]) -> None:
    """Put new judgements in place of those from `since` on."""
    for due, calls, since, compressions in verdicts:
        rows = tx.run("SELECT num FROM sessions WHERE id = ?", (escape(due.session),))
        if not rows:
            continue  # deleted meanwhile
        num = rows[0][0]
        tx.run("DELETE FROM calls WHERE session = ? AND position >= ?", (num, due.since))
        tx.many(
            f"INSERT INTO calls (session, {_COLUMNS}) VALUES ({', '.join('?' * 15)})",
            [_row(num, call) for call in calls],
        )
        tx.run(
            "INSERT INTO judged (session, rules, changes, rewinds, since, compressions)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session) DO UPDATE SET rules = excluded.rules,"
            " changes = excluded.changes, rewinds = excluded.rewinds, since = excluded.since,"
            " compressions = excluded.compressions",
            (num, rules, due.changes, due.rewinds, since, encode_json(list(compressions))),
        )


def judged(tx: Transaction, where: Filter, session: str | None, now: float) -> Iterator[Judged]:
    """Sessions with their calls, in the order of their start."""
    condition, params = where.sql(now)
    if session is not None:
        condition, params = "s.id = ? AND s.pruned IS NULL", [escape(session)]
    rows = tx.run(
        f"SELECT s.num, j.compressions, {SESSION_COLUMNS} FROM sessions s"
        f" LEFT JOIN judged j ON j.session = s.num WHERE {condition} ORDER BY s.started, s.num",
        params,
    )
    for start in range(0, len(rows), TOGETHER):
        part = rows[start : start + TOGETHER]
        marks = ", ".join("?" * len(part))
        found = tx.run(
            f"SELECT session, {_COLUMNS} FROM calls WHERE session IN ({marks})"
            " ORDER BY session, position, number",
            [row[0] for row in part],
        )
        calls = {num: list(group) for num, group in groupby(found, key=lambda row: row[0])}
        for num, compressions, *columns in part:
            one = session_of(tuple(columns))
            made = tuple([_call(one.id, row) for row in calls.get(num, ())])
            yield Judged(one, made, tuple(decode_json(compressions or "[]")))


def forget(tx: Transaction) -> None:
    """Throw everything away; it is derived anew when it is asked for."""
    tx.run("DELETE FROM calls")
    tx.run("DELETE FROM judged")


def _row(num: int, call: Call) -> Row:
    _, position, number, id, tool, work, digest, outcome, failed, *rest = call
    texts = (escape(id), escape(tool), work, digest, outcome)
    return (num, position, number, *texts, None if failed is None else int(failed), *rest)


def _call(session: str, row: Row) -> Call:
    _, position, number, id, tool, work, digest, outcome, failed, *rest = row
    known: Any = None if failed is None else bool(failed)
    return Call(
        session, position, number, unescape(id), unescape(tool), work, digest, outcome, known, *rest
    )
