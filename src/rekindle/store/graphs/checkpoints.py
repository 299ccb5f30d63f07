"""Checkpoints of graphs, and the writes of tasks that wait for the next one.

A checkpoint refers to the values of its channels by version, so that a step stores only the channels it
changed. The values are opaque here: the framework's serializer names their kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rekindle.store.core.engine import (
    Engine,
    FollowedOperation,
    Operation,
    Row,
    StorePart,
    Transaction,
)
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import JSON

if TYPE_CHECKING:
    from concurrent.futures import Future

_COLUMNS = "thread, namespace, id, parent, run, kind, data, versions, metadata"
_PAGE = 64
_INSERT_VALUES = (
    "INSERT INTO graph_values (thread, namespace, channel, version, kind, data) VALUES {rows}"
    " ON CONFLICT (thread, namespace, channel, version) "
)
_REPLACE_VALUE = "DO UPDATE SET kind = excluded.kind, data = excluded.data"
_INSERT_WRITES = (
    "INSERT INTO graph_writes"
    " (thread, namespace, checkpoint, task, idx, path, channel, kind, data) VALUES {rows}"
    " ON CONFLICT (thread, namespace, checkpoint, task, idx) "
)
_REPLACE_WRITE = (
    "DO UPDATE SET channel = excluded.channel, kind = excluded.kind,"
    " data = excluded.data, path = excluded.path"
)
Versions: TypeAlias = Mapping[str, str | int | float]  # by channel
Select: TypeAlias = Callable[[str, Sequence[Any]], list[Row]]


class GraphValue(NamedTuple):
    """A value as the framework's serializer wrote it."""

    kind: str
    data: bytes


class ThreadKey(NamedTuple):
    """The thread of a graph's run, and the namespace of a graph inside it."""

    thread: str
    namespace: str = ""


class GraphCheckpoint(NamedTuple):
    """A checkpoint without the values of its channels, whose versions it names."""

    key: ThreadKey
    id: str
    parent: str | None
    run: str | None
    value: GraphValue
    versions: Versions
    metadata: Mapping[str, JSON]


class GraphWrite(NamedTuple):
    """What a task wrote to a channel; `number` is negative for special channels."""

    task: str
    path: str
    number: int
    channel: str
    value: GraphValue


class StoredCheckpoint(NamedTuple):
    """A checkpoint with the values of its channels and the writes that wait at it."""

    checkpoint: GraphCheckpoint
    values: Mapping[str, GraphValue]
    writes: Sequence[GraphWrite]


class CheckpointQuery(NamedTuple):
    """Which checkpoints to list, newest first."""

    thread: str | None = None
    namespace: str | None = None
    id: str | None = None
    before: str | None = None


