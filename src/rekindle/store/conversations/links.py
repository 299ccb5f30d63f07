"""Identities of one person on several platforms, linked with that person's consent on both sides.

A code that one identity makes and another one uses proves the consent. The identity that made the
code stands for the person: its role, its usage and the owner of its sessions hold for both.
"""

from __future__ import annotations

from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store.core.engine import Row, StorePart, Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.store.sessions import titles
from rekindle.types import Source, to_json_value

from .memory import move_facts
from .message_rows import decode_source
from .people import hash_code, insert_event, make_person

_COLUMNS = "platform, user_id, person, owner, chat, expires"
_WRONG_CODE = "wrong link code"


class LinkedIdentity(NamedTuple):
    """A user of a platform who is linked, or has made a code to link another identity.

    `person` is the identity it is linked to, None if it has only made a code; `owner` owns its
    sessions. `chat` is where it is told about the link.
    """

    platform: str
    user_id: str
    person: str | None
    owner: str | None
    chat: Source
    expires: float | None


class Links(StorePart):
    """The linked identities of a store. Use `store.links`."""

    def find(self, platform: str, user_id: str) -> LinkedIdentity | None:
        """Return what is known about the links of a user of a platform."""
        with self._engine.begin_read() as tx:
            return _select_identity(tx, platform, user_id)

    def list_linked(self, person: str) -> list[LinkedIdentity]:
        """Return the identities that are linked to a person."""
        rows = self._select(
            f"SELECT {_COLUMNS} FROM links WHERE person = ? ORDER BY platform",
            (escape_text(person),),
        )
        return [_read_identity(row) for row in rows]

    def list_all(self, limit: int = 200) -> list[LinkedIdentity]:
        """Return linked identities, by the person they belong to."""
        rows = self._select(
            f"SELECT {_COLUMNS} FROM links WHERE person IS NOT NULL ORDER BY person, platform LIMIT ?",
            (limit,),
        )
        return [_read_identity(row) for row in rows]

    def save_code(self, chat: Source, code: str, seconds: float) -> None:
        """Save the code that an identity made; it replaces an earlier one."""
        now = self._clock()
        values = (chat.platform, chat.user_id or "", encode_json(to_json_value(chat)))
        sql = (
            "INSERT INTO links (platform, user_id, chat, code, expires, changed)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (platform, user_id) DO UPDATE SET"
            " chat = excluded.chat, code = excluded.code, expires = excluded.expires,"
            " changed = excluded.changed"
        )
        self._write(
            lambda tx: tx.run(sql, (*map(escape_text, values), hash_code(code), now + seconds, now))
        )

    def use_code(self, code: str) -> LinkedIdentity | None:
        """Return the identity that made a code and void the code, or None if it is not valid."""
        now = self._clock()

        def void_code(tx: Transaction) -> LinkedIdentity | None:
            rows = tx.run(
                f"UPDATE links SET code = NULL WHERE code = ? AND expires > ? RETURNING {_COLUMNS}",
                (hash_code(code), now),
            )
            return _read_identity(rows[0]) if rows else None

        return self._write(void_code)

    def link(self, chat: Source, person: str, owner: str, old_owner: str) -> None:
        """Link an identity to a person; what `old_owner` has on its platform goes to `owner`."""
        now = self._clock()
        values = (chat.platform, chat.user_id or "", person, owner)
        values = (*values, encode_json(to_json_value(chat)))

        def save_link(tx: Transaction) -> None:
            if tx.run("SELECT 1 FROM links WHERE person = ?", (escape_text(make_person(chat)),)):
                raise InvalidInput("other identities are linked to this one; /unlink them first")
            tx.run(
                "INSERT INTO links (platform, user_id, person, owner, chat, changed)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (platform, user_id) DO UPDATE SET"
                " person = excluded.person, owner = excluded.owner, chat = excluded.chat,"
                " code = NULL, changed = excluded.changed",
                (*map(escape_text, values), now),
            )
            _move_sessions(tx, chat.platform, old_owner, owner)
            _move_jobs(tx, chat.platform, chat.user_id or "", old_owner, owner)
            move_facts(tx, old_owner, owner, now)
            name = chat.user_name or ""
            insert_event(tx, now, chat.platform, chat.user_id or "", name, "linked", person)

        self._write(save_link)

    def unlink(self, identity: LinkedIdentity, owner: str) -> None:
        """Undo the link of an identity; sessions, facts and jobs of its platform go to `owner`."""
        now = self._clock()

        def delete_link(tx: Transaction) -> None:
            tx.run(
                "DELETE FROM links WHERE platform = ? AND user_id = ?",
                (escape_text(identity.platform), escape_text(identity.user_id)),
            )
            shared = escape_text(identity.owner or "")
            tx.run(
                "UPDATE routes SET owner = NULL, changes = changes + 1"
                " WHERE platform = ? AND chat_type = 'dm' AND owner = ?",
                (escape_text(identity.platform), shared),
            )
            # Facts are told apart by their sessions, so they go first.
            move_facts(tx, identity.owner or "", owner, now, identity.platform)
            _move_sessions(tx, identity.platform, identity.owner or "", owner)
            _move_jobs(tx, identity.platform, identity.user_id, identity.owner or "", owner)
            insert_event(
                tx, now, identity.platform, identity.user_id, identity.chat.user_name or "",
                "unlinked", identity.person or "",
            )  # fmt: skip

        self._write(delete_link)

    def record_wrong_code(self, source: Source) -> None:
        """Log that somebody used a code that is not valid."""
        now, name = self._clock(), source.user_name or ""
        self._write(
            lambda tx: insert_event(
                tx, now, source.platform, source.user_id or "", name, _WRONG_CODE, ""
            )
        )

    def count_wrong_codes(self, source: Source, seconds: float) -> int:
        """Count the wrong codes that somebody used within the last `seconds`."""
        return self._select(
            "SELECT count(*) FROM access_log WHERE time > ? AND event = ? AND platform = ?"
            " AND user_id = ?",
            (
                self._clock() - seconds, _WRONG_CODE,
                escape_text(source.platform), escape_text(source.user_id or ""),
            ),
        )[0][0]  # fmt: skip


