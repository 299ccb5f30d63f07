"""Scheduled jobs: the cost of 10,000 jobs while none is due, and the delay of due jobs.

    python -m bench schedule [--quick] [--no-delay]

A separate gateway process serves a store with the jobs. The idle cost is the CPU time of the gateway,
and of the database server if there is one, in a period in which no job is due, compared with a gateway
that has a single job. CPU time does not depend on other work of the machine. The delay is the time from
when a job is due to when its command runs (the command prints the time): some jobs are spread over the
period, others are due at the same moment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import report
from bench.environments import ROOT
from bench.runner import WORK, Figures, make_empty_folder

JOBS, QUICK_JOBS = 10_000, 500
WINDOW, QUICK_WINDOW = 60.0, 5.0  # seconds
SPREAD, BURST = 200, 100
MOST_SHARE = 0.01
MOST_DELAY = 1.0
SEED = 12
KEPT = WORK / "schedule.json"
_TICKS = os.sysconf("SC_CLK_TCK")


class StoreTarget(NamedTuple):
    """A store to measure on; `server` is the process of its database server."""

    target: str
    server: int | None


@contextmanager
def open_target(engine: str, folder: Path) -> Iterator[StoreTarget]:
    """Create an empty store on an engine."""
    if engine == "SQLite":
        yield StoreTarget(str(folder / "sessions.db"), None)
        return
    from tests import servers

    with servers.postgres() as server:
        pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        yield StoreTarget(server.database(), pid)


# -- jobs


def add_jobs(target: str, count: int, *, first: float) -> None:
    """Store jobs of every kind that are due within a day after `first`."""
    from rekindle import open_store
    from rekindle.routing.schedule_rule import ScheduleRule
    from rekindle.types import Source

    rng = random.Random(SEED)
    chat = Source("folder", "results")
    with open_store(target) as store:

        def add_some(numbers: range) -> None:
            for number in numbers:
                due = first + rng.random() * 86_400
                rule = (
                    ScheduleRule("once", due),
                    ScheduleRule("interval", 3600.0),
                    ScheduleRule("cron", "30 8 * * MON-FRI", "Europe/Berlin"),
                )[number % 3]
                store.jobs.add(_build_plan(f"job {number}", "true", rule, chat), due)

        for start in range(0, count, 500):
            store.transaction(lambda: add_some(range(start, min(start + 500, count))))  # noqa: B023


def add_due_jobs(target: str, dues: list[float]) -> list[str]:
    """Store a job for each due time, whose command prints the current time; return the ids."""
    from rekindle import open_store
    from rekindle.routing.schedule_rule import ScheduleRule
    from rekindle.types import Source

    chat = Source("folder", "results")
    with open_store(target) as store:

        def add_all() -> list[str]:
            return [
                store.jobs.add(
                    _build_plan(f"due {n}", "date +%s.%N", ScheduleRule("once", due), chat), due
                ).id
                for n, due in enumerate(dues)
            ]

        return store.transaction(add_all)


def _build_plan(name: str, command: str, rule: Any, target: Any) -> Any:
    from rekindle.store.conversations.jobs import JobPlan
    from rekindle.types import Source

    return JobPlan(
        name=name,
        owner="operator",
        maker=Source("local", "terminal"),
        kind="command",
        text=command,
        rule=rule,
        target=target,
        deliver="local",
    )


# -- measuring


@contextmanager
def run_gateway(target: str, folder: Path) -> Iterator[int]:
    """Run a gateway without chat platforms; yield its process id once it serves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    gateway = subprocess.Popen(
        [sys.executable, "-m", "rekindle.cli", "gateway", "run", "--quiet"],
        env={
            **kept,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "REKINDLE_HOME": str(home),
            "REKINDLE_STORE": target,
            "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
            "REKINDLE_MODEL": "none",
        },
    )
    try:
        limit = time.monotonic() + 120
        while not list((home / "gateway").glob("*.json")):
            if gateway.poll() is not None or time.monotonic() > limit:
                raise RuntimeError("the gateway did not start")
            time.sleep(0.05)
        yield gateway.pid
    finally:
        gateway.terminate()
        gateway.wait(60)


def read_cpu(pid: int, server: int | None) -> float:
    """Return the CPU seconds that a gateway and the processes of a server have used."""
    pids = [pid] if server is None else [pid, server, *_list_children(server)]
    return sum(map(_read_cpu_of, pids))


def _read_cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return sum(map(int, fields[11:13])) / _TICKS


def _list_children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(one) for one in children.split()]


def measure_idle(place: StoreTarget, folder: Path, window: float) -> float:
    """Return the share of a core that a gateway uses while nothing is due."""
    with run_gateway(place.target, folder) as pid:
        time.sleep(5)  # exclude the work at start-up
        before, begun = read_cpu(pid, place.server), time.monotonic()
        time.sleep(window)
        return (read_cpu(pid, place.server) - before) / (time.monotonic() - begun)


