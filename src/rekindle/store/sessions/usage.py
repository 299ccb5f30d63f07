"""Token usage and cost of a session, in total and by model.

The session's row holds the totals. The rows of `usage` assign them to models as far as known; the
remainder (from an import, for example) belongs to the session's own model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rekindle.errors import NotFound
from rekindle.store.core.engine import Transaction
from rekindle.store.core.rows import NANO, USAGE_COLUMNS, usage_to_row
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import QUARTER_SECONDS, Finding, Session, Tokens, Usage, UsageEntry

from . import sessions, usage_entries

_COLUMNS = ", ".join(USAGE_COLUMNS)
_FIND = "SELECT num, model FROM sessions WHERE id = ? AND pruned IS NULL"
_HAS_ENTRIES = "SELECT 1 FROM usage_entries WHERE session = ? LIMIT 1"
_ADD_TO_SESSION = (
    f"UPDATE sessions SET changes = changes + 1, {', '.join(f'{n} = {n} + ?' for n in USAGE_COLUMNS)}"
    " WHERE num = ?"
)
_ADD_TO_MODEL = (
    f"INSERT INTO usage (session, model, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (session, model) DO UPDATE SET"
    f" {', '.join(f'{n} = usage.{n} + excluded.{n}' for n in USAGE_COLUMNS)}"
)
_SUMS = ", ".join(f"coalesce(sum({n}), 0)" for n in USAGE_COLUMNS)
# Sessions whose models used more than the session's total.
_SELECT_EXCEEDING = (
    f"SELECT s.num, s.id, {', '.join(f'u.{n}' for n in USAGE_COLUMNS)} FROM sessions s"
    f" JOIN (SELECT session, {', '.join(f'sum({n}) AS {n}' for n in USAGE_COLUMNS)} FROM usage"
    " GROUP BY session) u"
    f" ON u.session = s.num WHERE {' OR '.join(f'u.{n} > s.{n}' for n in USAGE_COLUMNS)}"
)


def add_usage(
    tx: Transaction, session_id: str, added: Usage, model: str | None, now: float
) -> Session:
    """Add usage to a session and to the model, and remember when."""
    found = tx.run(_FIND, (escape_text(session_id),))
    if not found:
        raise NotFound(f"no session {session_id!r}")
    num, own = found[0]
    _add_entry(tx, num, added, unescape_text(own or "") if model is None else model, now)
    row = usage_to_row(*added)
    tx.run(_ADD_TO_SESSION, (*row, num))
    if model is not None:
        tx.run(_ADD_TO_MODEL, (num, escape_text(model), *row))
    return sessions.get_session_by_num(tx, num)


def add_tokens(tx: Transaction, num: int, used: Mapping[str, Tokens], now: float) -> None:
    """Add tokens by model to a session that has just been written to, and remember when."""
    for model, tokens in used.items():
        _add_entry(tx, num, Usage(tokens), model, now)
        row = (*tokens, 0)
        tx.run(_ADD_TO_SESSION, (*row, num))
        tx.run(_ADD_TO_MODEL, (num, escape_text(model), *row))


def _add_entry(tx: Transaction, num: int, added: Usage, model: str, now: float) -> None:
    if not tx.run(_HAS_ENTRIES, (num,)):
        session = sessions.get_session_by_num(tx, num)
        before = compute_session_usage(tx, num, session)
        usage_entries.raise_entries(tx, num, usage_entries.make_entries(session, before))
    quarter = max(0, int(now)) // QUARTER_SECONDS
    usage_entries.add_entry(tx, num, UsageEntry(quarter, model, *added))


def load_usage_by_model(tx: Transaction, num: int) -> dict[str, Usage]:
    """Load the recorded usage of a session by model."""
    rows = tx.run(f"SELECT model, {_COLUMNS} FROM usage WHERE session = ? ORDER BY model", (num,))
    return {unescape_text(model): _row_to_usage(row) for model, *row in rows}


def compute_session_usage(tx: Transaction, num: int, session: Session) -> dict[str, Usage]:
    """Return the usage of a session by model, with the remainder assigned to the session's own."""
    found = load_usage_by_model(tx, num) or _load_entries_by_model(tx, num)
    remainder = _subtract_usage(Usage(session.tokens, session.cost), found.values())
    if any(count > 0 for count in (*remainder.tokens, remainder.cost)):
        own = session.model or ""
        found[own] = found.get(own, Usage()).add(remainder)
    return found


