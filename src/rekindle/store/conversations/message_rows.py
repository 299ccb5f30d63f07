"""Letters and parcels as rows: what came in, and what has to go out."""

from __future__ import annotations

from typing import NamedTuple

from rekindle.routing.source import from_json
from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.rows import decode_json, encode_json, message_of, message_row
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import Message, Source

LETTER = "num, key, source, body, state, session, position, reason, time, attempts"
PARCEL = "num, key, inbox, target, text, state, attempts, next_try, platform_id, reason, time"
SKEW = 300.0  # seconds by which clocks may differ
SENDING = "out:"  # before the key: the lease of who sends; no key begins so


class Letter(NamedTuple):
    """A message that came in, and how far it got: waiting, running, done, failed or undeliverable.

    `attempts` is how many programs have begun to work on it.
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


class Parcel(NamedTuple):
    """A text that has to reach somebody: waiting, sent (with the platform's id for it) or failed."""

    num: int
    key: str
    answers: int | None
    target: Source
    text: str
    state: str
    attempts: int
    next_try: float
    platform_message_id: str | None
    reason: str | None
    time: float


class Accepted(NamedTuple):
    """A letter, whether it is new, and whether it is ours to work on its conversation now."""

    letter: Letter
    is_new: bool
    is_ours: bool


class Counts(NamedTuple):
    """How much mail is where: letters not answered yet, parcels on their way, either given up."""

    waiting: int = 0
    running: int = 0
    unsent: int = 0
    undeliverable: int = 0


def named(text: str | None) -> str | None:
    return None if text is None else escape(text)


def packed(message: Message) -> str:
    """A message as it will stand in its session, as one text."""
    row = message_row(message, 0, 0, message.timestamp or 0.0, None)
    _, _, role, time, _, _, answers, platform_id, _, body, content = row
    return encode_json([role, time or None, answers, platform_id, body, content])


def unpacked(text: str) -> Message:
    role, time, answers, platform_id, body, content = decode_json(text)
    said = message_of((None, role, time, None, answers, platform_id, body, content))
    return said._replace(position=None)


def letter_of(row: Row) -> Letter:
    num, key, source, body, state, session, position, reason, time, attempts = row
    return Letter(
        num=num,
        key=unescape(key),
        source=from_json(decode_json(source)),
        message=unpacked(body),
        state=state,
        session=None if session is None else unescape(session),
        position=position,
        reason=None if reason is None else unescape(reason),
        time=time,
        attempts=attempts,
    )


def parcel_of(row: Row) -> Parcel:
    num, key, answers, target, text, state, attempts, next_try, platform_id, reason, time = row
    return Parcel(
        num=num,
        key=unescape(key),
        answers=answers,
        target=from_json(decode_json(target)),
        text=unescape(text),
        state=state,
        attempts=attempts,
        next_try=next_try,
        platform_message_id=None if platform_id is None else unescape(platform_id),
        reason=None if reason is None else unescape(reason),
        time=time,
    )


def hold(tx: Transaction, key: str, runner: str, now: float, seconds: float) -> bool:
    """Take a lease, if nobody has it. One from the far future is nobody's: a clock was put back."""
    return bool(
        tx.run(
            "INSERT INTO leases (key, runner, until) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET runner = excluded.runner, until = excluded.until"
            " WHERE leases.until <= ? OR leases.until > ? RETURNING key",
            (escape(key), escape(runner), now + seconds, now, now + seconds + SKEW),
        )
    )
