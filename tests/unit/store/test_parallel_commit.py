"""A commit in a thread of its own, and how it uses the time until the next one is prepared."""

from __future__ import annotations

import threading

import pytest

from rekindle.store.engines.sqlite_transaction import run_in_parallel


def test_spare_time_is_used_while_the_task_still_runs():
    used = threading.Event()
    order: list[str] = []

    def use_spare_time() -> None:
        order.append("spare")
        used.set()

    run_in_parallel(lambda: order.append("commit"), lambda: _wait_for(used), use_spare_time)
    assert order == ["commit", "spare"]


def test_an_error_of_the_commit_is_raised_and_no_spare_time_used():
    used: list[str] = []

    def fail() -> None:
        raise ValueError("disk full")

    with pytest.raises(ValueError, match="disk full"):
        run_in_parallel(fail, lambda: None, lambda: used.append("spare"))
    assert used == []


def _wait_for(event: threading.Event) -> None:
    assert event.wait(30)
