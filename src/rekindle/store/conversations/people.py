"""Who may talk to the gateway: roles, pairing requests, daily usage, and a log of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import NamedTuple

from rekindle.errors import NotFound
from rekindle.store.core.engine import Row, StorePart, Transaction
from rekindle.store.core.rows import NANO
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import Source, Usage, validate_name

DENIED = "denied"
_COLUMNS = "platform, user_id, role, name, person, expires, asked, requests, changed"
_UPSERT = (
    "INSERT INTO people (platform, user_id, role, name, person, changed) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (platform, user_id) DO UPDATE SET role = excluded.role, changed = excluded.changed,"
    " name = CASE WHEN excluded.name = '' THEN people.name ELSE excluded.name END,"
    " code = NULL, expires = NULL"
)


class Identity(NamedTuple):
    """A user of a platform. Without a role, it is someone who asked to be paired."""

    platform: str
    user_id: str
    role: str | None
    name: str
    person: str
    expires: float | None  # of the pairing code
    asked: float | None
    requests: int
    changed: float


class AccessEvent(NamedTuple):
    """An entry of the access log."""

    time: float
    platform: str
    user_id: str
    name: str
    event: str
    detail: str


class DailyUsage(NamedTuple):
    """What a person used on one day."""

    turns: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)


class People(StorePart):
    """The people whom a store's gateways know. Use `store.people`."""

    def find(self, platform: str, user_id: str) -> Identity | None:
        """Return a user of a platform, or None if they are unknown."""
        rows = self._select(
            f"SELECT {_COLUMNS} FROM people WHERE platform = ? AND user_id = ?",
            (escape_text(platform), escape_text(user_id)),
        )
        return _read_identity(rows[0]) if rows else None

    def list(
        self, *, limit: int | None = None, after: tuple[str, str] = ("", "")
    ) -> list[Identity]:
        """Return everybody who is known, has asked, or is denied, in order of platform and user.

        `after` is the platform and the user id of the last one that was seen.
        """
        rows = self._select(
            f"SELECT {_COLUMNS} FROM people WHERE (platform, user_id) > (?, ?)"
            " ORDER BY platform, user_id" + ("" if limit is None else " LIMIT ?"),
            (*map(escape_text, after), *([] if limit is None else [limit])),
        )
        return [_read_identity(row) for row in rows]

    def list_requests(self, limit: int = 100) -> list[Identity]:
        """Return who waits to be paired, those who asked last first."""
        rows = self._select(
            f"SELECT {_COLUMNS} FROM people WHERE code IS NOT NULL AND role IS NULL AND expires > ?"
            " ORDER BY asked DESC LIMIT ?",
            (self._clock(), limit),
        )
        return [_read_identity(row) for row in rows]

    def has_anyone(self) -> bool:
        """Return whether anybody has a role."""
        sql = "SELECT 1 FROM people WHERE role IS NOT NULL AND role <> 'denied' LIMIT 1"
        return bool(self._select(sql))

    def set_role(self, platform: str, user_id: str, role: str, *, name: str = "") -> Identity:
        """Give a user a role (or `denied`), whoever they were before."""
        validate_name("platform", platform)
        validate_name("user", user_id)
        now = self._clock()

        def save(tx: Transaction) -> Identity:
            return _save_role(tx, platform, user_id, role, name, now)

        return self._write(save)

    def record_request(
        self, platform: str, user_id: str, name: str, code: str, *,
        seconds: float, pause: float, max_pending: int,
    ) -> bool:  # fmt: skip
        """Record the code sent to a stranger; return False if no code must be sent now.

        A person gets one code per `pause` seconds, and a platform has at most `max_pending` open
        requests, so that strangers cannot make the gateway send at will.
        """
        now = self._clock()

        def record(tx: Transaction) -> bool:
            rows = tx.run(
                "SELECT role, asked FROM people WHERE platform = ? AND user_id = ?",
                (escape_text(platform), escape_text(user_id)),
            )
            if rows and (rows[0][0] is not None or now - (rows[0][1] or 0.0) < pause):
                return False
            pending = tx.run(
                "SELECT count(*) FROM people WHERE platform = ? AND role IS NULL AND expires > ?",
                (escape_text(platform), now),
            )[0][0]
            if pending >= max_pending:
                return False
            tx.run(
                "INSERT INTO people (platform, user_id, name, person, code, expires, asked, requests,"
                " changed) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?)"
                " ON CONFLICT (platform, user_id) DO UPDATE SET name = excluded.name,"
                " code = excluded.code, expires = excluded.expires, asked = excluded.asked,"
                " requests = people.requests + 1, changed = excluded.changed",
                (
                    escape_text(platform), escape_text(user_id), escape_text(name),
                    _format_person(platform, user_id), hash_code(code), now + seconds, now, now,
                ),
            )  # fmt: skip
            insert_event(tx, now, platform, user_id, name, "asked", "")
            return True

        return self._write(record)

    def approve(self, code: str, role: str) -> Identity:
        """Give the person who was sent this code a role. A code works once, until it expires."""
        now = self._clock()

        def pair(tx: Transaction) -> Identity | None:
            rows = tx.run(
                f"SELECT {_COLUMNS} FROM people WHERE code = ? AND expires > ? AND role IS NULL",
                (hash_code(code), now),
            )
            if not rows:
                insert_event(tx, now, "", "", "", "wrong code", "")
                return None
            found = _read_identity(rows[0])
            return _save_role(tx, found.platform, found.user_id, role, found.name, now)

        found = self._write(pair)
        if found is None:
            raise NotFound(
                "no one is waiting with this code, or it has expired; list requests with"
                " `rekindle gateway list`"
            )
        return found

    def count_wrong_codes(self, seconds: float) -> int:
        """Count the wrong codes tried within the last `seconds`."""
        sql = "SELECT count(*) FROM access_log WHERE time > ? AND event = 'wrong code'"
        return self._select(sql, (self._clock() - seconds,))[0][0]

    # -- usage

    def add_usage(self, person: str, day: str, usage: Usage, *, turns: int = 0) -> None:
        """Count a person's usage and turns."""
        values = (person, day, turns, usage.tokens.total, int(usage.cost * NANO))
        sql = (
            "INSERT INTO person_usage (person, day, turns, tokens, cost_nano) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (person, day) DO UPDATE SET turns = person_usage.turns + excluded.turns,"
            " tokens = person_usage.tokens + excluded.tokens,"
            " cost_nano = person_usage.cost_nano + excluded.cost_nano"
        )
        self._write(lambda tx: tx.run(sql, (escape_text(values[0]), *values[1:])))

    def get_usage(self, person: str, day: str) -> DailyUsage:
        """Return a person's usage on a day."""
        rows = self._select(
            "SELECT turns, tokens, cost_nano FROM person_usage WHERE person = ? AND day = ?",
            (escape_text(person), day),
        )
        if not rows:
            return DailyUsage()
        turns, tokens, cost = rows[0]
        return DailyUsage(turns, tokens, Decimal(cost) / NANO)

    def sum_usage(
        self, people: Sequence[str], day: str
    ) -> dict[str, tuple[DailyUsage, DailyUsage]]:
        """Return the usage of each of these people on a day, and on all stored days."""
        sums = {person: (DailyUsage(), DailyUsage()) for person in people}
        if not sums:
            return {}
        rows = self._select(
            "SELECT person, sum(turns), sum(tokens), sum(cost_nano),"
            " sum(CASE WHEN day = ? THEN turns ELSE 0 END),"
            " sum(CASE WHEN day = ? THEN tokens ELSE 0 END),"
            " sum(CASE WHEN day = ? THEN cost_nano ELSE 0 END) FROM person_usage"
            f" WHERE person IN ({', '.join('?' * len(people))}) GROUP BY person",
            (day, day, day, *map(escape_text, people)),
        )
        for person, *figures in rows:
            turns, tokens, cost, *today = map(int, figures)
            sums[unescape_text(person)] = (
                DailyUsage(today[0], today[1], Decimal(today[2]) / NANO),
                DailyUsage(turns, tokens, Decimal(cost) / NANO),
            )
        return sums

    # -- log

    def add_event(
        self, platform: str, user_id: str, name: str, event: str, detail: str = ""
    ) -> None:
        """Add an entry to the access log."""
        now = self._clock()
        self._write(lambda tx: insert_event(tx, now, platform, user_id, name, event, detail))

    def list_events(self, limit: int = 50) -> list[AccessEvent]:
        """Return the newest entries of the access log, newest first."""
        rows = self._select(
            "SELECT time, platform, user_id, name, event, detail FROM access_log"
            " ORDER BY num DESC LIMIT ?",
            (limit,),
        )
        return [AccessEvent(time, *map(unescape_text, texts)) for time, *texts in rows]

    def delete_old(self, older_than: float) -> None:
        """Delete log entries, requests and daily counts older than `older_than` seconds."""
        before = self._clock() - older_than

        def delete_rows(tx: Transaction) -> None:
            tx.run("DELETE FROM access_log WHERE time < ?", (before,))
            tx.run("DELETE FROM people WHERE role IS NULL AND changed < ?", (before,))
            day = datetime.fromtimestamp(before, UTC).strftime("%Y-%m-%d")
            tx.run("DELETE FROM person_usage WHERE day < ?", (day,))

        self._write(delete_rows)


