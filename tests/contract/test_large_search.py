"""Search in a large store on PostgreSQL: ranges of messages from the newest on; none is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from rekindle import Filter, Message, Store, open_store
from rekindle.store.core import migrations
from rekindle.store.engines import postgres_search
from rekindle.store.engines.words import project_numbers, range_walk, vectors
from rekindle.store.tenants.tenant_engine import TenantEngine
from rekindle.tenants import open_tenants
from tests.servers import Postgres

EACH = 40


STEPS = (1, 100, 9_000, 300_000)
PLACES = [(step, "own") for step in STEPS] + [(1, "shared"), (9_000, "shared")]


@pytest.fixture(scope="module")
def filled() -> dict[tuple[int, str], str]:
    """The databases that the tests copy: to fill one takes longer than most of the tests."""
    return {}


@pytest.fixture(params=PLACES, ids=lambda place: f"every {place[0]:,} ids, {place[1]} tables")
def large(
    request: pytest.FixtureRequest,
    postgres: Postgres,
    pooled: Callable[[str], str],
    filled: dict[tuple[int, str], str],
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
    step, place = request.param
    if request.param not in filled:
        filled[request.param] = fill_database(postgres.store_database(), step, place)
    url = pooled(postgres.copy_database(filled[request.param]))
    with open_tables(url, place) as store:
        yield store
    postgres.drop(url)


@contextmanager
def open_tables(url: str, place: str) -> Iterator[Store]:
    if place == "own":
        with open_store(url) as store:
            yield store
        return
    with open_tenants(url) as tenants, tenants.open_store("acme") as store:
        yield store


def fill_database(url: str, step: int, place: str) -> str:
    """Fill a store whose ids are as far apart as in one with many other messages; return its URL."""
    if place == "shared":
        with open_tenants(url) as tenants:
            for name in ("acme", "globex"):
                tenants.add(name)
                tenants.open_store(name).close()
    table = "public_tenant_tables.messages" if place == "shared" else "messages"
    with psycopg.connect(url) as connection:
        connection.execute(f"ALTER TABLE {table} ALTER COLUMN id SET INCREMENT BY {step}")  # pyright: ignore
    if place == "shared":
        with open_tenants(url) as tenants, tenants.open_store("globex") as other:
            for id, folder in (("rivers", None), ("s1", "/home/ada/1"), ("moves", "/tmp/a")):
                of_another = [Message("user", "river")] * 9
                other.append(other.begin(id=id, owner="ada", cwd=folder), *of_another)
    with open_tables(url, place) as store:
        rivers = [
            Message("user", f"river number{n} {'water ' * (n % 5)}", timestamp=1000.0 + n)
            for n in range(EACH)
        ]
        mountains = [Message("user", f"mountain number{n}", timestamp=9.0) for n in range(EACH)]
        store.append(store.begin(id="rivers", owner="ada"), *rivers, *mountains)
    return url


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


def find_ids(store: Store, project: str, **options: object) -> list[str]:
    where = Filter(projects=(project,))
    hits = store.search("river", where=where, limit=1_000, context=0, **options)  # type: ignore[arg-type]
    return [hit.session.id for hit in hits]


def begin_river(store: Store, id: str, **fields: str) -> None:
    store.append(store.begin(id=id, **fields), Message("user", f"river {id}"))  # type: ignore[arg-type]


def test_a_search_in_a_project_finds_its_messages_alone(large: Store) -> None:
    for n in range(12):
        begin_river(large, f"s{n}", cwd=f"/home/ada/{n % 3}")
    large.append("s4", Message("user", "river again"), Message("user", "river -- once more"))
    assert find_ids(large, "folder:/home/ada/0", order="newest") == ["s9", "s6", "s3", "s0"]
    assert sorted(find_ids(large, "folder:/home/ada/1")) == ["s1", "s10", *["s4"] * 3, "s7"]
    assert find_ids(large, "folder:/home/ada/1", role="assistant") == []
    assert find_ids(large, "folder:/home/ada/1", session="s7") == ["s7"]
    assert find_ids(large, "folder:/home/ada") == []
    both = Filter(projects=("folder:/home/ada/0", "folder:/home/ada/2"))
    assert len(large.search("river", where=both, limit=100)) == 8
    large.archive_session("s3")
    large.undo("s4", 1)
    large.end("s6", "done")
    large.prune_session("s6")
    assert sorted(find_ids(large, "folder:/home/ada/0")) == ["s0", "s9"]
    assert sorted(find_ids(large, "folder:/home/ada/1")) == ["s1", "s10", "s4", "s4", "s7"]


def test_a_session_that_moves_is_found_in_its_new_project(large: Store) -> None:
    begin_river(large, "moves", cwd="/tmp/a")
    begin_river(large, "stays", cwd="/tmp/a")
    begin_river(large, "nowhere")
    for folder in ("/tmp/b", "/tmp/c", "/tmp/a", "/tmp/d"):
        before = (large.session("moves").cwd or "").removeprefix("/tmp/")
        large.update("moves", cwd=folder)
        assert find_ids(large, f"folder:{folder}", order="newest")[-1] == "moves"
        assert "moves" not in find_ids(large, f"folder:/tmp/{before}")
        large.append("moves", Message("user", f"river in {folder}"))
    assert find_ids(large, "folder:/tmp/d") == ["moves"] * 5
    assert find_ids(large, "folder:/tmp/a") == ["stays"]
    large.update("nowhere", cwd="/tmp/d", repository="example.com/river")
    assert find_ids(large, "example.com/river") == ["nowhere"]
    assert large.observations.assign_project("/tmp/d", "example.com/lake") == [None]
    assert sorted(find_ids(large, "example.com/lake")) == [*["moves"] * 5, "nowhere"]
    assert find_ids(large, "example.com/river") == find_ids(large, "folder:/tmp/d") == []


def test_a_project_of_many_earlier_ones_is_searched_whole(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_numbers, "MAX_NUMBERS", 3)
    for n in range(6):
        begin_river(large, f"s{n}", cwd=f"/tmp/{n}")
        large.update(f"s{n}", repository="example.com/river")
    assert sorted(find_ids(large, "example.com/river")) == [f"s{n}" for n in range(6)]


def test_messages_that_a_program_of_the_version_before_wrote_are_found(large: Store) -> None:
    for n in range(6):
        begin_river(large, f"s{n}", cwd=f"/tmp/{n % 2}")
    engine = large._engine  # pyright: ignore[reportPrivateUsage]
    with psycopg.connect(engine.target) as connection:  # type: ignore[attr-defined]
        if isinstance(engine, TenantEngine):
            connection.execute("SET search_path = public_tenant_tables")
        connection.execute(
            "UPDATE words w SET project = NULL, session = NULL, time = NULL FROM messages m"
            " JOIN sessions s ON s.num = m.session WHERE m.id = w.id AND s.id IN ('s1', 's2', 's3')"
        )
    assert sorted(find_ids(large, "folder:/tmp/0")) == ["s0", "s2", "s4"]
    assert find_ids(large, "folder:/tmp/1", order="newest") == ["s5", "s3", "s1"]
    large.update("s3", cwd="/tmp/0")
    assert find_ids(large, "folder:/tmp/0", order="newest") == ["s4", "s3", "s2", "s0"]


def test_words_of_a_long_message_are_found_in_its_project(large: Store) -> None:
    filler = " ".join(f"w{n}" for n in range(vectors.MAX_POSITIONS + 100))
    for n in range(4):
        said = Message("user", f"river {filler} delta")
        large.append(large.begin(id=f"long-{n}", cwd=f"/tmp/{n}"), said, said)
    where = Filter(project="folder:/tmp/1")
    for order in ("best", "newest"):
        hits = large.search("river delta", where=where, order=order)  # type: ignore[arg-type]
        assert [hit.session.id for hit in hits] == ["long-1"] * 2
    assert large.search("river delta -w5", where=where) == []


# The search indexes as they were in version 20, and before.
VERSION_20 = """
DROP INDEX words_keys;
DROP INDEX words_unknown;
DROP TRIGGER sessions_moved ON sessions;
DROP TABLE project_numbers;
DROP FUNCTION add_project_number, number_project;
ALTER TABLE words DROP COLUMN project, DROP COLUMN session, DROP COLUMN time;
ALTER TABLE words RESET (toast_tuple_target);
CREATE INDEX words_ranges ON words USING gin ((ARRAY[(id >> 11) << 2]), text);
ALTER TABLE note_decisions DROP COLUMN origin;
UPDATE rekindle_version SET version = 20;
"""
OLD_INDEXES = f"""
{VERSION_20}
DROP INDEX words_ranges;
CREATE INDEX words_text ON words USING gin (text);
DROP TABLE title_parts;
DROP TRIGGER sessions_titled ON sessions;
DROP TRIGGER sessions_retitled ON sessions;
UPDATE words SET part = -part WHERE part > 0;
UPDATE words SET part = -part - 1 WHERE part < 0;
UPDATE rekindle_version SET version = 19;
"""


@pytest.mark.parametrize("filled", [1_000_000, 0])
def test_projects_are_found_in_a_store_of_version_20(
    store_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch, filled: int
) -> None:
    fill = migrations.FILL_WORD_COLUMNS.replace("1000000", str(filled))
    monkeypatch.setattr(migrations, "FILL_WORD_COLUMNS", fill)
    monkeypatch.setattr(postgres_search, "LARGE_STORE", 1)
    url = store_database()
    with open_store(url) as store:
        for n in range(6):
            begin_river(store, f"s{n}", cwd=f"/tmp/{n % 2}")
    with psycopg.connect(url) as connection:
        connection.execute(VERSION_20)
    with open_store(url) as store:
        assert find_ids(store, "folder:/tmp/1", order="newest") == ["s5", "s3", "s1"]
        begin_river(store, "new", cwd="/tmp/1")
        store.update("s3", repository="example.com/river")
        assert sorted(find_ids(store, "folder:/tmp/1")) == ["new", "s1", "s5"]
        assert find_ids(store, "example.com/river") == ["s3"]
        assert store.verify() == []
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM words WHERE project IS NULL").fetchone()
    assert row == (0 if filled else 6,)


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
