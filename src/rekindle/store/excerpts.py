"""Parts of a session for a page: a range of its messages, long ones cut, and what to jump to.

A session may have hundreds of thousands of messages, and one message tens of megabytes. What is loaded
here is bounded by what a page shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rekindle.errors import StoreDamaged
from rekindle.types import Message, UsageEntry, make_foreign_message

from .core.engine import Engine, Row
from .core.rows import MESSAGE_COLUMNS, row_to_message
from .core.text_encoding import escape_text, unescape_text
from .sessions import usage_entries

HEAD_CHARS, TAIL_CHARS = 48_000, 16_000  # of a long text
MAX_BODY_CHARS = 4_000_000  # calls, thinking and images of one message
MAX_PAGE_CHARS = 8_000_000  # of all messages that are loaded at once
_PROMPT_CHARS = 2_000

_OF_SESSION = (
    "m.session = (SELECT num FROM sessions WHERE id = ? AND pruned IS NULL) AND m.rewind IS NULL"
)
_CUT_BODY = f"CASE WHEN length(m.body) > {MAX_BODY_CHARS} THEN NULL ELSE m.body END"
_CUT_CONTENT = (
    f"CASE WHEN length(m.content) > {HEAD_CHARS + TAIL_CHARS} THEN substr(m.content, 1, {HEAD_CHARS})"
    f" || substr(m.content, length(m.content) - {TAIL_CHARS - 1}) ELSE m.content END"
)
_SELECT = (
    "SELECT "
    + MESSAGE_COLUMNS.replace("m.body", _CUT_BODY).replace("m.content", _CUT_CONTENT)
    + ", coalesce(length(m.body), 0), coalesce(length(m.content), 0) FROM messages m"
)


class Excerpt(NamedTuple):
    """A message as far as a page shows it.

    `omitted` counts the characters that are missing in the middle of its text; `body_omitted` those of
    its calls, thinking and parts, which are loaded as a whole or not at all.
    """

    message: Message
    omitted: int = 0
    body_omitted: int = 0


class UserExcerpt(NamedTuple):
    """The beginning of a message of the user's role, and the time of the message before it."""

    position: int
    text: str
    has_parts: bool  # such as images
    time: float | None
    time_before: float | None


class CallMark(NamedTuple):
    """Where a call was made, with which tool, and its outcome."""

    position: int
    tool: str
    outcome: str


class Excerpts:
    """Reads parts of sessions. Use `store.excerpts`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def load(
        self, session: str, *, after: int, limit: int, until: int | None = None
    ) -> list[Excerpt]:
        """Return messages after a position, in order, and at most up to another one.

        Fewer than `limit` are returned if they would be too large together.
        """
        where = f"WHERE {_OF_SESSION} AND m.position > ? AND m.position <= ? ORDER BY m.position"
        last = 2**62 if until is None else until
        params = (escape_text(session), after, last)
        with self._engine.begin_read() as tx:
            sizes = tx.run(
                "SELECT coalesce(length(m.content), 0), coalesce(length(m.body), 0)"
                f" FROM messages m {where} LIMIT {int(limit)}",
                params,
            )
            count = _count_fitting(sizes)
            rows = tx.run(f"{_SELECT} {where} LIMIT {count}", params) if count else []
        return [_read_excerpt(row) for row in rows]

    def find_start(self, session: str, before: int, count: int) -> int | None:
        """Return the position that is `count` messages before another, or the first of fewer."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                f"SELECT m.position FROM messages m WHERE {_OF_SESSION} AND m.position < ?"
                f" ORDER BY m.position DESC LIMIT {int(count)}",
                (escape_text(session), before),
            )
        return rows[-1][0] if rows else None

    def find_last(self, session: str, until: int = 2**62 - 1) -> int | None:
        """Return the position of the last message, up to another position."""
        return self.find_start(session, until + 1, 1)

    def load_message(self, session: str, position: int) -> Message | None:
        """Return one message as a whole."""
        with self._engine.begin_read() as tx:
            rows = tx.run(
                f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE {_OF_SESSION} AND m.position = ?",
                (escape_text(session), position),
            )
        return row_to_message(rows[0]) if rows else None

    def load_user_messages(self, session: str) -> list[UserExcerpt]:
        """Return the beginnings of all messages of the user's role, in order."""
        with self._engine.begin_read() as tx:
            # The texts are joined last: a window holds all columns that it is given.
            rows = tx.run(
                f"SELECT m.position, substr(m.content, 1, {_PROMPT_CHARS}),"
                f" CASE WHEN m.content IS NULL AND length(m.body) <= {MAX_BODY_CHARS} THEN m.body END,"
                " m.time, u.time_before FROM (SELECT m.id, m.role,"
                " lag(m.time) OVER (ORDER BY m.position) AS time_before"
                f" FROM messages m WHERE {_OF_SESSION}) u JOIN messages m ON m.id = u.id"
                " WHERE u.role = 'user' ORDER BY m.position",
                (escape_text(session),),
            )
        return [_read_user_message(row) for row in rows]

    def iter_calls(self, session: str) -> Iterator[CallMark]:
        """Yield the calls of a session that were judged, in order."""
        with self._engine.begin_read() as tx:
            for position, tool, outcome in tx.stream(
                "SELECT position, tool, outcome FROM calls WHERE session ="
                " (SELECT num FROM sessions WHERE id = ? AND pruned IS NULL)"
                " ORDER BY position, number",
                (escape_text(session),),
            ):
                yield CallMark(position, unescape_text(tool), outcome)

    def load_usage_entries(self, session: str) -> list[UsageEntry]:
        """Return what the models of a session used, by quarter of an hour, in order."""
        with self._engine.begin_read() as tx:
            rows = tx.run("SELECT num FROM sessions WHERE id = ?", (escape_text(session),))
            return usage_entries.load_entries(tx, rows[0][0]) if rows else []


def _count_fitting(sizes: list[Row]) -> int:
    """Return how many messages fit on a page; at least one does."""
    total = 0
    for count, (content, body) in enumerate(sizes):
        total += min(content, HEAD_CHARS + TAIL_CHARS) + (body if body <= MAX_BODY_CHARS else 0)
        if total > MAX_PAGE_CHARS and count:
            return count
    return len(sizes)


def _read_excerpt(row: Row) -> Excerpt:
    *columns, body_chars, content_chars = row
    omitted = max(0, content_chars - HEAD_CHARS - TAIL_CHARS)
    body_omitted = body_chars if body_chars > MAX_BODY_CHARS else 0
    try:
        return Excerpt(row_to_message(tuple(columns)), omitted, body_omitted)
    except (StoreDamaged, ValueError, TypeError, RecursionError):
        position, role, time, *_ = columns
        message = make_foreign_message(unescape_text(str(role)) or "unknown", "")
        message = message._replace(position=position, timestamp=time)
        return Excerpt(message, content_chars, body_chars)


def _read_user_message(row: Row) -> UserExcerpt:
    position, content, body, time, time_before = row
    text = unescape_text(content or "")
    if content is None and body is not None:
        excerpt = _read_excerpt((position, "user", time, None, None, None, body, None, 0, 0))
        text = excerpt.message.text[:_PROMPT_CHARS]
    return UserExcerpt(position, text, body is not None, time, time_before)
