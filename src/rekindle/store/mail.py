"""What came in and what has to go out, so that a crash in between loses and repeats nothing.

    accept     a message is here for good; a second time the platform says it, it is known
    begin      its turn starts: it takes its place in the session
    finish     the answer is stored, is on its way out, and the turn is over: all at once
    send …     what has to reach somebody stays until it did, or until nobody tries any more

Who works on a conversation holds its lease, and says now and then that it is still alive. When it
dies, the lease runs out and another takes up what it left. `release` gives the lease back only when
nothing waits, in one transaction with `accept`: a message never waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import NotFound
from ..routing.source import from_json
from ..types import Message, Session, Source, checked, checked_name, plain
from . import sessions
from .engine import Engine, Row, Transaction
from .rows import decode_json, encode_json, message_of, message_row
from .text import escape, unescape

_LETTER = "num, key, source, body, state, session, position, reason, time"
_PARCEL = "num, key, inbox, target, text, state, attempts, next_try, platform_id, reason, time"


class Letter(NamedTuple):
    """A message that came in, and how far it got: waiting, running, done or failed."""

    num: int
    key: str
    source: Source
    message: Message
    state: str
    session: str | None
    position: int | None
    reason: str | None
    time: float


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


class Mail:
    """Inbox and outbox of a store."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    # -- coming in

    def accept(
        self, key: str, source: Source, message: Message, *, runner: str, lease: float
    ) -> Accepted:
        """Take a message in, once; and the lease of its conversation, if nobody has it."""
        checked_name("route.key", key)
        checked(message)
        now = self._clock()

        def work(tx: Transaction) -> Accepted:
            rows = tx.run(
                "INSERT INTO inbox (key, platform_id, source, body, state, time)"
                " VALUES (?, ?, ?, ?, 'waiting', ?)"
                " ON CONFLICT (key, platform_id) WHERE platform_id IS NOT NULL DO NOTHING"
                f" RETURNING {_LETTER}",
                (
                    escape(key),
                    _named(message.platform_message_id),
                    encode_json(plain(source)),
                    _packed(message),
                    now,
                ),
            )
            if not rows:
                known = tx.run(
                    f"SELECT {_LETTER} FROM inbox WHERE key = ? AND platform_id = ?",
                    (escape(key), _named(message.platform_message_id)),
                )
                return Accepted(_letter(known[0]), False, False)
            return Accepted(_letter(rows[0]), True, _lease(tx, key, runner, now, lease))

        return self._write(work)

    def waiting(self, key: str) -> list[Letter]:
        """What is not answered yet in a conversation, in the order of arrival."""
        with self._engine.reading() as tx:
            return _open(tx, key)

    def begin(self, letter: Letter, session: Session) -> Letter:
        """Start the turn of a letter: its message takes its place in the session."""
        now = self._clock()

        def work(tx: Transaction) -> Letter:
            sql = f"SELECT {_LETTER} FROM inbox WHERE num = ?"
            current = _letter(_one(tx.run(sql, (letter.num,)), letter.num))
            if current.state != "waiting":
                return current  # after a crash: it has its place already
            said = current.message._replace(timestamp=current.message.timestamp or current.time)
            appended = sessions.append(self._engine, tx, session, [said], now)
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" RETURNING {_LETTER}",
                (escape(session.id), appended.positions[0], letter.num),
            )
            return _letter(rows[0])

        return self._write(work)

    def finish(
        self,
        letters: Sequence[Letter],
        session: Session | str,
        messages: Sequence[Message],
        parcels: Sequence[tuple[Source, str]],
        *,
        reason: str | None = None,
    ) -> list[Parcel]:
        """End the turn of some letters: store the answer and put it on its way, all at once.

        With a `reason` the turn failed; what is to be said about that goes out all the same. Of a
        turn that was finished before, nothing happens a second time.
        """
        for message in messages:
            checked(message)
        now = self._clock()

        def work(tx: Transaction) -> list[Parcel]:
            ended = [
                letter.num
                for letter in letters
                if tx.run(
                    "UPDATE inbox SET state = ?, reason = ? WHERE num = ?"
                    " AND state IN ('waiting', 'running') RETURNING num",
                    ("failed" if reason else "done", _named(reason), letter.num),
                )
            ]
            if letters and not ended:
                return []
            if messages:
                sessions.append(self._engine, tx, session, messages, now)
            first = letters[0] if letters else None
            if first is not None:  # with the answer goes out that the conversation was reset
                tx.run("UPDATE routes SET reset = NULL WHERE key = ?", (escape(first.key),))
            return [
                _post(tx, first.key if first else "", first and first.num, target, text, now)
                for target, text in parcels
            ]

        return self._write(work)

    # -- whose turn it is

    def renew(self, runner: str, lease: float) -> None:
        """Say that the runner is alive: its leases hold for a while longer."""
        until = self._clock() + lease
        sql = "UPDATE leases SET until = ? WHERE runner = ?"
        self._write(lambda tx: tx.run(sql, (until, escape(runner))))

    def release(self, key: str, runner: str) -> list[Letter]:
        """Give the lease of a conversation back, unless something waits: that is returned."""

        def work(tx: Transaction) -> list[Letter]:
            held = tx.run(
                "UPDATE leases SET until = until WHERE key = ? AND runner = ? RETURNING key",
                (escape(key), escape(runner)),
            )
            waiting = _open(tx, key)
            if held and not waiting:
                tx.run("DELETE FROM leases WHERE key = ?", (escape(key),))
            return waiting if held else []

        return self._write(work)

    def adopt(self, runner: str, lease: float, limit: int = 100) -> list[str]:
        """Take over conversations in which something waits and nobody works; which they are."""
        now = self._clock()

        def work(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM inbox i WHERE state IN ('waiting', 'running')"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = i.key AND l.until > ?)"
                " ORDER BY key LIMIT ?",
                (now, limit),
            )
            keys = [unescape(key) for (key,) in rows]
            return [key for key in keys if _lease(tx, key, runner, now, lease)]

        return self._write(work)

    # -- going out

    def post(self, key: str, target: Source, text: str) -> Parcel:
        """Put a text on its way that answers no letter."""
        now = self._clock()
        return self._write(lambda tx: _post(tx, key, None, target, text, now))

    def due(self, limit: int = 100) -> list[Parcel]:
        """What has to be sent now, oldest first."""
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {_PARCEL} FROM outbox WHERE state = 'waiting' AND next_try <= ?"
                " ORDER BY num LIMIT ?",
                (self._clock(), limit),
            )
        return [_parcel(row) for row in rows]

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
            sql = f"SELECT {_PARCEL} FROM outbox WHERE key = ? ORDER BY num"
            return [_parcel(row) for row in tx.run(sql, (escape(key),))]

    def tidy(self, older_than: float) -> None:
        """Forget what was finished more than so many seconds ago."""
        before = self._clock() - older_than

        def work(tx: Transaction) -> None:
            tx.run("DELETE FROM inbox WHERE time < ? AND state IN ('done', 'failed')", (before,))
            tx.run("DELETE FROM outbox WHERE time < ? AND state IN ('sent', 'failed')", (before,))

        self._write(work)


