"""Documents that frameworks keep beside sessions, on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import Store, open_store
from rekindle.store.graphs.documents import (
    DocumentChange,
    DocumentPlace,
    _build_places_query,  # pyright: ignore[reportPrivateUsage]
)

ONE, TWO = DocumentPlace(("a",), "1"), DocumentPlace(("a", "b"), "1")


def put(store: Store, place: DocumentPlace, **value: object) -> None:
    store.documents.put("test", [DocumentChange(place, value)])


def test_documents_are_found_by_place_and_below_a_namespace(store: Store) -> None:
    put(store, ONE, n=1)
    put(store, TWO, n=2)
    put(store, DocumentPlace(("ab",), "1"), n=3)
    documents = store.documents
    found = documents.get("test", [ONE, TWO, DocumentPlace(("c",), "1")])
    assert {place: one.value for place, one in found.items()} == {ONE: {"n": 1}, TWO: {"n": 2}}
    assert {one.place for one in documents.find("test", ("a",))} == {ONE, TWO}
    assert [one.place for one in documents.load("test", [("a",)])] == [ONE]
    assert documents.find("other") == []
    assert documents.list_namespaces("test") == [("a",), ("a", "b"), ("ab",)]
    documents.delete_below("test", ("a",))
    assert documents.list_namespaces("test") == [("ab",)]


def test_several_documents_are_looked_up_by_key_in_a_large_collection(store: Store) -> None:
    places = [DocumentPlace(("a", str(number % 7)), f"k{number}") for number in range(3_000)]
    store.documents.put("test", [DocumentChange(one, {"n": 1}) for one in places])
    wanted = [*places[::1_000], DocumentPlace(("a",), "none")]
    assert {*store.documents.get("test", wanted)} == {*places[::1_000]}
    assert len(store.documents.get("test", places)) == 3_000
    sql, params = _build_places_query("test", wanted, 0.0)
    engine = store._engine  # pyright: ignore[reportPrivateUsage]
    is_sqlite = store.stats().engine == "sqlite"
    engine.transact([lambda tx: tx.run("ANALYZE graph_values")])
    with engine.begin_read() as tx:
        explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
        plan = " ".join(str(row[-1]) for row in tx.run(f"{explain} {sql}", params))
    if is_sqlite:
        assert "(thread=? AND namespace=? AND channel=? AND version=?)" in plan
    else:
        assert "graph_values_pkey" in plan
        assert "(channel = " in plan[plan.index("Index Cond") :].partition("Filter")[0]
    assert "SCAN v" not in plan
    assert "Seq Scan" not in plan


def test_the_first_one_to_add_wins(store: Store) -> None:
    assert store.documents.add("test", ONE, {"n": 1})
    assert not store.documents.add("test", ONE, {"n": 2})
    assert store.documents.get("test", [ONE])[ONE].value == {"n": 1}


def test_changes_apply_together_or_not_at_all(store: Store) -> None:
    put(store, ONE, n=1)

    def fail() -> None:
        store.documents.put("test", [DocumentChange(ONE, None), DocumentChange(TWO, {"n": 2})])
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.transaction(fail)
    assert {one.place for one in store.documents.find("test")} == {ONE}


def test_many_places_and_namespaces_are_read_in_pages(store: Store) -> None:
    places = [DocumentPlace((f"n{number}",), "key") for number in range(150)]
    store.documents.put("test", [DocumentChange(place, {}) for place in places])
    assert store.documents.get("test", places).keys() == {*places}
    assert len(store.documents.load("test", [place.namespace for place in places])) == 150


def test_graphs_cannot_reach_documents(store: Store) -> None:
    put(store, ONE, n=1)
    for thread in ("", "documents/test", "\U0010fffedocuments/test"):
        store.graph_checkpoints.delete_thread(thread)
        store.graph_checkpoints.copy_thread(thread, "copy")
    assert len(store.documents.find("test")) == 1
    assert store.verify() == []


def test_times_and_lifetimes(tmp_path: Path) -> None:
    now = 1_700_000_000.25
    with open_store(tmp_path / "s.db", clock=lambda: now) as store:
        store.documents.put("test", [DocumentChange(ONE, {"n": 1}, lifetime=10.0)])
        now += 5
        store.documents.put("test", [DocumentChange(ONE, {"n": 2}, lifetime=10.0)])
        (found,) = store.documents.find("test")
        assert (found.created, found.updated, found.lifetime) == (now - 5, now, 10.0)
        now += 9
        assert store.documents.get("test", [ONE], renew=True)
        now += 9
        assert store.documents.find("test") != []
        now += 2
        assert store.documents.find("test") == []
        assert store.documents.delete_expired("test") == 1
