"""Whether partitions by time pay: the same rows in one table and in ten partitions of ranges of ids.

Measured on the two large tables: the size of their indexes, retention of the oldest tenth (DELETE and
VACUUM against dropping a partition), and searches that read the newest matches.
"""

from __future__ import annotations

import random
import time
from statistics import median
from typing import Any

import psycopg

from bench.runner import Figures
from bench.workload import MESSAGES, SEED, build_vocabulary

PARTS = 10
KINDS = ("one table", "partitions")
_COLUMNS = "id BIGINT NOT NULL, session BIGINT, position BIGINT, time FLOAT8, content TEXT"
_SIZES = (
    "SELECT coalesce(sum(pg_relation_size(indexrelid)), 0)::bigint FROM pg_index"
    " WHERE indrelid::regclass::text LIKE %s"
)


def measure_partitions(server: Any, millions: float) -> Figures:
    """Fill a store, copy its tables into both layouts, and measure them in turn."""
    from .synthetic_data import add_sessions

    url = server.store_database()
    sessions = round(millions * 1e6 / MESSAGES)
    add_sessions(url, 1, sessions)
    figures: Figures = {"messages": sessions * MESSAGES}
    with psycopg.connect(url, autocommit=True) as connection:
        for kind, prefix in zip(KINDS, ("whole", "parted"), strict=True):
            figures[kind] = _measure_layout(connection, prefix, sessions * MESSAGES)
            print(f"  {kind}: {figures[kind]}", flush=True)
    server.drop(url)
    return figures


def _measure_layout(connection: Any, prefix: str, messages: int) -> Figures:
    run = connection.execute
    run("SET maintenance_work_mem = '512MB'")
    is_parted = prefix == "parted"
    step = -(-messages // PARTS)
    layout = " PARTITION BY RANGE (id)" if is_parted else ""
    for table, columns in (("messages", _COLUMNS), ("words", "id BIGINT NOT NULL, text TSVECTOR")):
        run(f"CREATE TABLE {prefix}_{table} ({columns}){layout}")
        for part in range(PARTS if is_parted else 0):
            low, high = part * step + 1, (part + 1) * step + 1
            run(
                f"CREATE TABLE {prefix}_{table}_{part} PARTITION OF {prefix}_{table}"
                f" FOR VALUES FROM ({low}) TO ({high})"
            )
    run(
        f"INSERT INTO {prefix}_messages SELECT id, session, position, time, content FROM messages"
        " ORDER BY id"
    )
    run(f"INSERT INTO {prefix}_words SELECT id, text FROM words ORDER BY id")
    begun = time.monotonic()
    run(f"CREATE UNIQUE INDEX ON {prefix}_messages (id)")
    # A unique index must have the key of the partitions: places are no longer unique by themselves.
    run(f"CREATE INDEX ON {prefix}_messages (session, position)")
    run(f"CREATE UNIQUE INDEX ON {prefix}_words (id)")
    run(f"CREATE INDEX ON {prefix}_words USING gin (text)")
    figures: Figures = {"index_s": time.monotonic() - begun}
    run(f"VACUUM ANALYZE {prefix}_messages, {prefix}_words")
    figures["index_bytes"] = run(_SIZES, (f"{prefix}%",)).fetchone()[0]
    figures |= _measure_reads(connection, prefix, messages)
    figures["retention_s"] = _drop_oldest(connection, prefix, step)
    return figures


def _measure_reads(connection: Any, prefix: str, messages: int) -> Figures:
    rng = random.Random(f"{SEED}:partitions")
    words = [word for word in build_vocabulary() if word.isalpha()]
    pairs = [
        " & ".join(rng.sample(words[slice(*band)], 2)) for band in ((10, 300), (300, 3_000)) * 50
    ]
    sessions = messages // MESSAGES
    newest = f"SELECT id FROM {prefix}_words WHERE text @@ %s::tsquery ORDER BY id DESC LIMIT 500"
    load = f"SELECT content FROM {prefix}_messages WHERE session = %s ORDER BY position"
    return {
        "search_ms": _take(connection, newest, pairs),
        "load_ms": _take(connection, load, [rng.randrange(1, sessions + 1) for _ in range(200)]),
    }


def _take(connection: Any, sql: str, values: list[Any]) -> float:
    taken: list[float] = []
    for value in values:
        begun = time.perf_counter()
        connection.execute(sql, (value,), prepare=False).fetchall()
        taken.append((time.perf_counter() - begun) * 1e3)
    return median(taken)


def _drop_oldest(connection: Any, prefix: str, step: int) -> float:
    begun = time.monotonic()
    for table in ("words", "messages"):
        if prefix == "parted":
            connection.execute(f"DROP TABLE {prefix}_{table}_0")
        else:
            connection.execute(f"DELETE FROM {prefix}_{table} WHERE id <= {step}")
            connection.execute(f"VACUUM {prefix}_{table}")
    return time.monotonic() - begun


def describe_partitions(figures: Figures) -> str:
    rows = {
        "build indexes, s": "index_s",
        "indexes, MB": "index_bytes",
        "500 newest matches of two words, p50 ms": "search_ms",
        "load a session, p50 ms": "load_ms",
        "remove the oldest tenth, s": "retention_s",
    }
    lines = [
        f"Partitions by time, {figures['messages']:,} messages in {PARTS} ranges of ids:",
        "",
        "| | one table | partitions | ratio |",
        "|---|---|---|---|",
    ]
    for name, key in rows.items():
        whole, parted = (figures[kind][key] / (1e6 if "MB" in name else 1) for kind in KINDS)
        lines.append(f"| {name} | {whole:,.3g} | {parted:,.3g} | {parted / whole:.2f} |")
    return "\n".join(lines)
