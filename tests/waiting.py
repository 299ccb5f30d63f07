"""How long a test waits for what another thread or process is to bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable

# Waiting costs nothing when all is well. Only a test that would fail anyway waits this long; a
# machine that is busy with other things for a minute must not fail one.
PATIENCE = 120.0


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:.0f} s")
        time.sleep(0.02)


async def until(condition: Callable[[], object], shown: Callable[[], object] = str) -> None:
    """The same beside other tasks. What is asked may be awaited; `shown` tells what was instead."""
    deadline = time.monotonic() + PATIENCE
    while True:
        met = condition()
        if await met if isawaitable(met) else met:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:.0f} s: {shown()}")
        await asyncio.sleep(0.01)
