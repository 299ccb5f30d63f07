"""Store calls beside an event loop: one that has started finishes, whoever gave up waiting."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from rekindle.store import open_store
from rekindle.store.store_executor import StoreExecutor


def test_the_error_of_a_call_that_nobody_waits_for_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go, started = threading.Event(), threading.Event()

    def fail() -> None:
        started.set()
        go.wait(60)
        raise ValueError("too late")

    async def cancel_twice(executor: StoreExecutor) -> None:
        task = asyncio.create_task(executor.run(fail))
        await asyncio.to_thread(started.wait, 60)
        for _ in range(2):  # the second ends the wait for the call
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert task.cancelled()
        go.set()

    with open_store(str(tmp_path / "x.db")) as store:
        executor = StoreExecutor(store, 1)

        async def run() -> None:
            await cancel_twice(executor)
            await asyncio.to_thread(executor.close)
            gc.collect()
            await asyncio.sleep(0)
            gc.collect()

        asyncio.run(run())
    gc.collect()
    assert [one.getMessage() for one in caplog.records] == []
