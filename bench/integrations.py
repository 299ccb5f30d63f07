"""What a turn costs in other frameworks: our adapters against the frameworks' own backends.

    python -m bench integrations [--quick] [--only FRAMEWORK] [--python INTERPRETER]

The backends take turns in one process, one turn each, and every session grows turn by turn: a question,
a call, its result and an answer, read and written as the framework does in a turn. The ratio of each
round is taken within the round. One process differs from the next by more than its rounds do, so there
are several, and the interval is that of the median of the ratios for other processes like these
(bootstrap of processes, and of the rounds in each). Flushes are counted with strace in their own run.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.environments import ROOT, InstallError, get_python, install_packages
from bench.peers.integration_names import FILES, FLUSHED_FILES, FULL, JSON_TABLE, PLAIN, RELAXED
from bench.runner import build_environment, count_writes

from . import report

ENV = "integrations"
EXTRAS = "openai-agents,langgraph,google-adk,agno,strands,pydantic-ai"
PACKAGES = ("langgraph-checkpoint-sqlite>=3", "aiosqlite>=0.20", "sqlalchemy[asyncio]>=2")
PROCESSES, ROUNDS, TURNS, WARM = 5, 12, 15, 60
QUICK_PROCESSES, QUICK_ROUNDS, QUICK_TURNS, QUICK_WARM = 1, 4, 5, 2
TRACED_ROUNDS = 4
LIMIT = 1.10
DRAWS = 2_000


class Comparison(NamedTuple):
    """Two backends of a framework; a limit holds where both promise the same for a power loss."""

    framework: str
    title: str
    own: str
    ours: str = FULL
    limit: float | None = LIMIT


COMPARISONS = (
    Comparison("openai-agents", "OpenAI Agents SDK", "SQLiteSession"),
    Comparison("langgraph", "LangGraph", "SqliteSaver"),
    Comparison("langgraph", "", "SqliteSaver", PLAIN),
    Comparison("langgraph-async", "LangGraph, asyncio", "AsyncSqliteSaver"),
    Comparison("langgraph-async", "", "AsyncSqliteSaver", PLAIN),
    Comparison("langgraph-store", "LangGraph, long-term memory", "SqliteStore"),
    Comparison("langgraph-store-async", "the same, asyncio", "AsyncSqliteStore"),
    Comparison("google-adk", "Google ADK", "SqliteSessionService"),
    Comparison("google-adk", "", "DatabaseSessionService"),
    Comparison("agno", "Agno", "SqliteDb"),
    Comparison("pydantic-ai", "Pydantic AI", JSON_TABLE, limit=None),
    Comparison("strands", "Strands", FLUSHED_FILES),
    Comparison("strands", "", FILES, RELAXED),
    Comparison("strands", "", FILES, limit=None),
    Comparison("strands-restored", "Strands, agent restored in each turn", FLUSHED_FILES),
    Comparison("strands-restored", "", FILES, RELAXED),
    Comparison("strands-restored", "", FILES, limit=None),
)
NOTES = """\
All SQLite backends flush what they have acknowledged, and so does `rekindle`. Strands has no
SQLite backend, and its files are never flushed: a power loss takes acknowledged messages. So it
is compared three times: with each file and its folder flushed; as it comes, with
`durability="relaxed"`, which leaves flushing to the system too; and as it comes with the
durable `rekindle`, without a limit. Pydantic AI has no backend, and so no limit: a table with a
row of JSON for each run stands for what programs do themselves.

