"""What came in and what has to go out, so that a crash in between loses and repeats nothing.

    accept     a message is here for good; a second time the platform says it, it is known
    attempt    somebody begins to work on it: counted first, in case it ends the program
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

from collections.abc import Sequence

from rekindle.errors import NotFound
from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.store.sessions import sessions
from rekindle.types import Message, Session, Source, checked, checked_name, plain

from .message_rows import (
    LETTER,
    PARCEL,
    SENDING,
    SKEW,
    Accepted,
    Counts,
    Letter,
    Parcel,
    hold,
    letter_of,
    named,
    packed,
    parcel_of,
)
from .outbox import Outbox, beginning, post, unsent

__all__ = ["SENDING", "Accepted", "Counts", "Letter", "Mail", "Parcel"]

# A conversation in which somebody speaks is not idle, even if the turn is never finished.
_TOUCH = "UPDATE routes SET updated = CASE WHEN updated < ? THEN ? ELSE updated END WHERE key = ?"
_OPEN = "state IN ('waiting', 'running')"


class Mail(Outbox):
    """Inbox and outbox of a store."""

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
                f" RETURNING {LETTER}",
                (
                    escape(key),
                    named(message.platform_message_id),
                    encode_json(plain(source)),
                    packed(message),
                    now,
                ),
            )
            if not rows:
                known = tx.run(
                    f"SELECT {LETTER} FROM inbox WHERE key = ? AND platform_id = ?",
                    (escape(key), named(message.platform_message_id)),
                )
                return Accepted(letter_of(known[0]), False, False)
            return Accepted(letter_of(rows[0]), True, hold(tx, key, runner, now, lease))

        return self._write(work)

    def waiting(self, key: str) -> list[Letter]:
        """What is not answered yet in a conversation, in the order of arrival."""
        with self._engine.reading() as tx:
            return _open(tx, key)

    def attempt(self, letter: Letter) -> int:
        """Count that a program begins to work on a letter, before it does; 0 if it has ended."""
        sql = (
            f"UPDATE inbox SET attempts = attempts + 1 WHERE num = ? AND {_OPEN} RETURNING attempts"
        )

        def work(tx: Transaction) -> int:
            rows = tx.run(sql, (letter.num,))
            return rows[0][0] if rows else 0

        return self._write(work)

    def spare(self, nums: Sequence[int]) -> None:
        """Take an attempt at each letter back: the program left it to a later one in good order."""
        sql = f"UPDATE inbox SET attempts = attempts - 1 WHERE num = ? AND attempts > 0 AND {_OPEN}"
        self._write(lambda tx: tx.many(sql, [(num,) for num in nums]))

    def begin(self, letter: Letter, session: Session) -> Letter:
        """Start the turn of a letter: its message takes its place in the session."""
        now = self._clock()

        def work(tx: Transaction) -> Letter:
            sql = f"SELECT {LETTER} FROM inbox WHERE num = ?"
            current = letter_of(_one(tx.run(sql, (letter.num,)), letter.num))
            if current.state != "waiting":
                return current  # after a crash: it has its place already
            tx.run(_TOUCH, (now, now, escape(letter.key)))
            said = current.message._replace(timestamp=current.message.timestamp or current.time)
            appended = sessions.append(self._engine, tx, session, [said], now)
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" RETURNING {LETTER}",
                (escape(session.id), appended.positions[0], letter.num),
            )
            return letter_of(rows[0])

        return self._write(work)

    def go_on(self, letter: Letter, session: str, position: int) -> Letter:
        """Start the turn of a letter for a message that stands in the session already."""
        now = self._clock()

        def work(tx: Transaction) -> Letter:
            tx.run(_TOUCH, (now, now, escape(letter.key)))
            rows = tx.run(
                "UPDATE inbox SET state = 'running', session = ?, position = ? WHERE num = ?"
                f" AND state IN ('waiting', 'running') RETURNING {LETTER}",
                (escape(session), position, letter.num),
            )
            return letter_of(_one(rows, letter.num))

        return self._write(work)

    def close(self, letter: Letter, reason: str | None = None) -> bool:
        """End a letter that needs no turn; False if it has ended before."""
        sql = f"UPDATE inbox SET state = ?, reason = ? WHERE num = ? AND {_OPEN} RETURNING num"
        values = ("failed" if reason else "done", named(reason), letter.num)
        return self._write(lambda tx: bool(tx.run(sql, values)))

    def finish(
        self,
        letters: Sequence[Letter],
        session: Session | str,
        messages: Sequence[Message],
        parcels: Sequence[tuple[Source, str]],
        *,
        reason: str | None = None,
        hopeless: bool = False,
    ) -> list[Parcel]:
        """End the turn of some letters: store the answer and put it on its way, all at once.

        With a `reason` the turn failed; what is to be said about that goes out all the same. A
        `hopeless` letter is marked undeliverable. Of a turn that was finished before, nothing
        happens a second time.
        """
        state = "undeliverable" if hopeless else "failed" if reason else "done"
        for message in messages:
            checked(message)
        now = self._clock()

        def work(tx: Transaction) -> list[Parcel]:
            ended = [
                letter.num
                for letter in letters
                if tx.run(
                    f"UPDATE inbox SET state = ?, reason = ? WHERE num = ? AND {_OPEN} RETURNING num",
                    (state, named(reason), letter.num),
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
                post(tx, first.key if first else "", first and first.num, target, text, now)
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

    def holder(self, key: str) -> str | None:
        """Who works on a conversation, or did when it died."""
        with self._engine.reading() as tx:
            rows = tx.run("SELECT runner FROM leases WHERE key = ?", (escape(key),))
        return unescape(rows[0][0]) if rows else None

    def give_up(self, runner: str) -> None:
        """Give all leases of a runner back, whatever waits: it has ended."""
        self._write(lambda tx: tx.run("DELETE FROM leases WHERE runner = ?", (escape(runner),)))

    def arrived(self, runner: str) -> list[Letter]:
        """What waits in the conversations of a runner; others may have taken it in."""
        columns = ", ".join(f"i.{name}" for name in LETTER.split(", "))
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {columns} FROM leases l JOIN inbox i ON i.key = l.key"
                " WHERE l.runner = ? AND i.state IN ('waiting', 'running')"
                " AND i.state = 'waiting' ORDER BY i.num",
                (escape(runner),),
            )
        return [letter_of(row) for row in rows]

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
        now, (condition, begins) = self._clock(), beginning(under)

        def work(tx: Transaction) -> list[str]:
            rows = tx.run(
                "SELECT DISTINCT key FROM inbox i WHERE state IN ('waiting', 'running')"
                " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.key = i.key AND l.until > ?"
                f" AND l.until <= ?){condition} ORDER BY key LIMIT ?",
                (now, now + lease + SKEW, *begins, limit),
            )
            keys = [unescape(key) for (key,) in rows]
            return [key for key in keys if hold(tx, key, runner, now, lease)]

        return self._write(work)

    def counts(self) -> Counts:
        """How much is on its way, and how much was given up."""
        with self._engine.reading() as tx:
            letters = dict(
                tx.run(
                    "SELECT state, count(*) FROM inbox WHERE state IN ('waiting', 'running')"
                    " GROUP BY state"
                )
            )
            to_send = tx.run("SELECT count(*) FROM outbox WHERE state = 'waiting'")[0][0]
            failed = tx.run(
                "SELECT count(*) FROM outbox WHERE state IN ('sent', 'failed') AND state = 'failed'"
            )[0][0]
            failed += tx.run("SELECT count(*) FROM inbox WHERE state = 'undeliverable'")[0][0]
        return Counts(letters.get("waiting", 0), letters.get("running", 0), to_send, failed)

    def undeliverable(self, limit: int = 20) -> list[Letter | Parcel]:
        """What was given up, newest first; each says why."""
        with self._engine.reading() as tx:
            letters = tx.run(
                f"SELECT {LETTER} FROM inbox WHERE state = 'undeliverable' ORDER BY num DESC LIMIT ?",
                (limit,),
            )
            parcels = tx.run(
                f"SELECT {PARCEL} FROM outbox WHERE state IN ('sent', 'failed')"
                " AND state = 'failed' ORDER BY time DESC LIMIT ?",
                (limit,),
            )
        found: list[Letter | Parcel] = [*map(letter_of, letters), *map(parcel_of, parcels)]
        return sorted(found, key=lambda one: -one.time)[:limit]

    def forget(self, key: str) -> bool:
        """Remove a conversation's route and finished mail, unless something is still on its way.

        Its sessions stay. For conversations that nobody can continue, such as that of a terminal
        that was closed.
        """
        name, lease = escape(key), escape(SENDING + key)

        def work(tx: Transaction) -> bool:
            # To change the row is the lock: nobody takes a message in meanwhile.
            held = "UPDATE routes SET changes = changes + 1 WHERE key = ? RETURNING created"
            begun = tx.run(held, (name,))
            if not begun or _open(tx, key) or unsent(tx, key):
                return False
            tx.run(  # by time, for which there is an index: a large inbox is not read through
                "DELETE FROM inbox WHERE state IN ('done', 'failed') AND time >= ? AND key = ?",
                (begun[0][0], name),
            )
            tx.run("DELETE FROM inbox WHERE state = 'undeliverable' AND key = ?", (name,))
            tx.run("DELETE FROM outbox WHERE key = ?", (name,))
            tx.run("DELETE FROM routes WHERE key = ?", (name,))
            tx.run("DELETE FROM leases WHERE key IN (?, ?)", (name, lease))
            return True

        return self._write(work)

    def tidy(self, older_than: float) -> None:
        """Forget what was finished more than so many seconds ago."""
        before = self._clock() - older_than

        def work(tx: Transaction) -> None:
            tx.run("DELETE FROM inbox WHERE time < ? AND state IN ('done', 'failed')", (before,))
            tx.run("DELETE FROM inbox WHERE state = 'undeliverable' AND time < ?", (before,))
            tx.run("DELETE FROM outbox WHERE time < ? AND state IN ('sent', 'failed')", (before,))

        self._write(work)


def _open(tx: Transaction, key: str) -> list[Letter]:
    rows = tx.run(
        f"SELECT {LETTER} FROM inbox WHERE key = ? AND {_OPEN} ORDER BY num",
        (escape(key),),
    )
    return [letter_of(row) for row in rows]


def _one(rows: list[Row], num: int) -> Row:
    if not rows:
        raise NotFound(f"letter {num} is not there any more")
    return rows[0]
