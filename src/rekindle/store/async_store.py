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
from rekindle.types import JSON, Message, Session, Tokens

from . import open_store
from .store import Store
from .store_executor import StoreExecutor, wait_for_end

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_READERS = 8
WRITERS = 16  # they share commits, and wait most of the time
ITEMS_PER_CALL = 256  # that an iterator reads ahead


def _wrap_read(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """Return the coroutine of a method that reads."""

    @wraps(method)
    async def call_method(self: AsyncStore, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.executor.run(method, self.store, *args, **kwargs)

    return call_method


def _wrap_write(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """Return the coroutine of a method that writes."""

    @wraps(method)
    async def call_method(self: AsyncStore, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.writers.run(method, self.store, *args, **kwargs)

    return call_method


def _wrap_iterator(
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
        self,
        session: Session | str,
        *messages: Message | Mapping[str, JSON],
        used: Mapping[str, Tokens] | None = None,
    ) -> list[int]:
        """Append messages to a session and return their positions; durable on return.

        What was submitted is stored even if the caller is cancelled, which then waits for it.
        """
        try:
            return await wait_for_end(self.store.submit_append(session, *messages, used=used))
        except NotFound:  # deleted elsewhere, and perhaps recreated
            return await self.writers.run(self.store.append, session, *messages, used=used)

    check_quota = _wrap_read(Store.check_quota)
    begin = _wrap_read(Store.begin)
    messages = _wrap_read(Store.messages)
    session = _wrap_read(Store.session)
    find_sessions = _wrap_read(Store.find_sessions)
    resolve = _wrap_read(Store.resolve)
    recent = _wrap_read(Store.recent)
    load_projects = _wrap_read(Store.load_projects)
    load_names = _wrap_read(Store.load_names)
    load_messages_at = _wrap_read(Store.load_messages_at)
    search_titles = _wrap_read(Store.search_titles)
    count_sessions = _wrap_read(Store.count_sessions)
    count_active_quarters = _wrap_read(Store.count_active_quarters)
    find_sub_agents = _wrap_read(Store.find_sub_agents)
    count_by_project = _wrap_read(Store.count_by_project)
    count_starts = _wrap_read(Store.count_starts)
    count_calls = _wrap_read(Store.count_calls)
    search = _wrap_read(Store.search)
    remove_last = _wrap_write(Store.remove_last)
    rename = _wrap_write(Store.rename)
    end = _wrap_write(Store.end)
    reopen = _wrap_write(Store.reopen)
    update = _wrap_write(Store.update)
    add_usage = _wrap_write(Store.add_usage)
    usage = _wrap_read(Store.usage)
    sum_usage = _wrap_read(Store.sum_usage)
    sum_session_usage = _wrap_read(Store.sum_session_usage)

    fork = _wrap_write(Store.fork)
    link_copy = _wrap_write(Store.link_copy)
    archive_session = _wrap_write(Store.archive_session)
    compress = _wrap_write(Store.compress)
    lineage = _wrap_read(Store.lineage)
    children = _wrap_read(Store.children)
    find_tip = _wrap_read(Store.find_tip)
    next_title = _wrap_read(Store.next_title)

    undo = _wrap_write(Store.undo)
    retry = _wrap_write(Store.retry)
    rewrite = _wrap_write(Store.rewrite)
    redo = _wrap_write(Store.redo)
    rewinds = _wrap_read(Store.rewinds)

    archive = _wrap_write(Store.archive)
    prune = _wrap_write(Store.prune)
    prune_session = _wrap_write(Store.prune_session)
    restore = _wrap_write(Store.restore)
    purge = _wrap_write(Store.purge)

    dump = _wrap_iterator(Store.dump)
    load = _wrap_write(Store.load)
    copy_to = _wrap_write(Store.copy_to)
    import_batch = _wrap_write(Store.import_batch)
    prepare_import = _wrap_read(Store.prepare_import)
    find_imports = _wrap_read(Store.find_imports)
    get_import_stamp = _wrap_read(Store.get_import_stamp)
    get_import_stamps = _wrap_read(Store.get_import_stamps)
    mark_imported = _wrap_write(Store.mark_imported)
    has_any_sessions = _wrap_read(Store.has_any_sessions)

    find_stale_sessions = _wrap_read(Store.find_stale_sessions)
    save_verdicts = _wrap_write(Store.save_verdicts)
    count_errors = _wrap_read(Store.count_errors)
    iter_judged_sessions = _wrap_iterator(Store.iter_judged_sessions)

    verify = _wrap_read(Store.verify)
    repair = _wrap_write(Store.repair)
    backup = _wrap_read(Store.backup)
    stats = _wrap_read(Store.stats)
    transaction = _wrap_write(Store.transaction)

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
