"""What the models took: tokens and cost of a session, in all and of each model.

The row of a session holds the sums. The rows of `usage` tell which model took them, as far as
somebody said so; what is left over (it came in with an import, say) went to the session's own model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from rekindle.store.core.engine import Transaction
from rekindle.store.core.rows import NANO, nano
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import Finding, Session, Tokens, Usage

from . import sessions

_NAMES = (
    "tokens_input",
    "tokens_output",
    "tokens_read",
    "tokens_write",
    "tokens_reasoning",
    "cost_nano",
)
_COLUMNS = ", ".join(_NAMES)
_ADD_TO_SESSION = (
    f"UPDATE sessions SET changes = changes + 1, {', '.join(f'{n} = {n} + ?' for n in _NAMES)}"
    " WHERE num = ?"
)
_ADD = (
    f"INSERT INTO usage (session, model, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (session, model) DO UPDATE SET"
    f" {', '.join(f'{n} = usage.{n} + excluded.{n}' for n in _NAMES)}"
)
_SUMS = ", ".join(f"coalesce(sum({n}), 0)" for n in _NAMES)
# Sessions of which the models took more than the session itself did.
_TOO_MUCH = (
    f"SELECT s.num, s.id, {', '.join(f'u.{n}' for n in _NAMES)} FROM sessions s JOIN (SELECT session,"
    f" {', '.join(f'sum({n}) AS {n}' for n in _NAMES)} FROM usage GROUP BY session) u"
    f" ON u.session = s.num WHERE {' OR '.join(f'u.{n} > s.{n}' for n in _NAMES)}"
)


def add(tx: Transaction, session_id: str, taken: Usage, model: str | None) -> Session:
    """Count what was taken to a session, and to the model."""
    num, _ = sessions.by_id(tx, session_id)
    row = _row(taken)
    tx.run(_ADD_TO_SESSION, (*row, num))
    if model is not None:
        tx.run(_ADD, (num, escape(model), *row))
    return sessions.by_num(tx, num)


def told(tx: Transaction, num: int) -> dict[str, Usage]:
    """What is said of each model, by its name."""
    rows = tx.run(f"SELECT model, {_COLUMNS} FROM usage WHERE session = ? ORDER BY model", (num,))
    return {unescape(model): _usage(row) for model, *row in rows}


def of_session(tx: Transaction, num: int, session: Session) -> dict[str, Usage]:
    """What each model took of a session, the leftover counted to the session's own."""
    found = told(tx, num)
    left = _minus(Usage(session.tokens, session.cost), found.values())
    if any(left.tokens) or left.cost:
        own = session.model or ""
        found[own] = found.get(own, Usage()).plus(left)
    return found


def is_within(session: Session, models: Mapping[str, Usage]) -> bool:
    """Did the models take no more than the session did?"""
    left = _minus(Usage(session.tokens, session.cost), models.values())
    return all(count >= 0 for count in left.tokens) and left.cost >= 0


def settle(tx: Transaction, session_id: str) -> None:
    """Say of the leftover which model took it, before the session gets another."""
    num, session = sessions.by_id(tx, session_id)
    if session.model is not None:
        put(tx, num, of_session(tx, num, session))


def by_model(tx: Transaction) -> dict[str, Usage]:
    """What each model took of all sessions that are not pruned, the most first."""
    found: dict[str, Usage] = {}
    # Of each session's own model: all of the session, less what its models are known for …
    of_sessions = tx.run(f"SELECT model, {_SUMS} FROM sessions WHERE pruned IS NULL GROUP BY model")
    for model, *row in of_sessions:
        _count(found, model, _usage(row))
    known = tx.run(
        f"SELECT s.model, u.model, {', '.join(f'sum(u.{n})' for n in _NAMES)} FROM usage u"
        " JOIN sessions s ON s.num = u.session WHERE s.pruned IS NULL GROUP BY s.model, u.model"
    )
    for own, model, *row in known:  # … which goes to those
        taken = _usage(row)
        _count(found, own, _minus(Usage(), [taken]))
        _count(found, model, taken)
    some = {model: taken for model, taken in found.items() if any(taken.tokens) or taken.cost}
    return dict(sorted(some.items(), key=lambda pair: (-pair[1].tokens.total, pair[0])))


def _count(found: dict[str, Usage], model: str | None, taken: Usage) -> None:
    name = unescape(model or "")
    found[name] = found.get(name, Usage()).plus(taken)


def put(tx: Transaction, num: int, models: Mapping[str, Usage]) -> None:
    """Say anew what each model took of a session; its sums are set beside this."""
    tx.run("DELETE FROM usage WHERE session = ?", (num,))
    tx.many(_ADD, [(num, escape(model), *_row(taken)) for model, taken in models.items()])


def check(tx: Transaction) -> Iterator[Finding]:
    """Sessions whose sums are less than what their models took."""
    for _, name, *_ in tx.run(_TOO_MUCH):
        detail = "its models took more than its sums say"
        yield Finding(check="usage", where=unescape(name), detail=detail)


def repair(tx: Transaction) -> list[str]:
    """Raise sums that are less than what the models took, and say where."""
    mended: list[str] = []
    tx.run("DELETE FROM usage WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.num = session)")
    raised = ", ".join(f"{n} = CASE WHEN {n} < ? THEN ? ELSE {n} END" for n in _NAMES)
    for num, name, *row in tx.run(_TOO_MUCH):
        counts = [int(count) for count in row]
        twice = [count for count in counts for _ in range(2)]
        tx.run(f"UPDATE sessions SET changes = changes + 1, {raised} WHERE num = ?", (*twice, num))
        mended.append(f"{unescape(name)}: tokens and cost summed up anew")
    return mended


def _row(taken: Usage) -> tuple[int, ...]:
    return (*taken.tokens, nano(taken.cost))


def _usage(row: Iterable[int]) -> Usage:
    *tokens, cost = map(int, row)  # a sum is no int on every engine
    return Usage(Tokens(*tokens), Decimal(cost) / NANO)


def _minus(whole: Usage, parts: Iterable[Usage]) -> Usage:
    for part in parts:
        left = Tokens(*(a - b for a, b in zip(whole.tokens, part.tokens, strict=True)))
        whole = Usage(left, whole.cost - part.cost)
    return whole
