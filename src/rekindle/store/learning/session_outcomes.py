"""What became of whole sessions, stored next to them and updated when they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rekindle.analytics.outcome_rates import OutcomeCount
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.tables import SESSION_OUTCOMES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import SessionOutcome

_INSERT = (
    f"INSERT INTO session_outcomes ({SESSION_OUTCOMES.list_names()})"
    " SELECT ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE num = ?)"
    " ON CONFLICT (session) DO UPDATE SET version = excluded.version, changes = excluded.changes,"
    " verdict = excluded.verdict, rule = excluded.rule, confidence = excluded.confidence,"
    " position = excluded.position"
)
BATCH_SIZE = 500  # sessions whose outcomes are read with one statement


class UndecidedSession(NamedTuple):
    """A session whose outcome is not known in its current state."""

    num: int
    id: str
    changes: int
    messages: int


class SessionOutcomes:
    """The outcomes of a store's sessions. Use `store.session_outcomes`."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    def find_stale(
        self, version: str, where: Filter | None = None, *, session: str | None = None
    ) -> list[UndecidedSession]:
        """Return the sessions that this version has not judged in their current state."""
        condition, params = (where or Filter(archived=None)).to_sql(self._clock())
        if session is not None:
            condition, params = "s.id = ? AND s.pruned IS NULL", [escape_text(session)]
        with self._engine.begin_read() as tx:
            rows = tx.run(
                "SELECT s.num, s.id, s.changes, s.message_count FROM sessions s"
                f" LEFT JOIN session_outcomes c ON c.session = s.num WHERE {condition}"
                " AND (c.session IS NULL OR c.version <> ? OR c.changes <> s.changes)"
                " ORDER BY s.num",
                (*params, version),
            )
        return [
            UndecidedSession(num, unescape_text(id), changes, messages)
            for num, id, changes, messages in rows
        ]

    def save(self, version: str, judged: Iterable[tuple[UndecidedSession, SessionOutcome]]) -> None:
        """Save outcomes; those of deleted sessions are dropped."""
        rows = [
            (one.num, version, one.changes, outcome.verdict, outcome.rule, outcome.confidence,
             outcome.where, one.num)
            for one, outcome in judged
        ]  # fmt: skip
        if rows:
            self._write(lambda tx: tx.run_many(_INSERT, rows))

    def count(self, where: Filter) -> list[OutcomeCount]:
        """Count the sessions of each source, project and verdict; not yet judged is unknown."""
        condition, params = where.to_sql(self._clock())
        with self._engine.begin_read() as tx:
            rows = tx.run(
                "SELECT s.source, s.project, coalesce(c.verdict, 'unknown'), count(*)"
                " FROM sessions s LEFT JOIN session_outcomes c ON c.session = s.num"
                f" WHERE {condition} GROUP BY s.source, s.project, coalesce(c.verdict, 'unknown')",
                params,
            )
        return [
            OutcomeCount(
                unescape_text(source),
                None if project is None else unescape_text(project),
                verdict,
                sessions,
            )
            for source, project, verdict, sessions in rows
        ]

    def load(self, sessions: Sequence[str]) -> dict[str, SessionOutcome]:
        """Return the known outcomes of sessions, by id."""
        found: dict[str, SessionOutcome] = {}
        with self._engine.begin_read() as tx:
            for start in range(0, len(sessions), BATCH_SIZE):
                batch = [escape_text(id) for id in sessions[start : start + BATCH_SIZE]]
                marks = ", ".join("?" * len(batch))
                for id, *fields in tx.run(
                    "SELECT s.id, o.verdict, o.rule, o.confidence, o.position FROM sessions s"
                    f" JOIN session_outcomes o ON o.session = s.num WHERE s.id IN ({marks})",
                    batch,
                ):
                    found[unescape_text(id)] = SessionOutcome(*fields)
        return found


def delete_session_outcomes(tx: Transaction) -> None:
    """Delete all outcomes; they are derived again when needed."""
    tx.run("DELETE FROM session_outcomes")
