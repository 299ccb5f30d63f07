"""Writes the figures of `python -m soak serve --record` to bench/RESULTS.md."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from bench import report as results
from bench.runner import WORK

from soak.serve.server_kills import ServeReport

FILE = WORK / "serve.json"


def record_figures(report: ServeReport, seed: int) -> None:
    """Save the figures of a run and rewrite the section."""
    WORK.mkdir(parents=True, exist_ok=True)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[report.engine] = build_figures(report, seed)
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False))
    results.write_section("serve", build_page(kept))


def build_figures(report: ServeReport, seed: int) -> dict[str, str]:
    """Return the rows of the table for one run."""
    failures = ", ".join(f"{count:,} {what}" for what, count in sorted(report.failures.items()))
    return {
        "date, seed": f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {seed}",
        "agents, minutes": f"{report.agents:,}, {report.seconds / 60:.1f}",
        "a message per agent every": f"{report.interval:g} s",
        "`kill -9` of server, database": f"{report.server_kills}, {report.database_kills}",
        "messages acknowledged": f"{report.acknowledged:,}"
        f" ({report.acknowledged / max(report.seconds, 1):,.0f}/s)",
        "a request": report.describe_times(report.requests),
        "from the first attempt to the acknowledgement, outages included": report.describe_times(
            report.pushes
        ),
        "requests that failed and were repeated": failures or "0",
        "processor time of the server": report.describe_cpu(),
        "memory of the server": report.describe_memory(),
        "lost, doubled, moved, or other promises broken": f"{len(report.wrong)}",
    }


def build_page(kept: dict[str, dict[str, str]]) -> str:
    """Build the section of the results file."""
    columns = sorted(kept)
    lines = [
        "## A server and its agents",
        "",
        f"`python -m soak serve --agents N --minutes M --record` on {results.describe_machine()}: agents"
        " push messages with ids to `rekindle serve` over HTTP, and each waits for the acknowledgement"
        " before it sends the next. During the run, the server is killed twice, and on PostgreSQL,"
        " which flushes every commit, the database once. Agents, server and database share the machine."
        " Afterwards every acknowledged message is looked up in the store, at its position, once.",
        "",
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    rows = list(kept[columns[0]])
    lines += [
        f"| {row} | " + " | ".join(kept[name].get(row, "–") for name in columns) + " |"
        for row in rows
    ]
    return "\n".join([*lines, ""])
