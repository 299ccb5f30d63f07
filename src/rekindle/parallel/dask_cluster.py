"""Do work on the workers of a Dask cluster."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from rekindle.errors import InvalidInput, SchedulerUnreachable

from .chunks import Chunk
from .tasks import (
    Prepare,
    Task,
    count_in_flight,
    describe_error,
    describe_lost_worker,
    make_error,
    make_task,
    read_result,
    run_task,
)

T = TypeVar("T")
R = TypeVar("R")

CONNECT_SECONDS = 10.0
CHUNK_SECONDS = 1.0  # of a task, which client, scheduler and worker all have to handle
NO_WORKER_SECONDS = 60.0  # time for workers to come, or to come back
POLL_SECONDS = 1.0
# What a client raises whose scheduler is gone.
_LOST_ERRORS = (CancelledError, OSError, RuntimeError, TimeoutError)
_ADDRESS = re.compile(r"(?:tcp|tls)://[^\s/@]+:[0-9]{1,5}")


@contextmanager
def connect_cluster(address: str) -> Generator[DaskCluster]:
    """Connect to the scheduler at `tcp://HOST:PORT` or `tls://HOST:PORT`."""
    if not _ADDRESS.fullmatch(address):
        raise InvalidInput(
            f"scheduler: expected tcp://HOST:PORT or tls://HOST:PORT, got {address!r}"
        )
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise InvalidInput(
            f"{error.name} is not installed; install it with: pip install 'rekindle[distributed]'"
        ) from None
    try:
        client: Any = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise SchedulerUnreachable(
            f"Cannot reach the Dask scheduler at {address}: {describe_error(error)}"
        ) from None
    with client:
        yield DaskCluster(client, address, distributed.KilledWorker)


class DaskCluster:
    """The workers of a scheduler. A chunk whose worker dies is given to another by the scheduler."""

    chunk_seconds = CHUNK_SECONDS

    def __init__(self, client: Any, address: str, lost_worker: type[Exception]) -> None:
        self._client = client
        self._lost_worker = lost_worker
        self._address = address
        self._files: dict[str, bool] = {}
        self.workers = max(1, self._wait_for_workers())

    def map_chunks(
        self,
        function: Callable[[T], R],
        chunks: Sequence[Chunk[T]],
        *,
        prepare: Prepare | None = None,
    ) -> Iterator[R]:
        """Yield the results of the chunks, in their order."""
        run = _ChunkRun(self, function, chunks, prepare)
        in_flight = count_in_flight(chunks, self.workers, prepare)
        try:
            for number, chunk in enumerate(chunks):
                run.send_until(number + in_flight)
                run.wait_for(number)
                if self.has_lost_worker(run.futures[number]):
                    run.run_alone(number)
                yield read_result(chunk.name, self.get_result(chunk.name, run.futures.pop(number)))
        finally:
            for future in run.futures.values():
                future.cancel()

    def can_open(self, path: str) -> bool:
        """Return whether all workers see the same file under this path."""
        if path not in self._files:
            here = identify_file(path)
            found: dict[str, object] = self._client.run(identify_file, path, on_error="return")
            self._files[path] = here is not None and all(one == here for one in found.values())
        return self._files[path]

    def submit_task(self, task: Task, key: str) -> Any:
        """Give a task to the scheduler; return its future."""
        try:
            return self._client.submit(run_task, task, key=key, pure=False)
        except _LOST_ERRORS:
            raise self._make_lost_error() from None

    def _count_workers(self) -> int:
        try:
            threads: dict[str, int] = self._client.nthreads()
        except _LOST_ERRORS:
            raise self._make_lost_error() from None
        return sum(threads.values())

    def _make_lost_error(self) -> SchedulerUnreachable:
        return SchedulerUnreachable(
            f"Lost the connection to the Dask scheduler at {self._address}."
        )

    def _wait_for_workers(self) -> int:
        end = time.monotonic() + NO_WORKER_SECONDS
        while not (count := self._count_workers()):
            if time.monotonic() > end:
                raise SchedulerUnreachable(
                    f"No worker has connected to {self._address}."
                    f" Start one with `dask worker {self._address}`."
                )
            time.sleep(POLL_SECONDS)
        return count

    def wait_for_chunk(self, finished: SimpleQueue[int]) -> int:
        """Return the number of the next chunk that has ended."""
        while True:
            try:
                return finished.get(timeout=NO_WORKER_SECONDS)
            except Empty:  # one chunk takes long, or nobody works on it
                self._wait_for_workers()

    def has_lost_worker(self, future: Any) -> bool:
        """Return whether the scheduler gave a chunk up because its workers died."""
        return future.status == "error" and isinstance(future.exception(), self._lost_worker)

    def get_result(self, name: str, future: Any) -> bytes:
        """Return the result of a chunk that has ended, pickled."""
        try:
            return future.result()
        except self._lost_worker as error:
            attempts = int(getattr(error, "allowed_failures", 3)) + 1
            raise make_error(name, describe_lost_worker(attempts)) from None
        except ImportError as error:
            raise make_error(name, f"a worker cannot load it: {describe_error(error)}") from None
        except _LOST_ERRORS:
            raise self._make_lost_error() from None


class _ChunkRun(Generic[T]):
    """The chunks of one call: which were sent, and which have ended."""

    def __init__(
        self,
        cluster: DaskCluster,
        function: Callable[[T], object],
        chunks: Sequence[Chunk[T]],
        prepare: Prepare | None,
    ) -> None:
        self.futures: dict[int, Any] = {}
        self._cluster = cluster
        self._function = function
        self._chunks = chunks
        self._prepare = prepare
        self._name = f"rekindle-{uuid.uuid4().hex}"
        self._finished: SimpleQueue[int] = SimpleQueue()
        self._done: set[int] = set()
        self._sent = 0

    def send_until(self, end: int) -> None:
        """Send the chunks before number `end` that were not sent yet."""
        for number in range(self._sent, min(len(self._chunks), end)):
            self._send(number, f"{self._name}-{number}")
            self._sent = number + 1

    def wait_for(self, number: int) -> None:
        """Wait until a chunk has ended."""
        while number not in self._done:
            self._done.add(self._cluster.wait_for_chunk(self._finished))

    def run_alone(self, number: int) -> None:
        """Run a chunk again after all others that were sent have ended.

        When a worker dies, the scheduler blames every chunk that the worker had been given, also those
        that waited there. Only a chunk that ends its worker while nothing else runs is to blame.
        """
        for other in range(self._sent):
            self.wait_for(other)
        self._done.remove(number)
        self._send(number, f"{self._name}-{number}-alone")
        self.wait_for(number)

    def _send(self, number: int, key: str) -> None:
        task = make_task(self._function, self._chunks[number], self._prepare)
        future = self.futures[number] = self._cluster.submit_task(task, key)
        future.add_done_callback(_make_callback(self._finished, number))


def _make_callback(finished: SimpleQueue[int], number: int) -> Callable[[Any], None]:
    return lambda _: finished.put(number)


def identify_file(path: str) -> tuple[str, int, int] | None:
    """Return what identifies a file among those of all machines, or None if it does not exist."""
    try:
        found = os.stat(path)
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            machine = file.read().strip()
    except OSError:
        return None
    return machine, found.st_dev, found.st_ino
