"""What the agent remembers for each owner: a few facts, their history, and the marks of flushes.

A fact holds from `since` to `until`. A session is told the facts that held when it started, so that
its prompt stays the same whatever changes later. A proposal is no fact until a person accepts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import ValueRows
from rekindle.store.core.tables import MEMORY_CHANGES, MEMORY_FACTS
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import Route, Source

from .message_rows import acquire_lease, decode_source, escape_optional
from .outbox import build_prefix_condition
from .routes import ROUTE_ROWS

MAX_FACTS = 50
MAX_FACT_CHARS = 300
MAX_PROPOSALS = 20
AGENT, PERSON = "agent", "person"
_UNDOABLE = "('add', 'replace', 'remove', 'accept')"


class Fact(NamedTuple):
    """A fact, or a proposal for one; people name it by its number."""

    num: int
    owner: str
    number: int
    text: str
    state: str  # active, proposed
    since: float
    until: float | None
    replaces: int | None  # number of the fact that a proposal would replace
    session: str | None


class MemoryChange(NamedTuple):
    """A change of an owner's facts, with the texts before and after it."""

    num: int
    owner: str
    time: float
    action: str  # add, replace, remove, propose, accept, reject, undo
    actor: str  # agent, person
    number: int
    before_text: str | None
    after_text: str | None
    session: str | None
    undone: bool


