"""Cut work into chunks that take about the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
W = TypeVar("W")

CHUNK_SECONDS = 0.25  # what a worker that dies costs, and much more than sending a chunk takes
CHUNKS_PER_WORKER = 6  # at least, so that none waits long for the last one


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
    """Put neighboring items of the same group into chunks; the order of the items stays."""
    costs = [(item, estimate_seconds(item)) for item in items]
    target = chunk_seconds
    if workers > 1:
        total = sum(seconds for _, seconds in costs)
        target = min(target, total / (workers * CHUNKS_PER_WORKER))
    chunks: list[Chunk[Sequence[T]]] = []
    for _, group in groupby(costs, key=lambda one: get_group(one[0]) if get_group else None):
        for part in _split_costs(group, target):
            names = describe_item(part[0][0])
            if len(part) > 1:
                names += f" to {describe_item(part[-1][0])}"
            seconds = sum(seconds for _, seconds in part)
            chunks.append(Chunk(names, [item for item, _ in part], seconds))
    return chunks


def _split_costs(
    costs: Iterable[tuple[T, float]], target: float
) -> Iterator[list[tuple[T, float]]]:
    part: list[tuple[T, float]] = []
    seconds = 0.0
    for item, cost in costs:
        if part and seconds + cost > target:
            yield part
            part, seconds = [], 0.0
        part.append((item, cost))
        seconds += cost
    if part:
        yield part
