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
from typing import Any, TypeVar

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
        finished: SimpleQueue[int] = SimpleQueue()
        done: set[int] = set()
        futures: dict[int, Any] = {}
        run = uuid.uuid4().hex
        in_flight = count_in_flight(chunks, self.workers, prepare)
        sent = 0
        try:
            for number, chunk in enumerate(chunks):
                while sent < min(len(chunks), number + in_flight):
                    task = make_task(function, chunks[sent], prepare)
                    future = futures[sent] = self._submit_task(task, f"rekindle-{run}-{sent}")
                    future.add_done_callback(_make_callback(finished, sent))
                    sent += 1
                while number not in done:
                    done.add(self._wait_for_chunk(finished))
                yield read_result(chunk.name, self._get_result(chunk.name, futures.pop(number)))
        finally:
            for future in futures.values():
                future.cancel()

    def can_open(self, path: str) -> bool:
        """Return whether all workers see the same file under this path."""
        if path not in self._files:
            here = identify_file(path)
            found: dict[str, object] = self._client.run(identify_file, path, on_error="return")
            self._files[path] = here is not None and all(one == here for one in found.values())
        return self._files[path]

    def _submit_task(self, task: Task, key: str) -> Any:
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

    def _wait_for_chunk(self, finished: SimpleQueue[int]) -> int:
        while True:
            try:
                return finished.get(timeout=NO_WORKER_SECONDS)
            except Empty:  # one chunk takes long, or nobody works on it
                self._wait_for_workers()

    def _get_result(self, name: str, future: Any) -> bytes:
        try:
            return future.result()
        except self._lost_worker as error:
            attempts = int(getattr(error, "allowed_failures", 3)) + 1
            raise make_error(name, describe_lost_worker(attempts)) from None
        except ImportError as error:
            raise make_error(name, f"a worker cannot load it: {describe_error(error)}") from None
        except _LOST_ERRORS:
            raise self._make_lost_error() from None


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