def _lease(tx: Transaction, key: str, runner: str, now: float, lease: float) -> bool:
    return bool(
        tx.run(
            "INSERT INTO leases (key, runner, until) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET runner = excluded.runner, until = excluded.until"
            " WHERE leases.until <= ? RETURNING key",
            (escape(key), escape(runner), now + lease, now),
        )
    )


def _open(tx: Transaction, key: str) -> list[Letter]:
    rows = tx.run(
        f"SELECT {_LETTER} FROM inbox WHERE key = ? AND state IN ('waiting', 'running')"
        " ORDER BY num",
        (escape(key),),
    )
    return [_letter(row) for row in rows]


def _post(
    tx: Transaction, key: str, answers: int | None, target: Source, text: str, now: float
) -> Parcel:
    rows = tx.run(
        "INSERT INTO outbox (key, inbox, target, text, state, next_try, time)"
        f" VALUES (?, ?, ?, ?, 'waiting', ?, ?) RETURNING {_PARCEL}",
        (escape(key), answers, encode_json(plain(target)), escape(text), now, now),
    )
    return _parcel(rows[0])


def _one(rows: list[Row], num: int) -> Row:
    if not rows:
        raise NotFound(f"letter {num} is not there any more")
    return rows[0]


def _named(text: str | None) -> str | None:
    return None if text is None else escape(text)


def _packed(message: Message) -> str:
    """A message as it will stand in its session, as one text."""
    row = message_row(message, 0, 0, message.timestamp or 0.0, None)
    _, _, role, time, _, _, answers, platform_id, _, body, content = row
    return encode_json([role, time or None, answers, platform_id, body, content])


def _unpacked(text: str) -> Message:
    role, time, answers, platform_id, body, content = decode_json(text)
    said = message_of((None, role, time, None, answers, platform_id, body, content))
    return said._replace(position=None)


def _letter(row: Row) -> Letter:
    num, key, source, body, state, session, position, reason, time = row
    return Letter(
        num=num,
        key=unescape(key),
        source=from_json(decode_json(source)),
        message=_unpacked(body),
        state=state,
        session=None if session is None else unescape(session),
        position=position,
        reason=None if reason is None else unescape(reason),
        time=time,
    )


def _parcel(row: Row) -> Parcel:
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
