"""How a PostgreSQL store reads its tables: the plans of its statements, and the pages that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.runner import Figures

LARGE_TABLES = frozenset({"messages", "words", "sessions", "title_parts"})


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


def find_full_scans(plans: dict[str, list[Figures]]) -> list[str]:
    """Return the statements that read a large table from end to end."""
    full = {f"Seq Scan on {table}" for table in LARGE_TABLES}
    return [
        f"{name}: {plan['sql'][:160]}"
        for name, found in plans.items()
        for plan in found
        if full & set(plan["nodes"])
    ]


def count_pages(work: Callable[[Any], Any], inputs: Sequence[Any]) -> list[int]:
    """Return how many pages all statements read that each call runs, whether cached or not."""
    from rekindle.store.engines.postgres import PostgresTransaction

    run, stream = PostgresTransaction.run, PostgresTransaction.stream
    taken: list[int] = []

    def count(tx: Any, sql: str, params: Any = ()) -> Any:
        if sql.startswith(("SELECT", "WITH")):
            explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}"
            ((plan,),) = run(tx, explain, params)
            top = plan[0]["Plan"]
            taken[-1] += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return run(tx, sql, params)

    PostgresTransaction.run = PostgresTransaction.stream = count  # pyright: ignore
    try:
        for value in inputs:
            taken.append(0)
            work(value)
    finally:
        PostgresTransaction.run, PostgresTransaction.stream = run, stream
    return taken
