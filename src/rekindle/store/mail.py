"""What came in and what has to go out, so that a crash in between loses and repeats nothing.

    accept     a message is here for good; a second time the platform says it, it is known
    begin      its turn starts: it takes its place in the session
    finish     the answer is stored, is on its way out, and the turn is over: all at once
    send …     what has to reach somebody stays until it did, or until nobody tries any more

Who works on a conversation holds its lease, and says now and then that it is still alive. When it
dies, the lease runs out and another takes up what it left. `release` gives the lease back only when
nothing waits, in one transaction with `accept`: a message never waits for nobody. Who sends what
waits in the outbox of a conversation holds a lease of its own for that (`claim`, `take`, `let_go`),
so that parcels go out in order and by one at a time.
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
SENDING = "out:"  # before the key: the lease of who sends; no key begins so
# A conversation in which somebody speaks is not idle, even if the turn is never finished.
_TOUCH = "UPDATE routes SET updated = CASE WHEN updated < ? THEN ? ELSE updated END WHERE key = ?"
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


class Counts(NamedTuple):
    """How much mail is where: letters not answered yet, parcels on their way, parcels given up."""

    waiting: int = 0
    running: int = 0
    unsent: int = 0
    undeliverable: int = 0


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
            tx.run(_TOUCH, (now, now, escape(letter.key)))
            said = current.message._replace(timestamp=current.message.timestamp or current.time)
            appended = sessions.append(self._engine, tx, session, [said], now)
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" RETURNING {_LETTER}",
                (escape(session.id), appended.positions[0], letter.num),
            )
            return _letter(rows[0])

        return self._write(work)

    def go_on(self, letter: Letter, session: str, position: int) -> Letter:
        """Start the turn of a letter for a message that stands in the session already."""
        now = self._clock()

        def work(tx: Transaction) -> Letter:
            tx.run(_TOUCH, (now, now, escape(letter.key)))
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" AND state IN ('waiting', 'running') RETURNING {_LETTER}",
                (escape(session), position, letter.num),
            )
            return _letter(_one(rows, letter.num))

        return self._write(work)

    def close(self, letter: Letter, reason: str | None = None) -> bool:
        """End a letter that needs no turn; False if it has ended before."""
        sql = (
            "UPDATE inbox SET state = ?, reason = ? WHERE num = ?"
            " AND state IN ('waiting', 'running') RETURNING num"
        )
        values = ("failed" if reason else "done", _named(reason), letter.num)
        return self._write(lambda tx: bool(tx.run(sql, values)))

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

    def renew(self, runner: str, lease: float) -> list[str]:
        """Say that the runner is alive: its leases hold for a while longer. Whose it still has."""
        until = self._clock() + lease
        sql = "UPDATE leases SET until = ? WHERE runner = ? RETURNING key"
        return self._write(
            lambda tx: [unescape(key) for (key,) in tx.run(sql, (until, escape(runner)))]
        )

    def give_up(self, runner: str) -> None:
        """Give all leases of a runner back, whatever waits: it has ended."""
        self._write(lambda tx: tx.run("DELETE FROM leases WHERE runner = ?", (escape(runner),)))

    def arrived(self, runner: str) -> list[Letter]:
        """What waits in the conversations of a runner; others may have taken it in."""
        columns = ", ".join(f"i.{name}" for name in _LETTER.split(", "))
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {columns} FROM leases l JOIN inbox i ON i.key = l.key"
                " WHERE l.runner = ? AND i.state IN ('waiting', 'running')"
                " AND i.state = 'waiting' ORDER BY i.num",
                (escape(runner),),
            )
        return [_letter(row) for row in rows]

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

    def adopt(
        self, runner: str, lease: float, limit: int = 100, *, under: Sequence[str] = ()
    ) -> list[str]:
        """Take over conversations in which something waits and nobody works; which they are.

        `under` limits them to those whose keys begin with one of these.
        """
        now, (condition, begins) = self._clock(), _beginning(under)

        def work(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM inbox i WHERE state IN ('waiting', 'running')"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = i.key AND l.until > ?)"
                f"{condition} ORDER BY key LIMIT ?",
                (now, *begins, limit),
            )
            keys = [unescape(key) for (key,) in rows]
            return [key for key in keys if _lease(tx, key, runner, now, lease)]

        return self._write(work)

    # -- going out

    def post(self, key: str, target: Source, text: str, answers: Letter | None = None) -> Parcel:
        """Put a text on its way that ends no turn."""
        now, num = self._clock(), answers and answers.num
        return self._write(lambda tx: _post(tx, key, num, target, text, now))

    def claim(
        self, runner: str, lease: float, limit: int = 100, *, under: Sequence[str] = ()
    ) -> list[str]:
        """Take over the sending in conversations where something is due and nobody sends."""
        now, (condition, begins) = self._clock(), _beginning(under)

        def work(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM outbox o WHERE state = 'waiting' AND next_try <= ?"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = ? || o.key AND l.until > ?)"
                f"{condition} ORDER BY key LIMIT ?",
                (now, SENDING, now, *begins, limit),
            )
            keys = [unescape(key) for (key,) in rows]
            return [key for key in keys if _lease(tx, SENDING + key, runner, now, lease)]

        return self._write(work)

    def take(self, key: str, runner: str, lease: float) -> list[Parcel]:
        """Take over the sending in a conversation, and what waits there; nothing if another sends."""
        now = self._clock()

        def work(tx: Transaction) -> list[Parcel]:
            return _unsent(tx, key) if _lease(tx, SENDING + key, runner, now, lease) else []

        return self._write(work)

    def let_go(self, key: str, runner: str) -> list[Parcel]:
        """Give the sending in a conversation back, unless something waits: that is returned."""

        def work(tx: Transaction) -> list[Parcel]:
            held = tx.run(
                "UPDATE leases SET until = until WHERE key = ? AND runner = ? RETURNING key",
                (escape(SENDING + key), escape(runner)),
            )
            waiting = _unsent(tx, key)
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
        letter = ", ".join(f"i.{name}" for name in _LETTER.split(", "))
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {letter} FROM inbox i WHERE i.num = ? AND NOT EXISTS"
                " (SELECT 1 FROM outbox o WHERE o.key = ? AND o.inbox = i.num AND o.num < ?)",
                (parcel.answers, escape(parcel.key), parcel.num),
            )
        return _letter(rows[0]) if rows else None

    def counts(self) -> Counts:
        """How much is on its way, and how much was given up."""
        with self._engine.reading() as tx:
            letters = dict(
                tx.run(
                    "SELECT state, count(*) FROM inbox WHERE state IN ('waiting', 'running')"
                    " GROUP BY state"
                )
            )
            unsent = tx.run("SELECT count(*) FROM outbox WHERE state = 'waiting'")[0][0]
            failed = tx.run(
                "SELECT count(*) FROM outbox WHERE state IN ('sent', 'failed') AND state = 'failed'"
            )[0][0]
        return Counts(letters.get("waiting", 0), letters.get("running", 0), unsent, failed)

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


def _unsent(tx: Transaction, key: str) -> list[Parcel]:
    sql = f"SELECT {_PARCEL} FROM outbox WHERE key = ? AND state = 'waiting' ORDER BY num"
    return [_parcel(row) for row in tx.run(sql, (escape(key),))]


def _beginning(under: Sequence[str]) -> tuple[str, list[Any]]:
    """A condition that a key begins with one of these; none without any."""
    begins = [escape(prefix) for prefix in under]
    if not begins:
        return "", []
    each = " OR ".join("substr(key, 1, ?) = ?" for _ in begins)
    return f" AND ({each})", [value for begin in begins for value in (len(begin), begin)]


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