def _load_entries_by_model(tx: Transaction, num: int) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    for entry in usage_entries.load_entries(tx, num):
        _add_to_model(found, entry.model, Usage(entry.tokens, entry.cost))
    return found


def is_within_total(session: Session, models: Mapping[str, Usage]) -> bool:
    """Return whether the models used no more than the session in total."""
    remainder = _subtract_usage(Usage(session.tokens, session.cost), models.values())
    return all(count >= 0 for count in remainder.tokens) and remainder.cost >= 0


def assign_remainder(tx: Transaction, session_id: str) -> None:
    """Assign the remainder to the current model, before the session changes its model."""
    num, session = sessions.get_session(tx, session_id)
    if session.model is not None:
        replace_usage(tx, num, compute_session_usage(tx, num, session))


def sum_by_model(
    tx: Transaction, condition: str = "s.pruned IS NULL", params: Sequence[Any] = ()
) -> dict[str, Usage]:
    """Return the usage by model over all sessions that meet a condition on `s`, highest first."""
    found: dict[str, Usage] = {}
    # Count each session's total for its own model, minus the usage recorded by model …
    of_sessions = tx.run(
        f"SELECT model, {_SUMS} FROM sessions s WHERE {condition} GROUP BY model", params
    )
    for model, *row in of_sessions:
        _add_to_model(found, model, _row_to_usage(row))
    known = tx.run(
        f"SELECT s.model, u.model, {', '.join(f'sum(u.{n})' for n in USAGE_COLUMNS)} FROM usage u"
        f" JOIN sessions s ON s.num = u.session WHERE {condition} GROUP BY s.model, u.model",
        params,
    )
    for own, model, *row in known:  # … which counts for those models
        used = _row_to_usage(row)
        _add_to_model(found, own, _subtract_usage(Usage(), [used]))
        _add_to_model(found, model, used)
    some = {model: used for model, used in found.items() if any(used.tokens) or used.cost}
    return dict(sorted(some.items(), key=lambda pair: (-pair[1].tokens.total, pair[0])))


def _add_to_model(found: dict[str, Usage], model: str | None, used: Usage) -> None:
    name = unescape_text(model or "")
    found[name] = found.get(name, Usage()).add(used)


def replace_usage(tx: Transaction, num: int, models: Mapping[str, Usage]) -> None:
    """Replace the usage by model of a session; its totals are set separately."""
    tx.run("DELETE FROM usage WHERE session = ?", (num,))
    tx.run_many(
        _ADD_TO_MODEL,
        [(num, escape_text(model), *usage_to_row(*used)) for model, used in models.items()],
    )


def check_usage(tx: Transaction) -> Iterator[Finding]:
    """Yield sessions whose total is less than the usage of their models."""
    for _, name, *_ in tx.run(_SELECT_EXCEEDING):
        detail = "the usage of its models exceeds its total"
        yield Finding(check="usage", where=unescape_text(name), detail=detail)


def repair_usage(tx: Transaction) -> list[str]:
    """Raise totals that are less than the usage of the models, and return what was repaired."""
    repairs: list[str] = []
    for table in ("usage", "usage_entries"):
        orphans = "NOT EXISTS (SELECT 1 FROM sessions s WHERE s.num = session)"
        tx.run(f"DELETE FROM {table} WHERE {orphans}")
    raised = ", ".join(f"{n} = CASE WHEN {n} < ? THEN ? ELSE {n} END" for n in USAGE_COLUMNS)
    for num, name, *row in tx.run(_SELECT_EXCEEDING):
        counts = [int(count) for count in row]
        twice = [count for count in counts for _ in range(2)]
        tx.run(f"UPDATE sessions SET changes = changes + 1, {raised} WHERE num = ?", (*twice, num))
        repairs.append(f"{unescape_text(name)}: recomputed tokens and cost")
    return repairs


def _row_to_usage(row: Iterable[int]) -> Usage:
    *tokens, cost = map(int, row)  # not every engine returns sums as int
    return Usage(Tokens(*tokens), Decimal(cost) / NANO)


def _subtract_usage(total: Usage, parts: Iterable[Usage]) -> Usage:
    for part in parts:
        remaining_tokens = Tokens(*(a - b for a, b in zip(total.tokens, part.tokens, strict=True)))
        total = Usage(remaining_tokens, total.cost - part.cost)
    return total
