"""The long-term memory for LangGraph: the contract of its base class, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from rekindle import Store, open_store
from rekindle.integrations.langgraph import RekindleCheckpointer, RekindleStore

ADA, BOB = ("users", "ada"), ("users", "bob")


def fill(store: Any) -> Any:
    store.put(ADA, "food", {"text": "likes pasta", "rank": 3, "from": {"town": "Turin"}})
    store.put(ADA, "sport", {"text": "plays chess in Turin", "rank": 7})
    store.put((*ADA, "private"), "pet", {"text": "has a cat", "rank": 5})
    store.put(BOB, "food", {"text": "likes rice", "rank": 1})
    return store


@pytest.fixture
def memory(store: Store) -> RekindleStore:
    return fill(RekindleStore(store))


def list_places(items: list[Any]) -> set[tuple[Any, str]]:
    return {(item.namespace, item.key) for item in items}


def test_items_are_put_read_changed_and_deleted(memory: RekindleStore) -> None:
    first = memory.get(ADA, "food")
    assert first is not None
    assert (first.namespace, first.key, first.value["text"]) == (ADA, "food", "likes pasta")
    memory.put(ADA, "food", {"text": "likes soup"})
    second = memory.get(ADA, "food")
    assert second is not None
    assert second.value == {"text": "likes soup"}
    assert second.created_at == first.created_at
    assert second.updated_at >= first.updated_at
    memory.delete(ADA, "food")
    memory.delete(ADA, "never there")
    assert memory.get(ADA, "food") is None
    assert memory.get(BOB, "food") is not None


@pytest.mark.parametrize(
    "search",
    [
        lambda store: store.search(()),
        lambda store: store.search(("users",)),
        lambda store: store.search(("user",)),  # a label, not the beginning of one
        lambda store: store.search(ADA),
        lambda store: store.search(ADA, filter={"rank": 7}),
        lambda store: store.search(ADA, filter={"rank": {"$gte": 5}}),
        lambda store: store.search(ADA, filter={"rank": {"$gt": 3, "$lt": 7}}),
        lambda store: store.search(ADA, filter={"rank": {"$ne": 7}}),
        lambda store: store.search(ADA, filter={"from": {"town": "Turin"}}),
        lambda store: store.search(ADA, filter={"text": "nothing"}),
    ],
)
def test_a_search_finds_what_the_store_in_memory_finds(
    memory: RekindleStore, search: Callable[[Any], list[Any]]
) -> None:
    assert list_places(search(memory)) == list_places(search(fill(InMemoryStore())))


def test_a_search_has_pages_and_ranks_by_words(tmp_path: Any) -> None:
    times = iter(range(1_700_000_000, 1_700_001_000))
    with open_store(tmp_path / "s.db", clock=lambda: float(next(times))) as store:
        check_order(fill(RekindleStore(store)))


def check_order(memory: RekindleStore) -> None:
    newest = [item.key for item in memory.search(("users",))]
    assert newest == ["food", "pet", "sport", "food"]
    assert [item.key for item in memory.search(("users",), limit=2, offset=1)] == newest[1:3]
    assert memory.search(("users",), limit=0) == []
    best = memory.search(ADA, query="Who plays chess?", limit=1)
    assert [(item.key, item.score) for item in best] == [("sport", pytest.approx(2 / 3))]
    with pytest.raises(ValueError, match="unknown operator"):
        memory.search(ADA, filter={"rank": {"$near": 1}})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prefix": ADA},
        {"prefix": ("*", "ada")},
        {"suffix": ("private",)},
        {"suffix": ("ada", "*")},
        {"max_depth": 1},
        {"max_depth": 2},
        {"limit": 1, "offset": 1},
        {"prefix": ("users",), "suffix": ("bob",)},
        {"prefix": ("a", "b", "c", "d")},
    ],
)
def test_namespaces_are_listed_as_in_memory(memory: RekindleStore, fields: Any) -> None:
    assert memory.list_namespaces(**fields) == fill(InMemoryStore()).list_namespaces(**fields)


def test_a_batch_reads_before_it_writes(memory: RekindleStore) -> None:
    results = memory.batch(
        [
            PutOp(ADA, "food", {"text": "old"}),
            PutOp(ADA, "food", {"text": "new"}),
            GetOp(ADA, "food"),
            SearchOp(BOB),
            ListNamespacesOp(),
            PutOp(BOB, "food", None),
        ]
    )
    assert results[2].value["text"] == "likes pasta"  # pyright: ignore
    assert len(results[3]) == 1  # pyright: ignore
    assert len(results[4]) == 3  # pyright: ignore
    found = memory.get(ADA, "food")
    assert found is not None
    assert found.value == {"text": "new"}
    assert memory.get(BOB, "food") is None


def test_namespaces_that_cannot_be_are_refused(memory: RekindleStore) -> None:
    for namespace in ((), ("a.b",), ("",), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            memory.put(namespace, "key", {})
    with pytest.raises(InvalidNamespaceError):
        memory.batch([GetOp(("users.ada",), "food")])


@pytest.mark.parametrize("label", ["a\x1fb", "\x1e0", "' OR 1=1 --", "ä \ud800", "%", "x" * 300])
def test_labels_keys_and_values_may_hold_any_text(store: Store, label: str) -> None:
    memory = RekindleStore(store)
    memory.put((label,), label, {"text": "found\x00"})
    memory.put((label + "b",), "other", {"text": "other"})
    found = memory.get((label,), label)
    assert found is not None
    assert (found.namespace, found.key, found.value) == ((label,), label, {"text": "found\x00"})
    assert list_places(memory.search((label,))) == {((label,), label)}
    assert (label,) in memory.list_namespaces()


def test_lifetimes_end_and_reading_begins_them_anew(tmp_path: Any) -> None:
    now = 1_700_000_000.0
    with open_store(tmp_path / "s.db", clock=lambda: now) as store:
        memory = RekindleStore(store, ttl={"default_ttl": 10, "refresh_on_read": True})
        memory.put(ADA, "short", {"a": 1})
        memory.put(ADA, "read", {"a": 2})
        memory.put(ADA, "forever", {"a": 3}, ttl=None)
        now += 9 * 60
        assert memory.get(ADA, "read") is not None
        assert memory.get(ADA, "short", refresh_ttl=False) is not None
        now += 2 * 60
        assert memory.get(ADA, "short") is None
        assert {item.key for item in memory.search(ADA, refresh_ttl=False)} == {"read", "forever"}
        now += 9 * 60
        assert memory.list_namespaces() == [ADA]
        assert memory.sweep_ttl() == 2
        assert {item.key for item in memory.search(ADA)} == {"forever"}


def test_graphs_remember_across_threads_and_processes(store: Store) -> None:
    async def answer(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(ADA, str(len(state["messages"])), {"text": state["messages"][-1].text})
        found = await store.asearch(ADA, query="Turin")
        return {"messages": [AIMessage(found[0].value["text"])]}

    async def ask(thread: str, text: str) -> str:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        app = graph.compile(checkpointer=RekindleCheckpointer(store), store=RekindleStore(store))
        config = {"configurable": {"thread_id": thread}}
        result = await app.ainvoke({"messages": [HumanMessage(text)]}, config)
        return result["messages"][-1].text

    assert asyncio.run(ask("one", "I live in Turin")) == "I live in Turin"
    store.graph_checkpoints.delete_thread("one")
    assert asyncio.run(RekindleStore(store).aget(ADA, "1")) is not None
    assert len(RekindleStore(store).search(ADA)) == 1


def test_two_writers_keep_one_item(store: Store) -> None:
    async def write() -> None:
        memory = RekindleStore(store)
        await asyncio.gather(*(memory.aput(ADA, "n", {"n": n}) for n in range(20)))

    asyncio.run(write())
    assert len(RekindleStore(store).search(ADA)) == 1
