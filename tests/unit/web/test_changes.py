"""Viewers learn of new messages from one shared poll of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from rekindle.store import Filter, Store, open_store
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Message, Session
from rekindle.web.changes import ChangeFeed

WAIT_SECONDS = 60


class CountingStore:
    """A store that counts how often sessions are looked up."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lookups = 0

    def find_sessions(self, ids: list[str]) -> dict[str, Session]:
        self.lookups += 1
        return self.store.find_sessions(ids)


def start_session(store: Store, id: str) -> Session:
    session = store.begin(id=id)
    store.append(session, Message("user", content="one"))
    return session


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


async def wait_for_count(changes: AsyncIterator[Session], count: int) -> Session:
    async for session in changes:
        if session.message_count >= count:
            return session
    raise AssertionError("the changes ended")


def test_a_viewer_sees_the_session_now_and_after_each_change(store: Store) -> None:
    session = start_session(store, "a")

    async def watch() -> None:
        executor = StoreExecutor(store, threads=2)
        changes = ChangeFeed(executor, 0.001).subscribe(session.id)
        assert (await anext(changes)).message_count == 1
        for count in (2, 3):
            await executor.run(store.append, session, Message("user", content="more"))
            assert (await wait_for_count(changes, count)).message_count == count

    run(watch())


def test_a_writer_in_another_store_object_is_noticed(store: Store, tmp_path: Path) -> None:
    session = start_session(store, "a")

    async def watch() -> None:
        changes = ChangeFeed(StoreExecutor(store, threads=2), 0.001).subscribe(session.id)
        await anext(changes)
        with open_store(tmp_path / "sessions.db") as other:
            other.append(session.id, Message("user", content="from elsewhere"))
        assert (await wait_for_count(changes, 2)).message_count == 2

    run(watch())


def test_fifty_viewers_cost_one_poll(store: Store) -> None:
    session = start_session(store, "a")
    counting = CountingStore(store)

    async def watch() -> None:
        executor = StoreExecutor(store, threads=2)
        executor.store = counting  # pyright: ignore[reportAttributeAccessIssue]
        feed = ChangeFeed(executor, 3600)
        viewers = [feed.subscribe(session.id) for _ in range(50)]
        await asyncio.gather(*(anext(viewer) for viewer in viewers))
        before = counting.lookups
        waiting = [asyncio.ensure_future(wait_for_count(viewer, 2)) for viewer in viewers]
        store.append(session, Message("user", content="two"))
        feed.notify()
        found = await asyncio.gather(*waiting)
        assert {one.message_count for one in found} == {2}
        assert counting.lookups - before <= 2

    run(watch())


def test_a_deleted_session_ends_the_changes(store: Store) -> None:
    session = start_session(store, "a")
    store.update(session, model="m")

    async def watch() -> None:
        feed = ChangeFeed(StoreExecutor(store, threads=2), 0.001)
        assert [one async for one in feed.subscribe("no such session")] == []
        changes = feed.subscribe(session.id)
        await anext(changes)
        store.append(session, Message("user", content="old", timestamp=1.0))
        delete_session(store, session)
        assert all([one.pruned is None async for one in changes])

    run(watch())


def delete_session(store: Store, session: Session) -> None:
    """Delete a session even though it is active."""
    store._active_seconds = -1.0  # pyright: ignore[reportPrivateUsage]
    assert [one.id for one in store.prune(Filter())] == [session.id]


def test_nothing_is_polled_without_viewers(store: Store) -> None:
    session = start_session(store, "a")
    counting = CountingStore(store)

    async def watch() -> None:
        executor = StoreExecutor(store, threads=2)
        executor.store = counting  # pyright: ignore[reportAttributeAccessIssue]
        feed = ChangeFeed(executor, 0.001)
        changes = feed.subscribe(session.id)
        await anext(changes)
        await changes.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        pollers = [
            task for task in asyncio.all_tasks() if "ChangeFeed._poll " in repr(task.get_coro())
        ]
        assert len(pollers) == 1
        await pollers[0]  # ends by itself
        again = feed.subscribe(session.id)
        assert (await anext(again)).id == session.id

    run(watch())
