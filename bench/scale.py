"""One PostgreSQL for many machines: appends of many processes, and reads as the tables grow.

    python -m bench scale [--only append | growth | partitions] [--sizes 1 2 5 …] [--quick]

Appends: eight processes with some threads each, against a bare psycopg writer that shares commits in the
same way, turn by turn on one server with durable commits; the CPU time of clients and server is counted,
too, since it depends less on what else the machine does. Growth: sessions are added by COPY up to each
size in millions of messages, as long as the disk has room; then each operation is measured through the
store, every statement that it runs is explained, and no plan may read a large table from end to end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.environments import ROOT
from bench.runner import WORK, Figures, make_empty_folder
from bench.workload import MESSAGES, SEED, build_vocabulary

from . import report

PARTS = {
    "append": "appends of many processes",
    "growth": "as the tables grow",
    "partitions": "partitions by time",
}
SIZES = (1.0, 2.0)  # millions of messages
PROCESSES, THREADS, SECONDS, ROUNDS = 8, 4, 6.0, 3
LEAST_RATIO = 0.8
FREE_BYTES = 20 << 30  # that stay free on the disk
BYTES_PER_MESSAGE = 2_500  # assumed before the first load
LARGE_TABLES = frozenset({"messages", "words", "sessions", "title_parts"})
FLOORS = {
    "floor": "the tables of the store",
    "pipeline": "the same, with one round trip for each commit and a statement less for each message",
    "least": "tables with the fewest columns and indexes, and no references",
}
OPTIONS = (
    "-c shared_buffers=2GB -c effective_cache_size=12GB -c work_mem=32MB -c max_wal_size=8GB"
    " -c random_page_cost=1.1 -c autovacuum=off"
)
OPERATIONS = {
    "append": "durable append",
    "load": "load 40 messages",
    "list": "50 most recent sessions",
    "list_project": "20 most recent of a project",
    "best": "two-word search, best first",
    "newest": "two-word search, newest first",
    "common": "search of one of the 100 most common words",
    "rare": "search of a word that one message has",
    "project": "two-word search in a project",
    "title": "search of titles",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=float, nargs="+", default=list(SIZES), metavar="MILLIONS")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes no results file")
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        help="this part only: append (3 minutes), growth, or partitions by time, which only a run"
        " that names them compares",
    )


def run(args: argparse.Namespace) -> None:
    """Measure the parts; each has a section of its own in the results."""
    parts = args.only or ("append", "growth")
    with open_server() as server:
        if "append" in parts:
            figures = measure_append(server, 1.0 if args.quick else SECONDS)
            publish("append", figures, append_part(figures), args.quick)
        if "growth" in parts:
            growth: Figures = {}
            for size, figures in measure_growth(
                server, (0.02, 0.12) if args.quick else sorted(args.sizes)
            ):
                growth[f"{size:g}"] = figures
                publish("growth", growth, "\n\n".join(growth_parts(growth)), args.quick)
        if "partitions" in parts:
            from .scale_partitions import describe_partitions, measure_partitions

            figures = measure_partitions(server, 0.05 if args.quick else min(args.sizes))
            publish("partitions", figures, describe_partitions(figures), args.quick)


def publish(part: str, figures: Figures, text: str, quick: bool) -> None:
    """Print the figures of a part, and write them to the results."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    command = "python -m bench " + " ".join(sys.argv[1:])
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

    from .scale_writer import FLOOR_TABLES

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
    command = [sys.executable, "-m", "bench.scale_writer", kind, url]
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


def measure_growth(server: Any, sizes: Any) -> Iterator[tuple[float, Figures]]:
    """Fill one database up to each size in turn, as far as the disk has room, and measure."""
    from .scale_data import fill

    url, sessions, text, per_message = server.store_database(), 0, 0, BYTES_PER_MESSAGE
    for size in sizes:
        wanted = round(size * 1e6 / MESSAGES)
        free = shutil.disk_usage(WORK).free
        # The log of a bulk load and the sorting of its indexes need room, too.
        if free - (wanted - sessions) * MESSAGES * per_message * 1.5 < FREE_BYTES:
            print(f"  {size:g} million: not enough room on the disk", flush=True)
            return
        figures = fill(url, sessions + 1, wanted)
        sessions, text = wanted, text + figures.pop("text_bytes")
        figures |= {"messages": sessions * MESSAGES, "sessions": sessions, "text_bytes": text}
        figures |= measure_sizes(url)
        per_message = figures["disk_bytes"] / figures["messages"]
        figures |= probe(url, sessions)
        shown = {key: value for key, value in figures.items() if not isinstance(value, dict)}
        print(f"  {size:g} million: {shown}", flush=True)
        yield size, figures


