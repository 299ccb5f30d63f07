"""Copy the data besides sessions: decisions about notes, experiments, checkpoints and documents.

What is newer in the target is kept, and a second copy adds only what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

from rekindle.store.core.columns import Table
from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.tables import (
    ASSIGNMENTS,
    EXPERIMENTS,
    GRAPH_CHECKPOINTS,
    GRAPH_VALUES,
    GRAPH_WRITES,
    NOTE_DECISIONS,
)

Write: TypeAlias = Callable[[Callable[[Transaction], Any]], Any]

_BATCH_SIZE = 500
_UPSERT_DECISION = (
    f"{NOTE_DECISIONS.build_upsert('project, note')}"
    " WHERE excluded.time > note_decisions.time RETURNING note"
)
# The value of a channel belongs to a version and never changes. A document has no version, and its kind
# begins with the time of its last change.
_UPSERT_VALUE = (
    f"{GRAPH_VALUES.build_upsert(GRAPH_VALUES.key)}"
    " WHERE graph_values.version = '' AND excluded.kind > graph_values.kind RETURNING thread"
)
_INSERT_WRITE, _INSERT_CHECKPOINT = (
    f"{table.build_insert()} ON CONFLICT ({table.key}) DO NOTHING RETURNING thread"
    for table in (GRAPH_WRITES, GRAPH_CHECKPOINTS)
)


class CopiedTables(NamedTuple):
    """The numbers of decisions, experiments and rows of frameworks that were new or had changed."""

    decisions: int = 0
    experiments: int = 0
    framework_rows: int = 0


def copy_tables(tx: Transaction, write: Write) -> CopiedTables:
    """Copy it all, in batches."""
    decisions = _copy_rows(tx, write, NOTE_DECISIONS, _UPSERT_DECISION)
    experiments = _copy_experiments(tx, write)
    # The values first: a checkpoint without them could not be loaded if the copy were cut short.
    rows = _copy_rows(tx, write, GRAPH_VALUES, _UPSERT_VALUE)
    rows += _copy_rows(tx, write, GRAPH_WRITES, _INSERT_WRITE)
    rows += _copy_rows(tx, write, GRAPH_CHECKPOINTS, _INSERT_CHECKPOINT)
    return CopiedTables(decisions, experiments, rows)


def _copy_rows(tx: Transaction, write: Write, table: Table, sql: str) -> int:
    """Run a statement that returns a row if it changed something, for every row of a table."""
    rows = tx.stream(f"SELECT {table.list_names()} FROM {table.name} ORDER BY {table.key}")
    count = 0
    for batch in iter_batches(rows):
        count += write(lambda tx, batch=batch: sum(len(tx.run(sql, row)) for row in batch))
    return count


def iter_batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield the rows of a query in lists that one transaction writes."""
    while batch := [*islice(rows, _BATCH_SIZE)]:
        yield [tuple(map(_to_value, row)) for row in batch]


def _to_value(value: Any) -> Any:
    """Return the bytes of what a driver may give as a view of them."""
    return bytes(cast(Any, value)) if isinstance(value, memoryview) else value


def _copy_experiments(tx: Transaction, write: Write) -> int:
    columns = EXPERIMENTS.list_names("num")
    count = 0
    for num, *experiment in tx.run(f"SELECT num, {columns} FROM experiments ORDER BY num"):
        names = ASSIGNMENTS.list_names("experiment")
        sql = f"SELECT {names} FROM assignments WHERE experiment = ? ORDER BY root"
        assigned = tx.run(sql, (num,))
        count += write(
            lambda tx, row=experiment, assigned=assigned: _copy_experiment(tx, row, assigned)
        )
    return count


def _copy_experiment(tx: Transaction, row: list[Any], assigned: list[Row]) -> bool:
    """Copy an experiment. If another one runs in the target, the copy has ended."""
    fields = dict(zip(EXPERIMENTS.list_names("num").split(", "), row, strict=True))
    name = fields["name"]
    known = tx.run("SELECT num, ended FROM experiments WHERE name = ?", (name,))
    is_new = not known
    if is_new:
        if fields["ended"] is None and tx.run("SELECT 1 FROM experiments WHERE ended IS NULL"):
            fields |= {"ended": fields["started"], "state": "ended"}
        tx.run(EXPERIMENTS.build_insert("num"), tuple(fields.values()))
        known = tx.run("SELECT num, ended FROM experiments WHERE name = ?", (name,))
    elif known[0][1] is None and fields["ended"] is not None:
        tx.run(
            "UPDATE experiments SET ended = ?, state = 'ended' WHERE name = ?",
            (fields["ended"], name),
        )
        is_new = True
    tx.run_many(
        f"{ASSIGNMENTS.build_insert()} ON CONFLICT (experiment, root) DO NOTHING",
        [(known[0][0], *one) for one in assigned],
    )
    return is_new
