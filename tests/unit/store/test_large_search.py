"""In a large store the newest matches are ranked and the older ones follow; none is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import Message, Store
from rekindle.store import Filter
from rekindle.store.engines import sqlite_search
from rekindle.store.sessions import search
from tests.new_store import open_new_store

EACH = 40


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store that counts as large, with 40 messages about rivers, of which 8 are ranked at a time."""
    monkeypatch.setattr(sqlite_search, "LARGE_STORE", 10)
    monkeypatch.setattr(sqlite_search, "RANKED_MATCHES", 8)
    store = open_new_store(tmp_path / "sessions.db")
    store.append(
        store.begin(id="rivers", owner="ada"),
        *(
            Message(
                "user",
                f"river number{n} {'water ' * (n % 5)}{'stone ' * (4 - n % 5)}",
                timestamp=1000.0 + n,
            )
            for n in range(EACH)
        ),
        *(Message("user", f"mountain number{n}", timestamp=2000.0) for n in range(EACH)),
    )
    return store


def found(store: Store, query: str, **options: object) -> list[int]:
    hits = store.search(query, **{"limit": 100, "context": 0, **options})  # type: ignore[arg-type]
    return [hit.message.position or 0 for hit in hits]


def test_every_match_is_found_once_also_page_by_page(store: Store) -> None:
    assert sorted(found(store, "river")) == list(range(EACH))
    pages = [found(store, "river", limit=7, offset=offset) for offset in range(0, EACH, 7)]
    assert [place for page in pages for place in page] == found(store, "river")


def test_the_newest_matches_are_ranked_and_the_others_follow_by_age(store: Store) -> None:
    places = found(store, "river water")
    newest = places[:8]
    assert sorted(newest) == [n for n in range(EACH) if n % 5][-8:]
    assert {n % 5 for n in newest[:2]} == {4}, "more often said, better"
    assert {n % 5 for n in newest[-2:]} == {1}
    assert places[8:] == sorted(places[8:], reverse=True)


def test_a_rare_word_tells_more_than_a_common_one(store: Store) -> None:
    store.append(
        "rivers",
        Message("user", "river rapids rapids other words here"),
        Message("user", "river river rapids other words here"),
        *(Message("user", f"sky number{n}") for n in range(EACH * 2)),
    )
    first, second = found(store, "river rapids")
    assert (first, second) == (EACH * 2, EACH * 2 + 1)


def test_newest_first_goes_by_time(store: Store) -> None:
    assert found(store, "river", order="newest") == list(reversed(range(EACH)))


def test_filters_hold_in_the_window_and_behind_it(store: Store) -> None:
    store.append(store.begin(id="other", owner="bob"), *[Message("user", "river of bob")] * 20)
    assert sorted(found(store, "river", owner="ada")) == list(range(EACH))
    assert len(found(store, "river", owner="bob")) == 20
    assert sorted(found(store, "river", since=1010.0, until=1015.0)) == [10, 11, 12, 13, 14]


def test_what_is_not_indexed_yet_stands_in_its_place(store: Store) -> None:
    store.append("rivers", Message("user", "river water water water water water", timestamp=3000.0))
    assert found(store, "river water")[0] == EACH * 2
    assert found(store, "river", order="newest")[0] == EACH * 2


@pytest.mark.parametrize("few", [0, 10])
def test_a_project_has_the_same_matches_whether_its_sessions_are_few_or_many(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(search, "_FEW_SESSIONS", few)
    boats = store.begin(id="boats", cwd="/boats")
    store.append(boats, *(Message("user", f"river boat{n}") for n in range(20)))
    where = Filter(projects=("folder:/boats",))
    assert sorted(found(store, "river", where=where)) == list(range(20))
    assert found(store, "boat1*", where=where, role="assistant") == []
    pages = [found(store, "river", where=where, limit=7, offset=at) for at in range(0, 20, 7)]
    assert [place for page in pages for place in page] == found(store, "river", where=where)
