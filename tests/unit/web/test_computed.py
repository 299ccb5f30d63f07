"""Values that take long: nobody waits for them twice, and what fails is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rekindle.store import Store
from rekindle.store.store_executor import StoreExecutor
from rekindle.web.computed import MAX_VALUES, ComputedValues
from tests.waiting import PATIENCE, until


class _Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Values:
    """The values of a server, whose clock stands still, and what somebody is shown who asks."""

    def __init__(self, store: Store) -> None:
        self.clock = _Clock()
        self.values = ComputedValues(StoreExecutor(store, threads=2), self.clock)
        self.problem = ""

    async def ask(self, answers: list[int], wait: float = PATIENCE, key: str = "key") -> int | None:
        """Ask for a value whose computations give these answers in turn."""
        found = await self.values.get(key, lambda _: answers.pop(0), wait=wait, rest=60.0)
        self.problem = found.problem
        return found.value


@pytest.fixture
def run(store: Store) -> Callable[[Callable[[Values], Awaitable[None]]], None]:
    def run_test(test: Callable[[Values], Any]) -> None:
        asyncio.run(test(Values(store)))

    return run_test


Run = Callable[[Callable[[Values], Awaitable[None]]], None]


def test_a_value_is_computed_once_a_minute_and_the_old_one_shown_meanwhile(run: Run) -> None:
    async def test(values: Values) -> None:
        assert await values.ask([1]) == 1
        values.clock.now += 59
        assert await values.ask([]) == 1
        values.clock.now += 2
        answers = [2]
        assert await values.ask(answers) == 1  # the new one is computed beside
        await until(lambda: not answers)
        await until(lambda: _is(values.ask([]), 2))

    run(test)


async def _is(asked: Awaitable[int | None], wanted: int) -> bool:
    return await asked == wanted


def test_nobody_waits_longer_than_asked_for(run: Run) -> None:
    async def test(values: Values) -> None:
        gate = threading.Event()

        def compute(_: object) -> int:
            gate.wait(PATIENCE)
            return 1

        assert (await values.values.get("key", compute, wait=0.01)).value is None
        gate.set()
        assert await values.ask([]) == 1

    run(test)


def test_a_failure_is_remembered_and_the_old_value_kept(run: Run) -> None:
    async def test(values: Values) -> None:
        assert await values.ask([]) is None  # nothing to pop: the computation fails
        assert values.problem
        values.clock.now += 61
        assert await values.ask([1]) == 1
        assert not values.problem
        values.clock.now += 10_000
        assert await values.ask([]) == 1
        assert values.problem

    run(test)


def test_a_clock_that_was_set_back_does_not_stop_the_computations(run: Run) -> None:
    async def test(values: Values) -> None:
        assert await values.ask([1]) == 1
        values.clock.now -= 100_000
        answers = [2]
        await values.ask(answers)
        await until(lambda: not answers)
        await until(lambda: _is(values.ask([]), 2))

    run(test)


def test_values_that_nobody_asks_for_are_dropped(run: Run) -> None:
    async def test(values: Values) -> None:
        assert await values.ask([1]) == 1
        for number in range(MAX_VALUES - 1):
            assert await values.ask([number], key=f"{number}") == number
        assert await values.ask([2]) == 1
        for number in range(MAX_VALUES):
            await values.ask([number], key=f"other {number}")
        assert await values.ask([3]) == 3

    run(test)
