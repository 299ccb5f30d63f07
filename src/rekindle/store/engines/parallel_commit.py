"""Run a commit in a thread of its own while the calling thread prepares the next one."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


def run_in_parallel(
    finish: Callable[[], None], task: Callable[[], None], use_spare_time: Callable[[], None]
) -> None:
    """Run both, `finish` in a thread of its own: it spends most of its time in SQLite, not Python.

    If it ends before the task, `use_spare_time` is called there.
    """
    errors: list[BaseException] = []
    ended = threading.Event()
    task_ended = threading.Event()

    def run() -> None:
        try:
            finish()
            if not task_ended.is_set():
                use_spare_time()
        except BaseException as error:  # noqa: BLE001  raised by the waiting thread
            errors.append(error)
        finally:
            ended.set()

    try:
        _thread.start_new_thread(run, ())  # returns immediately and cannot be interrupted half-way
    except RuntimeError:  # no thread available: skip the parallel task
        finish()
        return
    try:
        task()
    finally:
        task_ended.set()
        _wait_uninterrupted(ended)
        if errors:
            raise errors[0]


def _wait_uninterrupted(ended: threading.Event) -> None:
    """Wait for the end despite interrupts: until then another thread uses the connection.

    (`Thread` does not work here: interrupted in `start` or `join`, it does not report what still runs.)
    """
    interrupt: BaseException | None = None
    while not ended.is_set():
        try:
            ended.wait()
        except BaseException as error:  # noqa: BLE001  raised as soon as possible
            interrupt = error
    if interrupt:
        raise interrupt
