"""The outbox: a text stays queued until it is sent or given up.

Sending from a conversation's outbox needs a lease of its own, so that messages go out in order and
one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import escape_text
from rekindle.types import Source, to_json_value

from .message_rows import (
    INBOX_ROWS,
    MAX_CLOCK_SKEW,
    OUTBOX_ROWS,
    SEND_LEASE_PREFIX,
    InboundMessage,
    OutboundMessage,
    acquire_lease,
    acquire_leases,
    escape_optional,
    release_if_idle,
)


class Outbox(StorePart):
    """The outbound messages of a store."""

    def post(
        self,
        key: str,
        target: Source,
        text: str,
        reply_to: InboundMessage | None = None,
        *,
        file: str | None = None,
    ) -> OutboundMessage:
        """Queue a text that does not end a turn, or a file with the text as its caption."""
        now, num = self._clock(), reply_to and reply_to.num
        return self._write(lambda tx: insert_outbound(tx, key, num, target, text, now, file))

    def claim_conversations(
        self, instance: str, lease_seconds: float, limit: int = 100, *, prefixes: Sequence[str] = ()
    ) -> list[str]:
        """Acquire the send leases of conversations with due messages and no sender; return their keys.

        Messages posted in the far future count as due: a clock was set back.
        """
        now, (condition, prefix_params) = self._clock(), build_prefix_condition(prefixes)

        def claim_due(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM outbox o WHERE state = 'waiting'"
                " AND (next_try <= ? OR time > ?)"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = ? || o.key AND l.expires > ?"
                f" AND l.expires <= ?){condition} ORDER BY key LIMIT ?",
                (
                    now,
                    now + MAX_CLOCK_SKEW,
                    SEND_LEASE_PREFIX,
                    now,
                    now + lease_seconds + MAX_CLOCK_SKEW,
                    *prefix_params,
                    limit,
                ),
            )
            return acquire_leases(tx, rows, SEND_LEASE_PREFIX, instance, now, lease_seconds)

        return self._write(claim_due)

    def claim_unsent(self, key: str, instance: str, lease_seconds: float) -> list[OutboundMessage]:
        """Acquire a conversation's send lease and return its unsent messages; none if another sends.

        A lease that the instance itself already holds counts as acquired.
        """
        now, send_key = self._clock(), SEND_LEASE_PREFIX + key

        def acquire_and_select(tx: Transaction) -> list[OutboundMessage]:
            own_lease_sql = "SELECT 1 FROM leases WHERE key = ? AND instance = ?"
            is_acquired = acquire_lease(tx, send_key, instance, now, lease_seconds)
            if is_acquired or tx.run(own_lease_sql, (escape_text(send_key), escape_text(instance))):
                return select_unsent(tx, key)
            return []

        return self._write(acquire_and_select)

    def release_send_lease(self, key: str, instance: str) -> list[OutboundMessage]:
        """Release the send lease of a conversation unless messages are waiting, and return those."""
        lease = SEND_LEASE_PREFIX + key
        return self._write(lambda tx: release_if_idle(tx, lease, instance, key, select_unsent))

    def is_all_sent(self, key: str) -> bool:
        """Return whether everything posted in a conversation was sent or given up."""
        sql = "SELECT 1 FROM outbox WHERE key = ? AND state = 'waiting' LIMIT 1"
        return not self._select(sql, (escape_text(key),))

    def find_answered(self, outbound: OutboundMessage) -> InboundMessage | None:
        """Return the inbound message whose answer starts with this message, if it starts one."""
        if outbound.reply_to is None:
            return None
        with self._engine.begin_read() as tx:
            found = INBOX_ROWS.find(
                tx,
                "WHERE num = ? AND NOT EXISTS"
                " (SELECT 1 FROM outbox o WHERE o.key = ? AND o.inbox = inbox.num AND o.num < ?)",
                (outbound.reply_to, escape_text(outbound.key), outbound.num),
            )
        return found[0] if found else None

    def list_due(self, limit: int = 100) -> list[OutboundMessage]:
        """Return the messages that are due, oldest first."""
        with self._engine.begin_read() as tx:
            rest = "WHERE state = 'waiting' AND next_try <= ? ORDER BY num LIMIT ?"
            return OUTBOX_ROWS.find(tx, rest, (self._clock(), limit))

    def mark_sent(self, outbound: OutboundMessage, platform_message_id: str) -> None:
        """Record that a message was delivered under the platform's id."""
        self._write(
            lambda tx: tx.run(
                "UPDATE outbox SET state = 'sent', platform_id = ?, reason = NULL,"
                " attempts = attempts + 1 WHERE num = ?",
                (escape_text(platform_message_id), outbound.num),
            )
        )

    def mark_failed(
        self, outbound: OutboundMessage, reason: str, *, retry_after: float | None
    ) -> None:
        """Record a failed delivery; retry after `retry_after` seconds, or never if None."""
        state, next_try = (
            ("failed", 0.0) if retry_after is None else ("waiting", self._clock() + retry_after)
        )
        self._write(
            lambda tx: tx.run(
                "UPDATE outbox SET state = ?, reason = ?, next_try = ?, attempts = attempts + 1"
                " WHERE num = ? AND state = 'waiting'",
                (state, escape_text(reason), next_try, outbound.num),
            )
        )

    def list_by_state(
        self, states: Sequence[str], limit: int = 30, *, before: int | None = None
    ) -> list[OutboundMessage]:
        """Return outbound messages in these states, newest first; `before` is a number."""
        marks = ", ".join("?" * len(states))
        condition, numbers = ("", []) if before is None else (" AND num < ?", [before])
        with self._engine.begin_read() as tx:
            rest = f"WHERE state IN ({marks}){condition} ORDER BY num DESC LIMIT ?"
            return OUTBOX_ROWS.find(tx, rest, (*states, *numbers, limit))

    def requeue_failed(self, nums: Sequence[int] | None = None) -> int:
        """Queue failed messages again, all or those with these numbers; return how many."""
        marks = "" if nums is None else f" AND num IN ({', '.join('?' * len(nums))})"
        sql = (
            "UPDATE outbox SET state = 'waiting', attempts = 0, next_try = ?, reason = NULL"
            f" WHERE state IN ('sent', 'failed') AND state = 'failed'{marks} RETURNING num"
        )
        now = self._clock()
        return self._write(lambda tx: len(tx.run(sql, (now, *(nums or ())))))

    def list_outbound(self, key: str) -> list[OutboundMessage]:
        """Return all outbound messages of a conversation."""
        with self._engine.begin_read() as tx:
            return OUTBOX_ROWS.find(tx, "WHERE key = ? ORDER BY num", (escape_text(key),))


