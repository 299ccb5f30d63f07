"""The plans of a PostgreSQL that takes its tables for larger than they are.

The planner computes the rows of a table from the length of its files. In a copy of a store, files are
made longer without taking space on the disk. The server then plans as for a store of that size;
statements still find the rows that there are, so their times say nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg

from bench.runner import Figures
from bench.workload import MESSAGES

from .growth import describe_plans, explain_operations

SIMULATED_MESSAGES = 100_000_000  # messages
_SEGMENT = 1 << 30  # bytes of a file; a table has several
_FILES = (
    "SELECT current_setting('data_directory') || '/' || pg_relation_filepath(c.oid),"
    " pg_relation_size(c.oid) FROM pg_class c WHERE c.relkind IN ('r', 'i')"
    " AND c.relnamespace = 'public'::regnamespace AND pg_relation_size(c.oid) > 1048576"
)


def explain_simulation(url: str) -> Figures:
    """Explain what operations run in a copy of a store that seems to have many more messages."""
    from .synthetic_data import count_sessions

    sessions = count_sessions(url)
    base, _, name = url.rpartition("/")
    copy = f"{name}_simulation"
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {copy}")  # pyright: ignore
        connection.execute(f"CREATE DATABASE {copy} TEMPLATE {name} STRATEGY file_copy")  # pyright: ignore
        try:
            _extend_files(f"{base}/{copy}", SIMULATED_MESSAGES / (sessions * MESSAGES))
            with psycopg.connect(f"{base}/{copy}") as extended:
                row = extended.execute("EXPLAIN (FORMAT JSON) SELECT FROM messages").fetchone()
            assert row is not None
            expected = row[0][0]["Plan"]["Plan Rows"]
            plans = explain_operations(f"{base}/{copy}", sessions)
        finally:
            connection.execute(f"DROP DATABASE {copy} WITH (FORCE)")  # pyright: ignore
    return {"messages": sessions * MESSAGES, "expected": expected, "plans": plans}


def _extend_files(url: str, times: float) -> None:
    """Extend the files of all large tables and indexes with pages that take no space."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        files: list[tuple[Any, ...]] = connection.execute(_FILES).fetchall()
    for path, size in files:
        wanted = int(size * times) // 8192 * 8192
        for segment in range(wanted // _SEGMENT + 1):
            file = Path(f"{path}.{segment}" if segment else path)
            _extend_file(file, min(_SEGMENT, wanted - segment * _SEGMENT))


def _extend_file(file: Path, size: int) -> None:
    with file.open("ab") as opened:
        if opened.tell() < size:
            opened.truncate(size)
    owner = file.parent.stat()
    os.chown(file, owner.st_uid, owner.st_gid)


def describe_simulation(figures: Figures) -> str:
    size = f"{SIMULATED_MESSAGES // 10**6} million messages"
    return (
        f"A copy of a store of {figures['messages']:,} messages, whose files were made longer until the"
        f" planner expected {figures['expected']:,} rows in `messages`. It computes the rows from the"
        " length of the files; it knows the words and projects from the statistics of what is there."
        "\n\n" + "\n\n".join(describe_plans(figures["plans"], size))
    )
