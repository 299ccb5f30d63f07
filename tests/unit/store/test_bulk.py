"""Many rows with few statements: the same rows, whatever their number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.store.core import bulk
from rekindle.store.core.engine import Transaction
from rekindle.store.engines.sqlite import SqliteEngine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    opened = SqliteEngine(
        str(tmp_path / "one.db"), durability="full", readonly=False, busy_seconds=5.0
    )
    opened.transact([lambda tx: tx.run("CREATE TABLE pairs (a INTEGER, b TEXT)")])
    yield opened
    opened.close()


def count(tx: Transaction) -> int:
    return tx.run("SELECT count(*) FROM pairs")[0][0]


@pytest.mark.parametrize("size", [0, 1, 6, 7, 49, 399, 400, 1_000, 1_333])
def test_all_rows_arrive(engine: SqliteEngine, size: int) -> None:
    rows = [(number, f"row {number}") for number in range(size)]
    engine.transact([lambda tx: bulk.insert_rows(tx, "pairs", "a, b", rows)])
    assert engine.transact([lambda tx: tx.run("SELECT a, b FROM pairs ORDER BY a")]) == [rows]


def test_what_one_work_leaves_for_the_end_is_there_for_the_next(engine: SqliteEngine) -> None:
    def left(tx: Transaction) -> int:
        tx.defer_insert("pairs", "a, b", [(1, "one")])
        return count(tx)

    assert engine.transact([left, count, left]) == [0, 1, 1]
    assert engine.transact([count]) == [2]


def test_what_fails_at_the_end_leaves_nothing(engine: SqliteEngine) -> None:
    done: list[int] = []

    def left(tx: Transaction) -> None:
        tx.run("INSERT INTO pairs VALUES (1, 'one')")
        tx.defer_insert("nowhere", "a", [(1,)])
        tx.run_during_commit(lambda: done.append(1))

    with pytest.raises(Exception, match="no such table: nowhere"):
        engine.transact([left])
    assert engine.transact([count]) == [0]
    assert done == [1]
