"""The outbox: what has to reach somebody stays until it did, or until nobody tries any more.

Who sends what waits in a conversation holds a lease of its own for that, so that parcels go out in
order and by one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import Source, plain

from .message_rows import LETTER, PARCEL, SENDING, SKEW, Letter, Parcel, hold, letter_of, parcel_of


class Outbox:
    """What goes out of a store."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    def post(self, key: str, target: Source, text: str, answers: Letter | None = None) -> Parcel:
        """Put a text on its way that ends no turn."""
        now, num = self._clock(), answers and answers.num
        return self._write(lambda tx: post(tx, key, num, target, text, now))

    def claim(
        self, runner: str, lease: float, limit: int = 100, *, under: Sequence[str] = ()
    ) -> list[str]:
        """Take over the sending in conversations where something is due and nobody sends.

        What was posted in the far future is due: a clock was put back since.
        """
        now, (condition, begins) = self._clock(), beginning(under)

        def work(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM outbox o WHERE state = 'waiting'"
                " AND (next_try <= ? OR time > ?)"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = ? || o.key AND l.until > ?"
                f" AND l.until <= ?){condition} ORDER BY key LIMIT ?",
                (now, now + SKEW, SENDING, now, now + lease + SKEW, *begins, limit),
            )
            keys = [unescape(key) for (key,) in rows]
            return [key for key in keys if hold(tx, SENDING + key, runner, now, lease)]

        return self._write(work)

    def take(self, key: str, runner: str, lease: float) -> list[Parcel]:
        """Take over the sending in a conversation, and what waits there; nothing if another sends.

        What the runner itself claimed a moment ago, and did not come to send, is its own.
        """
        now, lease_of = self._clock(), SENDING + key

        def work(tx: Transaction) -> list[Parcel]:
            ours = "SELECT 1 FROM leases WHERE key = ? AND runner = ?"
            held = hold(tx, lease_of, runner, now, lease)
            if held or tx.run(ours, (escape(lease_of), escape(runner))):
                return unsent(tx, key)
            return []

        return self._write(work)

    def let_go(self, key: str, runner: str) -> list[Parcel]:
        """Give the sending in a conversation back, unless something waits: that is returned."""

        def work(tx: Transaction) -> list[Parcel]:
            held = tx.run(
                "UPDATE leases SET until = until WHERE key = ? AND runner = ? RETURNING key",
                (escape(SENDING + key), escape(runner)),
            )
            waiting = unsent(tx, key)
            if held and not waiting:
                tx.run("DELETE FROM leases WHERE key = ?", (escape(SENDING + key),))
            return waiting if held else []

        return self._write(work)

    def is_sent(self, key: str) -> bool:
        """Did everything that was posted in a conversation go out, or was given up?"""
        with self._engine.reading() as tx:
            sql = "SELECT 1 FROM outbox WHERE key = ? AND state = 'waiting' LIMIT 1"
            return not tx.run(sql, (escape(key),))

    def opens(self, parcel: Parcel) -> Letter | None:
        """The letter whose answer begins with this parcel, if it begins one."""
        if parcel.answers is None:
            return None
        letter = ", ".join(f"i.{name}" for name in LETTER.split(", "))
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {letter} FROM inbox i WHERE i.num = ? AND NOT EXISTS"
                " (SELECT 1 FROM outbox o WHERE o.key = ? AND o.inbox = i.num AND o.num < ?)",
                (parcel.answers, escape(parcel.key), parcel.num),
            )
        return letter_of(rows[0]) if rows else None

    def due(self, limit: int = 100) -> list[Parcel]:
        """What has to be sent now, oldest first."""
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {PARCEL} FROM outbox WHERE state = 'waiting' AND next_try <= ?"
                " ORDER BY num LIMIT ?",
                (self._clock(), limit),
            )
        return [parcel_of(row) for row in rows]

    def sent(self, parcel: Parcel, platform_message_id: str) -> None:
        """It arrived: the platform gave it an id."""
        self._write(
            lambda tx: tx.run(
                "UPDATE outbox SET state = 'sent', platform_id = ?, reason = NULL,"
                " attempts = attempts + 1 WHERE num = ?",
                (escape(platform_message_id), parcel.num),
            )
        )

    def missed(self, parcel: Parcel, reason: str, *, again: float | None) -> None:
        """It did not arrive; try `again` in so many seconds, or never."""
        state, at = ("failed", 0.0) if again is None else ("waiting", self._clock() + again)
        self._write(
            lambda tx: tx.run(
                "UPDATE outbox SET state = ?, reason = ?, next_try = ?, attempts = attempts + 1"
                " WHERE num = ? AND state = 'waiting'",
                (state, escape(reason), at, parcel.num),
            )
        )

    def parcels(self, key: str) -> list[Parcel]:
        """Everything that went out, or should, in a conversation."""
        with self._engine.reading() as tx:
            sql = f"SELECT {PARCEL} FROM outbox WHERE key = ? ORDER BY num"
            return [parcel_of(row) for row in tx.run(sql, (escape(key),))]


def unsent(tx: Transaction, key: str) -> list[Parcel]:
    sql = f"SELECT {PARCEL} FROM outbox WHERE key = ? AND state = 'waiting' ORDER BY num"
    return [parcel_of(row) for row in tx.run(sql, (escape(key),))]


def beginning(under: Sequence[str]) -> tuple[str, list[Any]]:
    """A condition that a key begins with one of these; none without any."""
    begins = [escape(prefix) for prefix in under]
    if not begins:
        return "", []
    each = " OR ".join("substr(key, 1, ?) = ?" for _ in begins)
    return f" AND ({each})", [value for begin in begins for value in (len(begin), begin)]


def post(
    tx: Transaction, key: str, answers: int | None, target: Source, text: str, now: float
) -> Parcel:
    rows = tx.run(
        "INSERT INTO outbox (key, inbox, target, text, state, next_try, time)"
        f" VALUES (?, ?, ?, ?, 'waiting', ?, ?) RETURNING {PARCEL}",
        (escape(key), answers, encode_json(plain(target)), escape(text), now, now),
    )
    return parcel_of(rows[0])
