"""Threads that run calls in order of arrival."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest

from rekindle.store.worker_threads import WorkerThreads

EXIT_PROGRAM = """
import time
from rekindle.store.worker_threads import WorkerThreads

class Call:
    def __init__(self, number):
        self.number = number
    def run(self):
        time.sleep(0.01)
        print(self.number, flush=True)
    def finish(self):
        pass

threads = WorkerThreads("test", 1)
for number in range(5):
    threads.submit(Call(number))
"""


class Call:
    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        self._work = work
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None

    def run(self) -> None:
        self._work()

    def finish(self) -> None:
        self.thread = threading.current_thread()
        self.ended.set()


def test_one_thread_runs_calls_in_order_and_close_waits_for_all() -> None:
    ran: list[int] = []
    gate = threading.Event()
    threads = WorkerThreads("test", 1)
    threads.submit(Call(partial(gate.wait, 30)))
    for number in range(10):
        threads.submit(Call(lambda number=number: ran.append(number)))
    assert ran == []
    gate.set()
    threads.close()
    assert ran == [*range(10)]


def test_threads_are_started_as_needed_up_to_the_size() -> None:
    both = threading.Barrier(2)  # passed by two threads, never by one alone
    threads = WorkerThreads("test", 2)
    first = [Call(), Call()]
    for call in first:  # one after the other: one thread is enough
        threads.submit(call)
        assert call.ended.wait(30)
    assert first[0].thread is first[1].thread
    held = [Call(partial(both.wait, 30)) for _ in range(4)]
    for call in held:
        threads.submit(call)
    threads.close()
    assert len({call.thread for call in held}) == 2
    assert not both.broken


def test_nothing_is_taken_after_close() -> None:
    threads = WorkerThreads("test", 1)
    threads.close()
    threads.close()
    with pytest.raises(RuntimeError, match="ended"):
        threads.submit(Call())


def test_threads_end_with_the_object_that_started_them() -> None:
    threads, call = WorkerThreads("test", 1), Call()
    threads.submit(call)
    assert call.ended.wait(30)
    assert call.thread is not None
    del threads
    gc.collect()
    call.thread.join(30)
    assert not call.thread.is_alive()


def test_what_is_queued_runs_before_the_program_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT_PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["0", "1", "2", "3", "4"]