Nothing counts before every write-ahead log has reached its size (16 MB for `rekindle`, 4 MB for
the others): while a log grows, a flush also writes the size of its file. A turn of LangGraph
includes the graph's own work; its tasks write at the same time, so that they can share commits.
Except with `sessions=False`, every adapter also writes a session that can be searched, with its
index, and counts the tokens of each answer; no other backend here has either."""


class Scope(NamedTuple):
    """How much is measured: rounds that count and rounds that do not, in each of some processes."""

    processes: int = PROCESSES
    rounds: int = ROUNDS
    turns: int = TURNS
    warm: int = WARM


def estimate_ratio(ratios: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the median of the ratios of processes and its 95% interval."""
    draw = random.Random(7)

    def draw_median() -> float:
        processes = draw.choices(ratios, k=len(ratios))
        return statistics.median(
            ratio for process in processes for ratio in draw.choices(process, k=len(process))
        )

    medians = sorted(draw_median() for _ in range(DRAWS))
    middle = statistics.median(ratio for process in ratios for ratio in process)
    return middle, medians[DRAWS // 40], medians[-DRAWS // 40]


def build_row(
    one: Comparison, processes: list[list[dict[str, Any]]], flushes: dict[str, float]
) -> str:
    cells = [one.title, f"`{one.own}`" if one.own.isidentifier() else one.own, one.ours]
    rounds = [taken for process in processes for taken in process]
    for name in (one.own, one.ours):
        cells.append(f"{statistics.median(taken[name]['wall'] for taken in rounds) * 1e3:.2f}")
    reached = "–"
    for kind in ("wall", "cpu"):
        ratios = [
            [taken[one.ours][kind] / taken[one.own][kind] for taken in process]
            for process in processes
        ]
        middle, low, high = estimate_ratio(ratios)
        cells.append(f"{middle:.2f} ({low:.2f}–{high:.2f})")
        if kind == "wall" and one.limit is not None:
            reached = "yes" if middle <= one.limit else "**no**"
    cells += [f"{flushes[name]:.1f}" if flushes else "–" for name in (one.own, one.ours)]
    cells += ["–" if one.limit is None else f"≤ {one.limit:.2f}", reached]
    return f"| {' | '.join(cells)} |"


def run_turns(
    framework: str, interpreter: Path, folder: Path, *numbers: int, under: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Run rounds of turns, after rounds that do not count."""
    work = folder / "work"
    work.mkdir()
    module = "bench.peers.integration_turns"
    command = [*under, interpreter, "-m", module, framework, work, *numbers]
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**build_environment(folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    if done.returncode:
        raise InstallError(f"{framework}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_framework(
    framework: str, interpreter: Path, scope: Scope
) -> list[list[dict[str, Any]]]:
    """Measure the rounds of each process, which has files of its own."""
    taken: list[list[dict[str, Any]]] = []
    for _ in range(scope.processes):
        with tempfile.TemporaryDirectory() as name:
            numbers = (scope.rounds, scope.turns, scope.warm)
            taken.append(run_turns(framework, interpreter, Path(name), *numbers))
    return taken


def count_flushes(framework: str, interpreter: Path, turns: int) -> dict[str, float]:
    """Return the flushes per turn of each backend; empty where they cannot be counted."""
    strace = shutil.which("strace")
    if not strace:
        return {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = folder / "strace"
        options = ("-f", "-y", "-s", "0", "--seccomp-bpf", "-e", "trace=fsync,fdatasync")
        under = (strace, *options, "-o", str(trace))
        taken = run_turns(framework, interpreter, folder, TRACED_ROUNDS, turns, 0, under=under)
        work, done = folder / "work", TRACED_ROUNDS * turns
        return {
            name: count_writes(trace, work / f"{number:02}")["flushes"] / done
            for number, name in enumerate(taken[0])
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = [*dict.fromkeys(one.framework for one in COMPARISONS)]
    parser.add_argument("--quick", action="store_true", help="a few turns; writes no results")
    parser.add_argument("--only", action="append", choices=names, help="this framework only")
    parser.add_argument("--python", type=Path, help="an interpreter that has the frameworks")


def build_rows(only: list[str] | None, interpreter: Path, scope: Scope) -> list[str]:
    chosen = [one for one in COMPARISONS if not only or one.framework in only]
    lines: list[str] = []
    for framework in dict.fromkeys(one.framework for one in chosen):
        pairs = [one for one in chosen if one.framework == framework]
        try:
            taken = measure_framework(framework, interpreter, scope)
            flushes = count_flushes(framework, interpreter, scope.turns)
        except InstallError as error:
            print(error, file=sys.stderr)
            lines.append(f"| {pairs[0].title} | not measured | | | | | | | | | |")
            continue
        lines += [build_row(one, taken, flushes) for one in pairs]
        print("\n".join(lines[-len(pairs) :]), file=sys.stderr, flush=True)
    return lines


def run(args: argparse.Namespace) -> None:
    interpreter = args.python
    if interpreter is None:
        install_packages(ENV, f"{ROOT}[{EXTRAS}]", *PACKAGES, again=("rekindle",))
        interpreter = get_python(ENV)
    scope = Scope()
    if args.quick:
        scope = Scope(QUICK_PROCESSES, QUICK_ROUNDS, QUICK_TURNS, QUICK_WARM)
    head = (
        "framework",
        "its own backend",
        "Rekindle",
        "its own, ms",
        "Rekindle, ms",
        "ratio",
        "CPU ratio",
        "its own, flushes",
        "Rekindle, flushes",
        "must reach",
        "reached",
    )
    lines = [
        "## In other frameworks",
        "",
        f"`python -m bench integrations`, {report.describe_machine()}. A turn in sessions of"
        f" {scope.turns}: the median of {scope.rounds} rounds in each of {scope.processes} processes."
        " The ratio is that of the time to the framework's own backend, with its 95% interval; both take"
        " turns in one process, one turn each.",
        "",
        f"| {' | '.join(head)} |",
        "|---|---|---|" + "---:|" * 6 + "---|---|",
        *build_rows(args.only, interpreter, scope),
        "",
        NOTES,
        "",
    ]
    table = "\n".join(lines)
    print(table)
    if not (args.quick or args.only):
        report.write_section("integrations", table)