def _select_identity(tx: Transaction, platform: str, user_id: str) -> LinkedIdentity | None:
    rows = tx.run(
        f"SELECT {_COLUMNS} FROM links WHERE platform = ? AND user_id = ?",
        (escape_text(platform), escape_text(user_id)),
    )
    return _read_identity(rows[0]) if rows else None


def _move_sessions(tx: Transaction, platform: str, old: str, new: str) -> None:
    """Give an owner's sessions from a platform to another owner; a title in use gets a number."""
    old, new = escape_text(old), escape_text(new)
    if old == new:
        return
    sql = "SELECT num, title FROM sessions WHERE owner = ? AND source = ? ORDER BY num"
    for num, title in tx.run(sql, (old, escape_text(platform))):
        names: tuple[str | int | None, ...] = ()
        in_use = "SELECT 1 FROM sessions WHERE owner = ? AND title = ? AND pruned IS NULL"
        if title is not None and tx.run(in_use, (new, title)):
            names = titles.find_next_title(tx, new, title)
        change = ", title = ?, title_base = ?, title_number = ?" if names else ""
        tx.run(
            f"UPDATE sessions SET changes = changes + 1, owner = ?{change} WHERE num = ?",
            (new, *names, num),
        )


def _move_jobs(tx: Transaction, platform: str, user_id: str, old: str, new: str) -> None:
    """Give the jobs that an identity made to another owner."""
    for num, maker in tx.run("SELECT num, maker FROM jobs WHERE owner = ?", (escape_text(old),)):
        source = decode_source(maker)
        if (source.platform, source.user_id or "") == (platform, user_id):
            tx.run("UPDATE jobs SET owner = ? WHERE num = ?", (escape_text(new), num))


def _read_identity(row: Row) -> LinkedIdentity:
    platform, user_id, person, owner, chat, expires = row
    return LinkedIdentity(
        unescape_text(platform),
        unescape_text(user_id),
        None if person is None else unescape_text(person),
        None if owner is None else unescape_text(owner),
        decode_source(chat),
        expires,
    )
