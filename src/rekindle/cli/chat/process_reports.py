"""What background processes report to the conversation at this terminal."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from rekindle.errors import NotFound, ProcessError
from rekindle.gateway.process_reports import message_of

if TYPE_CHECKING:
    from rekindle.agent.store_executor import Desk
    from rekindle.processes.types import Processes
    from rekindle.store import Store

logger = logging.getLogger(__name__)

Show: TypeAlias = Callable[[str], Awaitable[None]]


class Reports:
    """Reports about the processes of one person's conversations."""

    def __init__(self, processes: Processes, desk: Desk, owner: str) -> None:
        self._processes = processes
        self._desk = desk
        self._owner = owner

    async def pass_on(self, session: str, show: Show, wait: float = 0.0) -> None:
        """Show new reports about processes of a session, and keep them in it.

        If this is ended in the middle, one may be shown again; the session has it once.
        """
        try:
            begun = await self._desk.ask(_begun_in, self._desk.store, session)
            if not begun:
                return
            events = await self._processes.events(owner=self._owner, wait=wait, notes=begun)
            if not events:
                return
            messages = [message_of(event) for event in events]
            await self._desk.ask(self._desk.store.append, session, *messages)
            for message in messages:
                await show(message.text)
            await self._processes.ack([event.number for event in events], owner=self._owner)
        except ProcessError as error:
            logger.warning("reports of processes cannot be had: %s", error)


def _begun_in(store: Store, session: str) -> list[str]:
    """The session, and those that were summed up into it; none before something was said."""
    try:
        known = {one.id: one for one in store.lineage(session)}
    except NotFound:
        return []
    found, one = [session], known.get(session)
    while one is not None and one.parent and one.forked_at is None:
        found.append(one.parent)
        one = known.get(one.parent)
    return found
