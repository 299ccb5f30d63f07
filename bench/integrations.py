"""What a turn costs in other frameworks: our adapters against the frameworks' own SQLite backends.

    python -m bench integrations [--quick] [--only FRAMEWORK]

The backends take turns in one process, and each grows its sessions turn by turn: a question, a call, its
result and an answer, read and written as the framework does in a turn. The ratio of each round is taken
within the round; the interval is that of the median of these ratios (bootstrap).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import report
from .envs import ROOT, NotInstalled, install, python
from .runner import environ

ENV = "integrations"
EXTRAS = "openai-agents,langgraph,google-adk,agno,strands"
PACKAGES = ("langgraph-checkpoint-sqlite>=3", "aiosqlite>=0.20", "sqlalchemy[asyncio]>=2")
ROUNDS, TURNS, QUICK_ROUNDS, QUICK_TURNS = 40, 20, 3, 5
LIMIT = 1.10
DRAWS = 2_000
# The framework's own backend, and how durable a write is in it.
OWN = {
    "openai-agents": ("OpenAI Agents SDK", "SQLiteSession", "WAL, synchronous=FULL"),
    "langgraph": ("LangGraph", "SqliteSaver", "WAL, synchronous=FULL"),
    "langgraph-async": ("LangGraph, asyncio", "AsyncSqliteSaver", "WAL, synchronous=FULL"),
    "google-adk": ("Google ADK", "DatabaseSessionService", "rollback journal, synchronous=FULL"),
    "agno": ("Agno", "SqliteDb", "WAL, synchronous=FULL"),
    "strands": ("Strands", "FileSessionManager", "files, never flushed"),
}
NOTE = (
    "`rekindle` flushes each commit (WAL, synchronous=FULL), as the SQLite backends of the frameworks"
    " do; `rekindle, relaxed` leaves flushing to the system, as the files of Strands do. Turns of"
    " LangGraph include the graph's own work. Every adapter also writes a session that can be"
    " searched, with its index, except with `sessions=False`."
)


def estimate_ratio(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of ratios and its 95% interval."""
    draw = random.Random(7)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return statistics.median(ratios), medians[DRAWS // 40], medians[-DRAWS // 40]


def build_rows(framework: str, rounds: list[dict[str, Any]]) -> list[str]:
    title, own, durability = OWN[framework]
    lines: list[str] = []
    for name in sorted(rounds[0], key=lambda name: (name != own, name)):
        wall = statistics.median(one[name]["wall"] for one in rounds) * 1e3
        cpu = statistics.median(one[name]["cpu"] for one in rounds) * 1e3
        if name == own:
            lines.append(f"| {title} | `{name}` ({durability}) | {wall:.2f} | {cpu:.2f} | 1 | 1 |")
            continue
        cells: list[str] = []
        for kind in ("wall", "cpu"):
            ratios = [one[name][kind] / one[own][kind] for one in rounds]
            middle, low, high = estimate_ratio(ratios)
            cells.append(f"{middle:.2f} ({low:.2f}–{high:.2f})")
        lines.append(f"| | {name} | {wall:.2f} | {cpu:.2f} | {cells[0]} | {cells[1]} |")
    return lines


def measure(framework: str, interpreter: Path, rounds: int, turns: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            interpreter,
            "-m",
            "bench.contestants.integration_turns",
            framework,
            folder,
            rounds,
            turns,
        ]
        done = subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            env={**environ(folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            capture_output=True,
            text=True,
            timeout=3600,
        )
    if done.returncode:
        raise NotInstalled(f"{framework}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a few turns; writes no results")
    parser.add_argument("--only", action="append", choices=OWN, help="this framework only")
    parser.add_argument("--python", type=Path, help="an interpreter that has the frameworks")


def run(args: argparse.Namespace) -> None:
    interpreter = args.python
    if interpreter is None:
        install(ENV, f"{ROOT}[{EXTRAS}]", *PACKAGES, again=("rekindle",))
        interpreter = python(ENV)
    rounds, turns = (QUICK_ROUNDS, QUICK_TURNS) if args.quick else (ROUNDS, TURNS)
    lines = [
        "## In other frameworks",
        "",
        f"Milliseconds per turn, the median of {rounds} rounds of {turns} turns, and the ratio to the"
        " framework's own backend with its 95% interval."
        f" The ratio of `rekindle` must stay below {LIMIT:.2f}.",
        "",
        NOTE,
        "",
        "| framework | backend | ms | CPU ms | ratio | CPU ratio |",
        "|---|---|---|---|---|---|",
    ]
    for framework in args.only or OWN:
        try:
            lines += build_rows(framework, measure(framework, interpreter, rounds, turns))
        except NotInstalled as error:
            print(error, file=sys.stderr)
            lines.append(f"| {OWN[framework][0]} | not measured | | | | |")
    table = "\n".join([*lines, "", report.machine(), ""])
    print(table)
    if not (args.quick or args.only):
        report.write("integrations", table)
