"""What a search reads on PostgreSQL depends on what it finds, not on what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from rekindle import Store, open_store
from rekindle.store.engines import postgres, postgres_search
from rekindle.store.engines.words import range_walk

SIZES = (5_000, 15_000)  # messages
FILL = """
INSERT INTO sessions (num, id, source, owner, title, title_base, title_number, started, last_active,
    next_position, message_count, tool_call_count, repository)
SELECT n, 's' || n, 'codex', '', 'Plan ' || md5(n::text), 'plan ' || md5(n::text), 1, n, n, 20, 20, 0,
    'example.com/project-' || mod(n, 10)
FROM generate_series(%(first)s::int / 20 + 1, %(last)s::int / 20) n;
INSERT INTO messages (id, session, position, role, time, content)
SELECT n, (n - 1) / 20 + 1, mod(n - 1, 20), 'user', n, 'said ' || n
FROM generate_series(%(first)s::int + 1, %(last)s::int) n;
INSERT INTO words (id, part, text)
SELECT n, 0, array_to_tsvector(array_remove(ARRAY['said', 'only' || n,
    CASE WHEN mod(n, 3) = 0 THEN 'third' END, CASE WHEN mod(n, 4) = 0 THEN 'fourth' END,
    CASE WHEN mod(n, 97) = 0 THEN 'seldom' END, CASE WHEN n < 500 THEN 'formerly' END], NULL))
FROM generate_series(%(first)s::int + 1, %(last)s::int) n;
"""


@pytest.fixture(scope="module")
def stores(request: pytest.FixtureRequest) -> Iterator[list[Store]]:
    """Stores with the same kind of messages, the second with three times as many."""
    server = request.getfixturevalue("postgres")
    opened: list[Store] = []
    for size in SIZES:
        # Small tables would be read whole.
        url = f"{server.store_database()}?options=-c%20enable_seqscan%3Doff"
        with psycopg.connect(url, autocommit=True) as connection:
            with psycopg.ClientCursor(connection) as cursor:
                cursor.execute(FILL, {"first": 0, "last": size})
            connection.execute("VACUUM ANALYZE")
        opened.append(open_store(url))
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The plans of all statements that read, as they were carried out."""
    plans: list[dict[str, Any]] = []
    run = postgres.PostgresTransaction.run

    def explain(tx: Any, sql: str, params: Sequence[Any] = ()) -> Any:
        if sql.startswith(("SELECT", "WITH")):
            ((plan,),) = run(tx, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
            plans.append(plan[0]["Plan"])
        return run(tx, sql, params)

    monkeypatch.setattr(postgres.PostgresTransaction, "run", explain)
    monkeypatch.setattr(postgres_search, "LARGE_STORE", 1_000)
    monkeypatch.setattr(range_walk, "RANKED_MATCHES", 50)
    return plans


def iter_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from iter_nodes(part)


def count_buffers(plans: list[dict[str, Any]]) -> int:
    return sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans)


def assert_no_full_scans(plans: list[dict[str, Any]]) -> None:
    nodes = [node for plan in plans for node in iter_nodes(plan)]
    read = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"}
    assert not read & {"words", "messages", "sessions", "title_parts"}


@pytest.mark.parametrize(
    "query", ["only4000", "said", "third fourth", "seldom", "said fourth -third", "nothing said"]
)
@pytest.mark.parametrize("order", ["best", "newest"])
def test_a_search_reads_as_much_in_a_store_of_any_size(
    stores: list[Store], reads: list[dict[str, Any]], query: str, order: str
) -> None:
    taken: list[int] = []
    for store in stores:
        found = store.search(query, order=order)  # type: ignore[arg-type]
        assert bool(found) is (query != "nothing said")
        assert_no_full_scans(reads)
        taken.append(count_buffers(reads))
        reads.clear()
    assert taken[1] < 1.5 * taken[0] + 30, f"{query}: {taken}"


def test_a_word_that_is_no_longer_used_is_found(
    stores: list[Store], reads: list[dict[str, Any]]
) -> None:
    for store in stores:
        assert len(store.search("formerly", limit=1_000)) == 499
    assert_no_full_scans(reads)


def test_a_title_is_found_without_reading_all_of_them(
    stores: list[Store], reads: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle.store.sessions.title_search.NEWEST_SESSIONS", 20)
    for store in stores:
        title = store.session("s7").title or ""
        reads.clear()
        assert [one.id for one in store.search_titles(title[9:23])] == ["s7"]
        assert store.search_titles("no such title") == []
        nodes = [node for plan in reads for node in iter_nodes(plan)]
        assert {"title_parts_found", "sessions_recent"} <= {
            node.get("Index Name") for node in nodes
        }
        assert max(node["Actual Rows"] for node in nodes) <= 30, "the newest, and those found"
        assert len(store.search_titles("plan", limit=50)) == 50
