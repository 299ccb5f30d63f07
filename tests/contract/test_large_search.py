"""Search in a large store on PostgreSQL: ranges of messages from the newest on; none is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rekindle import Message, Store, open_store
from rekindle.store.engines import postgres_search

EACH = 40


@pytest.fixture(params=[20, 1_000], ids=["rare words apart", "ranges only"])
def large(
    request: pytest.FixtureRequest,
    store_database: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Store]:
    """A store that counts as large, with 40 messages about rivers, of which 8 are ranked at a time."""
    monkeypatch.setattr(postgres_search, "LARGE_STORE", 10)
    monkeypatch.setattr(postgres_search, "RANKED_MATCHES", 8)
    monkeypatch.setattr(postgres_search, "FIRST_WINDOW", 5)
    monkeypatch.setattr(postgres_search, "WINDOW_GROWTH", 2)
    monkeypatch.setattr(postgres_search, "RARE_WINDOW", request.param)
    with open_store(store_database()) as store:
        rivers = [
            Message("user", f"river number{n} {'water ' * (n % 5)}", timestamp=1000.0 + n)
            for n in range(EACH)
        ]
        mountains = [Message("user", f"mountain number{n}", timestamp=9.0) for n in range(EACH)]
        store.append(store.begin(id="rivers", owner="ada"), *rivers, *mountains)
        yield store


def found(store: Store, query: str, **options: object) -> list[int]:
    hits = store.search(query, **{"limit": 100, "context": 0, **options})  # type: ignore[arg-type]
    return [hit.message.position or 0 for hit in hits]


def test_every_match_is_found_once_also_page_by_page(large: Store) -> None:
    assert sorted(found(large, "river")) == list(range(EACH))
    pages = [found(large, "river", limit=7, offset=offset) for offset in range(0, EACH, 7)]
    assert [place for page in pages for place in page] == found(large, "river")
    assert found(large, "number3 river") == [3]
    assert found(large, "desert") == []


def test_the_newest_matches_are_ranked_and_the_others_follow_by_age(large: Store) -> None:
    places = found(large, "river water")
    assert sorted(places[:8]) == [n for n in range(EACH) if n % 5][-8:]
    assert {n % 5 for n in places[:2]} == {4}, "more often said, better"
    assert places[8:] == sorted(places[8:], reverse=True)
    assert found(large, "river", order="newest") == list(reversed(range(EACH)))


def test_filters_and_excluded_words_hold_in_every_range(large: Store) -> None:
    large.append(large.begin(id="other", owner="bob"), *[Message("user", "river of bob")] * 20)
    assert sorted(found(large, "river", owner="ada")) == list(range(EACH))
    assert len(found(large, "river", owner="bob")) == 20
    assert sorted(found(large, "river", since=1010.0, until=1015.0)) == [10, 11, 12, 13, 14]
    dry = sorted(found(large, "river -water", owner="ada"))
    assert dry == [n for n in range(EACH) if n % 5 == 0]


def test_words_in_different_parts_of_a_long_message_are_found_together(large: Store) -> None:
    filler = " ".join(f"w{n}" for n in range(postgres_search.MAX_POSITIONS + 100))
    large.append("rivers", Message("user", f"source {filler} delta"), Message("user", "delta"))
    assert found(large, "source delta") == [2 * EACH]
    assert found(large, "source delta", order="newest") == [2 * EACH]
    assert found(large, "source delta", owner="ada") == [2 * EACH]
    assert found(large, "source delta", role="user") == [2 * EACH]
    assert found(large, "source delta -w5") == []
    assert found(large, "source river") == []
