"""Values that take long: nobody waits for them twice, and what fails is said."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from rekindle.web.background import MAX_VALUES, CachedValue, CachedValues
from tests.waiting import PATIENCE, wait_until


class _Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def ask(value: CachedValue[int], answers: list[int], patience: float = PATIENCE) -> int | None:
    """Ask for a value whose computations give these answers in turn."""
    found = asyncio.run(value.get(lambda: answers.pop(0), patience))
    return None if found is None else found.value


def test_a_value_is_computed_once_a_minute_and_the_old_one_shown_meanwhile() -> None:
    clock = _Clock()
    value = CachedValue[int](ThreadPoolExecutor(1), clock)
    assert ask(value, [1]) == 1
    clock.now += 59
    assert ask(value, []) == 1
    clock.now += 2
    answers = [2]
    assert ask(value, answers) == 1  # the new one is computed beside
    wait_until(lambda: not answers and ask(value, []) == 2)


def test_nobody_waits_longer_than_asked_for() -> None:
    value, gate = CachedValue[int](ThreadPoolExecutor(1)), threading.Event()

    def compute() -> int:
        gate.wait(PATIENCE)
        return 1

    assert asyncio.run(value.get(compute, 0.01)) is None
    gate.set()
    assert ask(value, []) == 1


def test_a_failure_is_remembered_and_the_old_value_kept() -> None:
    clock = _Clock()
    value = CachedValue[int](ThreadPoolExecutor(1), clock)
    assert ask(value, []) is None  # nothing to pop: the computation fails
    assert value.has_failed
    clock.now += 61
    assert ask(value, [1]) == 1
    assert not value.has_failed
    clock.now += 10_000
    assert ask(value, []) == 1
    assert value.has_failed


def test_a_clock_that_was_set_back_does_not_stop_the_computations() -> None:
    clock = _Clock()
    value = CachedValue[int](ThreadPoolExecutor(1), clock)
    assert ask(value, [1]) == 1
    clock.now -= 100_000
    answers = [2]
    ask(value, answers)
    wait_until(lambda: not answers and ask(value, []) == 2)


def test_values_that_nobody_asks_for_are_dropped() -> None:
    values = CachedValues()
    kept = values.find("kept")
    for number in range(MAX_VALUES - 1):
        values.find(f"{number}")
    assert values.find("kept") is kept
    for number in range(MAX_VALUES):
        values.find(f"other {number}")
    assert values.find("kept") is not kept
