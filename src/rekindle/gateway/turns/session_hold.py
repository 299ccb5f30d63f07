"""Hold a session while a conversation writes to it, so that no other program writes in between."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from rekindle.errors import RekindleError, SessionHeld, StoreError
from rekindle.gateway.context import GatewayContext
from rekindle.processes.backends.local import process_tree
from rekindle.store.conversations.session_leases import LeaseHolder, SessionLease
from rekindle.types import Session

T = TypeVar("T")

LEASE_SECONDS = 12.0
GATEWAY = "gateway"
_RENEW_SECONDS = LEASE_SECONDS / 3


class SessionHold:
    """The lease of the session that a conversation writes to. Its methods block on the store."""

    def __init__(self, context: GatewayContext, key: str) -> None:
        self.lease: SessionLease | None = None
        self._key = key
        self.holder = build_holder(context, key)
        self._executor = context.executor
        self._store = context.executor.store

    def acquire(self, session_id: str) -> None:
        """Acquire a session and release the one before; raise `SessionHeld` if another has it."""
        if self.lease is not None and self.lease.session == session_id and self._renew(self.lease):
            return
        self.release()
        lease = self._store.session_leases.acquire(session_id, self.holder, LEASE_SECONDS)
        if lease.name != self.holder.name and self._may_replace(lease):
            lease = self._store.session_leases.acquire(
                session_id, self.holder, LEASE_SECONDS, replaces=lease.fence
            )
        if lease.name != self.holder.name:
            raise SessionHeld(f"Session {session_id} is {describe_lease(lease)}.")
        self.lease = lease

    def find_other(self, session_id: str) -> SessionLease | None:
        """Return the lease of another program on a session, if there is one."""
        lease = self._store.session_leases.find(session_id)
        if lease is None or lease.name == self.holder.name or self._may_replace(lease):
            return None
        return lease

    def _may_replace(self, lease: SessionLease) -> bool:
        """Return whether the holder has ended, or was another gateway for the same conversation.

        A gateway that works on a conversation has taken it over: one at a time has its lease.
        """
        is_predecessor = lease.program == GATEWAY and lease.name.endswith(f" {self._key}")
        return (is_predecessor and self.holder.program == GATEWAY) or is_gone(lease)

    def check(self) -> None:
        """Raise `SessionHeld` if another program has taken over; for use in a transaction."""
        if self.lease is not None:
            self._store.session_leases.require(self.lease)

    def write(self, change: Callable[[], T]) -> T:
        """Make a change in a transaction that fails if another program has taken over."""

        def make_change() -> T:
            result = change()  # first: it says if the whole conversation was taken over
            self.check()
            return result

        return self._transact(make_change)

    def begin(self, session_id: str, change: Callable[[], T]) -> T:
        """Acquire a session and make the first change to it, in one transaction."""

        def make_change() -> T:
            self.acquire(session_id)
            return change()

        return self._transact(make_change)

    def finish(self, change: Callable[[], T]) -> T:
        """Make the last change to a session and release it, in one transaction."""

        def make_change() -> T:
            result = change()
            self.check()
            self.release()
            return result

        return self._transact(make_change)

    def write_child(self, start_child: Callable[[], Session]) -> Session:
        """Start the child of a compressed session, and hold it instead of its parent."""

        def start() -> Session:
            self.check()
            child = start_child()
            if self.lease is not None:
                self.acquire(child.id)
            return child

        return self._transact(start)

    def _transact(self, change: Callable[[], T]) -> T:
        before = self.lease

        def make_change() -> T:
            self.lease = before  # the transaction may run again
            return change()

        try:
            return self._store.transaction(make_change)
        except BaseException:
            self.lease = before
            raise

    def release(self) -> None:
        """Release the session, if one is held."""
        lease, self.lease = self.lease, None
        if lease is not None:
            self._store.session_leases.release(lease)

    @asynccontextmanager
    async def keep(self) -> AsyncGenerator[None]:
        """Renew the lease in this block, whatever session it is for, and release it at the end."""

        async def renew_periodically() -> None:
            while True:
                await asyncio.sleep(_RENEW_SECONDS)
                if (lease := self.lease) is not None:
                    with suppress(RekindleError):  # the next write tells if it is lost
                        await self._executor.run(self._renew, lease)

        renewal = asyncio.create_task(renew_periodically())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            if self.lease is not None:
                with suppress(StoreError):  # it expires
                    await self._executor.run(self.release)

    def _renew(self, lease: SessionLease) -> bool:
        return self._store.session_leases.renew(lease, LEASE_SECONDS)


def build_holder(context: GatewayContext, key: str) -> LeaseHolder:
    """Build the holder of the session of a conversation in this process.

    A terminal is one holder; the conversations of a gateway are separate ones.
    """
    name = context.instance if context.session_wait is None else f"{context.instance} {key}"
    return LeaseHolder(
        name=name[-500:],
        program=context.program,
        host=platform.node() or "this machine",
        pid=os.getpid(),
        process=_describe_process(),
    )


def _describe_process() -> str:
    try:
        found = process_tree.read_process(os.getpid())
        return f"{process_tree.get_boot_id()}|{found.started}" if found else ""
    except OSError:  # no /proc on this system
        return ""


def is_gone(lease: SessionLease) -> bool:
    """Return whether the process of a lease has ended; False for processes of other machines."""
    boot, _, started = lease.process.rpartition("|")
    try:
        if not boot or boot != process_tree.get_boot_id():
            return False
        return not process_tree.is_alive(lease.pid, int(started))
    except (OSError, ValueError):
        return False


def describe_lease(lease: SessionLease) -> str:
    """Describe who holds a session, for people."""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(lease.since))
    where = "in another terminal" if lease.program == "terminal" else f"in a {lease.program}"
    return f"open {where} (process {lease.pid} on {lease.host}, since {since})"
