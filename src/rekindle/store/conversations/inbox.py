"""The inbox: inbound messages and their turns, so that a crash loses nothing and repeats nothing.

    accept         store a message; a redelivery by the platform is recognised
    count_attempt  count an attempt before processing, in case it crashes the program
    start_turn     append the message to its session
    finish_turn    store the answer, queue it for sending and end the turn, in one transaction
    post …         queue a text; it stays until it is sent or given up

A gateway that works on a conversation holds its lease and renews it regularly. When the gateway dies,
the lease expires and another one takes over. `release_lease` releases it only if nothing is waiting,
in one transaction with `accept`, so no message is left without a worker. Sending from the outbox
of a conversation needs a lease of its own (`claim_conversations`, `claim_unsent`, `release_send_lease`),
so that messages go out in order and one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from rekindle.errors import InboxFull, NotFound, TurnTakenOver
from rekindle.routing.key import parse_key
from rekindle.store.core.engine import Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.store.sessions import sessions
from rekindle.types import (
    Message,
    Session,
    Source,
    replace_fields,
    to_json_value,
    validate_message,
    validate_name,
)

from .jobs import JOB_CHAT_TYPE, finish_runs
from .message_rows import (
    INBOX_ROWS,
    MAX_CLOCK_SKEW,
    OUTBOX_ROWS,
    SEND_LEASE_PREFIX,
    UNLIMITED,
    AcceptResult,
    ConversationState,
    InboundMessage,
    InboxLimits,
    MessageCounts,
    OutboundMessage,
    acquire_lease,
    acquire_leases,
    encode_message,
    escape_optional,
    release_if_idle,
)
from .outbox import Outbox, build_prefix_condition, insert_outbound, select_unsent

__all__ = [
    "SEND_LEASE_PREFIX",
    "AcceptResult",
    "InboundMessage",
    "Inbox",
    "InboxLimits",
    "MessageCounts",
    "OutboundMessage",
]

T = TypeVar("T")

# A conversation that receives a message is not idle, even if the turn never finishes.
_TOUCH_ROUTE = (
    "UPDATE routes SET updated = CASE WHEN updated < ? THEN ? ELSE updated END WHERE key = ?"
)
_IS_OPEN = "state IN ('waiting', 'running')"


class Inbox(Outbox):
    """The inbox and outbox of a store. Use `store.inbox`."""

    # -- inbound messages

    def accept(
        self,
        key: str,
        source: Source,
        message: Message,
        *,
        instance: str,
        lease_seconds: float,
        limits: InboxLimits = UNLIMITED,
    ) -> AcceptResult:
        """Store an inbound message once, and acquire its conversation's lease if it is free.

        Raise `InboxFull` if there is no room for a new one within the limits.
        """
        validate_name("route.key", key)
        validate_message(message)
        now = self._clock()

        # Counted in the same statement, so that it takes no longer than without limits.
        condition, bounds = _build_limit_condition(key, limits)

        def insert_message(tx: Transaction) -> AcceptResult | None:
            rows = tx.run(
                "INSERT INTO inbox (key, platform_id, source, body, state, time)"
                f" SELECT ?, ?, ?, ?, 'waiting', ? WHERE {condition}"
                " ON CONFLICT (key, platform_id) WHERE platform_id IS NOT NULL DO NOTHING"
                f" RETURNING {INBOX_ROWS.select}",
                (
                    escape_text(key),
                    escape_optional(message.platform_message_id),
                    encode_json(to_json_value(source)),
                    encode_message(message),
                    now,
                    *bounds,
                ),
            )
            if not rows:
                params = (escape_text(key), escape_optional(message.platform_message_id))
                known = INBOX_ROWS.find(tx, "WHERE key = ? AND platform_id = ?", params)
                return AcceptResult(known[0], False, False) if known else None
            has_lease = acquire_lease(tx, key, instance, now, lease_seconds)
            pending = _select_open(tx, key) if has_lease else ()
            return AcceptResult(INBOX_ROWS.read(rows[0]), True, has_lease, pending)

        result = self._write(insert_message)
        if result is None:  # raised here: an error in a transaction also delays what shares it
            raise InboxFull(f"Too many messages are waiting in {key}.")
        return result

    def list_waiting(self, key: str) -> list[InboundMessage]:
        """Return the unanswered messages of a conversation in order of arrival."""
        with self._engine.begin_read() as tx:
            return _select_open(tx, key)

    def count_attempt(self, inbound: InboundMessage) -> int:
        """Count an attempt to process a message before it starts; return 0 if the message has ended."""
        sql = f"UPDATE inbox SET attempts = attempts + 1 WHERE num = ? AND {_IS_OPEN} RETURNING attempts"

        def increment(tx: Transaction) -> int:
            rows = tx.run(sql, (inbound.num,))
            return rows[0][0] if rows else 0

        return self._write(increment)

    def undo_attempts(self, nums: Sequence[int]) -> None:
        """Undo the attempt count of messages after a clean shutdown."""
        sql = f"UPDATE inbox SET attempts = attempts - 1 WHERE num = ? AND attempts > 0 AND {_IS_OPEN}"
        self._write(lambda tx: tx.run_many(sql, [(num,) for num in nums]))

    def start_turn(self, inbound: InboundMessage, session: Session) -> InboundMessage:
        """Start the turn of an inbound message: append its message to the session."""
        now = self._clock()

        def append_message(tx: Transaction) -> InboundMessage:
            current = _get_only(INBOX_ROWS.find(tx, "WHERE num = ?", (inbound.num,)), inbound.num)
            if current.state != "waiting":
                return current  # after a crash: the message is already in the session
            tx.run(_TOUCH_ROUTE, (now, now, escape_text(inbound.key)))
            message = replace_fields(
                current.message, timestamp=current.message.timestamp or current.time
            )
            appended = sessions.append_messages(self._engine, tx, session, [message], now)
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" RETURNING {INBOX_ROWS.select}",
                (escape_text(session.id), appended.positions[0], inbound.num),
            )
            return INBOX_ROWS.read(rows[0])

        return self._write(append_message)

    def start_turn_at(self, inbound: InboundMessage, session: str, position: int) -> InboundMessage:
        """Start the turn of an inbound message for a message that is already in the session."""
        now = self._clock()

        def mark_running(tx: Transaction) -> InboundMessage:
            tx.run(_TOUCH_ROUTE, (now, now, escape_text(inbound.key)))
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" AND {_IS_OPEN} RETURNING {INBOX_ROWS.select}",
                (escape_text(session), position, inbound.num),
            )
            return INBOX_ROWS.read(_get_only(rows, inbound.num))

        return self._write(mark_running)

    def append_in_turn(
        self, inbound: InboundMessage, instance: str, session: Session, message: Message
    ) -> None:
        """Append a message of a running turn; raise `TurnTakenOver` if another instance has the turn.

        An instance that was stopped for longer than its lease must not write between the messages of
        the one that has taken over.
        """
        validate_message(message)
        now = self._clock()

        def append_message(tx: Transaction) -> None:
            _require_holder(tx, inbound, instance)
            is_open = f"SELECT 1 FROM inbox WHERE num = ? AND {_IS_OPEN}"
            if not tx.run(is_open, (inbound.num,)):
                raise TurnTakenOver(f"message {inbound.num} was answered by another process")
            sessions.append_messages(self._engine, tx, session, [message], now)

        self._write(append_message)

    def close(self, inbound: InboundMessage, reason: str | None = None) -> bool:
        """End an inbound message that needs no turn; return False if it had already ended."""
        sql = f"UPDATE inbox SET state = ?, reason = ? WHERE num = ? AND {_IS_OPEN} RETURNING num"
        values = ("failed" if reason else "done", escape_optional(reason), inbound.num)
        return self._write(lambda tx: bool(tx.run(sql, values)))

    def change_waiting(self, inbound: InboundMessage, message: Message | None) -> bool:
        """Replace a message that its sender edited, or end it if None; only while it waits."""
        if message is None:
            sql = "UPDATE inbox SET state = 'done', reason = 'deleted by its sender'"
            values: tuple[object, ...] = ()
        else:
            validate_message(message)
            sql, values = "UPDATE inbox SET body = ?", (encode_message(message),)
        condition = " WHERE num = ? AND state = 'waiting' RETURNING num"
        return self._write(lambda tx: bool(tx.run(sql + condition, (*values, inbound.num))))

    def finish_turn(
        self,
        inbound_messages: Sequence[InboundMessage],
        session: Session | str,
        messages: Sequence[Message],
        replies: Sequence[tuple[Source, str]],
        *,
        reason: str | None = None,
        is_undeliverable: bool = False,
        instance: str | None = None,
        output: str | None = None,
    ) -> list[OutboundMessage]:
        """End the turn of inbound messages: store the answer and queue the replies in one transaction.

        With a `reason` the turn failed; replies are still sent. With `is_undeliverable` the messages are
        marked undeliverable. Finishing the same turn again has no effect. With an `instance`, raise
        `TurnTakenOver` if another has taken over. `output` is kept in the history of a job's run; by
        default it is the answer, or what is sent. The session of a run that is not continued ends.
        """
        state = "undeliverable" if is_undeliverable else "failed" if reason else "done"
        for message in messages:
            validate_message(message)
        now = self._clock()

        def end_turn(tx: Transaction) -> list[OutboundMessage]:
            if instance is not None and inbound_messages:
                _require_holder(tx, inbound_messages[0], instance)
            ended = [
                inbound.num
                for inbound in inbound_messages
                if tx.run(
                    f"UPDATE inbox SET state = ?, reason = ? WHERE num = ? AND {_IS_OPEN} RETURNING num",
                    (state, escape_optional(reason), inbound.num),
                )
            ]
            if inbound_messages and not ended:
                return []
            if messages:
                sessions.append_messages(self._engine, tx, session, messages, now)
            first = inbound_messages[0] if inbound_messages else None
            if first is not None and f":{JOB_CHAT_TYPE}:" in first.key:
                shown = messages[-1].text if messages else "\n".join(text for _, text in replies)
                session_id = session if isinstance(session, str) else session.id
                run_state = "failed" if reason else "done"
                kept = shown if output is None else output
                finish_runs(tx, ended, run_state, session_id, kept, reason, now)
                _end_run_session(tx, first.key, session_id, run_state, now)
            if first is not None:  # the answer includes the notice of a reset
                tx.run("UPDATE routes SET reset = NULL WHERE key = ?", (escape_text(first.key),))
            return [
                insert_outbound(
                    tx, first.key if first else "", first and first.num, target, text, now
                )
                for target, text in replies
            ]

        return self._write(end_turn)

    # -- leases

    def renew_leases(self, instance: str, lease_seconds: float) -> list[str]:
        """Extend the leases of an instance and return the keys it still holds."""
        expires = self._clock() + lease_seconds
        sql = "UPDATE leases SET expires = ? WHERE instance = ? RETURNING key"
        return self._write(
            lambda tx: [
                unescape_text(key) for (key,) in tx.run(sql, (expires, escape_text(instance)))
            ]
        )

    def get_lease_holder(self, key: str) -> str | None:
        """Return the instance that holds, or last held, the lease of a conversation."""
        rows = self._select("SELECT instance FROM leases WHERE key = ?", (escape_text(key),))
        return unescape_text(rows[0][0]) if rows else None

    def release_leases(self, instance: str) -> None:
        """Release all leases of an instance that has ended, whatever is waiting."""
        self._write(
            lambda tx: tx.run("DELETE FROM leases WHERE instance = ?", (escape_text(instance),))
        )

    def list_waiting_for_instance(self, instance: str) -> list[InboundMessage]:
        """Return the waiting messages of an instance's conversations, whoever accepted them."""
        with self._engine.begin_read() as tx:
            return INBOX_ROWS.find(
                tx,
                f"JOIN leases l ON l.key = inbox.key WHERE l.instance = ? AND {_IS_OPEN}"
                " AND state = 'waiting' ORDER BY num",
                (escape_text(instance),),
            )

    def release_lease(self, key: str, instance: str) -> list[InboundMessage]:
        """Release the lease of a conversation unless messages are waiting, and return those."""
        return self._write(lambda tx: release_if_idle(tx, key, instance, key, _select_open))

    def adopt_conversations(
        self, instance: str, lease_seconds: float, limit: int = 100, *, prefixes: Sequence[str] = ()
    ) -> list[str]:
        """Take over conversations that have waiting messages but no live lease, and return their keys.

        `prefixes` limits them to keys that start with one of these.
        """
        now, (condition, prefix_params) = self._clock(), build_prefix_condition(prefixes)

        def adopt_waiting(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM inbox i WHERE state IN ('waiting', 'running')"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = i.key AND l.expires > ?"
                f" AND l.expires <= ?){condition} ORDER BY key LIMIT ?",
                (now, now + lease_seconds + MAX_CLOCK_SKEW, *prefix_params, limit),
            )
            return acquire_leases(tx, rows, "", instance, now, lease_seconds)

        return self._write(adopt_waiting)

    def get_counts(self) -> MessageCounts:
        """Return the numbers of pending and undeliverable messages."""
        with self._engine.begin_read() as tx:
            inbound_counts = dict(
                tx.run(
                    "SELECT state, count(*) FROM inbox WHERE state IN ('waiting', 'running')"
                    " GROUP BY state"
                )
            )
            unsent_count = tx.run("SELECT count(*) FROM outbox WHERE state = 'waiting'")[0][0]
            failed = tx.run(
                "SELECT count(*) FROM outbox WHERE state IN ('sent', 'failed') AND state = 'failed'"
            )[0][0]
            failed += tx.run("SELECT count(*) FROM inbox WHERE state = 'undeliverable'")[0][0]
        return MessageCounts(
            inbound_counts.get("waiting", 0), inbound_counts.get("running", 0), unsent_count, failed
        )

    def describe_conversations(self, keys: Sequence[str]) -> dict[str, ConversationState]:
        """Return what is pending in these conversations, by key; nothing is for most."""
        escaped = [escape_text(key) for key in keys]
        marks, now = ", ".join("?" * len(keys)), self._clock()
        states = {key: ConversationState() for key in keys}
        if not states:
            return {}
        with self._engine.begin_read() as tx:
            inbound = tx.run(
                "SELECT key, state, count(*) FROM inbox WHERE state IN ('waiting', 'running')"
                f" AND key IN ({marks}) GROUP BY key, state",
                escaped,
            )
            outbound = tx.run(
                f"SELECT key, count(*) FROM outbox WHERE key IN ({marks}) AND state = 'waiting'"
                " GROUP BY key",
                escaped,
            )
            leases = tx.run(
                f"SELECT key, instance FROM leases WHERE key IN ({marks}) AND expires > ?",
                (*escaped, now),
            )
        for key, state, count in inbound:
            key = unescape_text(key)
            states[key] = states[key]._replace(**{state: count})
        for key, count in outbound:
            key = unescape_text(key)
            states[key] = states[key]._replace(unsent=count)
        for key, instance in leases:
            key = unescape_text(key)
            states[key] = states[key]._replace(holder=unescape_text(instance))
        return states

    def list_undeliverable(self, limit: int = 20) -> list[InboundMessage | OutboundMessage]:
        """Return undeliverable messages, newest first; each has a reason."""
        with self._engine.begin_read() as tx:
            inbound = INBOX_ROWS.find(
                tx, "WHERE state = 'undeliverable' ORDER BY num DESC LIMIT ?", (limit,)
            )
            outbound = OUTBOX_ROWS.find(
                tx,
                "WHERE state IN ('sent', 'failed') AND state = 'failed' ORDER BY time DESC LIMIT ?",
                (limit,),
            )
        return sorted([*inbound, *outbound], key=lambda one: -one.time)[:limit]

    def delete_conversation(self, key: str) -> bool:
        """Delete a conversation's route and finished messages, unless something is still pending.

        Its sessions are kept. For conversations that nobody can continue, such as that of a closed
        terminal.
        """
        escaped_key, send_key = escape_text(key), escape_text(SEND_LEASE_PREFIX + key)

        def delete_rows(tx: Transaction) -> bool:
            # Updating the row locks it: no message can be accepted meanwhile.
            lock_route = "UPDATE routes SET changes = changes + 1 WHERE key = ? RETURNING created"
            route_rows = tx.run(lock_route, (escaped_key,))
            if not route_rows or _select_open(tx, key) or select_unsent(tx, key):
                return False
            tx.run(  # filter by time, which is indexed, to avoid scanning a large inbox
                "DELETE FROM inbox WHERE state IN ('done', 'failed') AND time >= ? AND key = ?",
                (route_rows[0][0], escaped_key),
            )
            tx.run("DELETE FROM inbox WHERE state = 'undeliverable' AND key = ?", (escaped_key,))
            tx.run("DELETE FROM outbox WHERE key = ?", (escaped_key,))
            tx.run("DELETE FROM routes WHERE key = ?", (escaped_key,))
            tx.run("DELETE FROM leases WHERE key IN (?, ?)", (escaped_key, send_key))
            return True

        return self._write(delete_rows)

    def delete_finished(self, older_than: float) -> None:
        """Delete messages that finished more than `older_than` seconds ago."""
        before = self._clock() - older_than

        def delete_rows(tx: Transaction) -> None:
            tx.run("DELETE FROM inbox WHERE time < ? AND state IN ('done', 'failed')", (before,))
            tx.run("DELETE FROM inbox WHERE state = 'undeliverable' AND time < ?", (before,))
            tx.run("DELETE FROM outbox WHERE time < ? AND state IN ('sent', 'failed')", (before,))

        self._write(delete_rows)