class GraphCheckpoints(StorePart):
    """The checkpoints of a store. Use `store.graph_checkpoints`."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Operation], Any],
        clock: Callable[[], float],
        submit: Callable[[Operation], Future[Any]],
    ) -> None:
        super().__init__(engine, write, clock)
        self._submit = submit

    def save(
        self, checkpoint: GraphCheckpoint, values: Mapping[tuple[str, str], GraphValue]
    ) -> None:
        """Store a checkpoint and the values of the channels that changed, by channel and version."""
        self._write(_build_save(checkpoint, values))

    def submit(
        self, checkpoint: GraphCheckpoint, values: Mapping[tuple[str, str], GraphValue]
    ) -> Future[None]:
        """Queue a checkpoint that another one follows at once, so that both share a commit.

        Later writes are never stored without it, unless its future fails.
        """
        return self._submit(FollowedOperation(_build_save(checkpoint, values)))

    def save_writes(self, key: ThreadKey, id: str, writes: Sequence[GraphWrite]) -> None:
        """Store what a task wrote. Only writes to special channels replace those that are there.

        The next checkpoint usually follows at once, so this waits for its commit, but not long.
        """
        place = (*_escape_key(key), escape_text(id))

        def build_row(write: GraphWrite) -> Row:
            texts = (escape_text(write.path), escape_text(write.channel))
            return (*place, escape_text(write.task), write.number, *texts, *write.value)

        def insert_writes(tx: Transaction) -> None:
            special = {(write.task, write.number): write for write in writes if write.number < 0}
            rows = [build_row(write) for write in writes if write.number >= 0]
            _insert_rows(tx, _INSERT_WRITES, rows, "DO NOTHING")
            _insert_rows(tx, _INSERT_WRITES, [*map(build_row, special.values())], _REPLACE_WRITE)

        self._write(FollowedOperation(insert_writes))

    def iterate(self, query: CheckpointQuery) -> Iterator[GraphCheckpoint]:
        """Yield checkpoints, the newest first; a page is read at a time."""
        terms = {
            "thread = ?": query.thread,
            "namespace = ?": query.namespace,
            "id = ?": query.id,
            "id < ?": query.before,
        }
        conditions = [term for term, value in terms.items() if value is not None]
        params = [escape_text(value) for value in terms.values() if value is not None]
        last: Row | None = None
        while True:
            later = (
                [] if last is None else ["(id < ? OR (id = ? AND (thread, namespace) > (?, ?)))"]
            )
            where = " AND ".join([*conditions, *later])
            rows = self._select(
                f"SELECT {_COLUMNS} FROM graph_checkpoints{' WHERE ' if where else ''}{where}"
                f" ORDER BY id DESC, thread, namespace LIMIT {_PAGE}",
                [*params, *(() if last is None else (last[2], last[2], last[0], last[1]))],
            )
            for row in rows:
                yield _row_to_checkpoint(row)
            if len(rows) < _PAGE:
                return
            last = rows[-1]

    def load(self, key: ThreadKey, id: str | None = None) -> StoredCheckpoint | None:
        """Return a checkpoint, or the newest one of a thread's namespace, with values and writes."""
        condition, params = "thread = ? AND namespace = ?", _escape_key(key)
        if id is not None:
            condition, params = f"{condition} AND id = ?", (*params, escape_text(id))
        with self._engine.begin_recent_read() as tx:
            rows = tx.run(
                f"SELECT {_COLUMNS} FROM graph_checkpoints WHERE {condition}"
                " ORDER BY id DESC LIMIT 1",
                params,
            )
            if not rows:
                return None
            found = _row_to_checkpoint(rows[0])
            values = _select_values(tx.run, key, found.versions)
            return StoredCheckpoint(found, values, _select_writes(tx.run, key, found.id))

    def load_values(self, key: ThreadKey, versions: Versions) -> dict[str, GraphValue]:
        """Return the values of channels at their versions; a channel without a value is left out."""
        return _select_values(self._select, key, versions)

    def load_writes(self, key: ThreadKey, id: str) -> list[GraphWrite]:
        """Return the writes that wait at a checkpoint, in the order in which tasks apply them."""
        return _select_writes(self._select, key, id)

    def delete_thread(self, thread: str) -> None:
        """Delete the checkpoints, values and writes of a thread."""

        def delete_rows(tx: Transaction) -> None:
            for table in ("graph_writes", "graph_checkpoints", "graph_values"):
                tx.run(f"DELETE FROM {table} WHERE thread = ?", (escape_text(thread),))

        self._write(delete_rows)

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes."""

        def delete_rows(tx: Transaction) -> None:
            for run in map(escape_text, runs):
                rows = tx.run(
                    "SELECT thread, namespace, id FROM graph_checkpoints WHERE run = ?", (run,)
                )
                for row in rows:
                    _delete_checkpoint(tx, row)
                for thread in {row[0] for row in rows}:
                    _delete_unused_values(tx, thread)

        self._write(delete_rows)

    def keep_latest(self, thread: str, needed: Mapping[str, set[str]]) -> None:
        """Delete all checkpoints of a thread but those that are `needed`, by namespace."""

        def delete_rows(tx: Transaction) -> None:
            rows = tx.run(
                "SELECT thread, namespace, id FROM graph_checkpoints WHERE thread = ?",
                (escape_text(thread),),
            )
            for row in rows:
                if unescape_text(row[2]) not in needed.get(unescape_text(row[1]), ()):
                    _delete_checkpoint(tx, row)
            _delete_unused_values(tx, escape_text(thread))

        self._write(delete_rows)

    def copy_thread(self, source: str, target: str) -> None:
        """Copy the checkpoints, values and writes of a thread to another one."""
        columns = {
            "graph_checkpoints": "namespace, id, parent, run, kind, data, versions, metadata",
            "graph_values": "namespace, channel, version, kind, data",
            "graph_writes": "namespace, checkpoint, task, idx, path, channel, kind, data",
        }

        def copy_rows(tx: Transaction) -> None:
            for table, names in columns.items():
                tx.run(
                    f"INSERT INTO {table} (thread, {names}) SELECT ?, {names} FROM {table}"
                    " WHERE thread = ? ON CONFLICT DO NOTHING",
                    (escape_text(target), escape_text(source)),
                )

        self._write(copy_rows)


def _build_save(
    checkpoint: GraphCheckpoint, values: Mapping[tuple[str, str], GraphValue]
) -> Operation:
    thread, namespace = _escape_key(checkpoint.key)

    def write_checkpoint(tx: Transaction) -> None:
        rows = [
            (thread, namespace, escape_text(channel), escape_text(version), *value)
            for (channel, version), value in values.items()
        ]
        _insert_rows(tx, _INSERT_VALUES, rows, _REPLACE_VALUE)
        tx.run(
            f"INSERT INTO graph_checkpoints ({_COLUMNS})"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (thread, namespace, id) DO UPDATE SET parent = excluded.parent,"
            " run = excluded.run, kind = excluded.kind, data = excluded.data,"
            " versions = excluded.versions, metadata = excluded.metadata",
            (
                thread,
                namespace,
                escape_text(checkpoint.id),
                None if checkpoint.parent is None else escape_text(checkpoint.parent),
                None if checkpoint.run is None else escape_text(checkpoint.run),
                *checkpoint.value,
                escape_text(json.dumps(checkpoint.versions)),
                escape_text(json.dumps(checkpoint.metadata)),
            ),
        )

    return write_checkpoint


def _insert_rows(tx: Transaction, sql: str, rows: Sequence[Row], conflict: str) -> None:
    """Insert rows, a page of them with one statement: each one has to wait for the GIL."""
    for start in range(0, len(rows), _PAGE):
        page = rows[start : start + _PAGE]
        marks = f"({', '.join('?' * len(page[0]))})"
        statement = sql.format(rows=", ".join([marks] * len(page))) + conflict
        tx.run(statement, [value for row in page for value in row])


def _select_values(run: Select, key: ThreadKey, versions: Versions) -> dict[str, GraphValue]:
    found: dict[str, GraphValue] = {}
    wanted = [(escape_text(name), escape_text(str(one))) for name, one in versions.items()]
    for start in range(0, len(wanted), _PAGE):
        part = wanted[start : start + _PAGE]
        pairs = ", ".join(["(?, ?)"] * len(part))  # with OR, SQLite would read the whole thread
        rows = run(
            "SELECT channel, kind, data FROM graph_values"
            f" WHERE thread = ? AND namespace = ? AND (channel, version) IN (VALUES {pairs})",
            (*_escape_key(key), *(text for pair in part for text in pair)),
        )
        for channel, kind, data in rows:
            found[unescape_text(channel)] = GraphValue(kind, bytes(data))
    return found


def _select_writes(run: Select, key: ThreadKey, id: str) -> list[GraphWrite]:
    rows = run(
        "SELECT task, path, idx, channel, kind, data FROM graph_writes"
        " WHERE thread = ? AND namespace = ? AND checkpoint = ?",
        (*_escape_key(key), escape_text(id)),
    )
    writes = [
        GraphWrite(
            unescape_text(task),
            unescape_text(path),
            number,
            unescape_text(channel),
            GraphValue(kind, bytes(data)),
        )
        for task, path, number, channel, kind, data in rows
    ]
    return sorted(writes, key=lambda write: (write.path, write.task, write.number))


def _escape_key(key: ThreadKey) -> tuple[str, str]:
    return escape_text(key.thread), escape_text(key.namespace)


def _row_to_checkpoint(row: Row) -> GraphCheckpoint:
    thread, namespace, id, parent, run, kind, data, versions, metadata = row
    return GraphCheckpoint(
        ThreadKey(unescape_text(thread), unescape_text(namespace)),
        unescape_text(id),
        None if parent is None else unescape_text(parent),
        None if run is None else unescape_text(run),
        GraphValue(kind, bytes(data)),
        json.loads(unescape_text(versions)),
        json.loads(unescape_text(metadata)),
    )


def _delete_checkpoint(tx: Transaction, place: Sequence[Any]) -> None:
    tx.run(
        "DELETE FROM graph_writes WHERE thread = ? AND namespace = ? AND checkpoint = ?",
        tuple(place),
    )
    tx.run(
        "DELETE FROM graph_checkpoints WHERE thread = ? AND namespace = ? AND id = ?",
        tuple(place),
    )


def _delete_unused_values(tx: Transaction, thread: str) -> None:
    """Delete the values of a thread that none of its checkpoints names."""
    used = {
        (namespace, escape_text(channel), escape_text(str(version)))
        for namespace, versions in tx.run(
            "SELECT namespace, versions FROM graph_checkpoints WHERE thread = ?", (thread,)
        )
        for channel, version in json.loads(unescape_text(versions)).items()
    }
    stored = tx.run(
        "SELECT namespace, channel, version FROM graph_values WHERE thread = ?", (thread,)
    )
    for place in stored:
        if tuple(place) not in used:
            tx.run(
                "DELETE FROM graph_values WHERE thread = ? AND namespace = ? AND channel = ?"
                " AND version = ?",
                (thread, *place),
            )