def measure_sizes(url: str) -> Figures:
    import psycopg

    relations = (
        "SELECT relname, relkind::text, CASE WHEN relkind = 'r' THEN pg_table_size(oid)"
        " ELSE pg_relation_size(oid) END FROM pg_class"
        " WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace ORDER BY 3 DESC"
    )
    with psycopg.connect(url) as connection:
        rows = connection.execute(relations).fetchall()
    return {
        "disk_bytes": sum(size for _, _, size in rows),
        "table_bytes": {name: size for name, kind, size in rows if kind == "r" and size > 1 << 16},
        "index_bytes": {name: size for name, kind, size in rows if kind == "i" and size > 1 << 16},
    }


def make_operations(store: Any, sessions: int) -> dict[str, tuple[Callable[[Any], Any], list[Any]]]:
    """Return what is measured, each with its inputs."""
    from bench.peers.rekindle import build_message
    from bench.workload import make_conversation
    from rekindle import Filter

    from .scale_data import PROJECTS

    rng = random.Random(f"{SEED}:probe")
    words = [word for word in build_vocabulary() if word.isalpha()]
    bands = ((10, 100), (50, 500), (200, 3_000), (1_000, len(words)))
    pairs = [" ".join(rng.sample(words[slice(*bands[n % 4])], 2)) for n in range(200)]
    new = store.begin(id=f"new-{sessions}")
    said = [
        build_message(one)
        for index in range(5)
        for one in make_conversation(index + 10**6).messages
    ]
    ids = [make_id(rng.randrange(1, sessions + 1)) for _ in range(200)]
    numbers = [rng.randrange(1, sessions * MESSAGES + 1) for _ in range(100)]
    projects = [
        Filter(projects=(f"example.com/team/project-{rng.randrange(PROJECTS)}",))
        for _ in range(100)
    ]
    return {
        "append": (lambda one: store.append(new, one), said),
        "load": (store.messages, ids),
        "list": (lambda _: store.recent(50), [0] * 100),
        "list_project": (lambda where: store.recent(20, where=where), projects),
        "best": (store.search, pairs),
        "newest": (lambda text: store.search(text, order="newest"), pairs),
        "common": (store.search, words[:100]),
        "rare": (lambda number: store.search(f"u{number}"), numbers),
        "project": (
            lambda one: store.search(one[0], where=one[1]),
            [*zip(pairs, projects * 2, strict=False)][:100],
        ),
        "title": (
            store.search_titles,
            [f"plan {rng.randrange(1, sessions // 2) * 2}" for _ in range(50)],
        ),
    }


