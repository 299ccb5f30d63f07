"""One PostgreSQL for many machines: appends of many processes, and reads as the tables grow.

    python -m bench scale [--only append | growth | partitions] [--sizes 1 2 5 …] [--quick]
    python -m bench scale --only growth --sizes 1 --database URL [--load]

Appends: eight processes with some threads each, against a bare psycopg writer that shares commits in the
same way, turn by turn on one server with durable commits; the CPU time of clients and server is counted,
too, since it depends less on what else the machine does. Growth: sessions are added by COPY up to each
size in millions of messages, as long as the disk has room; then each operation is measured through the
store, every statement that it runs is explained, and no plan may read a large table from end to end.
With `--database` one size after the other can be loaded and measured by commands of their own: the
database is kept, and the figures of other sizes stand beside the new ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench import report
from bench.environments import ROOT
from bench.runner import WORK, Figures, make_empty_folder

from .growth import describe_growth, measure_growth

PARTS = {
    "append": "appends of many processes",
    "growth": "as the tables grow",
    "partitions": "partitions by time",
    "plans": "plans at 100 million messages",
}
SIZES = (1.0, 2.0)  # millions of messages
PROCESSES, THREADS, SECONDS, ROUNDS = 8, 4, 6.0, 3
LEAST_RATIO = 0.8
FLOORS = {
    "floor": "the tables of the store",
    "pipeline": "the same, with one round trip for each commit and a statement less for each message",
    "least": "tables with the fewest columns and indexes, and no references",
}
OPTIONS = (
    "-c shared_buffers=2GB -c effective_cache_size=12GB -c work_mem=32MB -c max_wal_size=8GB"
    " -c random_page_cost=1.1 -c autovacuum=off"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=float, nargs="+", default=list(SIZES), metavar="MILLIONS")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes no results file")
    parser.add_argument(
        "--database", metavar="URL", help="a store that is kept, for growth, on a server that runs"
    )
    parser.add_argument("--load", action="store_true", help="only load it, to measure it later")
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        help="this part only: append (3 minutes), growth, partitions by time, or the plans of a"
        " database that is taken for larger; the last two only in a run that names them",
    )


def run(args: argparse.Namespace) -> None:
    """Measure the parts; each has a section of its own in the results."""
    parts = args.only or ("append", "growth")
    if args.database and "plans" in parts:
        explain_kept(args.database)
        return
    if args.database:
        measure_kept(args.database, sorted(args.sizes), args.load)
        return
    if "plans" in parts:
        raise SystemExit("--only plans needs --database with the URL of a store that was loaded")
    with open_server() as server:
        if "append" in parts:
            figures = measure_append(server, 1.0 if args.quick else SECONDS)
            publish_part("append", figures, describe_append(figures), args.quick)
        if "growth" in parts:
            growth: Figures = {}
            sizes = (0.02, 0.12) if args.quick else sorted(args.sizes)
            for size, figures in measure_growth(server.store_database(), sizes):
                growth[f"{size:g}"] = figures
                publish_part("growth", growth, "\n\n".join(describe_growth(growth)), args.quick)
        if "partitions" in parts:
            from .partitions import describe_partitions, measure_partitions

            figures = measure_partitions(server, 0.05 if args.quick else min(args.sizes))
            publish_part("partitions", figures, describe_partitions(figures), args.quick)


def publish_part(part: str, figures: Figures, text: str, quick: bool) -> None:
    """Print the figures of a part, and write them to the results."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    command = "python -m bench " + " ".join("URL" if "://" in one else one for one in sys.argv[1:])
    text = (
        f"## Scale: {PARTS[part]}\n\n`{command}` on {report.describe_machine()}, PostgreSQL, {date}. The"
        f" server runs on the same machine and disk, with durable commits.\n\n{text}\n"
    )
    print(text, flush=True)
    if not quick:
        WORK.mkdir(parents=True, exist_ok=True)
        (WORK / f"scale-{part}.json").write_text(json.dumps(figures, indent=1))
        report.write_section(f"scale-{part}", text)


@contextmanager
def open_server() -> Iterator[Any]:
    """Start a server of our own on the disk, with durable commits."""
    from tests import servers

    folder = make_empty_folder("scale")
    os.chmod(folder, 0o755)
    server = servers.Postgres(parent=folder, options=OPTIONS)
    try:
        yield server
    finally:
        server.remove()


# -- appends


