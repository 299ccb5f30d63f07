"""Learn from the gateway's own sessions while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from rekindle.agent.turn import Advisor
from rekindle.config import Config
from rekindle.errors import RekindleError
from rekindle.learning.advice import NO_ADVICE, create_owner_advisor
from rekindle.store import Store
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Role, Session

logger = logging.getLogger(__name__)

LEARN_SECONDS = 300.0  # between two runs
MAX_LEARNED_SESSIONS = 20  # in one run, the newest; the rest is left to `warm learn`


@asynccontextmanager
async def learn_meanwhile(config: Config, executor: StoreExecutor) -> AsyncGenerator[None]:
    """Learn from new sessions now and then, unless warm starts are disabled."""
    task = asyncio.create_task(_learn_repeatedly(executor)) if config.warm.enabled else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _learn_repeatedly(executor: StoreExecutor) -> None:
    from rekindle.learning.notes.learner import learn_from_sessions  # slow to load

    while True:
        try:
            await executor.run(learn_from_sessions, executor.store, limit=MAX_LEARNED_SESSIONS)
        except (RekindleError, OSError, ValueError) as error:  # the next run may work
            logger.warning("could not learn from new sessions: %s", error)
        await asyncio.sleep(LEARN_SECONDS)


def choose_advisors(
    config: Config, store: Store, folder: str
) -> Callable[[Session, Role], Advisor]:
    """Return what creates the advisor of a turn: it knows the sessions of the same owner only.

    Only who may run commands is advised about them.
    """

    def create_advisor(session: Session, role: Role) -> Advisor:
        if role != "owner":
            return NO_ADVICE
        return create_owner_advisor(config.warm, store, session, folder)

    return create_advisor
