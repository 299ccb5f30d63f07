"""How Rekindle grows: one store per size, built in bulk, then measured in a new process."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from .rows import Figures, disk_bytes
from .workload import MESSAGES, SEED, queries, talk, talks

MEAN_BYTES = 120  # shorter than in the other rows, so that four million messages take minutes
SIZES = (1_000, 10_000, 100_000)
OPENS = 7


def growth_build(folder: Path, sessions: int) -> Figures:
    """Fill a store, a session per append, without waiting for the disk."""
    from rekindle import open_store

    from .contestants.rekindle import message

    start = time.monotonic()
    text = 0
    with open_store(folder / "rekindle.db", durability="relaxed") as store:
        for one in talks(sessions, MESSAGES, MEAN_BYTES):
            store.append(store.begin(id=one.id), *map(message, one.said))
            text += one.text_bytes
    return {
        "messages": sessions * MESSAGES,
        "text_bytes": text,
        "disk_bytes": disk_bytes(folder),
        "build_s": time.monotonic() - start,
    }


def _spread(name: str, work: Callable[[Any], object], inputs: list[Any]) -> Figures:
    taken: list[float] = []
    for value in inputs:
        start = time.perf_counter()
        work(value)
        taken.append((time.perf_counter() - start) * 1e3)
    return {f"{name}_p50": median(taken), f"{name}_p95": quantiles(taken, n=20)[18]}


def growth_probe(folder: Path, sessions: int) -> Figures:
    from rekindle import open_store

    from .contestants.rekindle import message

    path = folder / "rekindle.db"
    figures: Figures = _spread("open", lambda _: open_store(path).close(), list(range(OPENS)))
    rng = random.Random(f"{SEED}:growth")
    names = [talk(rng.randrange(sessions), MESSAGES, MEAN_BYTES).id for _ in range(200)]
    words = queries(200, sessions, MESSAGES, MEAN_BYTES)
    said = [message(one) for index in range(5) for one in talk(index + 10**6).said]
    with open_store(path) as store:
        new = store.begin(id="20270101_000000_00000000")
        store.messages(names[0])
        store.recent(50)
        store.search(words[0])
        figures |= _spread("append", lambda one: store.append(new, one), said)
        figures |= _spread("messages", store.messages, names)
        figures |= _spread("recent", store.recent, [50] * 100)
        figures |= _spread("search", store.search, words)
        figures |= _spread("newest", lambda query: store.search(query, order="newest"), words)
    return figures


def measure(sizes: tuple[int, ...]) -> dict[str, Figures]:
    """Build and probe each size in turn; the files are removed again."""
    from . import runner
    from .envs import prepare

    prepare("rekindle")
    results: dict[str, Figures] = {}
    for sessions in sizes:
        folder = runner.empty("growth")
        args = {"sessions": sessions, "patience_s": 7_200}
        figures = runner.run("rekindle", "growth_build", folder, **args)
        if "error" not in figures:
            figures |= runner.run("rekindle", "growth_probe", folder, **args)
        results[str(sessions)] = figures
        print(f"  {sessions:,} sessions: {figures}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return results
