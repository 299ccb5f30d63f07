"""One function per measurement. They run in a contestant's own process and return plain values."""

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

from .contestants.shape import Contestant
from .gate import wait
from .workload import MEAN_BYTES, MESSAGES, SEED, Said, Talk, queries, talk, talks

Kind = type[Contestant]
Figures = dict[str, Any]


def _cpu() -> float:
    """User and system time of all threads, and of children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _settle() -> None:
    """Keep the workload's objects out of every later garbage collection, for all alike."""
    gc.collect()
    gc.freeze()


def disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _milliseconds(work: Callable[[Any], int], inputs: Iterable[Any]) -> Figures:
    """Time each call by itself; `found` guards against a store that answers fast with nothing."""
    taken: list[float] = []
    found = 0
    for value in inputs:
        start = time.perf_counter()
        found += work(value)
        taken.append((time.perf_counter() - start) * 1e3)
    return {"p50": median(taken), "p95": quantiles(taken, n=20)[18], "found": found / len(taken)}


def append(
    kind: Kind,
    folder: Path,
    sessions: int,
    messages: int = MESSAGES,
    mean_bytes: float = MEAN_BYTES,
    cap_s: float = 600,
) -> Figures:
    """One writer, one message at a time, until all sessions are in or the time is up.

    Closing counts: work put off until then is still work.
    """
    work = list(talks(sessions, messages, mean_bytes))
    _settle()
    store = kind(folder)
    whole: list[Talk] = []
    wall, cpu = time.perf_counter(), _cpu()
    for one in work:
        for said in one.said:
            store.append(one.id, said)
        store.finish(one.id)
        whole.append(one)
        if time.perf_counter() - wall > cap_s:
            break
    store.close()
    cpu, wall = _cpu() - cpu, time.perf_counter() - wall
    stored = sum(len(one.said) for one in whole)
    text = sum(one.text_bytes for one in whole)
    return {
        "sessions": len(whole),
        "messages": stored,
        "text_bytes": text,
        "disk_bytes": disk_bytes(folder),
        "cpu_us": cpu / stored * 1e6,
        "wall_us": wall / stored * 1e6,
    }


def program(kind: Kind, folder: Path) -> Figures:
    return {"program": kind.fresh}


def together(kind: Kind, folder: Path, writers: int, sessions: int, cap_s: float) -> Figures:
    """Many sessions at once in one process, each message durable before its session goes on."""
    streams = [[talk(w * sessions + n) for n in range(sessions)] for w in range(writers)]
    _settle()
    store = kind(folder)
    start = time.monotonic()
    stored = store.append_together(streams, start + cap_s)
    wall = time.monotonic() - start
    store.close()
    return {"messages": stored, "per_s": stored / wall}


def hammer(kind: Kind, folder: Path, number: int, gate: str, seconds: float) -> Figures:
    """One of several processes on one file: how many messages, and how long the worst one took."""
    work = [talk(number * 1_000 + n) for n in range(40)]
    _settle()
    store = kind(folder)
    until = wait(Path(gate), str(number)) + seconds
    waits: list[float] = []
    errors: list[str] = []
    start = 0.0
    for turn in count():
        one = work[turn % len(work)]
        name = f"{one.id}{turn // len(work):04d}"
        for said in one.said:
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


def flush(folder: Path, gate: str, seconds: float) -> Figures:
    """The bare disk beside the hammering processes: 4 kB and a flush, a hundred times a second."""
    waits: list[float] = []
    with open(folder / "flush.tmp", "wb", buffering=0) as file:
        until = wait(Path(gate), "flush") + seconds
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


def load(kind: Kind, folder: Path, sessions: int, times: int = 300) -> Figures:
    rng = random.Random(f"{SEED}:load")
    names = [talk(rng.randrange(sessions)).id for _ in range(times)]
    store = kind(folder)
    _milliseconds(store.load, names[:20])
    figures = _milliseconds(store.load, names)
    store.close()
    return figures


def recent(kind: Kind, folder: Path, times: int = 100) -> Figures:
    store = kind(folder)
    _milliseconds(store.recent, [50] * 5)
    figures = _milliseconds(store.recent, [50] * times)
    store.close()
    return figures


def recent_first(kind: Kind, folder: Path, times: int = 20) -> Figures:
    """The list as a store that was just opened gives it: nothing of it is in memory yet."""
    taken: list[float] = []
    for _ in range(times):
        store = kind(folder)
        start = time.perf_counter()
        store.recent(50)
        taken.append((time.perf_counter() - start) * 1e3)
        store.close()
    return {"p50": median(taken)}


def search(
    kind: Kind, folder: Path, newest: bool = False, around: bool = True, times: int = 200
) -> Figures:
    words = queries(times)
    store = kind(folder)
    for query in words[:20]:
        store.search(query, newest, around)
    figures = _milliseconds(lambda query: store.search(query, newest, around), words)
    figures["at_once"] = _found_at_once(store)
    store.close()
    return figures


def _found_at_once(store: Contestant, times: int = 10) -> float:
    """The share of new messages that a search finds right after they were stored."""
    found = 0
    session = f"20260201_000000_{time.time_ns():x}"
    for number in range(times):
        word = f"unheard{time.time_ns():x}n{number}"
        store.append(session, Said("user", f"a word {word} nobody said"))
        found += store.search(word, newest=False)
    return found / times