def _save_role(
    tx: Transaction, platform: str, user_id: str, role: str, name: str, now: float
) -> Identity:
    person = _format_person(platform, user_id)
    values = (platform, user_id, role, name, person)
    tx.run(_UPSERT, (*map(escape_text, values), now))
    insert_event(tx, now, platform, user_id, name, "denied" if role == DENIED else "allowed", role)
    rows = tx.run(
        f"SELECT {_COLUMNS} FROM people WHERE platform = ? AND user_id = ?",
        (escape_text(platform), escape_text(user_id)),
    )
    return _read_identity(rows[0])


def make_person(source: Source) -> str:
    """Return the person that an identity stands for as long as it is not linked to another."""
    return _format_person(source.platform, source.user_id or "")


def _format_person(platform: str, user_id: str) -> str:
    return f"{platform}:{user_id}"


def hash_code(code: str) -> str:
    """Return the hash of a code as it is stored, whatever its case and dashes."""
    return sha256("".join(c for c in code.upper() if c.isalnum()).encode()).hexdigest()


def _read_identity(row: Row) -> Identity:
    platform, user_id, role, name, person, *rest = row
    return Identity(
        unescape_text(platform), unescape_text(user_id), role, unescape_text(name),
        unescape_text(person), *rest,
    )  # fmt: skip


def insert_event(
    tx: Transaction, now: float, platform: str, user_id: str, name: str, event: str, detail: str
) -> None:
    """Insert an entry of the access log."""
    tx.run(
        "INSERT INTO access_log (time, platform, user_id, name, event, detail)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (now, *map(escape_text, (platform, user_id, name[:200], event, detail[:500]))),
    )
