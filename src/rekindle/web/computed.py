"""Compute slow values in the background and keep them: a request shows the latest value.

A value that is old is shown while a new one is computed; one that was slow to compute is kept longer,
so that computing takes a small share of the machine at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar, cast

from rekindle.errors import RekindleError
from rekindle.store.store_executor import StoreExecutor

T = TypeVar("T")
Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much

WAIT_SECONDS = 0.4  # that a request waits for a value that is not there yet
OUTDATED_SECONDS = 600.0  # then it waits for a new one, too
MIN_REST_SECONDS = 10.0
REST_FACTOR = 20.0  # a value is kept for this many times the time it took
MAX_VALUES = 40
MAX_RUNNING = 4  # what takes minutes must not hold up what takes a moment
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The server stops, so a running computation is no longer needed."""


class ComputedValue(NamedTuple, Generic[T]):
    """A value as far as it is known: None until it was computed once."""

    value: T | None
    time: float | None  # when it was computed
    is_running: bool
    step: str = ""  # what is being done
    share: float | None = None  # of this step
    problem: str = ""  # why the last attempt failed


class _Entry:
    """One value and its computation."""

    def __init__(self) -> None:
        self.value: Any = None
        self.time: float | None = None
        self.seconds = 0.0
        self.stamp: Hashable = None
        self.tried: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.step, self.done, self.total = "", 0, 0
        self.problem = ""
        self.is_stopped = False
        self.changes = self.computed_changes = 0  # of what it is computed from

    def is_current(self, stamp: Hashable) -> bool:
        return self.stamp == stamp and self.changes == self.computed_changes

    def report(self, step: str, done: int, total: int) -> None:
        """Note how far a computation is; end it if the server stops."""
        if self.is_stopped:
            raise _Stopped
        self.step, self.done, self.total = step, done, total

    def describe(self) -> ComputedValue[Any]:
        is_running = self.task is not None
        share = min(1.0, self.done / self.total) if is_running and self.total else None
        return ComputedValue(
            self.value, self.time, is_running, self.step if is_running else "", share, self.problem
        )


class ComputedValues:
    """Values by key."""

    def __init__(self, executor: StoreExecutor, clock: Callable[[], float] = time.time) -> None:
        self._executor = executor
        self._clock = clock
        self._room = asyncio.Semaphore(MAX_RUNNING)
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    async def get(
        self,
        key: Hashable,
        compute: Callable[[Report], T],
        *,
        stamp: Hashable = None,
        wait: float | None = None,
        rest: float | None = None,
    ) -> ComputedValue[T]:
        """Return what is known under a key, and compute it if it is missing or old.

        With another `stamp`, what the value was computed from has changed: it is old at once. `wait`
        limits how long a request waits, `rest` is the least time until it is computed again.
        """
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        if entry.task is None and self._is_old(entry, stamp, rest):
            entry.task = asyncio.create_task(self._compute(entry, compute, stamp))
            self._forget_oldest()
        if entry.task is not None and (self._is_outdated(entry) or not entry.is_current(stamp)):
            await asyncio.wait({entry.task}, timeout=WAIT_SECONDS if wait is None else wait)
        return cast(ComputedValue[T], entry.describe())

    def mark_old(self, key: Hashable) -> None:
        """Recompute a value when it is next requested, because its inputs have changed."""
        if (entry := self._entries.get(key)) is not None:
            entry.changes += 1

    def _is_outdated(self, entry: _Entry) -> bool:
        return entry.time is None or self._clock() - entry.time > OUTDATED_SECONDS

    def _is_old(self, entry: _Entry, stamp: Hashable, rest: float | None) -> bool:
        if entry.tried is None or not entry.is_current(stamp):
            return True
        least = MIN_REST_SECONDS if rest is None else rest
        return not 0 <= self._clock() - entry.tried < max(least, REST_FACTOR * entry.seconds)

    async def _compute(
        self, entry: _Entry, compute: Callable[[Report], Any], stamp: Hashable
    ) -> None:
        started, changes = self._clock(), entry.changes
        try:
            async with self._room:
                started = self._clock()
                entry.value = await self._run(entry, compute)
            entry.time, entry.problem = self._clock(), ""
        except _Stopped:
            pass
        except RekindleError as error:
            entry.problem = str(error)
        except Exception:  # noqa: BLE001  # the page must survive; it is tried again later
            _log.exception("computing a report failed")
            entry.problem = "The log of `rekindle web` has the cause."
        finally:
            entry.task, entry.stamp, entry.tried = None, stamp, self._clock()
            entry.computed_changes = changes
            entry.seconds = max(0.0, entry.tried - started)

    async def _run(self, entry: _Entry, compute: Callable[[Report], Any]) -> Any:
        """Run a computation on a thread; if this task is cancelled, it ends at its next report."""
        running = asyncio.ensure_future(self._executor.run(compute, entry.report))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            entry.is_stopped = True
            await asyncio.wait({running})
            raise

    def _forget_oldest(self) -> None:
        idle = [key for key, entry in self._entries.items() if entry.task is None]
        for key in idle[: max(0, len(self._entries) - MAX_VALUES)]:
            del self._entries[key]
