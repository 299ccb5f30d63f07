"""Convert inbox and outbox messages from and to rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from rekindle.routing.source import from_json
from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.rows import (
    ValueRows,
    decode_json,
    encode_json,
    message_to_row,
    row_to_message,
)
from rekindle.store.core.tables import INBOX, OUTBOX
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import Message, Source, replace_fields

T = TypeVar("T")

MAX_CLOCK_SKEW = 300.0  # seconds
SEND_LEASE_PREFIX = "out:"  # prefix of a key for the sender's lease; no key starts like this


class InboundMessage(NamedTuple):
    """A message that came in, and its state: waiting, running, done, failed or undeliverable.

    `attempts` is the number of times a gateway has started to process it.
    """

    num: int
    key: str
    source: Source
    message: Message
    state: str
    session: str | None
    position: int | None
    reason: str | None
    time: float
    attempts: int = 0


class OutboundMessage(NamedTuple):
    """A text to deliver, and its state: waiting, sent (with the platform's message id) or failed."""

    num: int
    key: str
    reply_to: int | None
    target: Source
    text: str
    state: str
    attempts: int
    next_try: float
    platform_message_id: str | None
    reason: str | None
    time: float
    file: str | None = None  # the path of a file to send, with the text as its caption


class InboxLimits(NamedTuple):
    """How many messages may wait in one conversation, and in all of the store; None for any number."""

    per_conversation: int | None = None
    total: int | None = None


UNLIMITED = InboxLimits()


class AcceptResult(NamedTuple):
    """An inbound message, whether it is new, and whether we now hold the lease of its conversation.

    If so, `pending` are all messages that wait there, in the order of their arrival.
    """

    inbound: InboundMessage
    is_new: bool
    has_lease: bool
    pending: Sequence[InboundMessage] = ()


class MessageCounts(NamedTuple):
    """The numbers of unanswered, unsent and undeliverable messages."""

    waiting: int = 0
    running: int = 0
    unsent: int = 0
    undeliverable: int = 0


class ConversationState(NamedTuple):
    """What is pending in a conversation, and the gateway that works on it, if one does."""

    waiting: int = 0
    running: int = 0
    unsent: int = 0
    holder: str | None = None


def escape_optional(text: str | None) -> str | None:
    """Escape a text for storage; None stays None."""
    return None if text is None else escape_text(text)


def encode_message(message: Message) -> str:
    """Encode a message, as it will be stored in its session, as one text."""
    row = message_to_row(message, 0, 0, message.timestamp or 0.0, None)
    _, _, role, time, _, _, tool_call_id, platform_id, _, body, content, *added = row
    return encode_json([role, time or None, tool_call_id, platform_id, body, content, *added])


def decode_message(text: str) -> Message:
    """Decode the text of `encode_message`."""
    role, time, *rest = decode_json(text)
    message = row_to_message((None, role, time, None, *rest))
    return replace_fields(message, position=None)


def decode_source(text: str) -> Source:
    """Decode the source of a message or a route."""
    return from_json(decode_json(text))


INBOX_ROWS = ValueRows(INBOX, InboundMessage, source=decode_source, message=decode_message)
OUTBOX_ROWS = ValueRows(OUTBOX, OutboundMessage, target=decode_source)


def acquire_lease(
    tx: Transaction, key: str, instance: str, now: float, lease_seconds: float
) -> bool:
    """Acquire a lease if nobody holds it, and return whether that succeeded.

    A lease that ends in the far future counts as expired: a clock was set back.
    """
    return bool(
        tx.run(
            "INSERT INTO leases (key, instance, expires) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET instance = excluded.instance, expires = excluded.expires"
            " WHERE leases.expires <= ? OR leases.expires > ? RETURNING key",
            (
                escape_text(key),
                escape_text(instance),
                now + lease_seconds,
                now,
                now + lease_seconds + MAX_CLOCK_SKEW,
            ),
        )
    )


def acquire_leases(
    tx: Transaction,
    rows: Sequence[Row],
    prefix: str,
    instance: str,
    now: float,
    lease_seconds: float,
) -> list[str]:
    """Acquire the free leases of conversations, given as rows of their keys; return those keys."""
    keys = [unescape_text(key) for (key,) in rows]
    return [key for key in keys if acquire_lease(tx, prefix + key, instance, now, lease_seconds)]


def release_if_idle(
    tx: Transaction,
    lease: str,
    instance: str,
    key: str,
    select_waiting: Callable[[Transaction, str], list[T]],
) -> list[T]:
    """Release a lease unless the conversation has waiting messages, and return those."""
    held = tx.run(
        "UPDATE leases SET expires = expires WHERE key = ? AND instance = ? RETURNING key",
        (escape_text(lease), escape_text(instance)),
    )
    waiting = select_waiting(tx, key)
    if held and not waiting:
        tx.run("DELETE FROM leases WHERE key = ?", (escape_text(lease),))
    return waiting if held else []
