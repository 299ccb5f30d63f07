"""Run synchronous store calls from the event loop on a small thread pool.

Concurrent writers share a commit, so many conversations cost few flushes; each read uses one of the
store's own connections. Nothing else in the agent or the gateway blocks the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from .store import Store

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_THREADS = 16


class StoreExecutor:
    """A thread pool for store calls: `await executor.run(store.messages, session)`."""

    def __init__(self, store: Store, threads: int = DEFAULT_THREADS) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="store")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a store call on the thread pool and return its result.

        A call that has started always finishes. If the caller is cancelled, wait for the call first,
        so that the caller's next call cannot overtake it.
        """
        return await wait_for_end(self._pool.submit(call, *args, **kwargs))

    def close(self) -> None:
        """Wait for running calls to finish. The store stays open."""
        self._pool.shutdown()


async def wait_for_end(future: Future[T]) -> T:
    """Return the result of a call that runs on a thread; if cancelled, wait for its end first."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake_loop(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
            loop.call_soon_threadsafe(_end_wait, waiter)

    future.add_done_callback(wake_loop)  # `wrap_future` and `shield` would make two more futures
    try:
        await waiter
    except asyncio.CancelledError:
        ended = asyncio.wrap_future(future)
        ended.add_done_callback(_take_error)  # or asyncio logs one that nobody waits for
        await asyncio.wait({ended})
        raise
    return future.result()


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _take_error(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
