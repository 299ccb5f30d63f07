"""Attacks from inside the sandbox, in each way that an agent can run something.

    python -m bench attacks [--quick]

The attacks (`tests/attacks`) really run, inside an outer sandbox and with approval switched off, so that
only the tested sandbox can stop them. Every attack counts that changed something outside the
workspace, read a planted secret or reached a listener.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.attacks import suite

from bench import report

FIELDS = ("effects", "read", "connections")
QUICK = 5
SHARDS = 4  # an MCP server or a planted home is not used for hours


class Counts(NamedTuple):
    """The effects of the attacks of one case."""

    mode: str
    way: str
    tried: int
    effects: int
    read: int
    connections: int


def count_reports(mode: str, way: str, reports: list[dict[str, Any]]) -> Counts:
    """Count the attacks that succeeded; each counts once per field."""
    other = {one["mode"] for one in reports} - {mode}
    if other:
        raise RuntimeError(f"asked for {mode}, but the attacks ran under {', '.join(other)}")
    effects, read, connections = (sum(bool(one[field]) for one in reports) for field in FIELDS)
    return Counts(mode, way, len(reports), effects, read, connections)


def run_case(mode: str, way: str, attacks: list[suite.Attack]) -> Counts:
    """Run all attacks in one way in one sandbox."""
    reports: list[dict[str, Any]] = []
    for shard in range(SHARDS):
        if some := attacks[shard::SHARDS]:
            reports += suite.run_attacks(way, some, mode)
    for hole in suite.find_holes(reports):
        print(f"  got out: {hole}", flush=True)
    counts = count_reports(mode, way, reports)
    print(f"  {counts}", flush=True)
    return counts


def build_page(taken: list[Counts], commands: int) -> str:
    """Build the section of the results file."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = "| sandbox | way in | tried | effects outside | protected files read | connections |"
    lines = [
        "## Attacks on the sandbox",
        "",
        f"`python -m bench attacks` on {report.describe_machine()}, {now}. {commands:,} commands"
        " (`tests/attacks`), each executed in every way, with approval switched off. Under"
        " Landlock, background processes and MCP servers do not run without approval.",
        "",
        head,
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in taken:
        cells = [one.mode, f"`{one.way}`", *(f"{count:,}" for count in one[2:])]
        lines.append("| " + " | ".join(cells) + " |")
    sums = [
        sum(one.tried for one in taken),
        *(sum(getattr(one, field) for one in taken) for field in FIELDS),
    ]
    lines.append("| | all | " + " | ".join(f"{count:,}" for count in sums) + " |")
    return "\n".join([*lines, ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a few attacks; writes no results")


def run(args: argparse.Namespace) -> None:
    if problem := suite.find_missing_requirement():
        raise SystemExit(f"attacks: {problem}")
    attacks = suite.list_attacks()[: QUICK if args.quick else None]
    taken = [run_case(mode, way, attacks) for mode, way in suite.CASES]
    text = build_page(taken, len(attacks))
    print(text)
    if not args.quick:
        report.write_section("attacks", text)
