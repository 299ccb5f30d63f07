"""Search in a large store on PostgreSQL: ranges of messages from the newest on; none is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from rekindle import Message, Store, open_store
from rekindle.store.engines import postgres_search
from rekindle.store.engines.words import range_walk, vectors

EACH = 40


@pytest.fixture(params=[1, 100, 9_000, 300_000], ids=lambda step: f"every {step:,} ids")
def large(
    request: pytest.FixtureRequest,
    store_database: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Store]:
    """A store that counts as large, with 40 messages about rivers, of which 8 are ranked at a time."""
    monkeypatch.setattr(postgres_search, "LARGE_STORE", 10)
    monkeypatch.setattr(postgres_search, "MESSAGES_PER_STEP", 20)
    monkeypatch.setattr(postgres_search, "FIRST_WINDOW", 5)
    monkeypatch.setattr(postgres_search, "WINDOW_GROWTH", 2)
    monkeypatch.setattr(postgres_search, "RARE_WINDOW", 20)
    monkeypatch.setattr(range_walk, "RANKED_MATCHES", 8)
    monkeypatch.setattr(range_walk, "MAX_CANDIDATES", 16)
    monkeypatch.setattr(range_walk, "MAX_LONG", 2)
    url = store_database()
    with psycopg.connect(url) as connection:
        # Ids are as far apart as in a store with many other messages.
        connection.execute(f"ALTER TABLE messages ALTER COLUMN id SET INCREMENT BY {request.param}")  # pyright: ignore
    with open_store(url) as store:
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


def test_words_with_a_prefix_are_found_too(large: Store) -> None:
    assert sorted(found(large, "riv* number1*")) == [1, *range(10, 20)]
    assert found(large, "riv*", order="newest", session="rivers") == list(reversed(range(EACH)))


def test_for_common_words_sessions_are_searched_from_the_most_recent_on(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_walk.RangeWalk, "is_common", lambda *_: True)
    for n in range(6):
        said = [Message("user", f"lake {n}", timestamp=2000.0 + n + 10 * k) for k in range(10)]
        large.append(large.begin(id=f"lake-{n}", owner="cy"), *said)
    hits = large.search("lake", owner="cy", order="newest", limit=100)
    times = [hit.message.timestamp or 0 for hit in hits]
    assert times == sorted(times, reverse=True)
    assert len(times) == 60
    first = {hit.session.id for hit in large.search("lake", owner="cy", limit=20)}
    assert first <= {"lake-5", "lake-4"}
    assert {hit.session.id for hit in large.search("lake", session="lake-0", limit=100)} == {
        "lake-0"
    }


def test_filters_and_excluded_words_hold_in_every_range(large: Store) -> None:
    large.append(large.begin(id="other", owner="bob"), *[Message("user", "river of bob")] * 20)
    assert sorted(found(large, "river", owner="ada")) == list(range(EACH))
    assert len(found(large, "river", owner="bob")) == 20
    assert sorted(found(large, "river", since=1010.0, until=1015.0)) == [10, 11, 12, 13, 14]
    dry = sorted(found(large, "river -water", owner="ada"))
    assert dry == [n for n in range(EACH) if n % 5 == 0]


def test_words_in_different_parts_of_a_long_message_are_found_together(large: Store) -> None:
    filler = " ".join(f"w{n}" for n in range(vectors.MAX_POSITIONS + 100))
    large.append("rivers", Message("user", f"source {filler} delta"), Message("user", "delta"))
    assert found(large, "source delta") == [2 * EACH]
    assert found(large, "source delta", order="newest") == [2 * EACH]
    assert found(large, "source delta", owner="ada") == [2 * EACH]
    assert found(large, "source delta", role="user") == [2 * EACH]
    assert found(large, "source delta -w5") == []
    assert found(large, "source river") == []
    both = Message("user", f"delta {filler} source")
    large.append("rivers", *[both] * 4)
    assert sorted(found(large, "source delta")) == [2 * EACH, *range(2 * EACH + 2, 2 * EACH + 6)]


# The search indexes as they were before version 20.
OLD_INDEXES = """
DROP INDEX words_ranges;
CREATE INDEX words_text ON words USING gin (text);
DROP TABLE title_parts;
DROP TRIGGER sessions_titled ON sessions;
DROP TRIGGER sessions_retitled ON sessions;
UPDATE words SET part = -part WHERE part > 0;
UPDATE words SET part = -part - 1 WHERE part < 0;
UPDATE rekindle_version SET version = 19;
"""


def test_a_store_of_the_version_before_is_upgraded(
    store_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_search, "LARGE_STORE", 1)
    monkeypatch.setattr("rekindle.store.sessions.title_search.NEWEST_SESSIONS", 1)
    url = store_database()
    filler = " ".join(f"w{n}" for n in range(vectors.MAX_POSITIONS + 100))
    with open_store(url) as store:
        for n in range(4):
            session = store.begin(id=f"s{n}", title=f"Harbour {n}")
            store.append(session, Message("user", f"source {filler} delta{n}"))
    with psycopg.connect(url) as connection:
        connection.execute(OLD_INDEXES)
    with open_store(url) as store:
        assert [hit.session.id for hit in store.search("source delta1")] == ["s1"]
        assert [one.id for one in store.search_titles("arbour 0")] == ["s0"]
        store.rename("s0", "Quay")
        assert store.search_titles("arbour 0") == []
        assert [one.id for one in store.search_titles("qua")] == ["s0"]
        assert store.verify() == []
