"""The preludes of warm sessions, stored byte for byte outside their messages.

A prelude is stored once under the hash of its bytes, and a session's row names that hash. So a
resumed session sends the same prefix as before, and a prelude is never counted, searched or mined. It
is written in the transaction of the first message; children share the prelude of their parent. The
system prompt of our own sessions is kept in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from rekindle.errors import NotFound
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.tables import PRELUDES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.store.sessions.sessions import get_session_id
from rekindle.types import Message, Session, ToolCall


class StoredPrelude(NamedTuple):
    """How a session was started: its arm, the template and the messages of its prelude."""

    arm: str | None = None
    template: str | None = None
    revision: int | None = None
    prelude: str | None = None  # the hash of the messages
    messages: tuple[Message, ...] = ()


def encode_prelude(messages: Sequence[Message]) -> bytes:
    """Encode a prelude as bytes; equal messages give equal bytes."""
    rows = [
        [
            message.role,
            message.content,
            [list(call) for call in message.tool_calls],
            message.tool_call_id,
            message.name,
        ]
        for message in messages
    ]
    return encode_json(rows).encode()


def hash_prelude(body: bytes) -> str:
    """Return the hash of an encoded prelude."""
    return sha256(body).hexdigest()


@lru_cache(maxsize=256)
def decode_prelude(body: bytes) -> tuple[Message, ...]:
    """Decode the messages of a prelude."""
    return tuple(
        Message(role, content, [ToolCall(*call) for call in calls], call_id, name)
        for role, content, calls, call_id, name in decode_json(body.decode())
    )


def store_prelude(
    tx: Transaction, session: str, messages: Sequence[Message], revision: int | None, now: float
) -> str | None:
    """Store a session's prelude unless it has one; return its hash, or None without a session."""
    body = encode_prelude(messages)
    tx.run(
        f"{PRELUDES.build_insert()} ON CONFLICT (hash) DO NOTHING",
        (hash_prelude(body), body, now),
    )
    rows = tx.run(
        "UPDATE sessions SET changes = changes + 1, template_revision ="
        " CASE WHEN prelude IS NULL THEN ? ELSE template_revision END,"
        " prelude = coalesce(prelude, ?) WHERE id = ? RETURNING prelude",
        (revision, hash_prelude(body), escape_text(session)),
    )
    return rows[0][0] if rows else None


def load_prelude(tx: Transaction, num: int) -> tuple[int | None, tuple[Message, ...]]:
    """Load the template revision and the prelude messages of a session."""
    rows = tx.run(
        "SELECT s.template_revision, p.body FROM sessions s JOIN preludes p ON p.hash = s.prelude"
        " WHERE s.num = ?",
        (num,),
    )
    return (rows[0][0], decode_prelude(bytes(rows[0][1]))) if rows else (None, ())


class Preludes(StorePart):
    """The preludes of a store. Use `store.preludes`."""

    def save(
        self, session: Session | str, messages: Sequence[Message], *, revision: int | None = None
    ) -> str | None:
        """Save the prelude of a session and return its hash. An existing prelude is kept.

        Call it in the transaction of the first message: see `Store.transaction`.
        """
        if not messages:
            return None
        stored_hash = self._write(
            lambda tx: store_prelude(tx, get_session_id(session), messages, revision, self._clock())
        )
        if stored_hash is None:
            raise NotFound(f"no session {get_session_id(session)!r}")
        return stored_hash

    def load(self, session: Session | str) -> StoredPrelude:
        """Load how a session was started; empty for a session that is not stored yet."""
        rows = self._select(
            "SELECT s.arm, s.template, s.template_revision, s.prelude, p.body FROM sessions s"
            " LEFT JOIN preludes p ON p.hash = s.prelude WHERE s.id = ?",
            (escape_text(get_session_id(session)),),
        )
        if not rows:
            return StoredPrelude()
        arm, template, revision, prelude_hash, body = rows[0]
        messages = decode_prelude(bytes(body)) if body is not None else ()
        return StoredPrelude(
            _unescape_optional(arm), _unescape_optional(template), revision, prelude_hash, messages
        )

    def save_prompt(self, session: Session | str, text: str) -> str:
        """Save the system prompt of a session, in place of an earlier one, and return it."""
        body, now = encode_prelude([Message("system", text)]), self._clock()
        stored_hash, id = hash_prelude(body), escape_text(get_session_id(session))

        def save_body(tx: Transaction) -> None:
            insert = f"{PRELUDES.build_insert()} ON CONFLICT (hash) DO NOTHING"
            tx.run(insert, (stored_hash, body, now))
            tx.run(
                "UPDATE sessions SET changes = changes + 1, system_prompt = ? WHERE id = ?",
                (stored_hash, id),
            )

        self._write(save_body)
        return text

    def load_prompt(self, session: Session | str) -> str | None:
        """Load the last system prompt of a session, if it is stored."""
        rows = self._select(
            "SELECT p.body FROM sessions s JOIN preludes p ON p.hash = s.system_prompt"
            " WHERE s.id = ?",
            (escape_text(get_session_id(session)),),
        )
        return decode_prelude(bytes(rows[0][0]))[0].text if rows else None

    def is_new(self, session: Session | str) -> bool:
        """Return whether a session has no messages yet."""
        sql = "SELECT 1 FROM sessions WHERE id = ?"
        return not self._select(sql, (escape_text(get_session_id(session)),))


def _unescape_optional(value: str | None) -> str | None:
    return None if value is None else unescape_text(value)
