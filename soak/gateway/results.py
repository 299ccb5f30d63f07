"""Writes the figures of `python -m soak gateway --record` to bench/RESULTS.md."""

from __future__ import annotations

import fcntl
import json
from datetime import UTC, datetime

from bench import report as results
from bench.runner import WORK

from soak.gateway.conversation_audit import GatewayReport

COLUMNS = ("SQLite, 1 gateway", "SQLite, 2 gateways", "PostgreSQL, 2 gateways")
FILE = WORK / "kills.json"


def record_figures(column: str, report: GatewayReport) -> None:
    """Save the figures of a run and rewrite the section; runs may end at the same time."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "kills.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        kept[column] = build_figures(report)
        FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False))
        results.write_section("kills", build_page(kept))


def build_figures(report: GatewayReport) -> dict[str, str]:
    """Return the rows of the table for one run."""
    failed = ", ".join(f"{count} {reason}" for reason, count in report.failed_runs.most_common())
    return {
        "date, seed": f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {report.seed}",
        "`kill -9`": f"{report.kills} in {report.seconds:,.0f} s",
        "at the moment of the kill": report.describe_moments(),
        "messages of people, commands": f"{report.messages:,}, {report.commands:,}",
        "jobs, runs": f"{report.jobs:,}, {report.runs:,}",
        "runs that failed, with the reason": failed or "0",
        "commands of jobs that ran to their end, each once": f"{report.commands_run:,}",
        "deliveries to chats, to the folder": f"{report.deliveries:,}, {report.files:,}",
        "messages given up after 10 crashes, with the reason": f"{report.given_up}",
        "deliveries given up, with the reason": f"{report.undeliverable}",
        "sends repeated, recognised by their nonce": f"{report.repeats:,}",
        "tool calls cut off, which the model is told": f"{report.cut_calls:,}",
        "lost, doubled or out of order": f"{len(report.wrong)}",
    }


def build_page(kept: dict[str, dict[str, str]]) -> str:
    """Build the section of the results file."""
    columns = [name for name in COLUMNS if name in kept]
    rows = list(kept[columns[0]])
    lines = [
        "## Killed gateways",
        "",
        f"`python -m soak gateway --kills N --record` on {results.describe_machine()}: `kill -9` at"
        " random moments of scripted conversations and scheduled jobs (once, at an interval, by cron;"
        " fresh session, one session, command; to the chat of origin, a certain chat, the folder), on a"
        " network that occasionally drops connections and refuses messages. Afterwards the store, the"
        " network's own record, the files and the effects of commands are compared: each message"
        " answered, each run and each delivery once, in order, route totals equal to the sum of their"
        " sessions, every transcript valid for every provider. A command that a kill interrupts is"
        " reported as such and not run again.",
        "",
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for row in rows:
        lines.append(
            f"| {row} | " + " | ".join(kept[name].get(row, "–") for name in columns) + " |"
        )
    return "\n".join([*lines, ""])
