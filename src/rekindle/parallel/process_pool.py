"""A pool of worker processes on this machine that outlives the death of any of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import IO, NamedTuple, TypeVar, cast

from .chunks import Chunk
from .frames import read_frame, write_frame
from .tasks import (
    MAX_ATTEMPTS,
    Prepare,
    Task,
    TaskFailure,
    count_in_flight,
    describe_error,
    describe_lost_worker,
    make_error,
    make_task,
    read_result,
)

T = TypeVar("T")
R = TypeVar("R")

STOP_SECONDS = 5.0

_Answer = tuple[int, bytes | TaskFailure]


class _Assignment(NamedTuple):
    number: int
    task: Task
    answers: SimpleQueue[_Answer]
    is_abandoned: threading.Event


class _WorkerProcess:
    """A process that runs one task after another."""

    def __init__(self) -> None:
        # `-P`, because the folder in which the command runs may belong to anybody.
        command = [sys.executable, "-P", "-m", "rekindle.parallel.worker"]
        paths = [path for path in sys.path if path and os.path.isabs(path)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def run(self, task: Task) -> bytes:
        """Return what the worker answers; raise OSError or EOFError if it dies."""
        write_frame(cast("IO[bytes]", self.process.stdin), task.data)
        return read_frame(cast("IO[bytes]", self.process.stdout))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                cast("IO[bytes]", pipe).close()
            except OSError:
                pass  # what was not sent has nobody to go to


class ProcessPool:
    """Worker processes, each with a thread here that hands it chunks and waits for its answers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._jobs: SimpleQueue[_Assignment | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._processes: dict[int, _WorkerProcess] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def map_chunks(
        self,
        function: Callable[[T], R],
        chunks: Sequence[Chunk[T]],
        *,
        prepare: Prepare | None = None,
    ) -> Iterator[R]:
        """Yield the results of the chunks, in their order."""
        self._start_threads()
        answers: SimpleQueue[_Answer] = SimpleQueue()
        is_abandoned = threading.Event()
        in_flight = count_in_flight(chunks, self.workers, prepare)
        waiting: dict[int, bytes | TaskFailure] = {}
        sent = 0
        try:
            for number, chunk in enumerate(chunks):
                while sent < min(len(chunks), number + in_flight):
                    task = make_task(function, chunks[sent], prepare)
                    self._jobs.put(_Assignment(sent, task, answers, is_abandoned))
                    sent += 1
                while number not in waiting:
                    answered, answer = answers.get()
                    waiting[answered] = answer
                found = waiting.pop(number)
                if isinstance(found, TaskFailure):
                    raise make_error(chunk.name, found.reason)
                yield read_result(chunk.name, found)
        finally:
            is_abandoned.set()

    def list_process_ids(self) -> list[int]:
        """Return the ids of the workers that run."""
        with self._lock:
            return [worker.process.pid for worker in self._processes.values()]

    def close(self) -> None:
        """Stop the workers, whatever they are doing."""
        with self._lock:
            self._is_closed = True
            workers = list(self._processes.values())
        for _ in self._threads:
            self._jobs.put(None)
        for worker in workers:
            worker.process.kill()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _start_threads(self) -> None:
        while len(self._threads) < self.workers:
            thread = threading.Thread(
                target=self._serve_worker,
                args=(len(self._threads),),
                name="rekindle-worker",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def _serve_worker(self, place: int) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.is_abandoned.is_set() and not self._is_closed:
                job.answers.put((job.number, self._run_job(place, job.task)))
        self._drop_worker(place)

    def _run_job(self, place: int, task: Task) -> bytes | TaskFailure:
        for _ in range(MAX_ATTEMPTS):
            try:
                worker = self._get_worker(place)
            except OSError as error:
                return TaskFailure(f"no worker can be started: {describe_error(error)}")
            try:
                return worker.run(task)
            except (OSError, EOFError):
                self._drop_worker(place)
                if self._is_closed:
                    break
        return TaskFailure(describe_lost_worker(MAX_ATTEMPTS))

    def _get_worker(self, place: int) -> _WorkerProcess:
        with self._lock:
            if self._is_closed:
                raise OSError("the pool is closed")
            if place not in self._processes:
                self._processes[place] = _WorkerProcess()
            return self._processes[place]

    def _drop_worker(self, place: int) -> None:
        with self._lock:
            worker = self._processes.pop(place, None)
        if worker is not None:
            worker.kill()
