"""The values of a checkpoint are found by their whole key, however long its thread is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rekindle import open_store
from rekindle.store.core.engine import Row
from rekindle.store.graphs.checkpoints import (
    GraphCheckpoint,
    GraphValue,
    ThreadKey,
    _select_values,  # pyright: ignore[reportPrivateUsage]
)

KEY = ThreadKey("thread")


def test_sqlite_searches_values_by_channel_and_version(tmp_path: Path) -> None:
    asked: list[tuple[str, Sequence[Any]]] = []

    def record(sql: str, params: Sequence[Any]) -> list[Row]:
        asked.append((sql, params))
        return []

    versions = {"messages": 3, "state": 2}
    with open_store(tmp_path / "store.db") as store:
        for number in range(1, 4):
            values = {(name, str(number)): GraphValue("json", b"1") for name in versions}
            checkpoint = GraphCheckpoint(
                KEY, str(number), None, None, GraphValue("json", b"{}"), versions, {}
            )
            store.graph_checkpoints.save(checkpoint, values)
        found = store.graph_checkpoints.load_values(KEY, versions)
        assert found == dict.fromkeys(versions, GraphValue("json", b"1"))
        _select_values(record, KEY, versions)
        [(sql, params)] = asked
        plan = store._read(lambda tx: tx.run(f"EXPLAIN QUERY PLAN {sql}", params))  # pyright: ignore
    assert any("channel=? AND version=?" in str(row) for row in plan), plan
