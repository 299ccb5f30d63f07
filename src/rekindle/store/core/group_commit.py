"""Group commit: writers that wait at the same time share one transaction and one disk flush.

The first writer becomes the leader: it takes all waiting jobs, runs them in one transaction, wakes
their writers and passes the lead on. A single writer pays for no thread switch, and there is no
background thread to start or to lose.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from rekindle.errors import StoreBusy, StoreError, StoreUnavailable

from .engine import FollowedOperation, Operation, Transaction

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rekindle.store.worker_threads import WorkerThreads

T = TypeVar("T")
R = TypeVar("R")

MAX_BATCH_SIZE = 256
MAX_GATHER_SECONDS = 0.002  # longest wait of a leader for the writers of the last batch
MAX_VAIN_GATHERS = 4  # that are counted


_NO_RESULT = object()
_INTERRUPTED = StoreError("interrupted; it is unknown whether this write was committed")


class _Job:
    __slots__ = ("done", "error", "operation", "result", "wake")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.done = False
        self.result: Any = _NO_RESULT
        self.error: BaseException | None = None
        self.wake = threading.Lock()
        self.wake.acquire()

    def notify(self) -> None:
        """Wake the writer: its job is done, or it is to lead."""
        self.wake.release()


class _SubmittedJob(_Job, Generic[R]):
    """A job that no thread waits for: `start` gets it if it is to lead, which it does in `run`."""

    __slots__ = ("_convert", "_lead", "_start", "future")

    def __init__(
        self,
        operation: Operation,
        convert: Callable[[Any], R],
        future: Future[R],
        start: Callable[[_SubmittedJob[Any]], None],
        lead: Callable[[_Job], None],
    ) -> None:
        super().__init__(operation)
        self.future = future
        self._convert = convert
        self._start = start
        self._lead = lead

    def run(self) -> None:
        """Lead, in a thread for it."""
        with suppress(BaseException):  # the future reports it
            self._lead(self)

    def finish(self) -> None:
        """Report the result after `run`."""
        if not self.done:
            self.error, self.done = _INTERRUPTED, True
        self.notify()

    def notify(self) -> None:
        if not self.done:
            self._start(self)
            return
        try:
            if self.error is not None:
                raise self.error
            self.future.set_result(self._convert(self.result))
        except BaseException as error:  # noqa: BLE001  raised by the future
            self.future.set_exception(error)


class GroupCommitter:
    """Runs operations in order of arrival, those that wait at the same time in one batch."""

    def __init__(
        self,
        transact: Callable[[Sequence[Operation]], list[Any]],
        max_batch: int = MAX_BATCH_SIZE,
    ) -> None:
        self._transact = transact
        self._max_batch = max_batch
        self._mutex = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._leader: _Job | None = None
        self._last_batch_size = 1
        self._commit_seconds = 0.0
        self._gather_target = 0
        self._vain_gathers = 0
        self._gathers_to_skip = 0
        self._gather_done = threading.Lock()
        self._gather_done.acquire()
        self._leaders_mutex = threading.Lock()
        self._leaders: WorkerThreads | None = None  # one thread that leads submitted jobs

    def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run `operation` in a transaction and return its result once it is durable."""
        job = _Job(operation)
        if not self._enqueue(job):
            try:
                job.wake.acquire()
            except BaseException:  # Ctrl-C: leave the queue and pass the lead on
                self._leave(job)
                raise
        if not job.done:
            self._lead(job)
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def submit(self, operation: Callable[[Transaction], T], convert: Callable[[T], R]) -> Future[R]:
        """Queue `operation` and return a future of `convert(its result)`, done once it is durable."""
        from concurrent.futures import Future  # loaded only when used

        job = _SubmittedJob(operation, convert, Future[R](), self._lead_in_thread, self._lead)
        job.future.set_running_or_notify_cancel()  # what is queued can no longer be cancelled
        if self._enqueue(job):
            self._lead_in_thread(job)
        return job.future

    def close(self) -> None:
        """Wait for submitted jobs to finish."""
        with self._leaders_mutex:
            leaders, self._leaders = self._leaders, None
        if leaders is not None:
            leaders.close()

    def _enqueue(self, job: _Job) -> bool:
        """Add a job to the queue; return whether it is to lead."""
        with self._mutex:
            self._waiting.append(job)
            if self._leader is None:
                self._leader = job
                return True
            count = len(self._waiting)
            # More writes that others follow are not what the leader waits for.
            if 0 < self._gather_target <= count and _count_followed(self._waiting) < count:
                self._gather_target = 0
                self._gather_done.release()
            return False

    def _lead_in_thread(self, job: _SubmittedJob[Any]) -> None:
        from rekindle.store.worker_threads import WorkerThreads

        with self._leaders_mutex:
            if self._leaders is None:
                self._leaders = WorkerThreads("commit", 1)
            self._leaders.submit(job)

    def _lead(self, leader: _Job) -> None:
        batch: list[_Job] = []
        begun = time.monotonic()
        try:
            self._gather()
            with self._mutex:
                size = min(len(self._waiting), self._max_batch)
                batch = [self._waiting.popleft() for _ in range(size)]
            begun = time.monotonic()
            self._commit(batch, leader)
        finally:
            self._commit_seconds = time.monotonic() - begun
            self._last_batch_size = len(batch) - _count_followed(batch)
            # Writers woken here can queue their next message while the next leader gathers.
            for job in batch:
                if job.result is _NO_RESULT and job.error is None:
                    job.error = _INTERRUPTED
                job.done = True
                if job is not leader:
                    job.notify()
            if leader.done:
                self._pass_lead()
            else:  # interrupted before its batch ran
                self._leave(leader)

    def _pass_lead(self) -> None:
        with self._mutex:
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader:
                self._leader.notify()

    def _leave(self, job: _Job) -> None:
        with self._mutex:
            if job in self._waiting:
                self._waiting.remove(job)
            is_leader = self._leader is job
        if is_leader:
            self._pass_lead()

    def _gather(self) -> None:
        """Wait briefly for the writers of the last batch, or for the write that follows the only one.

        Otherwise a single writer does not wait. Writers that only happened to meet do not come again:
        each wait in vain doubles the number of batches that are not waited for.
        """
        with self._mutex:
            self._gather_target = 0
            count = len(self._waiting)
            expected = self._last_batch_size if self._last_batch_size > 1 else 0
            if _count_followed(self._waiting) == count:
                expected = max(expected, count + 1)
            if count >= expected:
                return
            if self._gathers_to_skip:
                self._gathers_to_skip -= 1
                return
            self._gather_target = expected
        if not self._gather_done.acquire(timeout=min(MAX_GATHER_SECONDS, self._commit_seconds)):
            with self._mutex:
                is_complete, self._gather_target = not self._gather_target, 0
            if is_complete:  # between the time-out and the mutex
                self._gather_done.acquire()
        with self._mutex:
            is_vain = len(self._waiting) == count
            self._vain_gathers = min(self._vain_gathers + 1, MAX_VAIN_GATHERS) if is_vain else 0
            self._gathers_to_skip = 2**self._vain_gathers - 1

    def _commit(self, batch: list[_Job], leader: _Job) -> None:
        try:
            results = self._transact([job.operation for job in batch])
        except BaseException as error:  # noqa: BLE001  delivered to the waiting writers
            if len(batch) > 1 and _is_job_failure(error):
                for job in batch:  # one failing operation must not fail the others
                    self._commit([job], leader)
                return
            # A retry could write twice: the commit may have succeeded without an answer.
            for job in batch:
                job.error = error if job is leader or isinstance(error, Exception) else _INTERRUPTED
            return
        for job, result in zip(batch, results, strict=True):
            job.result = result


def _count_followed(jobs: Iterable[_Job]) -> int:
    return sum(type(job.operation) is FollowedOperation for job in jobs)


def make_done_future(result: T) -> Future[T]:
    """Return a future that is done already."""
    from concurrent.futures import Future

    future = Future[T]()
    future.set_result(result)
    return future


def _is_job_failure(error: BaseException) -> bool:
    """Return whether a single operation failed, rather than the whole transaction."""
    return isinstance(error, Exception) and not isinstance(error, (StoreBusy, StoreUnavailable))