def measure_append(server: Any, seconds: float) -> Figures:
    """Measure all kinds of writers in turns; each begins with an empty database."""
    import psycopg

    from .writer import FLOOR_TABLES

    taken: dict[str, list[Figures]] = {
        "floor": [], "pipeline": [], "rekindle": [], "least": [],
    }  # fmt: skip
    for _ in range(ROUNDS):
        for kind, rounds in taken.items():
            url = server.store_database()
            with psycopg.connect(url) as connection:
                connection.execute(FLOOR_TABLES)
            rounds.append(run_writers(server, kind, url, seconds))
            server.drop(url)
            print(f"  {kind}: {describe_round(rounds[-1])}", flush=True)
    figures: Figures = {
        kind: {name: median(one[name] for one in rounds) for name in rounds[0]}
        for kind, rounds in taken.items()
    }
    for kind in FLOORS:
        for name in ("rate", "cpu"):
            pairs = zip(taken["rekindle"], taken[kind], strict=True)
            ratios = sorted(ours[name] / theirs[name] for ours, theirs in pairs)
            figures[f"{kind}_{name}_ratios"] = ratios
    return figures


def describe_round(one: Figures) -> str:
    return (
        f"{one['rate']:,.0f} messages/s, {one['batch']:.1f} in a commit, CPU of a message:"
        f" clients {one['client_cpu']:.0f} µs, server {one['server_cpu']:.0f} µs"
    )


def run_writers(server: Any, kind: str, url: str, seconds: float) -> Figures:
    """Return the messages per second of all processes, and the CPU time of a message in µs."""
    command = [sys.executable, "-m", "bench.scale.writer", kind, url]
    writers = [
        subprocess.Popen(
            [*command, str(number), str(seconds), str(THREADS)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    for one in writers:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    commits, cpu = count_commits(url), measure_server_cpu(server)
    for one in writers:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    done = [json.loads(one.communicate()[0]) for one in writers]
    cpu, commits = measure_server_cpu(server) - cpu, count_commits(url) - commits
    messages = sum(one["messages"] for one in done)
    client_cpu = sum(one["cpu_s"] for one in done) / messages * 1e6
    server_cpu = cpu / messages * 1e6
    return {
        "rate": messages / seconds, "batch": messages / max(commits, 1), "client_cpu": client_cpu,
        "server_cpu": server_cpu, "cpu": client_cpu + server_cpu,
    }  # fmt: skip


def count_commits(url: str) -> int:
    """Return how many transactions of a database have been committed, as far as it was told."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        row = connection.execute(sql).fetchone()
    return row[0] if row else 0


def measure_server_cpu(server: Any) -> float:
    """Return the CPU seconds of the server's processes, also of those that have ended."""
    main = (server.folder / "data/postmaster.pid").read_text().split()[0]
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if folder.name == main:
            total += sum(map(int, stat[11:15]))
        elif stat[1] == main:
            total += sum(map(int, stat[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


# -- growth


def measure_kept(url: str, sizes: Sequence[float], is_load: bool) -> None:
    """Load a database that is kept, or measure it, and add the figures to those of other sizes."""
    from .synthetic_data import count_sessions

    path = WORK / "scale-growth.json"
    kept: Figures = json.loads(path.read_text()) if path.exists() else {}
    text = max((one.get("text_bytes", 0) for one in kept.values()), default=0)
    for size, figures in measure_growth(url, sizes, count_sessions(url), text, is_load):
        kept[f"{size:g}"] = kept.get(f"{size:g}", {}) | figures
        if not is_load:
            measured = {key: one for key, one in kept.items() if "plans" in one}
            publish_part("growth", measured, "\n\n".join(describe_growth(measured)), quick=False)
        WORK.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=1))


def explain_kept(url: str) -> None:
    """Explain what operations run in a database that is taken for a larger one."""
    from .size_simulation import describe_simulation, explain_simulation

    figures = explain_simulation(url)
    publish_part("plans", figures, describe_simulation(figures), quick=False)


# -- the results


def describe_append(taken: Figures) -> str:
    lines = [
        f"{PROCESSES} processes with {THREADS} threads each append to one server, each message durable"
        " when its call returns. The floor is a bare psycopg writer that shares commits in the same way"
        " and writes a session's row, the message and its words. Medians of"
        f" {ROUNDS} rounds in turns: messages/s of all processes.",
        "",
        "| the floor writes to | floor | Rekindle | ratio | must reach | reached | CPU time, ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, name in FLOORS.items():
        ratios, cpu = taken[f"{kind}_rate_ratios"], taken[f"{kind}_cpu_ratios"]
        verdict = "yes" if median(ratios) >= LEAST_RATIO else "**no**"
        lines.append(
            f"| {name} | {taken[kind]['rate']:,.0f} | {taken['rekindle']['rate']:,.0f}"
            f" | {median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}) | ≥ {LEAST_RATIO} × | {verdict}"
            f" | {median(cpu):.2f} ({cpu[0]:.2f}–{cpu[-1]:.2f}) |"
        )
    lines += [
        "",
        "| CPU of a message, µs | clients | server | messages in a commit |",
        "|---|---|---|---|",
    ]
    for kind, name in {"rekindle": "Rekindle", **FLOORS}.items():
        one = taken[kind]
        lines.append(
            f"| {name} | {one['client_cpu']:.0f} | {one['server_cpu']:.0f} | {one['batch']:.1f} |"
        )
    return "\n".join(lines)