def measure_delays(
    place: StoreTarget, folder: Path, window: float, spread: int, burst: int
) -> Figures:
    """Return the delays of commands that are due during the window, and at one moment."""
    from rekindle import open_store

    rng = random.Random(SEED)
    with run_gateway(place.target, folder):
        begin = time.time() + 5
        dues = [begin + rng.random() * window for _ in range(spread)]
        dues += [begin + window + 5] * burst
        ids = add_due_jobs(place.target, dues)
        time.sleep(max(0.0, max(dues) - time.time()))
        limit = time.monotonic() + 60
        with open_store(place.target) as store:
            jobs = [store.jobs.find(id) for id in ids]
            while time.monotonic() < limit:
                runs = [run for job in jobs for run in store.jobs.list_runs(job)]
                if sum(run.state == "done" for run in runs) == len(ids):
                    break
                time.sleep(0.5)
            delays = {
                job.id: float(run.output) - run.due
                for job in jobs
                for run in store.jobs.list_runs(job)
                if run.state == "done"
            }
    lost = len(ids) - len(delays)
    one_by_one = [delays[id] for id in ids[:spread] if id in delays]
    at_once = [delays[id] for id in ids[spread:] if id in delays]
    return {
        "spread": [median(one_by_one), max(one_by_one), len(one_by_one)],
        "burst": [median(at_once), max(at_once), len(at_once)],
        "lost": lost,
    }


def measure_engine(engine: str, quick: bool, with_delay: bool) -> Figures:
    """Measure idle cost and delays on one engine."""
    folder = make_empty_folder("schedule")
    jobs, window = (QUICK_JOBS, QUICK_WINDOW) if quick else (JOBS, WINDOW)
    figures: Figures = {"jobs": jobs, "window": window}
    try:
        with open_target(engine, folder) as place:
            add_jobs(place.target, 1, first=time.time() + 3600)
            figures["one"] = measure_idle(place, folder, window)
            add_jobs(place.target, jobs - 1, first=time.time() + 3600)
            figures["idle"] = measure_idle(place, folder, window)
            if with_delay:
                counts = (SPREAD // 10, BURST // 10) if quick else (SPREAD, BURST)
                figures["delay"] = measure_delays(place, folder, window, *counts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"  {engine}: {figures}", flush=True)
    return figures


# -- the section of the results file


def build_page(kept: dict[str, Figures]) -> str:
    """Build the section of the results file."""
    lines = [
        "## Scheduled jobs",
        "",
        f"`python -m bench schedule` on {report.describe_machine()}. The idle cost is the CPU time of"
        " the whole gateway process, and of the database server, while no job is due. The delay is from"
        " the time a job is due to the time its command runs.",
        "",
        "| | " + " | ".join(kept) + " | must reach | reached |",
        "|---" * (len(kept) + 3) + "|",
    ]
    rows: list[tuple[str, list[str], str, str]] = [
        ("date", [one["date"] for one in kept.values()], "", ""),
        ("jobs", [f"{one['jobs']:,}" for one in kept.values()], "", ""),
        ("idle with one job, % of a core", _format_shares(kept, "one"), "", ""),
        _build_idle_row(kept),
        *(_build_delay_row(kept, name) for name in ("spread", "burst")),
    ]
    for title, cells, must, reached in rows:
        lines.append(f"| {title} | " + " | ".join([*cells, must, reached]) + " |")
    return "\n".join([*lines, ""])


def _format_shares(kept: dict[str, Figures], name: str) -> list[str]:
    return [f"{one[name] * 100:.2f}" for one in kept.values()]


def _build_idle_row(kept: dict[str, Figures]) -> tuple[str, list[str], str, str]:
    holds = all(one["idle"] < MOST_SHARE for one in kept.values())
    title = "idle with all of them, % of a core"
    must = f"< {MOST_SHARE * 100:g}"
    return title, _format_shares(kept, "idle"), must, "yes" if holds else "**no**"


def _build_delay_row(kept: dict[str, Figures], name: str) -> tuple[str, list[str], str, str]:
    found = [one.get("delay", {}).get(name) for one in kept.values()]
    cells = [f"{one[0]:.2f}, {one[1]:.2f} ({one[2]} jobs)" if one else "–" for one in found]
    title = {"spread": "due one by one", "burst": "due at one moment"}[name]
    limit, verdict = "", ""
    if name == "spread":
        limit = f"≤ {MOST_DELAY:g}"
        holds = all(one and one[1] <= MOST_DELAY for one in found)
        verdict = "not measured" if None in found else "yes" if holds else "**no**"
    return f"delay of jobs that are {title}, median, worst, s", cells, limit, verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few jobs; writes no results")
    parser.add_argument(
        "--no-delay", action="store_true", help="only the idle cost, for a busy machine"
    )


def run(args: argparse.Namespace) -> None:
    taken: dict[str, Figures] = {}
    before = json.loads(KEPT.read_text()) if KEPT.exists() and not args.quick else {}
    for engine in ("SQLite", "PostgreSQL"):
        figures = measure_engine(engine, args.quick, not args.no_delay)
        figures["date"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        if "delay" in before.get(engine, {}):
            figures.setdefault("delay", before[engine]["delay"])
        taken[engine] = figures
    text = build_page(taken)
    print(text)
    if not args.quick:
        KEPT.write_text(json.dumps(taken, indent=1))
        report.write_section("schedule", text)
