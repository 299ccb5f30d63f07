"""Session leases: the time-limited right of one program to write to a session.

A lease that is not renewed expires. Its fence changes with every holder: a program that was paused
until after its lease had expired cannot write any more once another one holds the session.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from rekindle.errors import SessionHeld
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import ValueRows
from rekindle.store.core.tables import SESSION_LEASES
from rekindle.store.core.text_encoding import escape_text

from .message_rows import MAX_CLOCK_SKEW

_ACQUIRE = (
    "INSERT INTO session_leases (session, name, fence, program, host, pid, process, since, expires)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session) DO UPDATE SET"
    " since = CASE WHEN session_leases.name = excluded.name THEN session_leases.since"
    " ELSE excluded.since END,"
    " name = excluded.name, fence = excluded.fence, program = excluded.program,"
    " host = excluded.host, pid = excluded.pid, process = excluded.process,"
    " expires = excluded.expires"
    " WHERE session_leases.name = excluded.name OR session_leases.fence = ?"
    " OR session_leases.expires <= ? OR session_leases.expires > ?"
)
# Who writes to a session continues it. A compressed one continues in its child.
_REOPEN = (
    "UPDATE sessions SET changes = changes + 1, ended = NULL, end_reason = NULL"
    " WHERE id = ? AND ended IS NOT NULL AND coalesce(end_reason, '') <> 'compression'"
)


class LeaseHolder(NamedTuple):
    """A program that writes to sessions.

    `name` identifies it among all that share the store, also after a restart. `process` tells on the
    same machine whether the process is still running.
    """

    name: str
    program: str
    host: str
    pid: int
    process: str = ""


class SessionLease(NamedTuple):
    """The right of a program to write to a session."""

    session: str
    name: str
    fence: str
    program: str
    host: str
    pid: int
    process: str
    since: float
    expires: float


LEASE_ROWS = ValueRows(SESSION_LEASES, SessionLease)


class SessionLeases(StorePart):
    """The session leases of a store. Use `store.session_leases`."""

    def acquire(
        self, session: str, holder: LeaseHolder, seconds: float, *, replaces: str | None = None
    ) -> SessionLease:
        """Acquire a session unless another program holds it; return the lease that is in force.

        A session that had ended is reopened. `replaces` is the fence of a lease whose holder is known to
        have ended.
        """
        now, fence = self._clock(), os.urandom(8).hex()

        def acquire_lease(tx: Transaction) -> SessionLease:
            escaped = [escape_text(one) for one in (session, holder.name, fence)]
            about = [escape_text(holder.program), escape_text(holder.host), holder.pid]
            expiry = now + seconds
            row = (*escaped, *about, escape_text(holder.process), now, expiry)
            limits = (replaces or "", now, expiry + MAX_CLOCK_SKEW)
            tx.run(_ACQUIRE, (*row, *limits))
            lease = LEASE_ROWS.find(tx, "WHERE session = ?", (escape_text(session),))[0]
            if lease.fence == fence:
                tx.run(_REOPEN, (escape_text(session),))
            return lease

        return self._write(acquire_lease)

    def require(self, lease: SessionLease) -> None:
        """Raise `SessionHeld` if another program holds the session; for use in a transaction.

        Until the transaction ends, no other program can acquire the session.
        """
        sql = "UPDATE session_leases SET expires = expires WHERE session = ? AND fence = ? RETURNING 1"
        params = (escape_text(lease.session), lease.fence)
        if not self._write(lambda tx: tx.run(sql, params)):
            raise SessionHeld(f"Another program has taken over session {lease.session}.")

    def renew(self, lease: SessionLease, seconds: float) -> bool:
        """Extend a lease; return False if another program has taken the session over."""
        sql = "UPDATE session_leases SET expires = ? WHERE session = ? AND fence = ? RETURNING 1"
        params = (self._clock() + seconds, escape_text(lease.session), lease.fence)
        return bool(self._write(lambda tx: tx.run(sql, params)))

    def release(self, lease: SessionLease) -> None:
        """Release a lease, if it is still in force."""
        sql = "DELETE FROM session_leases WHERE session = ? AND fence = ?"
        self._write(lambda tx: tx.run(sql, (escape_text(lease.session), lease.fence)))

    def find(self, session: str) -> SessionLease | None:
        """Return the lease of a session, unless it has expired."""
        with self._engine.begin_read() as tx:
            found = LEASE_ROWS.find(
                tx, "WHERE session = ? AND expires > ?", (escape_text(session), self._clock())
            )
        return found[0] if found else None

    def delete_expired(self, older_than: float = 86_400.0) -> None:
        """Delete leases that expired more than `older_than` seconds ago."""
        before = self._clock() - older_than
        self._write(lambda tx: tx.run("DELETE FROM session_leases WHERE expires < ?", (before,)))
