"""The store as it grows: one store per size, built in bulk, then measured in a new process."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.store.measurements import Figures, sum_disk_bytes
from bench.workload import MESSAGES, SEED, iter_conversations, make_conversation, make_queries

MEAN_BYTES = 120  # shorter than in the other rows, so that four million messages take minutes
SIZES = (1_000, 10_000, 100_000)
OPENS = 7


def build_growing_store(folder: Path, sessions: int) -> Figures:
    """Fill a store with one append per session, without waiting for the disk."""
    from bench.peers.rekindle import build_message
    from rekindle import open_store

    start = time.monotonic()
    text = 0
    with open_store(folder / "rekindle.db", durability="relaxed") as store:
        for one in iter_conversations(sessions, MESSAGES, MEAN_BYTES):
            store.append(store.begin(id=one.id), *map(build_message, one.messages))
            text += one.text_bytes
    return {
        "messages": sessions * MESSAGES,
        "text_bytes": text,
        "disk_bytes": sum_disk_bytes(folder),
        "build_s": time.monotonic() - start,
    }


def _time_inputs(name: str, work: Callable[[Any], object], inputs: list[Any]) -> Figures:
    taken: list[float] = []
    for value in inputs:
        start = time.perf_counter()
        work(value)
        taken.append((time.perf_counter() - start) * 1e3)
    return {f"{name}_p50": median(taken), f"{name}_p95": quantiles(taken, n=20)[18]}


def probe_growing_store(folder: Path, sessions: int) -> Figures:
    from bench.peers.rekindle import build_message
    from rekindle import open_store

    path = folder / "rekindle.db"
    figures: Figures = _time_inputs("open", lambda _: open_store(path).close(), list(range(OPENS)))
    rng = random.Random(f"{SEED}:growth")
    names = [
        make_conversation(rng.randrange(sessions), MESSAGES, MEAN_BYTES).id for _ in range(200)
    ]
    words = make_queries(200, sessions, MESSAGES, MEAN_BYTES)
    said = [
        build_message(one)
        for index in range(5)
        for one in make_conversation(index + 10**6).messages
    ]
    with open_store(path) as store:
        new = store.begin(id="20270101_000000_00000000")
        store.messages(names[0])
        store.recent(50)
        store.search(words[0])
        figures |= _time_inputs("append", lambda one: store.append(new, one), said)
        figures |= _time_inputs("messages", store.messages, names)
        figures |= _time_inputs("recent", store.recent, [50] * 100)
        figures |= _time_inputs("search", store.search, words)
        figures |= _time_inputs("newest", lambda query: store.search(query, order="newest"), words)
    return figures


def measure_growth(sizes: tuple[int, ...]) -> dict[str, Figures]:
    """Build and measure each size in turn, and remove the files."""
    from bench import runner
    from bench.environments import prepare_environment

    prepare_environment("rekindle")
    results: dict[str, Figures] = {}
    for sessions in sizes:
        folder = runner.make_empty_folder("growth")
        args = {"sessions": sessions, "patience_s": 7_200}
        figures = runner.run_row("rekindle", "growth_build", folder, **args)
        if "error" not in figures:
            figures |= runner.run_row("rekindle", "growth_probe", folder, **args)
        results[str(sessions)] = figures
        print(f"  {sessions:,} sessions: {figures}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return results
