"""Show the reports of background processes in the chat."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from rekindle.errors import NotFound, ProcessError
from rekindle.gateway.process_reports import report_to_message

if TYPE_CHECKING:
    from rekindle.processes.operations import Processes
    from rekindle.store import Store
    from rekindle.store.store_executor import StoreExecutor

logger = logging.getLogger(__name__)

ShowText: TypeAlias = Callable[[str], Awaitable[None]]


class ProcessReports:
    """Reports about the processes of one owner's conversations."""

    def __init__(self, processes: Processes, executor: StoreExecutor, owner: str) -> None:
        self._processes = processes
        self._executor = executor
        self._owner = owner

    async def deliver(self, session: str, show: ShowText, wait: float = 0.0) -> None:
        """Show new reports about a session's processes and append them to it.

        If interrupted, a report may be shown twice, but is stored once.
        """
        try:
            session_ids = await self._executor.run(_find_session_ids, self._executor.store, session)
            if not session_ids:
                return
            events = await self._processes.fetch_events(
                owner=self._owner, wait=wait, notes=session_ids
            )
            if not events:
                return
            messages = [report_to_message(event) for event in events]
            await self._executor.run(self._executor.store.append, session, *messages)
            for message in messages:
                await show(message.text)
            await self._processes.ack_events([event.number for event in events], owner=self._owner)
        except ProcessError as error:
            logger.warning("cannot fetch process reports: %s", error)


def _find_session_ids(store: Store, session: str) -> list[str]:
    """Return the session and those compressed into it; nothing before the first message."""
    try:
        known = {one.id: one for one in store.lineage(session)}
    except NotFound:
        return []
    found, one = [session], known.get(session)
    while one is not None and one.parent and one.forked_at is None:
        found.append(one.parent)
        one = known.get(one.parent)
    return found
