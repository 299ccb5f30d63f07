"""Group commit: writers that wait at the same time share one transaction and one disk flush.

Whoever comes first leads: it takes everything that waits, runs it in one transaction, tells the others
and hands the lead on. A lone writer pays no thread switch. There is no thread to start or to lose.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from rekindle.errors import StoreBusy, StoreError, StoreUnavailable

from .engine import Transaction, Work

T = TypeVar("T")

MOST_TOGETHER = 256
PATIENCE = 0.002  # seconds a leader waits, at most, for the company it had last time


_NOTHING = object()
_INTERRUPTED = StoreError("the program was interrupted; whether this was written is not known")


class _Job:
    __slots__ = ("done", "error", "result", "wake", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.done = False
        self.result: Any = _NOTHING
        self.error: BaseException | None = None
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit:
    """Runs works through `transact`, together where they come together, in the order they came."""

    def __init__(self, transact: Callable[[Sequence[Work]], list[Any]]) -> None:
        self._transact = transact
        self._mutex = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._leader: _Job | None = None
        self._company = 1
        self._commit_seconds = 0.0
        self._wanted = 0
        self._gathered = threading.Lock()
        self._gathered.acquire()

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction and return its result once that is durable."""
        job = _Job(work)
        with self._mutex:
            self._waiting.append(job)
            if self._leader is None:
                self._leader = job
            elif self._wanted and len(self._waiting) >= self._wanted:
                self._wanted = 0
                self._gathered.release()
        if self._leader is not job:
            try:
                job.wake.acquire()
            except BaseException:  # Ctrl-C: leave the queue, and do not take the lead along
                self._leave(job)
                raise
        if not job.done:
            self._lead(job)
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def _lead(self, leader: _Job) -> None:
        batch: list[_Job] = []
        begun = time.monotonic()
        try:
            self._gather()
            with self._mutex:
                together = min(len(self._waiting), MOST_TOGETHER)
                batch = [self._waiting.popleft() for _ in range(together)]
            begun = time.monotonic()
            self._commit(batch, leader)
        finally:
            self._commit_seconds = time.monotonic() - begun
            self._company = len(batch)
            # Those who are done come back with their next message while the next leader gathers.
            for job in batch:
                if job.result is _NOTHING and job.error is None:
                    job.error = _INTERRUPTED
                job.done = True
                if job is not leader:
                    job.wake.release()
            if leader.done:
                self._hand_on()
            else:  # interrupted before its turn
                self._leave(leader)

    def _hand_on(self) -> None:
        with self._mutex:
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader:
                self._leader.wake.release()

    def _leave(self, job: _Job) -> None:
        with self._mutex:
            if job in self._waiting:
                self._waiting.remove(job)
            leads = self._leader is job
        if leads:
            self._hand_on()

    def _gather(self) -> None:
        """Wait a moment for those who wrote with us last time; alone, not at all."""
        with self._mutex:
            missing = self._company > 1 and len(self._waiting) < self._company
            self._wanted = self._company if missing else 0
        if missing and not self._gathered.acquire(timeout=min(PATIENCE, self._commit_seconds)):
            with self._mutex:
                came, self._wanted = not self._wanted, 0
            if came:  # between the time-out and the mutex
                self._gathered.acquire()

    def _commit(self, batch: list[_Job], leader: _Job) -> None:
        try:
            results = self._transact([job.work for job in batch])
        except BaseException as error:  # noqa: BLE001  it goes to whoever waits for the result
            if len(batch) > 1 and _is_ones_own(error):
                for job in batch:  # one bad work must not cost the others
                    self._commit([job], leader)
                return
            # To try again could write twice what was committed without an answer.
            for job in batch:
                job.error = error if job is leader or isinstance(error, Exception) else _INTERRUPTED
            return
        for job, result in zip(batch, results, strict=True):
            job.result = result


def _is_ones_own(error: BaseException) -> bool:
    """Is it one work that failed, or the whole transaction, by an interrupt or a store in trouble?"""
    return isinstance(error, Exception) and not isinstance(error, (StoreBusy, StoreUnavailable))
