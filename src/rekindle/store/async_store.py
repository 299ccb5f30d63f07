"""The store for asyncio: the methods of `Store` as coroutines that never block the event loop.

`append` waits for a future of the group committer, so that any number of waiting writers need no
thread. Other writes and all reads run on two thread pools: a write that waits for a lock does not
delay a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from rekindle.errors import NotFound
from rekindle.types import JSON, Message, Session

from . import open_store
from .store import Store
from .store_executor import StoreExecutor

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_READERS = 8
WRITERS = 16  # they share commits, and wait most of the time
ITEMS_PER_CALL = 256  # that an iterator reads ahead


def _read(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """Return the coroutine of a method that reads."""

    @wraps(method)
    async def call_method(self: AsyncStore, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.executor.run(method, self.store, *args, **kwargs)

    return call_method


def _write(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """Return the coroutine of a method that writes."""

    @wraps(method)
    async def call_method(self: AsyncStore, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.writers.run(method, self.store, *args, **kwargs)

    return call_method


def _iterate(
    method: Callable[Concatenate[Store, P], Iterator[T]],
) -> Callable[Concatenate[AsyncStore, P], AsyncGenerator[T]]:
    """Return the async generator of a method that yields."""

    @wraps(method)
    async def iterate_items(
        self: AsyncStore, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T]:
        items = method(self.store, *args, **kwargs)
        try:
            while batch := await self.executor.run(_take_batch, items):
                for item in batch:
                    yield item
        finally:
            await self.executor.run(getattr(items, "close", lambda: None))

    return iterate_items


def _take_batch(items: Iterator[T]) -> list[T]:
    return list(islice(items, ITEMS_PER_CALL))


class AsyncStore:
    """Sessions and messages for asyncio. Open one with `open_async_store`.

    `store` is the same store for threads; `executor` runs any other call of it, such as
    `await store.executor.run(store.store.routes.find, key)`, and is what `run_turn` needs.
    """

    def __init__(self, store: Store, *, readers: int = DEFAULT_READERS) -> None:
        self.store = store
        self.executor = StoreExecutor(store, readers)
        self.writers = StoreExecutor(store, WRITERS)

    @property
    def location(self) -> str:
        """The location of the sessions: a path, or a URL without its password."""
        return self.store.location

    async def append(
        self, session: Session | str, *messages: Message | Mapping[str, JSON]
    ) -> list[int]:
        """Append messages to a session and return their positions; durable on return.

        What was submitted is stored even if the caller is cancelled, which then waits for it.
        """
        future = asyncio.wrap_future(self.store.submit_append(session, *messages))
        try:
            return await asyncio.shield(future)
        except NotFound:  # deleted elsewhere, and perhaps recreated
            return await self.writers.run(self.store.append, session, *messages)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    begin = _read(Store.begin)
    messages = _read(Store.messages)
    session = _read(Store.session)
    resolve = _read(Store.resolve)
    recent = _read(Store.recent)
    search = _read(Store.search)
    rename = _write(Store.rename)
    end = _write(Store.end)
    reopen = _write(Store.reopen)
    update = _write(Store.update)
    add_usage = _write(Store.add_usage)
    usage = _read(Store.usage)

    fork = _write(Store.fork)
    compress = _write(Store.compress)
    lineage = _read(Store.lineage)
    children = _read(Store.children)
    find_tip = _read(Store.find_tip)
    next_title = _read(Store.next_title)

    undo = _write(Store.undo)
    retry = _write(Store.retry)
    rewrite = _write(Store.rewrite)
    redo = _write(Store.redo)
    rewinds = _read(Store.rewinds)

    archive = _write(Store.archive)
    prune = _write(Store.prune)
    restore = _write(Store.restore)
    purge = _write(Store.purge)

    dump = _iterate(Store.dump)
    load = _write(Store.load)
    copy_to = _write(Store.copy_to)
    import_batch = _write(Store.import_batch)
    prepare_import = _read(Store.prepare_import)
    get_import_stamp = _read(Store.get_import_stamp)
    get_import_stamps = _read(Store.get_import_stamps)
    mark_imported = _write(Store.mark_imported)
    has_any_sessions = _read(Store.has_any_sessions)

    find_stale_sessions = _read(Store.find_stale_sessions)
    save_verdicts = _write(Store.save_verdicts)
    iter_judged_sessions = _iterate(Store.iter_judged_sessions)

    verify = _read(Store.verify)
    repair = _write(Store.repair)
    backup = _read(Store.backup)
    stats = _read(Store.stats)
    transaction = _write(Store.transaction)

    async def close(self) -> None:
        """Wait for running calls, then close files and connections."""
        await asyncio.to_thread(self._close_all)

    def _close_all(self) -> None:
        self.writers.close()
        self.executor.close()
        self.store.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _open_async(
    open_sync: Callable[P, Store],
) -> Callable[P, AbstractAsyncContextManager[AsyncStore]]:
    @asynccontextmanager
    async def open_async_store(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[AsyncStore]:
        """Open a store for asyncio, with the arguments of `open_store`; use it in `async with`."""
        async with AsyncStore(await asyncio.to_thread(open_sync, *args, **kwargs)) as store:
            yield store

    return open_async_store


open_async_store = _open_async(open_store)
