"""Choose where chunks of work are done, and deliver their results in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from rekindle.errors import InvalidInput, RekindleError

from .chunks import CHUNK_SECONDS, Chunk
from .tasks import Prepare, describe_error, make_error, run_without_gc

T = TypeVar("T")
R = TypeVar("R")

MIN_POOL_SECONDS = 2.0  # shorter work is done before a pool has started


class ChunkMapper(Protocol):
    """A place to do work."""

    @property
    def workers(self) -> int:
        """How many chunks are worked on at the same time."""
        ...

    @property
    def chunk_seconds(self) -> float:
        """How long a chunk should take: much longer than sending it to a worker."""
        ...

    def map_chunks(
        self,
        function: Callable[[T], R],
        chunks: Sequence[Chunk[T]],
        *,
        prepare: Prepare | None = None,
    ) -> Iterator[R]:
        """Yield the results of the chunks, in their order.

        `prepare` is called in this process before a chunk leaves it, and adds what it needs elsewhere.
        """
        ...

    def can_open(self, path: str) -> bool:
        """Return whether all workers see the same file under this path."""
        ...


class SerialMapper:
    """Does the work in this process."""

    workers = 1
    chunk_seconds = CHUNK_SECONDS

    def map_chunks(
        self,
        function: Callable[[T], R],
        chunks: Sequence[Chunk[T]],
        *,
        prepare: Prepare | None = None,
    ) -> Iterator[R]:
        """Yield the results of the chunks, in their order."""
        for chunk in chunks:
            try:
                result = run_without_gc(function, chunk.work)
            except (RekindleError, OSError):
                raise
            except Exception as error:
                raise make_error(chunk.name, describe_error(error)) from error
            yield result

    def can_open(self, path: str) -> bool:
        """Return True: it is this process that has it open."""
        return True


SERIAL = SerialMapper()


class _LazyPool:
    """Starts a pool of processes for work that takes longer than starting it."""

    chunk_seconds = CHUNK_SECONDS

    def __init__(self, jobs: int, min_seconds: float) -> None:
        self.workers = jobs
        self._min_seconds = min_seconds
        self._pool: Any = None

    def map_chunks(
        self,
        function: Callable[[T], R],
        chunks: Sequence[Chunk[T]],
        *,
        prepare: Prepare | None = None,
    ) -> Iterator[R]:
        is_small = sum(chunk.seconds for chunk in chunks) < self._min_seconds
        if len(chunks) < 2 or is_small:
            return SERIAL.map_chunks(function, chunks)
        if self._pool is None:
            from .process_pool import ProcessPool

            self._pool = ProcessPool(self.workers)
        return self._pool.map_chunks(function, chunks, prepare=prepare)

    def can_open(self, path: str) -> bool:
        return os.path.exists(path)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


@contextmanager
def open_mapper(
    jobs: int = 0, scheduler: str = "", *, min_seconds: float = MIN_POOL_SECONDS
) -> Generator[ChunkMapper]:
    """Open a place to do work: a Dask cluster, or a pool of `jobs` processes (0: one for each core).

    A pool is not started for work that takes less than `min_seconds`; it is done in this process.
    """
    if jobs < 0:
        raise InvalidInput(f"jobs: expected 0 or more, got {jobs}")
    if scheduler:
        from .dask_cluster import connect_cluster

        with connect_cluster(scheduler) as cluster:
            yield cluster
        return
    workers = jobs or count_cores()
    if workers == 1:
        yield SERIAL
        return
    pool = _LazyPool(workers, min_seconds)
    try:
        yield pool
    finally:
        pool.close()


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
