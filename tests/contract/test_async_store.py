"""The store for asyncio does what the store does, on both engines, and never blocks the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rekindle import Message, Store, open_store
from rekindle.errors import NotFound, StoreClosed
from rekindle.store.async_store import AsyncStore, open_async_store
from tests.conftest import Clock
from tests.contract.messages import answer, texts, user
from tests.waiting import PATIENCE

NOT_FOR_ASYNCIO = {  # sub-objects, for `executor.run`, and what is there under another name
    "routes", "inbox", "observations", "session_outcomes", "template_index", "preludes", "experiments",
    "submit_append", "people", "jobs", "memory", "links", "approvals", "session_leases",
    "gateway_errors", "graph_checkpoints", "excerpts", "call_columns", "address", "tenants",
    "personal_data", "documents",
}  # fmt: skip


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await test()

    asyncio.run(limited())


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_every_method_of_the_store_is_there_with_its_signature() -> None:
    assert public(Store) - public(AsyncStore) == NOT_FOR_ASYNCIO
    for name in public(Store) & public(AsyncStore) - {"location"}:
        of_store = inspect.signature(getattr(Store, name))
        of_async = inspect.signature(getattr(AsyncStore, name))
        assert [*of_store.parameters] == [*of_async.parameters], name


async def do_everything(store: AsyncStore) -> list[Any]:
    plan = await store.begin(id="plan", owner="ada", title="Plan")
    seen: list[Any] = [
        await store.append(plan, user("Ship on Friday?"), {"role": "assistant", "content": "Yes."}),
        await store.append(plan),
        await store.append(plan, user("Really?"), answer("With green tests.")),
        await store.messages(plan),
        [hit.message for hit in await store.search("friday")],
        await store.undo(plan),
        await store.messages("plan"),
        await store.redo(plan),
        (await store.rename(plan, "The plan")).title,
        (await store.end(plan, "done")).end_reason,
        (await store.fork(plan, at=0, title="Other")).message_count,
        [session.title for session in await store.recent()],
        (await store.stats()).messages,
        await store.transaction(lambda: store.store.append("plan", user("one"), user("two"))),
        len([line async for line in store.dump([plan])]),
        await store.verify(),
    ]
    for wrong in (store.messages("none"), store.append("none", user("x")), store.resolve("none")):
        with pytest.raises(NotFound):
            await wrong
    return seen


def do_everything_in_a_thread(store: Store) -> list[Any]:
    plan = store.begin(id="plan", owner="ada", title="Plan")
    return [
        store.append(plan, user("Ship on Friday?"), {"role": "assistant", "content": "Yes."}),
        store.append(plan),
        store.append(plan, user("Really?"), answer("With green tests.")),
        store.messages(plan),
        [hit.message for hit in store.search("friday")],
        store.undo(plan),
        store.messages("plan"),
        store.redo(plan),
        store.rename(plan, "The plan").title,
        store.end(plan, "done").end_reason,
        store.fork(plan, at=0, title="Other").message_count,
        [session.title for session in store.recent()],
        store.stats().messages,
        store.transaction(lambda: store.append("plan", user("one"), user("two"))),
        len([*store.dump([plan])]),
        store.verify(),
    ]


def test_results_are_those_of_the_store(
    target: str, another: Callable[..., Store], clock: Clock
) -> None:
    engine = "postgresql" if target.startswith("postgres") else "sqlite"
    expected = do_everything_in_a_thread(another(engine))

    async def test() -> None:
        async with open_async_store(target, clock=clock) as store:
            assert store.location == store.store.location
            assert await do_everything(store) == expected
        with pytest.raises(StoreClosed):
            await AsyncStore(store.store).messages("plan")
        with pytest.raises(StoreClosed):
            await AsyncStore(store.store).append("plan", user("x"))

    run(test)


def hold_write_lock(target: str, held: threading.Event, until: threading.Event) -> None:
    def wait() -> None:
        held.set()
        assert until.wait(PATIENCE)

    with open_store(target) as other:
        other.append(other.begin(id="held"), user("first"))
        other.transaction(lambda: (other.append("held", user("x")), wait()))


@asynccontextmanager
async def ticking(gaps: list[float]) -> AsyncIterator[None]:
    """Write down how long the loop takes to come round, until the block ends."""

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    task = asyncio.create_task(tick())
    yield
    task.cancel()


def test_the_loop_goes_on_while_appends_wait_for_another_writer(tmp_path: Any) -> None:
    target, gaps = str(tmp_path / "sessions.db"), list[float]()
    held, until = threading.Event(), threading.Event()

    async def test() -> None:
        async with open_async_store(target) as store:
            await store.append(await store.begin(id="mine"), user("0"))
            holder = threading.Thread(target=hold_write_lock, args=(target, held, until))
            holder.start()
            await asyncio.to_thread(held.wait, PATIENCE)
            async with ticking(gaps):
                tasks = [asyncio.create_task(store.append("mine", user(str(n)))) for n in range(50)]
                begun = time.monotonic()
                while time.monotonic() - begun < 1.5:
                    assert len(await store.messages("mine")) == 1  # a read does not wait for them
                assert not any(task.done() for task in tasks)
                until.set()
                positions = sorted(one for found in await asyncio.gather(*tasks) for one in found)
            assert positions == [*range(1, 51)]
            await asyncio.to_thread(holder.join, PATIENCE)

    run(test)
    assert len(gaps) > 3
    assert max(gaps) < 0.5


def test_an_append_whose_caller_is_cancelled_is_stored_before_the_caller_goes_on(
    target: str,
) -> None:
    async def test() -> None:
        async with open_async_store(target) as store:
            session = await store.begin()
            task = asyncio.create_task(store.append(session, user("kept")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert texts(store.store, session) == ["kept"]

    run(test)


def test_an_append_to_a_session_that_was_deleted_and_begun_again_is_stored(
    target: str, clock: Clock
) -> None:
    from rekindle import open_store
    from rekindle.store import Filter

    async def test() -> None:
        async with open_async_store(target, clock=clock) as store:
            await store.append(await store.begin(id="again"), user("old"))
            await store.end("again", "done")
            with open_store(target, clock=clock) as other:
                assert other.prune(Filter.parse("source=local"))
                clock.forward(1)
                other.purge(older_than=0)
                other.append(other.begin(id="again"), user("new"))
            await store.append("again", user("more"))
            assert texts(store.store, "again") == ["new", "more"]

    run(test)


def test_many_appends_at_once_are_all_stored_in_order(target: str) -> None:
    async def test() -> None:
        async with open_async_store(target) as store:
            session = await store.begin()
            await store.append(session, Message("user", "first"))
            await asyncio.gather(*(store.append(session, user(str(n))) for n in range(300)))
            assert texts(store.store, session) == ["first", *map(str, range(300))]

    run(test)
