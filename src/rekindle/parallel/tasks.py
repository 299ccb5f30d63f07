"""A chunk on its way to a worker, and its result on the way back."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rekindle.errors import WorkFailed

from .chunks import Chunk

MAX_ATTEMPTS = 3  # a chunk that ends its worker as often is not tried again
CHUNKS_IN_FLIGHT = 8  # per worker: enough that none waits while results are stored
LOADED_CHUNKS_IN_FLIGHT = 2  # with the texts of their sessions, which take memory

Prepare = Callable[[Any], Any]


class Task:
    """A chunk and its function, pickled.

    Dask writes the arguments of what fails to the logs of its workers: they show the name alone, never
    the text of a session or the password of a database.
    """

    __slots__ = ("data", "name")

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self.name, self.data)


class TaskFailure(NamedTuple):
    """Why a chunk has no result."""

    reason: str


def make_task(function: Callable[[Any], Any], chunk: Chunk[Any], prepare: Prepare | None) -> Task:
    """Pickle a chunk, after `prepare` has added to it what only this process can read."""
    import pickle

    from rekindle import __version__

    work = chunk.work if prepare is None else prepare(chunk.work)
    data = pickle.dumps((__version__, function, work), protocol=pickle.HIGHEST_PROTOCOL)
    return Task(chunk.name, data)


def run_task(task: Task) -> bytes:
    """Run a task in a worker; return its result, or its failure, pickled."""
    import pickle

    try:
        answer: object = _run_pickled(task.data)
    except Exception as error:  # noqa: BLE001  # whatever it is, the command that waits reports it
        answer = TaskFailure(describe_error(error))
    try:
        return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  # a result that cannot be sent
        return pickle.dumps(TaskFailure(describe_error(error)))


def _run_pickled(data: bytes) -> object:
    import pickle

    from rekindle import __version__

    version, function, work = pickle.loads(data)
    if version != __version__:
        return TaskFailure(f"the worker has Rekindle {__version__}, expected {version}")
    return run_without_gc(function, work)


def run_without_gc(function: Callable[[Any], Any], work: object) -> Any:
    """Call a function without garbage collection: a chunk is small, and makes acyclic values."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return function(work)
    finally:
        if was_enabled:
            gc.enable()


def read_result(name: str, data: bytes) -> Any:
    """Return the result of a task, or raise `WorkFailed` with the name of its chunk."""
    import pickle

    answer = pickle.loads(data)
    if isinstance(answer, TaskFailure):
        raise make_error(name, answer.reason)
    return answer


def make_error(name: str, reason: str) -> WorkFailed:
    """Return the error about a chunk."""
    return WorkFailed(f"The work on {name} failed: {reason}")


def describe_error(error: BaseException) -> str:
    """Return an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_lost_worker(attempts: int) -> str:
    """Return the reason of a chunk whose workers died."""
    return f"its worker died {attempts} times (out of memory?)"


def count_in_flight(chunks: Sequence[object], workers: int, prepare: Prepare | None) -> int:
    """Return how many chunks may be under way or wait for their turn to be delivered."""
    per_worker = CHUNKS_IN_FLIGHT if prepare is None else LOADED_CHUNKS_IN_FLIGHT
    return min(len(chunks), per_worker * max(1, workers))
