"""The last errors of the gateways on a store, for their operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import ValueRows
from rekindle.store.core.tables import GATEWAY_ERRORS
from rekindle.store.core.text_encoding import escape_text

MAX_KEPT = 1000


class GatewayError(NamedTuple):
    """An error: when, in which conversation if any, of which kind, why, and how often in a row."""

    time: float
    key: str
    kind: str
    cause: str
    times: int


_ROWS = ValueRows(GATEWAY_ERRORS, GatewayError)


class GatewayErrors(StorePart):
    """The last errors of gateways. Use `store.gateway_errors`."""

    def add(self, errors: Sequence[GatewayError]) -> None:
        """Store errors; the oldest beyond a fixed number are deleted."""
        sql = "INSERT INTO gateway_errors (time, key, kind, cause, times) VALUES (?, ?, ?, ?, ?)"
        rows = [
            (
                one.time,
                escape_text(one.key),
                escape_text(one.kind),
                escape_text(one.cause),
                one.times,
            )
            for one in errors
        ]

        def insert_and_trim(tx: Transaction) -> None:
            tx.run_many(sql, rows)
            tx.run(
                "DELETE FROM gateway_errors"
                f" WHERE num <= (SELECT max(num) FROM gateway_errors) - {MAX_KEPT}"
            )

        self._write(insert_and_trim)

    def list(self, limit: int = 20) -> list[GatewayError]:
        """Return the newest errors, newest first."""
        with self._engine.begin_read() as tx:
            return _ROWS.find(tx, "ORDER BY num DESC LIMIT ?", (limit,))
