"""The cost of a sandbox at the start of a command.

    python -m bench sandbox [--quick]

The floor is a bare fork and exec of `/bin/true`, alternating with the confined ones in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import report
from rekindle.sandbox.detection import open_sandbox
from rekindle.sandbox.sandbox import ConfineRequest, Sandbox

ROUNDS = 200
MUST_REACH = 15.0  # milliseconds above the floor
MODES = ("bubblewrap", "landlock")


def time_start(sandbox: Sandbox | None, folder: str, environment: Mapping[str, str]) -> float:
    """Return how long a program takes to start and end in a sandbox, in milliseconds."""
    begin = time.perf_counter()
    wrapper: tuple[str, ...] = ()
    after: Callable[[], object] = list
    if sandbox is not None:
        confined = sandbox.confine(
            ConfineRequest("bench", (folder,), folder, environment, environment)
        )
        wrapper, environment, after = (
            confined.wrapper,
            confined.environment,
            confined.restore_launch_files,
        )
    subprocess.run([*wrapper, "/bin/true"], cwd=folder, env=environment, check=True)
    after()
    return (time.perf_counter() - begin) * 1000


def measure_starts(rounds: int) -> dict[str, list[float]]:
    """Measure the floor and every sandbox that works here, in turns."""
    found = {mode: open_sandbox(mode) for mode in MODES}
    sandboxes: dict[str, Sandbox | None] = {"floor": None}
    sandboxes |= {mode: one for mode, one in found.items() if one.is_active}
    taken: dict[str, list[float]] = {name: [] for name in sandboxes}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text("hello\n")
        subprocess.run(["git", "init", "-q", folder], check=True)
        for number in range(rounds + 3):
            for name, sandbox in sandboxes.items():
                milliseconds = time_start(sandbox, folder, dict(os.environ))
                if number >= 3:  # the first ones fill caches
                    taken[name].append(milliseconds)
    return taken


def build_start_table(taken: Mapping[str, list[float]]) -> list[str]:
    lines = [
        "| start of `true` | runs | p50, ms | p95, ms | above the floor | must reach | reached |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    floor = statistics.median(taken["floor"])
    for name, values in taken.items():
        p50, p95 = statistics.median(values), sorted(values)[int(len(values) * 0.95)]
        row = f"| {name} | {len(values)} | {p50:.1f} | {p95:.1f} |"
        if name == "floor":
            lines.append(f"{row} – | – | – |")
        else:
            reached = "yes" if p50 - floor <= MUST_REACH else "**no**"
            lines.append(f"{row} {p50 - floor:.1f} | ≤ {MUST_REACH:g} | {reached} |")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a few runs; writes no results")


def run(args: argparse.Namespace) -> None:
    lines = ["## Sandbox", "", f"`python -m bench sandbox`, {report.describe_machine()}.", ""]
    lines += build_start_table(measure_starts(10 if args.quick else ROUNDS))
    table = "\n".join([*lines, ""])
    print(table)
    if not args.quick:
        report.write_section("sandbox", table)
