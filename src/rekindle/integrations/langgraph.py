"""A checkpointer for LangGraph: `graph.compile(checkpointer=RekindleCheckpointer(store))`.

Checkpoints are kept in the store, on SQLite or PostgreSQL. The messages of a thread are also written
to a session of the same id, where search, insights and notes find them.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]

from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.checkpoints import (
    CheckpointQuery,
    GraphCheckpoint,
    GraphCheckpoints,
    GraphValue,
    GraphWrite,
    StoredCheckpoint,
    ThreadKey,
)

from .codecs.langgraph_values import ValueDecoder, ValueEncoder
from .langgraph_sessions import ThreadSessions
from .langgraph_store import RekindleStore as RekindleStore

if TYPE_CHECKING:
    from concurrent.futures import Future

_LIST_PAGE = 16
_VERSION_BITS = 40  # of a version that are random; those above count the steps
# Not that of the module, which a program may seed. To ask the system each time would give up the GIL.
_random = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


class RekindleCheckpointer(BaseCheckpointSaver[Any]):
    """Keep the checkpoints of graphs in a Rekindle store, for threads and for asyncio.

    With `sessions`, the messages of a thread become a session that `rekindle` can show and search.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        sessions: bool = True,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._store = store.store if isinstance(store, AsyncStore) else store
        self._rows: GraphCheckpoints = self._store.graph_checkpoints
        self._sessions = ThreadSessions(self._store) if sessions else None
        self._encoder, self._decoder = ValueEncoder(self.serde), ValueDecoder(self.serde)
        self._inputs: dict[ThreadKey, Future[None]] = {}  # checkpoints that may not be stored yet

    def get_next_version(self, current: Any, channel: None) -> int:
        """Return a greater version, one that no other branch of the thread has.

        Values are kept by version: a run from an earlier checkpoint must not replace those of others.
        """
        step = 0 if current is None else int(current) >> _VERSION_BITS
        return ((step + 1) << _VERSION_BITS) | _random.getrandbits(_VERSION_BITS)

    # -- for threads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a configuration names, or the latest one of its thread."""
        key = _read_key(config)
        self._finish_input(key)
        found = self._rows.load(key, get_checkpoint_id(config))
        return None if found is None else self._build_tuple(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first."""
        self._finish_inputs()
        query = _build_query(config, before)
        wanted = filter or {}
        found = (
            self._build_tuple(self._load_stored(one))
            for one in self._rows.iterate(query)
            if all(one.metadata.get(name) == value for name, value in wanted.items())
        )
        return islice(found, limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; it is durable when this returns.

        That of an input becomes durable with the one of the first step, which follows at once and
        before any node runs: the two share a commit.
        """
        key, values = _read_key(config), checkpoint["channel_values"]
        versions = checkpoint["channel_versions"]
        changed = {
            (channel, str(version)): self._encode(values[channel])
            for channel, version in new_versions.items()
            if channel in values
        }
        rest: dict[str, Any] = dict(checkpoint)
        del rest["channel_versions"]
        # A value without a version cannot be found again by it.
        rest["channel_values"] = {
            channel: value for channel, value in values.items() if channel not in versions
        }
        kept = get_serializable_checkpoint_metadata(config, metadata)
        run = cast(Mapping[str, Any], kept).get("run_id")
        stored = GraphCheckpoint(
            key,
            checkpoint["id"],
            get_checkpoint_id(config),
            None if run is None else str(run),
            self._encode(rest),
            versions,
            cast(Mapping[str, Any], kept),
        )
        has_messages = not key.namespace and "messages" in new_versions
        if metadata.get("source") == "input" and not has_messages:
            self._finish_input(key)
            self._inputs[key] = self._rows.submit(stored, changed)
        else:
            self._save(stored, changed, values.get("messages") if has_messages else None)
            self._finish_input(key)
        return _build_config(key, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote after a checkpoint."""
        rows = [
            GraphWrite(
                task_id, task_path, WRITES_IDX_MAP.get(channel, index), channel, self._encode(value)
            )
            for index, (channel, value) in enumerate(writes)
        ]
        self._rows.save_writes(_read_key(config), _get_fields(config)["checkpoint_id"], rows)

    def delete_thread(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread. Its session stays; `rekindle sessions` deletes it."""
        self._rows.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs."""
        self._rows.delete_runs([str(run) for run in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one."""
        self._rows.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads, or all but the latest and those it builds on."""
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self._rows.delete_thread(thread)
            elif strategy == "keep_latest":
                self._rows.keep_latest(thread, self._find_needed(thread))
            else:
                raise ValueError(f"strategy: expected keep_latest or delete, got {strategy!r:.40}")

    # -- for asyncio: the same on a thread, so that the loop never waits for a disk

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, as `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, as `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while page := await asyncio.to_thread(lambda: [*islice(found, _LIST_PAGE)]):
            for one in page:
                yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store writes, as `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, as `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs, as `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, as `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads, as `prune`."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    # -- values

    def _finish_input(self, key: ThreadKey) -> None:
        """Wait until the checkpoint of a thread's input is stored; raise what went wrong."""
        stored = self._inputs.pop(key, None)
        if stored is not None:
            stored.result()

    def _finish_inputs(self) -> None:
        for key in [*self._inputs]:
            self._finish_input(key)

    def _save(
        self,
        checkpoint: GraphCheckpoint,
        changed: Mapping[tuple[str, str], GraphValue],
        messages: Any,
    ) -> None:
        """Store a checkpoint and the messages that are new in it, in one transaction."""
        thread, sessions = checkpoint.key.thread, self._sessions
        new = [] if sessions is None else sessions.find_new(thread, messages)
        if sessions is None or not new:
            self._rows.save(checkpoint, changed)
            return

        def save_all() -> None:
            self._rows.save(checkpoint, changed)
            sessions.append(thread, new)

        self._store.transaction(save_all)
        sessions.mark_stored(thread, new)

    def _encode(self, value: Any) -> GraphValue:
        if self._encoder.serde is not self.serde:  # replaced, for example by `with_allowlist`
            self._encoder = ValueEncoder(self.serde)
        return self._encoder.encode(value)

    def _load(self, value: GraphValue) -> Any:
        if self._decoder.serde is not self.serde:
            self._decoder = ValueDecoder(self.serde)
        return self._decoder.decode(value)

    def _build_tuple(self, stored: StoredCheckpoint) -> CheckpointTuple:
        found = stored.checkpoint
        checkpoint = self._load(found.value)
        checkpoint["channel_versions"] = dict(found.versions)
        checkpoint["channel_values"].update(self._load_values(stored.values))
        pending: list[PendingWrite] = [
            (write.task, write.channel, self._load(write.value)) for write in stored.writes
        ]
        parent = None if found.parent is None else _build_config(found.key, found.parent)
        metadata = cast(CheckpointMetadata, found.metadata)
        return CheckpointTuple(
            _build_config(found.key, found.id), checkpoint, metadata, parent, pending
        )

    def _load_stored(self, one: GraphCheckpoint) -> StoredCheckpoint:
        values = self._rows.load_values(one.key, one.versions)
        return StoredCheckpoint(one, values, self._rows.load_writes(one.key, one.id))

    def _load_values(self, values: Mapping[str, GraphValue]) -> dict[str, Any]:
        return {name: self._load(value) for name, value in values.items() if value.kind != "empty"}

    def _find_needed(self, thread: str) -> dict[str, set[str]]:
        """Return the latest checkpoints of a thread and those they build on, by namespace."""
        chains: dict[str, dict[str, GraphCheckpoint]] = {}
        for one in self._rows.iterate(CheckpointQuery(thread)):
            chains.setdefault(one.key.namespace, {})[one.id] = one
        return {namespace: self._walk_chain(found) for namespace, found in chains.items()}

    def _walk_chain(self, found: Mapping[str, GraphCheckpoint]) -> set[str]:
        """Return the checkpoints that rebuild the latest one.

        Delta channels store changes only, and now and then a snapshot: their history is needed back to
        the nearest one. A channel that had another value, and has none now, is empty.
        """
        one: GraphCheckpoint | None = next(iter(found.values()))
        latest_values = self._load_values(self._load_stored(one).values)
        open_channels = set(one.versions) - latest_values.keys()
        needed, path, writes = {one.id}, [one.id], set[str]()
        while open_channels and (one := found.get(one.parent or "")) is not None:
            path.append(one.id)
            stored = self._load_stored(one)
            writes.update(write.channel for write in stored.writes)
            for channel, value in self._load_values(stored.values).items():
                if channel in open_channels:
                    open_channels.discard(channel)
                    if isinstance(value, _DeltaSnapshot):
                        needed.update(path)
        if open_channels & writes:  # changes without any snapshot: they begin at the root
            needed.update(path)
        return needed


def _read_key(config: RunnableConfig) -> ThreadKey:
    fields = _get_fields(config)
    return ThreadKey(str(fields["thread_id"]), fields.get("checkpoint_ns", ""))


def _get_fields(config: RunnableConfig) -> dict[str, Any]:
    return config.get("configurable", {})


def _build_config(key: ThreadKey, id: str) -> RunnableConfig:
    fields = {"thread_id": key.thread, "checkpoint_ns": key.namespace, "checkpoint_id": id}
    return {"configurable": fields}


def _build_query(config: RunnableConfig | None, before: RunnableConfig | None) -> CheckpointQuery:
    fields = _get_fields(config) if config else {}
    thread = fields.get("thread_id")
    return CheckpointQuery(
        None if thread is None else str(thread),
        fields.get("checkpoint_ns"),
        fields.get("checkpoint_id"),
        None if before is None else get_checkpoint_id(before),
    )