def make_id(number: int) -> str:
    """Return the id of a session, as the server made it."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def probe(url: str, sessions: int) -> Figures:
    """Measure each operation, after one that warms it up, and explain what it runs."""
    from rekindle import open_store

    figures: Figures = {"plans": {}}
    with open_store(url) as store:
        for name, (work, inputs) in make_operations(store, sessions).items():
            work(inputs[0])
            taken: list[float] = []
            for value in inputs[1:]:
                begun = time.perf_counter()
                work(value)
                taken.append((time.perf_counter() - begun) * 1e3)
            figures |= {f"{name}_p50": median(taken), f"{name}_p95": quantiles(taken, n=20)[18]}
            with explain_statements() as plans:
                work(inputs[1])
                work(inputs[-1])
            figures["plans"][name] = plans
    return figures


@contextmanager
def explain_statements() -> Iterator[list[Figures]]:
    """Collect how the server reads large tables in each statement that the store runs meanwhile."""
    from rekindle.store.engines import postgres
    from rekindle.store.engines.postgres_append import CommitRecord, build_statement

    plans: list[Figures] = []
    kind, engine = postgres.PostgresTransaction, postgres.PostgresEngine
    run, stream, run_many = kind.run, kind.stream, kind.run_many
    write_batch = engine._write_batch

    def explain(tx: Any, sql: str, params: Any) -> None:
        if sql.split(None, 1)[0].upper() in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
            ((plan,),) = run(tx, f"EXPLAIN (FORMAT JSON) {sql}", params)
            nodes = [*iter_nodes(plan[0]["Plan"])]
            plans.append({"sql": sql, "nodes": nodes, "cost": plan[0]["Plan"]["Total Cost"]})

    def run_explained(tx: Any, sql: str, params: Any = ()) -> Any:
        explain(tx, sql, params)
        return run(tx, sql, params)

    def stream_explained(tx: Any, sql: str, params: Any = ()) -> Any:
        explain(tx, sql, params)
        return stream(tx, sql, params)

    def run_many_explained(tx: Any, sql: str, rows: Any) -> None:
        rows = list(rows)
        explain(tx, sql, rows[0])
        run_many(tx, sql, rows)

    def write_batch_explained(self: Any, connection: Any, batch: Any, record: Any) -> Any:
        writer, number, now = record
        about = CommitRecord(writer, number, now, self._known_version)
        shape, params = batch.build_params(about)
        explain(kind(connection), build_statement(shape), params)
        return write_batch(self, connection, batch, record)

    kind.run, kind.stream, kind.run_many = run_explained, stream_explained, run_many_explained  # pyright: ignore
    engine._write_batch = write_batch_explained
    try:
        yield plans
    finally:
        kind.run, kind.stream, kind.run_many = run, stream, run_many
        engine._write_batch = write_batch


def iter_nodes(plan: Figures) -> Iterator[str]:
    """Yield how a plan reads tables: the kind of scan, the table and the index."""
    table, index = plan.get("Relation Name"), plan.get("Index Name")
    if table or index:
        yield " ".join(
            filter(None, [plan["Node Type"], table and f"on {table}", index and f"by {index}"])
        )
    for part in plan.get("Plans", ()):
        yield from iter_nodes(part)


def find_full_scans(figures: Figures) -> list[str]:
    """Return the statements that read a large table from end to end."""
    full = {f"Seq Scan on {table}" for table in LARGE_TABLES}
    return [
        f"{name}: {plan['sql'][:160]}"
        for name, plans in figures["plans"].items()
        for plan in plans
        if full & set(plan["nodes"])
    ]


# -- the results


def append_part(taken: Figures) -> str:
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


def growth_parts(growth: Figures) -> Iterator[str]:
    sizes = sorted(growth, key=float)
    rows = [growth[size] for size in sizes]
    head = ["", *(f"{float(size):g} million" for size in sizes), "last ÷ first"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]

    def add(name: str, get: Callable[[Figures], float], unit: float = 1) -> None:
        values = [get(row) / unit for row in rows]
        ratio = f"{values[-1] / values[0]:.2f}" if len(values) > 1 and values[0] else "–"
        lines.append("| " + " | ".join([name, *map(report.format_number, values), ratio]) + " |")

    add("messages", lambda row: row["messages"])
    add("sessions", lambda row: row["sessions"])
    for key, name in OPERATIONS.items():
        add(f"{name}, p50 ms", lambda row: row[f"{key}_p50"])  # noqa: B023
        add(f"{name}, p95 ms", lambda row: row[f"{key}_p95"])  # noqa: B023
    add("bytes on disk per message", lambda row: row["disk_bytes"] / row["messages"])
    add("bytes on disk per byte of text", lambda row: row["disk_bytes"] / row["text_bytes"])
    add("on disk, GB", lambda row: row["disk_bytes"], 1e9)
    for name in rows[-1]["table_bytes"]:
        add(f"table `{name}`, MB", lambda row: row["table_bytes"].get(name, 0), 1e6)  # noqa: B023
    for name in rows[-1]["index_bytes"]:
        add(f"index `{name}`, MB", lambda row: row["index_bytes"].get(name, 0), 1e6)  # noqa: B023
    add("load of what was added, s", lambda row: row["load_s"])
    add("VACUUM ANALYZE after it, s", lambda row: row["vacuum_s"])
    yield "Reads and appends as the tables grow, one client:"
    yield "\n".join(lines)
    scans = find_full_scans(rows[-1])
    count = sum(map(len, rows[-1]["plans"].values()))
    yield (
        f"EXPLAIN of the {count} statements that these operations ran at the largest size: "
        + ("no plan reads a large table from end to end." if not scans else "**full scans:**")
        + "".join(f"\n- {scan}" for scan in scans)
    )
    used = [
        f"| {name} | {', '.join(sorted({node for plan in plans for node in plan['nodes']}))} |"
        for name, plans in rows[-1]["plans"].items()
    ]
    yield "\n".join(["| operation | how tables are read |", "|---|---|", *used])
