"""The measurements of a store. They run in a process of that store and return plain values."""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.peers.base import MeasuredStore
from bench.store.start_gate import wait_for_start
from bench.workload import (
    MEAN_BYTES,
    MESSAGES,
    SEED,
    Conversation,
    WorkloadMessage,
    iter_conversations,
    make_conversation,
    make_queries,
)

Kind = type[MeasuredStore]
Figures = dict[str, Any]


def _read_cpu() -> float:
    """Return the user and system time of all threads and of ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _freeze_heap() -> None:
    """Exclude the workload's objects from later garbage collections, equally for all stores."""
    gc.collect()
    gc.freeze()


def sum_disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _time_calls(work: Callable[[Any], int], inputs: Iterable[Any]) -> Figures:
    """Time each call; `found` reveals a store that is fast because it returns nothing."""
    taken: list[float] = []
    found = 0
    for value in inputs:
        start = time.perf_counter()
        found += work(value)
        taken.append((time.perf_counter() - start) * 1e3)
    return {"p50": median(taken), "p95": quantiles(taken, n=20)[18], "found": found / len(taken)}


def measure_append(
    kind: Kind,
    folder: Path,
    sessions: int,
    messages: int = MESSAGES,
    mean_bytes: float = MEAN_BYTES,
    cap_s: float = 600,
) -> Figures:
    """Append message by message with one writer until all sessions are stored or time is up.

    Closing the store is included, since it may do deferred work.
    """
    work = list(iter_conversations(sessions, messages, mean_bytes))
    _freeze_heap()
    store = kind(folder)
    whole: list[Conversation] = []
    wall, cpu = time.perf_counter(), _read_cpu()
    for one in work:
        for said in one.messages:
            store.append(one.id, said)
        store.finish(one.id)
        whole.append(one)
        if time.perf_counter() - wall > cap_s:
            break
    store.close()
    cpu, wall = _read_cpu() - cpu, time.perf_counter() - wall
    stored = sum(len(one.messages) for one in whole)
    text = sum(one.text_bytes for one in whole)
    return {
        "sessions": len(whole),
        "messages": stored,
        "text_bytes": text,
        "disk_bytes": sum_disk_bytes(folder),
        "cpu_us": cpu / stored * 1e6,
        "wall_us": wall / stored * 1e6,
    }


def get_fresh_program(kind: Kind, folder: Path) -> Figures:
    return {"program": kind.fresh}


def measure_concurrent_append(
    kind: Kind, folder: Path, writers: int, sessions: int, cap_s: float
) -> Figures:
    """Append to many sessions at once; each message is durable before the next of its session."""
    streams = [
        [make_conversation(w * sessions + n) for n in range(sessions)] for w in range(writers)
    ]
    _freeze_heap()
    store = kind(folder)
    start = time.monotonic()
    stored = store.append_together(streams, start + cap_s)
    wall = time.monotonic() - start
    store.close()
    return {"messages": stored, "per_s": stored / wall}


def append_until_deadline(
    kind: Kind, folder: Path, number: int, gate: str, seconds: float
) -> Figures:
    """Append as one of several processes on one store; return the count and the worst time."""
    work = [make_conversation(number * 1_000 + n) for n in range(40)]
    _freeze_heap()
    store = kind(folder)
    until = wait_for_start(Path(gate), str(number)) + seconds
    waits: list[float] = []
    errors: list[str] = []
    start = 0.0
    for turn in count():
        one = work[turn % len(work)]
        name = f"{one.id}{turn // len(work):04d}"
        for said in one.messages:
            start = time.monotonic()
            if start >= until:
                break
            try:
                store.append(name, said)
            except Exception as error:  # noqa: BLE001 - a failing store is a result, not a failed run
                errors.append(f"{type(error).__name__}: {error}")
            waits.append(time.monotonic() - start)
        store.finish(name)
        if start >= until:
            break
    store.close()
    return {
        "messages": len(waits) - len(errors),
        "worst_s": max(waits, default=0),
        "over_1s": sum(taken > 1 for taken in waits),
        "errors": errors,
    }


def flush_until_deadline(folder: Path, gate: str, seconds: float) -> Figures:
    """Write and flush 4 kB a hundred times a second, to measure the bare disk under load."""
    waits: list[float] = []
    with open(folder / "flush.tmp", "wb", buffering=0) as file:
        until = wait_for_start(Path(gate), "flush") + seconds
        while time.monotonic() < until:
            start = time.monotonic()
            file.seek(0)
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            waits.append(time.monotonic() - start)
            time.sleep(0.01)
    os.unlink(folder / "flush.tmp")
    return {
        "worst_s": max(waits),
        "over_1s": sum(taken > 1 for taken in waits),
        "p50_s": median(waits),
    }


def measure_load(kind: Kind, folder: Path, sessions: int, times: int = 300) -> Figures:
    rng = random.Random(f"{SEED}:load")
    names = [make_conversation(rng.randrange(sessions)).id for _ in range(times)]
    store = kind(folder)
    _time_calls(store.load, names[:20])
    figures = _time_calls(store.load, names)
    store.close()
    return figures


def measure_recent(kind: Kind, folder: Path, times: int = 100) -> Figures:
    store = kind(folder)
    _time_calls(store.list_recent, [50] * 5)
    figures = _time_calls(store.list_recent, [50] * times)
    store.close()
    return figures


def measure_first_recent(kind: Kind, folder: Path, times: int = 20) -> Figures:
    """Measure the list of a store that was just opened, before anything is cached."""
    taken: list[float] = []
    for _ in range(times):
        store = kind(folder)
        start = time.perf_counter()
        store.list_recent(50)
        taken.append((time.perf_counter() - start) * 1e3)
        store.close()
    return {"p50": median(taken)}


def measure_search(
    kind: Kind, folder: Path, newest: bool = False, around: bool = True, times: int = 200
) -> Figures:
    words = make_queries(times)
    store = kind(folder)
    for query in words[:20]:
        store.search(query, newest, around)
    figures = _time_calls(lambda query: store.search(query, newest, around), words)
    figures["at_once"] = _measure_freshness(store)
    store.close()
    return figures


def _measure_freshness(store: MeasuredStore, times: int = 10) -> float:
    """Return the share of new messages that a search finds right after they were stored."""
    found = 0
    session = f"20260201_000000_{time.time_ns():x}"
    for number in range(times):
        word = f"unheard{time.time_ns():x}n{number}"
        store.append(session, WorkloadMessage("user", f"a word {word} nobody said"))
        found += store.search(word, newest=False)
    return found / times
