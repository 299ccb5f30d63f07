"""Where the event loop and the store meet: the store is synchronous, so its calls run on a few threads.

Writers that come together share a commit, so many conversations cost few flushes; a read takes one
of the store's own connections. Nothing else in the agent or the gateway blocks the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from rekindle.store import Store

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 16


class Desk:
    """A store as the event loop uses it: `await desk.ask(store.messages, session)`."""

    def __init__(self, store: Store, threads: int = THREADS) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="store")

    async def ask(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call to the store. What has begun is finished, even when the asker is cancelled.

        A cancelled asker waits for that: what it does next never overtakes what it did before.
        """
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._pool, partial(work, *args, **kwargs))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asyncio.wait({asked})
            raise

    def close(self) -> None:
        """Wait for what has begun. The store itself stays open."""
        self._pool.shutdown()
