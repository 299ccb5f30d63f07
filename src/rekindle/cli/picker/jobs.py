"""Run work outside the event loop, and drop outdated results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from rekindle.errors import RekindleError

T = TypeVar("T")
Deliver = Callable[[Callable[[], None]], object]


class LatestJob(Generic[T]):
    """A thread for one kind of work, where only the latest request counts.

    A request that has not begun when a newer one comes is never run. One that runs can ask whether it
    is stale and stop; its result is not delivered either way.
    """

    def __init__(self, deliver: Deliver, on_error: Callable[[str], None]) -> None:
        self._deliver = deliver
        self._on_error = on_error
        self._condition = threading.Condition()
        self._number = 0
        self._pending: tuple[Callable[[Callable[[], bool]], T], Callable[[T], None]] | None = None
        self._thread: threading.Thread | None = None

    def submit(
        self, work: Callable[[Callable[[], bool]], T], on_result: Callable[[T], None]
    ) -> None:
        """Run `work(is_stale)` soon; give its result to `on_result` on the event loop."""
        with self._condition:
            self._number += 1
            self._pending = work, on_result
            self._condition.notify()
        if self._thread is None:
            # A daemon: leaving the picker waits for nothing.
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """Forget the current request."""
        with self._condition:
            self._number += 1
            self._pending = None

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._pending is None:
                    self._condition.wait()
                (work, on_result), number = self._pending, self._number
                self._pending = None
            self._run_one(work, on_result, number)

    def _run_one(
        self,
        work: Callable[[Callable[[], bool]], T],
        on_result: Callable[[T], None],
        number: int,
    ) -> None:
        def is_stale() -> bool:
            return self._number != number

        def finish(action: Callable[[], None]) -> None:
            if not is_stale():  # asked on the event loop, where requests are made
                action()

        try:
            result = work(is_stale)
        except (RekindleError, OSError) as error:
            text = str(error)
            self._deliver(lambda: finish(lambda: self._on_error(text)))
        else:
            self._deliver(lambda: finish(lambda: on_result(result)))
