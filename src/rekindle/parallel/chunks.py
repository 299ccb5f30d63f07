"""Cut work into chunks that take about the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
W = TypeVar("W")

CHUNK_SECONDS = 0.25  # what a worker that dies costs, and much more than sending a chunk takes
REST_PER_WORKER = 4  # of the work that is left, no chunk takes a larger part than one of so many
LAST_SECONDS = 0.05  # of the last chunks: so long a worker may wait for another one's last chunk


class Chunk(NamedTuple, Generic[T]):
    """A part of the work. `name` appears in errors; `seconds` is a rough estimate of its time."""

    name: str
    work: T
    seconds: float = 0.0

    def replace_work(self, work: W) -> Chunk[W]:
        """Return a chunk of the same size with other work."""
        return Chunk(self.name, work, self.seconds)


def group_items(
    items: Iterable[T],
    estimate_seconds: Callable[[T], float],
    describe_item: Callable[[T], str],
    *,
    workers: int = 1,
    chunk_seconds: float = CHUNK_SECONDS,
    get_group: Callable[[T], Hashable] | None = None,
) -> list[Chunk[Sequence[T]]]:
    """Put neighboring items of the same group into chunks; the order of the items stays.

    With several workers the chunks become smaller towards the end, so that all end at the same time.
    """
    costs = [(item, estimate_seconds(item)) for item in items]
    rest = sum(seconds for _, seconds in costs)
    chunks: list[Chunk[Sequence[T]]] = []
    for _, group in groupby(costs, key=lambda one: get_group(one[0]) if get_group else None):
        waiting = deque(group)
        while waiting:
            target = chunk_seconds
            if workers > 1:
                smallest = min(LAST_SECONDS, chunk_seconds)
                target = min(target, max(smallest, rest / (workers * REST_PER_WORKER)))
            part, seconds = _take_items(waiting, target)
            rest -= seconds
            names = describe_item(part[0])
            if len(part) > 1:
                names += f" to {describe_item(part[-1])}"
            chunks.append(Chunk(names, part, seconds))
    return chunks


def _take_items(waiting: deque[tuple[T, float]], target: float) -> tuple[list[T], float]:
    """Take the first item, and those after it that the target has room for."""
    item, seconds = waiting.popleft()
    part = [item]
    while waiting and seconds + waiting[0][1] <= target:
        item, cost = waiting.popleft()
        part.append(item)
        seconds += cost
    return part, seconds