def select_unsent(tx: Transaction, key: str) -> list[OutboundMessage]:
    """Return the unsent messages of a conversation, in order."""
    rest = "WHERE key = ? AND state = 'waiting' ORDER BY num"
    return OUTBOX_ROWS.find(tx, rest, (escape_text(key),))


def build_prefix_condition(prefixes: Sequence[str]) -> tuple[str, list[Any]]:
    """Build a condition that a key starts with one of these prefixes; empty without any."""
    escaped_prefixes = [escape_text(prefix) for prefix in prefixes]
    if not escaped_prefixes:
        return "", []
    alternatives = " OR ".join("substr(key, 1, ?) = ?" for _ in escaped_prefixes)
    return f" AND ({alternatives})", [
        value for escaped in escaped_prefixes for value in (len(escaped), escaped)
    ]


def insert_outbound(
    tx: Transaction,
    key: str,
    reply_to: int | None,
    target: Source,
    text: str,
    now: float,
    file: str | None = None,
) -> OutboundMessage:
    """Insert a message into the outbox."""
    rows = tx.run(
        "INSERT INTO outbox (key, inbox, target, text, state, next_try, time, file)"
        f" VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?) RETURNING {OUTBOX_ROWS.select}",
        (
            escape_text(key),
            reply_to,
            encode_json(to_json_value(target)),
            escape_text(text),
            now,
            now,
            escape_optional(file),
        ),
    )
    return OUTBOX_ROWS.read(rows[0])
