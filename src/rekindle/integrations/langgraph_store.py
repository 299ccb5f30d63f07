"""A long-term memory for LangGraph: `graph.compile(store=RekindleStore(store))`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from langgraph.store.base import validate_op_namespace as validate_namespace

from rekindle.store import Store
from rekindle.store.async_store import AsyncStore
from rekindle.store.core.text_encoding import split_words
from rekindle.store.graphs.documents import (
    Document,
    DocumentChange,
    DocumentPlace,
    Documents,
    Namespace,
)

COLLECTION = "langgraph"
_MINUTE = 60.0  # LangGraph counts lifetimes in minutes


class RekindleStore(BaseStore):
    """Keep the long-term memory of graphs in a Rekindle store, for threads and for asyncio.

    A search with a query ranks items by its words. `ttl` sets the default lifetime of items; an item
    whose lifetime is over is never returned, and `sweep_ttl` deletes it.
    """

    supports_ttl = True

    def __init__(self, store: Store | AsyncStore, *, ttl: TTLConfig | None = None) -> None:
        self._store = store.store if isinstance(store, AsyncStore) else store
        self._documents: Documents = self._store.documents
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations; reads see the state before the writes, which apply together."""
        results: list[Result] = []
        changes: dict[DocumentPlace, DocumentChange] = {}
        for op in ops:
            validate_namespace(op)
            if isinstance(op, PutOp):
                change = _convert_put(op)
                changes[change.place] = change
                results.append(None)
            else:
                results.append(self._read(op))
        if changes:
            self._documents.put(COLLECTION, list(changes.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations on a thread, so that the loop never waits for a disk."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete the items whose lifetime is over, and return their number."""
        return self._documents.delete_expired(COLLECTION)

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            place = DocumentPlace(op.namespace, op.key)
            found = self._documents.get(COLLECTION, [place], renew=op.refresh_ttl)
            return Item(**_build_fields(found[place])) if place in found else None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._list_namespaces(op)
        raise ValueError(f"unknown operation: {type(op).__name__}")

    def _search(self, op: SearchOp) -> list[SearchItem]:
        words = {*split_words(op.query or "")}
        if not words:
            found = self._documents.find(
                COLLECTION,
                op.namespace_prefix,
                wanted=op.filter,
                limit=op.limit,
                offset=op.offset,
                renew=op.refresh_ttl,
            )
            return [SearchItem(**_build_fields(one)) for one in found]
        found = self._documents.find(COLLECTION, op.namespace_prefix, wanted=op.filter)
        scored = [(len(words & _collect_words(one.value)) / len(words), one) for one in found]
        scored.sort(key=lambda pair: -pair[0])  # of equal ones, the last changed stays first
        page = scored[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            self._documents.get(COLLECTION, [one.place for _, one in page], renew=True)
        return [SearchItem(**_build_fields(one), score=score) for score, one in page]

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = (
            namespace[: op.max_depth]
            for namespace in self._documents.list_namespaces(COLLECTION)
            if all(_matches_condition(namespace, condition) for condition in conditions)
        )
        return [*dict.fromkeys(found)][op.offset : op.offset + op.limit]


def _convert_put(op: PutOp) -> DocumentChange:
    lifetime = None if op.ttl is None else op.ttl * _MINUTE
    return DocumentChange(DocumentPlace(op.namespace, op.key), op.value, lifetime)


def _build_fields(document: Document) -> dict[str, Any]:
    return {
        "namespace": document.place.namespace,
        "key": document.place.key,
        "value": document.value,
        "created_at": datetime.fromtimestamp(document.created, UTC),
        "updated_at": datetime.fromtimestamp(document.updated, UTC),
    }


def _collect_words(value: Any) -> set[str]:
    """Return the words of all texts in a value."""
    if isinstance(value, str):
        return {*split_words(value)}
    if isinstance(value, Mapping):
        value = list(cast(Mapping[str, Any], value).values())
    if isinstance(value, list):
        return set[str]().union(*map(_collect_words, cast(list[Any], value)))
    return {str(value)}


def _matches_condition(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"match_type: expected prefix or suffix, got {condition.match_type!r:.40}")
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
