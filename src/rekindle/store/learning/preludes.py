"""What warm sessions were started with, byte for byte, outside their messages.

A prelude is kept once under the hash of its bytes, and a session names that hash in its row. So a
session that is resumed sends the same prefix as before, and nothing of it is ever counted, searched or
learned from. It is written in the transaction of the first message; children of a session have the
prelude of their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from rekindle.errors import NotFound
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import Message, Session, ToolCall


class Start(NamedTuple):
    """How a session was started: its arm, the template, and the messages it was given."""

    arm: str | None = None
    template: str | None = None
    revision: int | None = None
    prelude: str | None = None  # the hash of the messages
    messages: tuple[Message, ...] = ()


def packed(messages: Sequence[Message]) -> bytes:
    """The bytes of a prelude: equal messages have equal bytes."""
    rows = [
        [one.role, one.content, [list(call) for call in one.tool_calls], one.tool_call_id, one.name]
        for one in messages
    ]
    return encode_json(rows).encode()


def hash_of(body: bytes) -> str:
    return sha256(body).hexdigest()


@lru_cache(maxsize=256)
def unpacked(body: bytes) -> tuple[Message, ...]:
    """The messages of a prelude."""
    return tuple(
        Message(role, content, [ToolCall(*call) for call in calls], call_id, name)
        for role, content, calls, call_id, name in decode_json(body.decode())
    )


def put(
    tx: Transaction, session: str, messages: Sequence[Message], revision: int | None, now: float
) -> str | None:
    """Write down what a session was started with, unless that is known; the hash, None without it."""
    body = packed(messages)
    tx.run(
        "INSERT INTO preludes (hash, body, time) VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING",
        (hash_of(body), body, now),
    )
    rows = tx.run(
        "UPDATE sessions SET changes = changes + 1, template_revision ="
        " CASE WHEN prelude IS NULL THEN ? ELSE template_revision END,"
        " prelude = coalesce(prelude, ?) WHERE id = ? RETURNING prelude",
        (revision, hash_of(body), escape(session)),
    )
    return rows[0][0] if rows else None


def told(tx: Transaction, num: int) -> tuple[int | None, tuple[Message, ...]]:
    """The revision of the template that a session was started with, and the messages."""
    rows = tx.run(
        "SELECT s.template_revision, p.body FROM sessions s JOIN preludes p ON p.hash = s.prelude"
        " WHERE s.num = ?",
        (num,),
    )
    return (rows[0][0], unpacked(bytes(rows[0][1]))) if rows else (None, ())


class Preludes:
    """The preludes of a store."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    def keep(
        self, session: Session | str, messages: Sequence[Message], *, revision: int | None = None
    ) -> str | None:
        """Remember what a session is started with; the hash. One that has a prelude keeps it.

        Do it in the transaction of the first message: see `Store.together`.
        """
        if not messages:
            return None
        kept = self._write(lambda tx: put(tx, _id(session), messages, revision, self._clock()))
        if kept is None:
            raise NotFound(f"no session {_id(session)!r}")
        return kept

    def start(self, session: Session | str) -> Start:
        """How a session was started; one that is not stored yet was not started with anything."""
        with self._engine.reading() as tx:
            rows = tx.run(
                "SELECT s.arm, s.template, s.template_revision, s.prelude, p.body FROM sessions s"
                " LEFT JOIN preludes p ON p.hash = s.prelude WHERE s.id = ?",
                (escape(_id(session)),),
            )
        if not rows:
            return Start()
        arm, template, revision, name, body = rows[0]
        messages = unpacked(bytes(body)) if body is not None else ()
        return Start(_text(arm), _text(template), revision, name, messages)

    def is_new(self, session: Session | str) -> bool:
        """Has nothing been said in it yet?"""
        with self._engine.reading() as tx:
            return not tx.run("SELECT 1 FROM sessions WHERE id = ?", (escape(_id(session)),))


def _text(value: str | None) -> str | None:
    return None if value is None else unescape(value)


def _id(session: Session | str) -> str:
    return session if isinstance(session, str) else session.id
