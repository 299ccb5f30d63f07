"""What a search reads on PostgreSQL depends on what it finds, not on what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from rekindle import Filter, Store, open_store
from rekindle.store.engines import postgres, postgres_search
from rekindle.store.engines.words import range_walk
from rekindle.store.tenants.shared_tables import build_schema_names, set_row_security
from rekindle.store.tenants.tenant_store import TenantStore
from rekindle.tenants import Tenants, open_tenants

TITLE_TABLES = {"title_parts", "matching_title_parts"}
WORD_TABLES = {"words", "matching_words"}

SIZES = (5_000, 20_000)  # messages
FILL = """
INSERT INTO sessions (num, id, source, owner, title, title_base, title_number, started, last_active,
    next_position, message_count, tool_call_count, repository)
SELECT n, 's' || n, 'codex', '', 'Plan ' || md5(n::text), 'plan ' || md5(n::text), 1, n, n, 20, 20, 0,
    'example.com/project-' || mod(n, 10)
FROM generate_series(%(first)s::int / 20 + 1, %(last)s::int / 20) n;
INSERT INTO messages (id, session, position, role, time, content)
SELECT n, (n - 1) / 20 + 1, mod(n - 1, 20), 'user', n, 'said ' || n
FROM generate_series(%(first)s::int + 1, %(last)s::int) n;
INSERT INTO words (id, part, project, session, time, text)
SELECT n, 0, number_project('example.com/project-' || mod((n - 1) / 20 + 1, 10), 0), (n - 1) / 20 + 1, n,
    array_to_tsvector(array_remove(ARRAY['said', 'only' || n,
    CASE WHEN mod(n, 3) = 0 THEN 'third' END, CASE WHEN mod(n, 4) = 0 THEN 'fourth' END,
    CASE WHEN mod(n, 97) = 0 THEN 'seldom' END, CASE WHEN n < 500 THEN 'formerly' END], NULL))
FROM generate_series(%(first)s::int + 1, %(last)s::int) n;
"""


@pytest.fixture(scope="module", params=["own tables", "views and rows", "views", "rows"])
def stores(request: pytest.FixtureRequest) -> Iterator[list[Store]]:
    """Stores with the same kind of messages, the second with four times as many.

    Those of a tenant stand behind one of the walls or both, in tables where another one has as many.
    """
    server = request.getfixturevalue("postgres")
    with ExitStack() as opened:
        stores: list[Store] = []
        for size in SIZES:
            # Small tables would be read whole.
            url = f"{server.store_database()}?options=-c%20enable_seqscan%3Doff"
            if request.param == "own tables":
                fill(url, size)
                stores.append(opened.enter_context(open_store(url)))
            else:
                tenants = opened.enter_context(open_tenants(url))
                stores.append(opened.enter_context(open_tenant(tenants, url, size, request.param)))
        yield stores


def fill(url: str, size: int, path: str = "public", tenant: str = "") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute("SELECT set_config('search_path', %s, false)", (path,))
            cursor.execute("SELECT set_config('rekindle.tenant', %s, false)", (tenant,))
            cursor.execute(FILL, {"first": 0, "last": size})
        connection.execute("VACUUM ANALYZE")


def open_tenant(tenants: Tenants, url: str, size: int, walls: str) -> Store:
    names = build_schema_names("public")
    for name in ("acme", "globex"):
        id = tenants.add(name).id
        tenants.open_store(name).close()
        fill(url, size, names.tables, id)
    with psycopg.connect(url) as connection:
        set_row_security(lambda sql: connection.execute(sql), names, is_on=walls != "views")  # pyright: ignore
    store = tenants.open_store("acme")
    engine: Any = store._engine  # pyright: ignore[reportPrivateUsage]
    if walls == "rows":
        engine._settings = (f'"{names.tables}"', *engine._settings[1:])
    return store


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
    assert not read & {*WORD_TABLES, *TITLE_TABLES, "messages", "sessions"}


def get_growth(stores: list[Store]) -> float:
    """Return what a fourfold store may cost: an index that begins with the tenant has a level more."""
    return 2 if isinstance(stores[0], TenantStore) else 1.5


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
    assert taken[1] < get_growth(stores) * taken[0] + 30, f"{query}: {taken}"


@pytest.mark.parametrize("query", ["said", "third fourth", "seldom", "formerly said", "only4321"])
@pytest.mark.parametrize("order", ["best", "newest"])
def test_a_search_in_a_project_reads_what_it_has_of_the_words(
    stores: list[Store],
    reads: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    order: str,
) -> None:
    monkeypatch.setattr(range_walk, "RANKED_MATCHES", 20)
    monkeypatch.setattr(postgres_search, "MESSAGES_PER_STEP", 100)
    where = Filter(projects=("example.com/project-7",))
    taken: list[int] = []
    rows: list[int] = []
    for store in stores:
        found = store.search(query, where=where, order=order, limit=5)  # type: ignore[arg-type]
        assert {hit.session.repository for hit in found} == {"example.com/project-7"}
        assert_no_full_scans(reads)
        nodes = [node for plan in reads for node in iter_nodes(plan)]
        heap = [node for node in nodes if node.get("Relation Name") in WORD_TABLES]
        rows.append(max(node["Actual Rows"] for node in heap))
        taken.append(count_buffers(reads))
        reads.clear()
    assert taken[1] < get_growth(stores) * taken[0] + 10 * range_walk.RANKED_MATCHES, (
        f"{query}: {taken}"
    )
    assert max(rows) < 500, "no words of other projects"


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
