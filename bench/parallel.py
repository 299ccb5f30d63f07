"""Judging, learning and replaying in one process, in a pool, and on a Dask cluster.

The same store for all: invented sessions of a coding agent in many projects. Each run works on a copy of
its own: it judges all calls, learns from all sessions, judges what became of them and replays a project.
In every run with workers, one of them is killed while calls are judged. What the runs have stored and
found is compared byte by byte.

Pool: two workers against one process. Dask: two workers against one, on this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from bench.learning.session_learning import CALLS, CHATTER, FILES, make_call, make_lines
from bench.runner import WORK, make_empty_folder

from . import report

SESSIONS, QUICK_SESSIONS = 12_000, 400
SESSIONS_PER_PROJECT = 150
TIMES = 3
SEED = 815
KILL_AT = 0.3  # share of the messages that are judged
MUST = {"pool": 1.7, "dask": 1.8}
STAGES = ("judge", "learn", "outcomes", "replay")
TABLES = ("calls", "judged_sessions", "session_outcomes", "observations", "playbooks", "folders")
WORKERS = {"serial": 0, "pool-2": 2, "dask-1": 1, "dask-2": 2}


def fill_store(path: Path, count: int) -> None:
    from rekindle.store import open_store
    from rekindle.types import Message, ToolCall

    with open_store(path, durability="relaxed") as store:
        for number in range(count):
            draw = random.Random(SEED + number)
            session = store.begin(
                id=f"made-{number:06}",
                source="bench",
                cwd=f"/gone/work-{number // SESSIONS_PER_PROJECT}",
                started=1.7e9 + 60 * number,
            )
            asked = f"Fix the {draw.choice(('parser', 'report', 'index'))} in {draw.choice(FILES)}"
            said = [Message("user", asked)]
            for turn in range(CALLS):
                tool, arguments, result, code = make_call(draw)
                id = f"call_{number:06x}{turn:03x}Zq7"
                said.append(Message("assistant", None, [ToolCall(id, tool, json.dumps(arguments))]))
                meta = {"exit_code": code} if tool == "terminal" else None
                said.append(Message("tool", result, tool_call_id=id, name=tool, meta=meta))
            for turn in range(CHATTER):
                said.append(Message("user" if turn % 2 else "assistant", make_lines(draw, 700)))
            store.append(session, *said)


# ── one run, in a process of its own


class Killer:
    """Kills one worker once enough is done."""

    def __init__(self, list_processes: Callable[[], list[int]]) -> None:
        self._list_processes = list_processes
        self.killed: list[int] = []

    def __call__(self, done: int, total: int) -> None:
        if not self.killed and done >= KILL_AT * total:
            self.killed = self._list_processes()[:1]
            for process in self.killed:
                os.kill(process, signal.SIGKILL)


@contextmanager
def open_place(mode: str, address: str) -> Iterator[tuple[Any, Callable[[], list[int]]]]:
    from rekindle.parallel import SERIAL, open_mapper

    if mode == "serial":
        yield SERIAL, list
    elif mode.startswith("pool"):
        with open_mapper(WORKERS[mode], min_seconds=0.0) as mapper:
            pool: Any = mapper
            yield mapper, lambda: pool._pool.list_process_ids()
    else:
        client = import_module("distributed").Client(address)
        with client, open_mapper(scheduler=address) as mapper:
            yield mapper, lambda: list(client.run(os.getpid).values())


def run_once(mode: str, path: Path, address: str) -> dict[str, Any]:
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.learning.notes.replay import replay_projects
    from rekindle.learning.verdicts.judged_sessions import judge_sessions
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes
    from rekindle.store import open_store

    taken: dict[str, float] = {}
    used = time.process_time()
    with open_store(path) as store, open_place(mode, address) as (mapper, list_processes):
        killer = Killer(list_processes)
        replayed: list[Any] = []
        work: dict[str, Callable[[], object]] = {
            "judge": lambda: judge_sessions(store, progress=killer, mapper=mapper),
            "learn": lambda: learn_from_sessions(store, mapper=mapper),
            "outcomes": lambda: judge_outcomes(store, mapper=mapper),
            "replay": lambda: replayed.append(
                replay_projects(store, "folder:/gone/work-0", mapper=mapper)
            ),
        }
        for stage in STAGES:
            began = time.perf_counter()
            work[stage]()
            taken[stage] = time.perf_counter() - began
    digest = hash_results(path, replayed)
    cpu = time.process_time() - used
    return {"seconds": taken, "killed": len(killer.killed), "digest": digest, "cpu": cpu}


def hash_results(path: Path, replayed: list[Any]) -> str:
    import apsw

    digest = hashlib.sha256(repr(replayed).encode())
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    for table in TABLES:
        rows = connection.execute(f"SELECT * FROM {table}")
        for row in rows:
            digest.update(repr(row).encode())
    return digest.hexdigest()


# ── clusters


@contextmanager
def start_cluster(workers: int, folder: Path) -> Iterator[str]:
    """Start a scheduler and workers of one thread each on this machine."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    dask = [sys.executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    scheduler += ["--scheduler-file", str(file)]
    worker = [*dask, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-dashboard"]
    worker += ["--nworkers", str(workers), "--host", "127.0.0.1", "--local-directory", str(folder)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with open(folder / "dask.log", "ab") as log:
            started.append(subprocess.Popen(scheduler, stdout=log, stderr=log))
            address = read_address(file, started[0])
            started.append(subprocess.Popen(worker, stdout=log, stderr=log))
        with import_module("distributed").Client(address, timeout=60) as client:
            client.wait_for_workers(workers, timeout=60)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def read_address(file: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """Wait until the scheduler has written where it listens."""
    while scheduler.poll() is None:
        try:
            return json.loads(file.read_text())["address"]
        except (OSError, ValueError):
            time.sleep(0.05)
    raise SystemExit("the scheduler has ended; see dask.log")


def measure_mode(mode: str, original: Path, folder: Path) -> dict[str, Any]:
    path = folder / f"{mode}.db"
    shutil.copy(original, path)
    try:
        if not mode.startswith("dask"):
            return run_child(mode, path, "")
        with start_cluster(WORKERS[mode], folder) as address:
            return run_child(mode, path, address)
    finally:
        for one in folder.glob(f"{mode}.db*"):
            one.unlink()


def run_child(mode: str, path: Path, address: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.parallel", mode, str(path), address]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_parallel(sessions: int, times: int) -> dict[str, Any]:
    folder = make_empty_folder("parallel")
    original = folder / "original.db"
    fill_store(original, sessions)
    rounds: list[dict[str, Any]] = []
    for number in range(times):
        order = list(WORKERS) if number % 2 == 0 else list(reversed(WORKERS))
        rounds.append({mode: measure_mode(mode, original, folder) for mode in order})
    size = original.stat().st_size
    shutil.rmtree(folder)
    return {"rounds": rounds, "sessions": sessions, "size": size}


# ── results


def add_up(one: dict[str, Any], stages: tuple[str, ...]) -> float:
    return sum(one["seconds"][stage] for stage in stages)


def compare_runs(
    rows: dict[str, Any], slow: str, fast: str, stages: tuple[str, ...]
) -> list[float]:
    return [add_up(one[slow], stages) / add_up(one[fast], stages) for one in rows["rounds"]]


def are_identical(rows: dict[str, Any]) -> bool:
    return len({one[mode]["digest"] for one in rows["rounds"] for mode in WORKERS}) == 1


def has_killed_workers(rows: dict[str, Any]) -> bool:
    return all(
        one[mode]["killed"] == 1 for one in rows["rounds"] for mode in WORKERS if mode != "serial"
    )


def list_targets(rows: dict[str, Any]) -> Iterator[tuple[str, list[float], float]]:
    mining = ("judge", "learn")
    yield (
        "pool of 2 against one process",
        compare_runs(rows, "serial", "pool-2", mining),
        MUST["pool"],
    )
    yield "2 Dask workers against 1", compare_runs(rows, "dask-1", "dask-2", mining), MUST["dask"]


def render_section(rows: dict[str, Any], command: str) -> str:
    stages = [
        "| | one process | pool of 2 | 1 Dask worker | 2 Dask workers |",
        "|---|---:|---:|---:|---:|",
    ]
    for stage in STAGES:
        cells = [median(one[mode]["seconds"][stage] for one in rows["rounds"]) for mode in WORKERS]
        stages.append(f"| {stage}: s | " + " | ".join(f"{one:.2f}" for one in cells) + " |")
    targets = ["| judge and learn | times as fast | must reach | reached |", "|---|---:|---|---|"]
    for name, ratios, must in list_targets(rows):
        middle = median(ratios)
        reached = "yes" if middle >= must else "**no**"
        targets.append(
            f"| {name} | {middle:.2f} ({min(ratios):.2f}–{max(ratios):.2f}) | ≥ {must:g} × | {reached} |"
        )
    same = "identical, byte by byte" if are_identical(rows) else "**different**"
    killed = "one" if has_killed_workers(rows) else "**not in every run** one"
    head = (
        f"`{command}` on {report.describe_machine()}. {rows['sessions']:,} sessions in a store of"
        f" {rows['size'] / 1e6:.0f} MB; medians of {len(rows['rounds'])} rounds. In every run with"
        f" workers, {killed} was killed at {KILL_AT:.0%} of judging. The results of all runs are {same}."
    )
    return "\n\n".join(["## Parallel work", head, "\n".join(targets), "\n".join(stages)]) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="a small slice; writes no results file"
    )
    parser.add_argument("--rounds", type=int, default=TIMES, help="how often each is measured")


def run(args: argparse.Namespace) -> None:
    rows = (
        measure_parallel(QUICK_SESSIONS, 1)
        if args.quick
        else measure_parallel(SESSIONS, args.rounds)
    )
    WORK.joinpath("parallel.json").write_text(json.dumps(rows, indent=1))
    text = render_section(rows, "python -m bench parallel")
    print(text)
    if not args.quick:
        report.write_section("parallel", text)
    if not are_identical(rows) or not has_killed_workers(rows):
        raise SystemExit("the results differ, or a worker was not killed")


if __name__ == "__main__":
    mode, path, address = sys.argv[1:]
    print(json.dumps(run_once(mode, Path(path), address)))
