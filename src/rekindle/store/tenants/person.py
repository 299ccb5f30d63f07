"""What is stored about a person: find it, export it, erase it."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rekindle.errors import NotFound
from rekindle.store.conversations.message_rows import decode_source
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import decode_json
from rekindle.store.core.tables import TABLES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.store.graphs.documents import build_person_condition
from rekindle.store.sessions.requests import refresh_requests
from rekindle.store.sessions.retention import delete_session
from rekindle.store.transfer.copy_routes import clear_dead_references

ERASED_TEXT = "[erased]"  # in place of what a person said in a conversation of several
_TABLES = {table.name: table for table in TABLES}


class StoredPerson(NamedTuple):
    """Everything by which the rows of a person are found."""

    identities: frozenset[tuple[str, str]]  # platform and user
    owners: frozenset[str]  # of sessions, facts and jobs
    keys: frozenset[str]  # of their own conversations
    sessions: tuple[tuple[int, str], ...]  # numbers and ids
    inbox: tuple[int, ...]  # numbers of what they sent
    jobs: tuple[int, ...]
    homes: tuple[str, ...]  # platforms whose home chat is theirs
    said: tuple[tuple[int, int], ...]  # session and position of messages among those of others

    @property
    def is_known(self) -> bool:
        """Whether anything is stored that belongs to this person."""
        return bool(self.sessions or self.inbox or self.jobs or self.keys)


class ErasedPerson(NamedTuple):
    """What was erased: rows by table, sessions, and templates that were built from these sessions."""

    rows: dict[str, int]
    sessions: tuple[str, ...]
    templates: tuple[str, ...]


class PersonalData(StorePart):
    """What is stored about people. Use `store.personal_data`.

    A person is named by an identity, PLATFORM:USER, or as the owner or user of sessions. Everything
    that is linked to this name belongs to them: identities, conversations, sessions, and the sessions
    that go on from theirs, whoever owns these.
    """

    def find(self, name: str) -> StoredPerson:
        """Find a person; raise `NotFound` if nothing is stored about them."""
        with self._engine.begin_read() as tx:
            return _require_person(tx, name)

    def list_texts(self, name: str) -> Iterator[str]:
        """Yield the texts of a person's own messages, for example to search for them afterwards."""
        with self._engine.begin_read() as tx:
            for num, _ in _require_person(tx, name).sessions:
                sql = "SELECT content FROM messages WHERE session = ? AND role = 'user'"
                for (content,) in tx.run(f"{sql} AND content IS NOT NULL", (num,)):
                    yield unescape_text(content)

    def export_rows(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all rows about a person except those of sessions, each with its table."""
        with self._engine.begin_read() as tx:
            person = _require_person(tx, name)
            for table, condition, params in _list_conditions(person):
                names = _TABLES[table].names
                sql = f"SELECT {', '.join(names)} FROM {table} WHERE {condition}"
                for row in tx.run(sql, params):
                    yield table, dict(zip(names, map(_to_plain_value, row), strict=True))

    def erase(self, name: str) -> ErasedPerson:
        """Erase everything about a person in one transaction, then free the space it took."""
        erased = self._write(lambda tx: self._erase(tx, name))
        self._engine.compact()  # a deleted row of a file stays readable until its page is reused
        return erased

    def _erase(self, tx: Transaction, name: str) -> ErasedPerson:
        person = _require_person(tx, name)
        rows: Counter[str] = Counter()
        for table, condition, params in _list_conditions(person):
            deleted = tx.run(f"DELETE FROM {table} WHERE {condition} RETURNING 1", params)
            rows[table] += len(deleted)
        templates = _find_templates(tx, {id for _, id in person.sessions})
        self._erase_said(tx, person.said)
        projects: set[str] = set()
        for num, _ in person.sessions:
            sql = "SELECT project, message_count FROM sessions WHERE num = ?"
            [(project, messages)] = tx.run(sql, (num,))
            projects |= {project} - {None}
            rows["messages"] += messages
            delete_session(self._engine, tx, num)
        rows["sessions"] += len(person.sessions)
        for project in projects:  # learned from all sessions of a project: to be learned again
            tx.run("DELETE FROM playbooks WHERE project = ?", (project,))
            tx.run(
                "DELETE FROM observations WHERE session IN"
                " (SELECT num FROM sessions WHERE project = ?)",
                (project,),
            )
        clear_dead_references(tx)
        if (
            self._engine.name == "sqlite"
        ):  # its index keeps words of deleted rows until it is merged
            self._engine.reindex(tx)
        counts = {table: count for table, count in rows.items() if count}
        return ErasedPerson(counts, tuple(id for _, id in person.sessions), templates)

    def _erase_said(self, tx: Transaction, said: Iterable[tuple[int, int]]) -> None:
        """Replace what a person said among others, and index these sessions again."""
        positions: dict[int, list[int]] = {}
        for num, position in said:
            positions.setdefault(num, []).append(position)
        for num, listed in positions.items():
            self._engine.unindex(tx, num)
            tx.run_many(
                "UPDATE messages SET content = ?, body = NULL WHERE session = ? AND position = ?",
                [(ERASED_TEXT, num, position) for position in listed],
            )
            tx.run("UPDATE sessions SET changes = changes + 1 WHERE num = ?", (num,))
            refresh_requests(tx, num)
            if self._engine.name != "sqlite":
                self._engine.index(tx, num, 0, 0, 0)


def _require_person(tx: Transaction, name: str) -> StoredPerson:
    person = _find_person(tx, escape_text(name))
    has_rows = any(
        tx.run(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1", params)
        for table, condition, params in _list_conditions(person)
    )
    if not person.is_known and not has_rows:
        raise NotFound(f"Nothing is stored about {name}.")
    return person


def _find_person(tx: Transaction, name: str) -> StoredPerson:
    identities, owners = _find_identities(tx, name)
    users = {(unescape_text(platform), unescape_text(user)) for platform, user in identities}
    keys: set[str] = set()
    for key, origin, owner, kind in tx.run("SELECT key, origin, owner, chat_type FROM routes"):
        source = decode_source(origin)
        is_own = kind == "dm" and (source.platform, source.user_id or "") in users
        if is_own or key in owners or owner in owners:
            keys.add(key)
            owners |= {owner or key}
    sessions = _find_sessions(tx, {*owners, name})
    inbox, said = _find_inbox(tx, users, keys, {num for num, _ in sessions})
    jobs = [
        num
        for num, owner, maker in tx.run("SELECT num, owner, maker FROM jobs")
        if owner in owners or _matches_user(maker, users)
    ]
    homes = tx.run("SELECT platform, source FROM home_chats")
    return StoredPerson(
        identities=frozenset(identities),
        owners=frozenset({*owners, name}),
        keys=frozenset(keys),
        sessions=tuple((num, unescape_text(id)) for num, id in sessions),
        inbox=tuple(inbox),
        jobs=tuple(jobs),
        homes=tuple(platform for platform, source in homes if _matches_user(source, users)),
        said=tuple(said),
    )


def _find_identities(tx: Transaction, name: str) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the identities that belong to a name, and the owners of what they have."""
    platform, colon, user = name.partition(":")
    identities: set[tuple[str, str]] = {(platform, user)} if colon else set()
    owners, names, known = {name}, {name}, 0
    while len(names) > known:  # an identity may be linked to one that is linked to another
        known = len(names)
        for one in [*names]:
            people = tx.run(
                "SELECT platform, user_id, person FROM people"
                " WHERE person = ? OR platform || ':' || user_id = ?",
                (one, one),
            )
            links = tx.run(
                "SELECT platform, user_id, person, owner FROM links"
                " WHERE person = ? OR owner = ? OR platform || ':' || user_id = ?",
                (one, one, one),
            )
            identities |= {(row[0], row[1]) for row in (*people, *links)}
            owners |= {owner for *_, owner in links if owner}
            names |= {f"{row[0]}:{row[1]}" for row in (*people, *links)}
            names |= {row[2] for row in (*people, *links) if row[2]}
    return identities, owners


def _find_sessions(tx: Transaction, owners: set[str]) -> list[tuple[int, str]]:
    """Return the sessions of some owners, and all that go on from these."""
    found: dict[int, str] = {}
    for owner in owners:
        sql = "SELECT num, id FROM sessions WHERE owner = ? OR user_name = ?"
        found |= dict(tx.run(sql, (owner, owner)))
    waiting = [*found.values()]
    while waiting:
        children = tx.run("SELECT num, id FROM sessions WHERE parent = ?", (waiting.pop(),))
        new = {num: id for num, id in children if num not in found}
        found |= new
        waiting += new.values()
    return sorted(found.items())


def _find_inbox(
    tx: Transaction, users: set[tuple[str, str]], keys: set[str], nums: set[int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the messages that a person sent, and where they stand in sessions of others."""
    sent: list[int] = []
    said: list[tuple[int, int]] = []
    rows = tx.run(
        "SELECT i.num, i.key, i.source, i.position, s.num FROM inbox i"
        " LEFT JOIN sessions s ON s.id = i.session"
    )
    for num, key, source, position, session in rows:
        if key in keys or _matches_user(source, users):
            sent.append(num)
            if session is not None and position is not None and session not in nums:
                said.append((session, position))
    return sent, said


def _matches_user(source: str, users: set[tuple[str, str]]) -> bool:
    found = decode_source(source)
    return (found.platform, found.user_id or "") in users


def _find_templates(tx: Transaction, sessions: set[str]) -> tuple[str, ...]:
    rows = tx.run("SELECT id, sources FROM templates ORDER BY id")
    return tuple(unescape_text(id) for id, sources in rows if sessions & {*decode_json(sources)})


def _list_conditions(person: StoredPerson) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Yield table, condition and parameters of all rows about a person outside of sessions."""
    for identity in sorted(person.identities):
        for table in ("people", "links", "access_log"):
            yield table, "platform = ? AND user_id = ?", identity
        yield "person_usage", "person = ?", (":".join(identity),)
    for owner in sorted(person.owners):
        yield "person_usage", "person = ?", (owner,)
        for table in ("memory_facts", "memory_changes", "memory_owners", "assignments"):
            yield table, "owner = ?", (owner,)
        yield "graph_values", *build_person_condition(owner)
    for num in person.inbox:
        yield "approvals", "inbox = ?", (num,)
        yield "outbox", "inbox = ?", (num,)
        yield "inbox", "num = ?", (num,)
    for num in person.jobs:
        yield "job_runs", "job = ?", (num,)
        yield "jobs", "num = ?", (num,)
    for platform in person.homes:
        yield "home_chats", "platform = ?", (platform,)
    for key in sorted(person.keys):
        for table in (
            "approvals",
            "outbox",
            "gateway_errors",
            "leases",
            "memory_flushes",
            "routes",
        ):
            yield table, "key = ?", (key,)
    for _, id in person.sessions:
        session = escape_text(id)
        for table in ("memory_flushes", "session_leases"):
            yield table, "session = ?", (session,)
        yield "assignments", "root = ?", (session,)
        for table in ("graph_checkpoints", "graph_values", "graph_writes"):
            yield table, "thread = ?", (session,)


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return unescape_text(value) if isinstance(value, str) else value