def _end_run_session(tx: Transaction, key: str, session: str, reason: str, now: float) -> None:
    """End the session of a run, unless the next run of its job continues it."""
    if parse_key(key).thread is not None:
        with suppress(NotFound):  # a command has none
            sessions.end_session(tx, session, reason, now)


def _require_holder(tx: Transaction, inbound: InboundMessage, instance: str) -> None:
    """Raise `TurnTakenOver` if another instance holds the lease; until the end, nobody can take it."""
    # Updating the row locks it.
    sql = "UPDATE leases SET expires = expires WHERE key = ? RETURNING instance"
    holders = [unescape_text(one) for (one,) in tx.run(sql, (escape_text(inbound.key),))]
    if holders not in ([], [instance]):
        raise TurnTakenOver(f"message {inbound.num} is answered by another process")


def _select_open(tx: Transaction, key: str) -> list[InboundMessage]:
    return INBOX_ROWS.find(tx, f"WHERE key = ? AND {_IS_OPEN} ORDER BY num", (escape_text(key),))


def _build_limit_condition(key: str, limits: InboxLimits) -> tuple[str, list[object]]:
    conditions: list[str] = ["TRUE"]
    params: list[object] = []
    if limits.per_conversation is not None:
        conditions.append(f"(SELECT count(*) FROM inbox WHERE key = ? AND {_IS_OPEN}) < ?")
        params += [escape_text(key), limits.per_conversation]
    if limits.total is not None:
        open_rows = f"SELECT 1 FROM inbox WHERE {_IS_OPEN} LIMIT ?"
        conditions.append(f"(SELECT count(*) FROM ({open_rows}) AS open_rows) < ?")
        params += [limits.total, limits.total]
    return " AND ".join(conditions), params


def _get_only(found: list[T], num: int) -> T:
    if not found:
        raise NotFound(f"inbox message {num} no longer exists")
    return found[0]