FACT_ROWS = ValueRows(MEMORY_FACTS, Fact)
CHANGE_ROWS = ValueRows(MEMORY_CHANGES, MemoryChange, undone=bool)
_INSERT_FACT = (
    "INSERT INTO memory_facts (owner, number, text, state, since, replaces, session)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_CHANGE = (
    "INSERT INTO memory_changes (owner, time, action, actor, number, before_text, after_text, session)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class _Writer:
    """Changes the facts of one owner within a transaction, which it locks."""

    def __init__(
        self, tx: Transaction, owner: str, now: float, actor: str, session: str | None
    ) -> None:
        self._tx, self._owner, self._now = tx, owner, now
        self._actor, self._session = actor, session
        lock = (
            "INSERT INTO memory_owners (owner, last_number) VALUES (?, 0) ON CONFLICT (owner)"
            " DO UPDATE SET last_number = memory_owners.last_number"
        )
        tx.run(lock, (escape_text(owner),))

    def list(self, state: str) -> list[Fact]:
        rest = "WHERE owner = ? AND until IS NULL AND state = ? ORDER BY number, num"
        return FACT_ROWS.find(self._tx, rest, (escape_text(self._owner), state))

    def find(self, number: int, state: str | None = None) -> Fact:
        for fact in (*self.list("active"), *self.list("proposed")):
            if fact.number == number and state in (None, fact.state):
                return fact
        noun = "proposal" if state == "proposed" else "fact"
        raise NotFound(f"there is no {noun} {number}")

    def open(
        self, text: str, number: int | None = None, *, proposed: bool = False,
        replaces: int | None = None,
    ) -> Fact:  # fmt: skip
        state = "proposed" if proposed else "active"
        limit, noun = (MAX_PROPOSALS, "proposals") if proposed else (MAX_FACTS, "facts")
        if len(self.list(state)) >= limit:
            raise InvalidInput(f"there are already {limit} {noun}; remove one first")
        if number is None:
            sql = (
                "UPDATE memory_owners SET last_number = last_number + 1 WHERE owner = ?"
                " RETURNING last_number"
            )
            number = int(self._tx.run(sql, (escape_text(self._owner),))[0][0])
        self._tx.run(
            _INSERT_FACT,
            (escape_text(self._owner), number, escape_text(text), state, self._now, replaces,
             escape_optional(self._session)),
        )  # fmt: skip
        return self.find(number, state)

    def close(self, fact: Fact) -> None:
        self._tx.run("UPDATE memory_facts SET until = ? WHERE num = ?", (self._now, fact.num))

    def log(self, action: str, number: int, before: str | None, after: str | None) -> None:
        self._tx.run(
            _INSERT_CHANGE,
            (escape_text(self._owner), self._now, action, self._actor, number,
             escape_optional(before), escape_optional(after), escape_optional(self._session)),
        )  # fmt: skip


def move_facts(
    tx: Transaction, old: str, new: str, now: float, platform: str | None = None
) -> None:
    """Give an owner's facts to another owner, if given only those of sessions on a platform.

    A fact that the other one has already, or has no space for, is not moved.
    """
    if old == new:
        return
    by_owner = {name: _Writer(tx, name, now, PERSON, None) for name in sorted((old, new))}
    source, target = by_owner[old], by_owner[new]
    known = {fact.text for fact in target.list("active")}
    for fact in source.list("active"):
        if platform is not None and not _is_from_platform(tx, fact, platform):
            continue
        if fact.text not in known:
            if len(known) >= MAX_FACTS:
                return
            known.add(fact.text)
            writer = _Writer(tx, new, now, PERSON, fact.session)
            writer.log("add", writer.open(fact.text).number, None, fact.text)
        source.close(fact)
        source.log("remove", fact.number, fact.text, None)


def _is_from_platform(tx: Transaction, fact: Fact, platform: str) -> bool:
    sql = "SELECT 1 FROM sessions WHERE id = ? AND source = ?"
    return bool(tx.run(sql, (escape_text(fact.session or ""), escape_text(platform))))


class Memory(StorePart):
    """The facts of a store. Use `store.memory`.

    `actor` is who makes a change, the agent or a person; `session` is where it was made.
    """

    # -- reading

    def list(self, owner: str, *, proposed: bool = False) -> list[Fact]:
        """Return an owner's facts, or the proposals that wait for a person, by number."""
        state = "proposed" if proposed else "active"
        with self._engine.begin_read() as tx:
            rest = "WHERE owner = ? AND until IS NULL AND state = ? ORDER BY number, num"
            return FACT_ROWS.find(tx, rest, (escape_text(owner), state))

    def list_for_session(self, owner: str, session: str) -> list[Fact]:
        """Return the facts that held when a session started."""
        with self._engine.begin_read() as tx:
            rows = tx.run("SELECT started FROM sessions WHERE id = ?", (escape_text(session),))
            started = rows[0][0] if rows else self._clock()
            return FACT_ROWS.find(
                tx,
                "WHERE owner = ? AND since <= ? AND (until IS NULL OR until > ?)"
                " AND state = 'active' ORDER BY number, num",
                (escape_text(owner), started, started),
            )

    def list_owners(self) -> list[tuple[str, int]]:
        """Return the owners who have facts, and how many."""
        rows = self._select(
            "SELECT owner, count(*) FROM memory_facts WHERE until IS NULL AND state = 'active'"
            " GROUP BY owner ORDER BY owner"
        )
        return [(unescape_text(owner), int(count)) for owner, count in rows]

    def list_changes(self, owner: str, limit: int = 50) -> list[MemoryChange]:
        """Return the changes of an owner's facts, newest first."""
        with self._engine.begin_read() as tx:
            rest = "WHERE owner = ? ORDER BY num DESC LIMIT ?"
            return CHANGE_ROWS.find(tx, rest, (escape_text(owner), limit))

    # -- changing

    def add(
        self, owner: str, text: str, *, actor: str, session: str | None = None,
        proposed: bool = False,
    ) -> Fact:  # fmt: skip
        """Add a fact, or propose one; return the existing one if the text is known."""
        _validate_text(text)
        now = self._clock()

        def add_fact(tx: Transaction) -> Fact:
            writer = _Writer(tx, owner, now, actor, session)
            known = [*writer.list("active"), *(writer.list("proposed") if proposed else ())]
            for fact in known:
                if fact.text.casefold() == text.casefold():
                    return fact
            fact = writer.open(text, proposed=proposed)
            writer.log("propose" if proposed else "add", fact.number, None, text)
            return fact

        return self._write(add_fact)

    def replace(
        self, owner: str, number: int, text: str, *, actor: str, session: str | None = None,
        proposed: bool = False,
    ) -> Fact:  # fmt: skip
        """Replace the text of a fact, or propose it."""
        _validate_text(text)
        now = self._clock()

        def replace_fact(tx: Transaction) -> Fact:
            writer = _Writer(tx, owner, now, actor, session)
            old = writer.find(number, "active")
            if old.text == text:
                return old
            if proposed:
                fact = writer.open(text, proposed=True, replaces=number)
                writer.log("propose", fact.number, old.text, text)
                return fact
            writer.close(old)
            fact = writer.open(text, number)
            writer.log("replace", number, old.text, text)
            return fact

        return self._write(replace_fact)

    def remove(self, owner: str, number: int, *, actor: str, session: str | None = None) -> Fact:
        """Remove a fact or reject a proposal."""
        now = self._clock()

        def remove_fact(tx: Transaction) -> Fact:
            writer = _Writer(tx, owner, now, actor, session)
            fact = writer.find(number)
            writer.close(fact)
            action = "remove" if fact.state == "active" else "reject"
            writer.log(action, number, fact.text, None)
            return fact

        return self._write(remove_fact)

    def accept(self, owner: str, number: int, *, session: str | None = None) -> Fact:
        """Make a proposal a fact, on a person's word."""
        now = self._clock()

        def accept_fact(tx: Transaction) -> Fact:
            writer = _Writer(tx, owner, now, PERSON, session)
            proposal = writer.find(number, "proposed")
            writer.close(proposal)
            replaced = [one for one in writer.list("active") if one.number == proposal.replaces]
            for old in replaced:
                writer.close(old)
            fact = writer.open(proposal.text, replaced[0].number if replaced else number)
            before = replaced[0].text if replaced else None
            writer.log("accept", fact.number, before, fact.text)
            return fact

        return self._write(accept_fact)

    def undo(self, owner: str, *, actor: str, session: str | None = None) -> MemoryChange:
        """Undo the last change that is not undone yet; the agent cannot undo what a person did."""
        now = self._clock()

        def undo_change(tx: Transaction) -> MemoryChange:
            writer = _Writer(tx, owner, now, actor, session)
            found = CHANGE_ROWS.find(
                tx,
                f"WHERE owner = ? AND undone = 0 AND action IN {_UNDOABLE} ORDER BY num DESC LIMIT 1",
                (escape_text(owner),),
            )
            if not found:
                raise NotFound("there is nothing to undo")
            (change,) = found
            if actor == AGENT and change.actor != AGENT:
                raise InvalidInput("the last change was made by the person; only they can undo it")
            for fact in writer.list("active"):
                if fact.number == change.number:
                    writer.close(fact)
            if change.before_text is not None:
                writer.open(change.before_text, change.number)
            writer.log("undo", change.number, change.after_text, change.before_text)
            tx.run("UPDATE memory_changes SET undone = 1 WHERE num = ?", (change.num,))
            return change

        return self._write(undo_change)

    # -- flushes

    def list_unflushed(
        self, prefixes: Sequence[str], since: float, limit: int = 10_000
    ) -> list[Route]:
        """Return the routes, active after `since`, whose stored session was not flushed yet."""
        condition, params = build_prefix_condition(prefixes)
        with self._engine.begin_read() as tx:
            return ROUTE_ROWS.find(
                tx,
                "WHERE updated >= ? AND NOT EXISTS (SELECT 1 FROM memory_flushes f"
                " WHERE f.session = routes.session) AND EXISTS (SELECT 1 FROM sessions s"
                f" WHERE s.id = routes.session AND s.pruned IS NULL){condition}"
                " ORDER BY updated LIMIT ?",
                (since, *params, limit),
            )

    def claim_flush(self, route: Route, *, instance: str, lease_seconds: float) -> bool:
        """Claim the one flush of a route's session, with the lease of its conversation.

        Return False if somebody has, if the lease is taken, if there was activity, or if messages wait.
        """
        now, key = self._clock(), escape_text(route.key)

        def claim(tx: Transaction) -> bool:
            sql = "UPDATE routes SET changes = changes + 1 WHERE key = ? RETURNING session, updated"
            rows = tx.run(sql, (key,))
            if not rows or tuple(rows[0]) != (escape_text(route.session), route.updated):
                return False
            waiting = (
                "SELECT 1 FROM inbox WHERE key = ? AND state IN ('waiting', 'running') LIMIT 1"
            )
            done = "SELECT 1 FROM memory_flushes WHERE session = ?"
            if tx.run(waiting, (key,)) or tx.run(done, (escape_text(route.session),)):
                return False
            if not acquire_lease(tx, route.key, instance, now, lease_seconds):
                return False
            sql = "INSERT INTO memory_flushes (session, key, time) VALUES (?, ?, ?)"
            tx.run(sql, (escape_text(route.session), key, now))
            return True

        return self._write(claim)

    def is_flushed(self, session: str) -> bool:
        """Return whether the flush of a session was claimed."""
        sql = "SELECT 1 FROM memory_flushes WHERE session = ?"
        return bool(self._select(sql, (escape_text(session),)))

    def list_speakers(self, key: str, session: str) -> dict[int, Source]:
        """Return who wrote the messages of a session, by position, as far as the inbox knows."""
        rows = self._select(
            "SELECT position, source FROM inbox WHERE key = ? AND platform_id IS NOT NULL"
            " AND session = ? AND position IS NOT NULL",
            (escape_text(key), escape_text(session)),
        )
        return {position: decode_source(source) for position, source in rows}


def _validate_text(text: str) -> None:
    if not text.strip():
        raise InvalidInput("the fact is empty")
    if len(text) > MAX_FACT_CHARS:
        raise InvalidInput(
            f"the fact has {len(text):,} characters; at most {MAX_FACT_CHARS} are allowed"
        )
