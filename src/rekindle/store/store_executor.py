"""Run synchronous store calls from the event loop on a few threads.

Concurrent writers share a commit, so many conversations cost few flushes; each read uses one of the
store's own connections. Nothing else in the agent or the gateway blocks the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, ParamSpec, TypeVar, cast

from .store import Store
from .worker_threads import WorkerThreads

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_THREADS = 16


class StoreExecutor:
    """Threads for store calls: `await executor.run(store.messages, session)`."""

    def __init__(self, store: Store, threads: int = DEFAULT_THREADS) -> None:
        self.store = store
        self._threads = WorkerThreads("store", threads)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a store call on a thread and return its result.

        A call that has started always finishes. If the caller is cancelled, wait for the call first,
        so that the caller's next call cannot overtake it.
        """
        waiting = _StoreCall(lambda: call(*args, **kwargs))
        self._threads.submit(waiting)
        await waiting.end.wait()
        return waiting.get_result()

    def close(self) -> None:
        """Wait for running calls to finish. The store stays open."""
        self._threads.close()


class _LoopEvent:
    """An end that another thread reports to a coroutine; a future could be cancelled before it."""

    __slots__ = ("_has_come", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] = self._loop.create_future()
        self._has_come = False

    def report(self) -> None:
        """Report the end, from any thread."""
        with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    async def wait(self) -> None:
        """Wait for the end. If cancelled, wait all the same, unless it happens again."""
        try:
            await self._waiter
        except asyncio.CancelledError:
            if not self._has_come:
                self._waiter = self._loop.create_future()
                await self._waiter
            raise

    def _wake(self) -> None:
        self._has_come = True
        if not self._waiter.done():
            self._waiter.set_result(None)


class _StoreCall(Generic[T]):
    """A call that a thread runs while a coroutine waits."""

    __slots__ = ("_call", "_error", "_result", "end")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self.end = _LoopEvent()

    def run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001  raised by `get_result`
            self._error = error

    def finish(self) -> None:
        self.end.report()

    def get_result(self) -> T:
        """Return the result after the end, or raise the error."""
        if self._error is None:
            return cast(T, self._result)
        try:
            raise self._error
        finally:
            self._error = None  # or error, frame and call would refer to each other


async def wait_for_end(future: Future[T]) -> T:
    """Return the result of a call that runs on a thread; if cancelled, wait for its end first."""
    end = _LoopEvent()
    future.add_done_callback(lambda _: end.report())  # cheaper than `wrap_future` and `shield`
    await end.wait()
    return future.result()
