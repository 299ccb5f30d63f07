"""A tenant reads and changes its own rows only, with either wall alone and with both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rekindle import Message, Store
from rekindle.errors import (
    AccessDenied,
    InvalidApiKey,
    NotFound,
    QuotaExceeded,
    RekindleError,
    StoreReadOnly,
)
from rekindle.store import Filter
from rekindle.store.core.tables import DIRECTORY_TABLES
from rekindle.store.engines.words.keys import PROJECT_BITS, SELECT_TENANT_NUMBER, TENANT_WORDS
from rekindle.store.graphs.checkpoints import CheckpointQuery, ThreadKey
from rekindle.store.graphs.documents import DocumentChange
from rekindle.store.tenants.shared_tables import build_schema_names, set_row_security
from rekindle.tenants import Quota, Tenants, erase_person, export_person, open_tenants
from rekindle.types import Source, Tokens, Usage
from tests import servers
from tests.conftest import Clock
from tests.contract.tenant_rows import DOCUMENT, ID, NOW, PROJECT, fill

WALLS = ("files", "views and rows", "views", "rows")
READ_VERBS = {
    "find", "get", "list", "load", "search", "iter", "iterate", "count", "is", "has", "sum", "describe",
    "export", "messages", "session", "recent", "resolve", "usage", "lineage", "children", "rewinds",
    "stats", "dump", "next", "verify",
}  # fmt: skip
DIRECTORY = {table.name for table in DIRECTORY_TABLES}
# Not called: the end of the store, and what belongs to the directory of tenants.
NOT_CALLED = {"close", "location", "address", "tenants"}


class World(NamedTuple):
    tenants: Tenants
    open: Callable[[str], Store]
    numbers: Iterator[int]


@pytest.fixture(scope="module", params=WALLS)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    walls, target = request.param, str(tmp_path_factory.mktemp("tenants") / "sessions.db")
    server: servers.Postgres | None = None
    if walls != "files":
        running: servers.Postgres = request.getfixturevalue("postgres")
        server, target = running, running.store_database()
    with open_tenants(target, clock=lambda: NOW) as tenants:

        def open_store(name: str) -> Store:
            store = tenants.open_store(name)
            if walls == "rows":
                engine: Any = store._engine  # pyright: ignore[reportPrivateUsage]
                views, *rest = engine._settings
                assert views == '"public_tenants"'
                engine._settings = ('"public_tenant_tables"', *rest)
            return store

        if server is not None:
            tenants.add("first")
            open_store("first").close()  # the first one makes the tables
            with psycopg.connect(target, autocommit=True) as connection:
                set_row_security(
                    lambda sql: connection.execute(sql),  # pyright: ignore
                    build_schema_names("public"),
                    is_on=walls != "views",
                )
        yield World(tenants, open_store, count())
    if server is not None:
        server.drop(target)


def list_methods(store: Store) -> Iterator[tuple[str, Any]]:
    """All public methods of the store and of its parts, reading ones first."""
    found: dict[str, Any] = {}
    for name in dir(Store):
        if name.startswith("_") or name in NOT_CALLED:
            continue
        if isinstance(inspect.getattr_static(Store, name), cached_property):
            part = getattr(store, name)
            methods = [one for one in dir(part) if not one.startswith("_")]
            found |= {f"{name}.{one}": getattr(part, one) for one in methods}
        else:
            found[name] = getattr(store, name)
    assert len(found) > 180
    for name in sorted(found, key=lambda name: (not is_read(name), name)):
        yield name, found[name]


def is_read(name: str) -> bool:
    return name.rpartition(".")[2].split("_")[0] in READ_VERBS


def collect_arguments(victim: Store, word: str, path: Path) -> dict[str, Any]:
    """Values of another tenant for every parameter that has no default."""
    session = victim.session(ID)
    job = victim.jobs.list()[0]
    [inbound] = victim.inbox.list_waiting(ID)
    [outbound] = victim.inbox.list_outbound(ID)
    people = f"{ID}:{ID}"
    source = Source(ID, word, user_id=ID)
    return {
        "session": ID, "id": ID, "name": ID, "ids": [ID, "s2"], "sessions": [ID, "s2"], "owner": ID,
        "query": word, "text": word, "key": ID, "keys": [ID], "where": Filter(archived=None), 
        "since": 0.0, "rules": "1", "version": "1", "nums": [*range(1, 2000)], "part": 0, "prefix": ID,
        "prefixes": (ID,),
        "path": word, "paths": [word], "positions": range(5), "position": 0, "before": 3, "count": 2,
        "after": -1, "limit": 50, "get_offset": lambda _: 0, "title": word, "project": PROJECT,
        "folders": ["/work/shop"], "person": ID, "people": [ID, people], "day": "2026-11-18",
        "platform": ID, "user_id": ID, "states": ("waiting", "failed"), "platforms": [ID],
        "source": source,
        "seconds": 60.0, "instance": word, "job": job, "outbound": outbound, "inbound": inbound,
        "template": ID, "versions": {"channel": "1"}, "thread": ID, "note": ID,
        "load_names.sessions": [session], "graph_checkpoints.load.key": ThreadKey(ID),
        "graph_checkpoints.load_values.key": ThreadKey(ID),
        "graph_checkpoints.load_writes.key": ThreadKey(ID),
        "graph_checkpoints.iterate.query": CheckpointQuery(), 
        "observations.load_sessions.sessions": [ID],
        # Writing.
        "reason": "done", "turns": 1, "origin": "s2", "messages": (),
        "message": Message("user", "mine"),
        "tokens": Tokens(1), "number": 1, "actor": "person", "lease_seconds": 1.0, "answer": "once",
        "answered_by": people, "older_than": 0.0, "code": "hash", "role": "guest", "event": "mine",
        "usage": Usage(Tokens(1)), "added": Usage(Tokens(1)), "model": "mine", "old": ID, "new": "s2",
        "route": victim.routes.get(ID), "lease": victim.session_leases.find(ID), "stamp": "mine",
        "lines": [], "items": [], "changes": lambda: None, "cwd": "/work/shop", "data": b"mine",
        "target": source, "chat": source, "old_owner": ID, "inbox": inbound.num, "due": NOW,
        "next_run": NOW, "state": "paused", "platform_message_id": "mine", "retry_after": 1.0,
        "tool": "mine", "summary": "mine", "digest": "mine", "runs": [ID], "needed": {}, "values": {},
        "experiment": victim.experiments.list_all()[0], "root": ID, "arm": "warm", "errors": [],
        "collection": ID, "place": DOCUMENT, "places": [DOCUMENT], "namespaces": [DOCUMENT.namespace],
        "value": {"mine": 1}, "documents.delete_below.prefix": DOCUMENT.namespace,
        "documents.put.changes": [DocumentChange(DOCUMENT, None)],
        "writes": [], "inbound_messages": [inbound], "replies": [], "verdicts": [], "judged": [],
        "observed": [], "pause": 1.0, "max_pending": 9, "backup.path": path / f"{word}.db",
        "graph_checkpoints.save_writes.key": ThreadKey(ID), "graph_checkpoints.copy_thread.source": ID,
        "graph_checkpoints.copy_thread.target": "copy", "observations.save_folders.folders": {},
        "observations.finish.names": [ID],
        "inbox.start_turn.session": session, "inbox.append_in_turn.session": session,
    }  # fmt: skip


# Methods that take a whole value, which is the tenant's own then.
OF_OWN_VALUES = {
    "copy_to", "graph_checkpoints.save", "graph_checkpoints.submit", "jobs.add", "links.unlink",
    "observations.propose_decision", "observations.save_decision", "prepare_import",
    "session_leases.acquire", "template_index.put",
}  # fmt: skip


def call(name: str, method: Any, arguments: dict[str, Any]) -> str | None:
    """What a method returns or raises, as text; None if there are no arguments for it."""
    given_arguments: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is not parameter.empty and parameter.name not in ("where", "limit"):
            continue
        key = next(
            (k for k in (f"{name}.{parameter.name}", parameter.name) if k in arguments), None
        )
        if key is None:
            return None
        given_arguments[parameter.name] = arguments[key]
    try:
        found = method(**given_arguments)
        return repr([*found] if isinstance(found, Iterator) else found)
    except RekindleError as error:
        return str(error)


def take_snapshot(store: Store) -> list[str]:
    rows = [repr(row) for row in store.personal_data.export_rows(ID)]
    return [*rows, *map(repr, store.dump()), repr(store.stats())]


WORDS = st.lists(
    st.from_regex(r"q[bcdfghjkl]{7}", fullmatch=True), min_size=2, max_size=2, unique=True
)


@settings(max_examples=2, phases=[Phase.generate])
@given(words=WORDS, sessions=st.lists(st.sampled_from(["s2", "s3", "Plan #2"]), unique=True))
def test_no_method_returns_or_changes_anything_of_another_tenant(
    world: World, tmp_path_factory: pytest.TempPathFactory, words: list[str], sessions: list[str]
) -> None:
    names = [f"tenant-{next(world.numbers)}" for _ in words]
    for name in names:
        world.tenants.add(name)
    with world.open(names[0]) as victim, world.open(names[1]) as attacker:
        fill(victim, words[0], [*sessions, "one-more"])
        fill(attacker, words[1], sessions)
        assert attacker.count_sessions() == attacker.stats().sessions == 1 + len(sessions)
        arguments = collect_arguments(victim, words[0], tmp_path_factory.mktemp("copy"))
        seen = {
            name for name, method in list_methods(victim)
            if is_read(name) and words[0] in (call(name, method, arguments) or "")
        }  # fmt: skip
        assert len(seen) > 60, sorted(seen)  # or else these calls show nothing
        before = take_snapshot(victim)
        # These give back what they are given.
        arguments |= {"load_names.sessions": [attacker.session(ID)], "next_title.title": "Plan"}
        skipped: set[str] = set()
        for name, method in list_methods(attacker):
            shown = call(name, method, arguments)
            if shown is None:
                skipped.add(name)
            elif is_read(name):
                assert words[0] not in shown, name
        assert skipped == OF_OWN_VALUES
        assert take_snapshot(victim) == before


@pytest.fixture
def tenants(target: str, clock: Clock) -> Iterator[Tenants]:
    with open_tenants(target, clock=clock) as opened:
        opened.add("acme")
        yield opened


@pytest.mark.parametrize("world", WALLS[1:], indirect=True)  # in files there are no rows to protect
def test_without_a_tenant_nothing_is_found_and_nothing_can_be_written(world: World) -> None:
    with world.open("first") as store:
        fill(store, "word", [])
        engine: Any = store._engine  # pyright: ignore[reportPrivateUsage]
        schema, setting, _, role = engine._settings
        engine._settings = (schema, setting, "", role)
        assert store.recent() == []
        assert store.search("word") == []
        with pytest.raises(RekindleError):
            store.append(store.begin(id="nobody"), Message("user", "lost"))
        engine._settings = (schema, setting, "ffff", role)
        assert store.recent() == []


@pytest.mark.parametrize("world", WALLS[1:], indirect=True)
def test_a_search_for_the_words_of_another_tenant_shows_none_of_its_rows(world: World) -> None:
    for name in ("victim", "attacker"):
        world.tenants.add(name)
    with world.open("victim") as victim, world.open("attacker") as attacker:
        victim.append(victim.begin(id="plan"), Message("user", "hidden words"))
        attacker.append(attacker.begin(id="plan"), Message("user", "plain words"))
        engine: Any = attacker._engine  # pyright: ignore[reportPrivateUsage]
        every: Any = victim._engine  # pyright: ignore[reportPrivateUsage]
        with engine.begin_read() as tx, every.begin_read() as of_victim:
            keys = [
                one.run(f"SELECT {SELECT_TENANT_NUMBER}")[0][0] << PROJECT_BITS | 3
                for one in (of_victim, tx)
            ]
            for owner, words, found in (
                (of_victim, "words", 1),
                (tx, "words", 1),
                (tx, "hidden", 0),
            ):
                source = TENANT_WORDS.build_source(owner, keys, words)
                assert len(owner.run(f"SELECT w.text {source}", (words,))) == found
            tx.run("SELECT set_config('rekindle.words', '', true)")
            assert len(tx.run(f"SELECT w.text {source.partition(' WHERE ')[0]}")) <= 1
    world.tenants.remove("victim")
    world.tenants.remove("attacker")


def test_two_tenants_have_the_same_ids_titles_and_numbers_without_noticing(
    tenants: Tenants, another: Callable[..., Store]
) -> None:
    tenants.add("globex")
    with tenants.open_store("acme") as acme, tenants.open_store("globex") as globex:
        for store, word in ((acme, "anvil"), (globex, "laser")):
            session = store.begin(id="plan", title="Plan", owner="ada")
            store.append(session, Message("user", word, platform_message_id="1"))
            store.memory.add("ada", word, actor="person")
            store.routes.open("key", Source("matrix", "room", user_id="@ada"), name=word)
        assert [hit.message.content for hit in acme.search("anvil OR laser")] == ["anvil"]
        assert [fact.text for fact in globex.memory.list("ada")] == ["laser"]
        assert acme.verify() == globex.verify() == []
        acme.repair()
        copy = another()
        for number in range(60):  # more than a writer's attempts
            copy.inbox.post("key", Source("matrix", "room"), f"{number}")
        copy.copy_to(acme)
        copy.copy_to(acme)
        acme.inbox.post("key", Source("matrix", "room"), "after")
        assert len(acme.inbox.list_outbound("key")) == 61
        assert globex.inbox.list_outbound("key") == []
        globex.copy_to(copy)
        globex.copy_to(acme)  # what it has already stays
        assert [one.content for one in copy.messages("plan")] == ["laser"]
        assert [one.content for one in acme.messages("plan")] == ["anvil"]
    tenants.remove("globex")
    with tenants.open_store("acme") as acme:
        assert acme.messages("plan")[0].content == "anvil"
    tenants.add("globex")
    with tenants.open_store("globex") as empty:
        assert empty.recent() == []
        assert empty.memory.list_owners() == []


def test_a_key_opens_the_store_of_its_tenant_as_far_as_its_scopes_go(
    tenants: Tenants, clock: Clock
) -> None:
    tenants.add_member("acme", "ada", "admin")
    writer = tenants.keys.add("acme", scopes=["read", "write"], member="ada")
    reader = tenants.keys.add("acme", projects=[PROJECT], expires=clock.now + 60)
    access = tenants.keys.authenticate(writer.token)
    assert (access.tenant, access.member, access.projects) == ("acme", "ada", None)
    with tenants.open_store(access) as store:
        store.append(store.begin(id="plan"), Message("user", "hello"))
    limited = tenants.keys.authenticate(reader.token)
    assert limited.allows_project(PROJECT)
    assert not limited.allows_project(None)
    assert not limited.has_scope("write")
    with pytest.raises(AccessDenied, match="projects"):
        tenants.open_store(limited)
    with tenants.open_store(limited, checks_projects=True) as store:
        assert len(store.messages("plan")) == 1
        assert store.recent(where=limited.limit_filter(Filter())) == []
        assert store.recent(where=limited.limit_filter(Filter(projects=("other",)))) == []
        assert len(store.recent(where=access.limit_filter(Filter()))) == 1
        with pytest.raises(StoreReadOnly):
            store.append("plan", Message("user", "no"))
    clock.forward(61)
    wrong = [
        reader.token,
        writer.token[:-1],
        f"{writer.token}x",
        "",
        "rk_",
        f"rk_{writer.id}_",
        "x" * 999,
    ]
    for token in wrong:
        with pytest.raises(InvalidApiKey) as caught:
            tenants.keys.authenticate(token)
        assert not token or token not in str(caught.value)
    assert tenants.remove_member("acme", "ada") == 1
    with pytest.raises(InvalidApiKey):
        tenants.keys.authenticate(writer.token)
    assert writer.token not in repr(tenants.keys.list("acme")) + repr(tenants.list_entries())


def test_a_quota_refuses_what_is_too_much_and_begins_anew_the_next_day(
    tenants: Tenants, clock: Clock
) -> None:
    tenants.set_quota("acme", Quota(sessions=2, messages_per_day=3, bytes_per_day=1000))
    with tenants.open_store("acme") as store:
        store.append(store.begin(id="a"), Message("user", "one"), Message("assistant", "two"))
        with pytest.raises(QuotaExceeded) as caught:
            store.append("a", Message("user", "three"), Message("assistant", "four"))
        assert caught.value.retry_after
        assert tenants.get_usage("acme") == (2, 6)
        with pytest.raises(NotFound):
            store.append("missing", Message("user", "x"))
        assert tenants.get_usage("acme") == (2, 6)
        with pytest.raises(QuotaExceeded):
            store.append("a", Message("user", "x" * 1001))
        store.append(store.begin(id="b"), Message("user", "three"))
        clock.forward(86_400)
        store.append("b", Message("user", "four"))
        with pytest.raises(QuotaExceeded, match="2 sessions"):
            store.append(store.begin(id="c"), Message("user", "five"))
        with pytest.raises(QuotaExceeded):
            store.fork("a")
        assert len(store.messages("a")) == len(store.messages("b")) == 2


def test_an_erased_person_is_in_no_table_no_index_and_no_byte_of_the_file(
    tenants: Tenants, target: str, tmp_path: Path
) -> None:
    with tenants.open_store("acme") as store:
        fill(store, "xylograph", ["s2"])
        bob = store.begin(id="bob", owner="bob", cwd="/work/shop")
        store.append(bob, Message("user", "I keep my own words"))
        fork = store.fork(ID, owner="bob")
        exported = b"".join(export_person(store, ID))
        assert exported.count(b"xylograph") > 20
        report = erase_person(store, ID)
        assert {*report.sessions} == {ID, "s2", fork.id}
        assert report.left == ()
        assert report.passages
        with pytest.raises(NotFound):
            store.personal_data.find(ID)
        assert store.search("xylograph", where=Filter(archived=None)) == []
        assert [one.id for one in store.recent()] == ["bob"]
        assert store.verify() == []
        assert [one.content for one in store.messages("bob")] == ["I keep my own words"]
        left = _dump_tables(store)
    # What belongs to nobody in particular stays: files imported, errors, notes and templates.
    assert {table for table, text in left.items() if "xylograph" in text} <= {
        "imports", "folders", "note_decisions", "templates", "experiments", "graph_checkpoints",
    }  # fmt: skip


def _dump_tables(store: Store) -> dict[str, str]:
    from rekindle.store.tenants.shared_tables import SHARED_TABLES

    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        return {
            table.name: repr(tx.run(f"SELECT {table.list_names()} FROM {table.name}"))
            for table in SHARED_TABLES
        }


def test_what_an_erased_person_said_among_others_is_replaced(tenants: Tenants) -> None:
    ada = Source("matrix", "room", chat_type="group", user_id="@ada", user_name="Ada")
    eve = ada._replace(user_id="@eve", user_name="Eve")
    with tenants.open_store("acme") as store:
        store.routes.open("group", ada)
        session = store.begin(id="group-1", owner="group")
        for number, (source, text) in enumerate(((ada, "my xylograph secret"), (eve, "hello all"))):
            message = Message("user", text, platform_message_id=str(number))
            accepted = store.inbox.accept("group", source, message, instance="i", lease_seconds=60)
            assert accepted
            [inbound] = [one for one in store.inbox.list_waiting("group") if one.source == source]
            store.inbox.start_turn(inbound, session)
        report = erase_person(store, "matrix:@ada")
        assert report.sessions == ()
        assert [one.content for one in store.messages("group-1")] == ["[erased]", "hello all"]
        assert store.search("xylograph") == []
        assert [hit.message.content for hit in store.search("hello")] == ["hello all"]
        assert "xylograph" not in repr(_dump_tables(store))
        assert store.verify() == []


def test_a_file_keeps_no_deleted_words_of_an_erased_person(tmp_path: Path) -> None:
    with open_tenants(tmp_path / "sessions.db") as tenants:
        tenants.add("acme")
        with tenants.open_store("acme") as store:
            for number in range(30):
                session = store.begin(id=f"s{number}", owner="ada" if number % 2 else "bob")
                word = "xylograph" if number % 2 else "harpsichord"
                store.append(session, *(Message("user", f"{word} {n} of many") for n in range(20)))
            assert erase_person(store, "ada").rows["messages"] == 300
            assert len(store.search("harpsichord", limit=500)) == 300
    files = [file for file in (tmp_path / "tenants").rglob("*") if file.is_file()]
    assert any(b"harpsichord" in file.read_bytes() for file in files)
    assert not [file for file in files if b"xylograph" in file.read_bytes()]


def test_names_of_tenants_are_plain_and_used_once(tenants: Tenants) -> None:
    for name in ("", "Acme", "a b", "../up", "a" * 64, "-a", "ä"):
        with pytest.raises(RekindleError):
            tenants.add(name)
    with pytest.raises(RekindleError, match="already exists"):
        tenants.add("acme")
    actions = [(one.tenant, one.action) for one in tenants.list_entries("acme")]
    assert actions == [("acme", "tenant.add")]


# The tables of tenants as they were in version 21.
VERSION_21 = """
SET search_path = public_tenant_tables;
DROP VIEW public_tenants.title_parts, public_tenants.matching_title_parts;
DROP TRIGGER sessions_titled ON sessions;
DROP TRIGGER sessions_retitled ON sessions;
DROP TABLE title_parts;
DROP FUNCTION index_title, split_title;
DROP VIEW public_tenants.words, public_tenants.matching_words, public_tenants.project_numbers;
ALTER TABLE words DETACH PARTITION matching_words;
DROP TRIGGER sessions_moved ON sessions;
DROP FUNCTION add_project_number, number_project;
DROP TABLE words, project_numbers;
ALTER TABLE matching_words RENAME TO words;
DROP INDEX words_keys, words_unknown;
CREATE INDEX words_text ON words USING gin (text);
CREATE VIEW public_tenants.words AS SELECT tenant, id, part, text, project, session, time FROM words
    WHERE tenant = current_setting('rekindle.tenant') WITH LOCAL CHECK OPTION;
ALTER VIEW public_tenants.words OWNER TO rekindle_tenants;
UPDATE rekindle_version SET version = 21;
"""


def test_walls_that_somebody_switched_off_are_up_again_after_an_upgrade(
    store_database: Callable[[], str],
) -> None:
    target, names = store_database(), build_schema_names("public")
    with open_tenants(target) as tenants, psycopg.connect(target, autocommit=True) as connection:
        tenants.add("acme")
        with tenants.open_store("acme") as store:
            store.append(store.begin(id="plan"), Message("user", "hello"))
        set_row_security(lambda sql: connection.execute(sql), names, is_on=False)  # pyright: ignore
        connection.execute(VERSION_21)
        connection.execute("UPDATE rekindle_version SET version = 18")
        with tenants.open_store("acme") as store:
            assert len(store.messages("plan")) == 1
        forced = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE relrowsecurity AND relforcerowsecurity)"
            " FROM pg_class"
            " WHERE relnamespace = 'public_tenant_tables'::regnamespace AND relkind = 'r'"
            " AND relname <> 'rekindle_version'"
        ).fetchone()
        assert forced
        assert forced[0] == forced[1] > 30


def test_what_a_program_of_the_version_before_wrote_is_found_by_its_project(
    store_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = store_database()
    with open_tenants(target) as tenants, psycopg.connect(target, autocommit=True) as connection:
        for name in ("acme", "globex"):
            tenants.add(name)
            with tenants.open_store(name) as store:
                for n in range(3):
                    title = f"Harbour {name} {n}"
                    session = store.begin(id=f"s{n}", cwd=f"/tmp/{name}{n}", title=title)
                    store.append(session, Message("user", f"river {name}"))
        connection.execute(VERSION_21)
        connection.execute("UPDATE sessions SET cwd = '/tmp/moved' WHERE id = 's1'")
        monkeypatch.setattr("rekindle.store.engines.postgres_search.LARGE_STORE", 0)
        monkeypatch.setattr("rekindle.store.sessions.title_search.NEWEST_SESSIONS", 1)
        with tenants.open_store("acme") as store:
            assert len(store.search("river")) == 3
            moved = store.search("river", where=Filter(project="folder:/tmp/moved"))
            assert [hit.message.content for hit in moved] == ["river acme"]
            assert store.search("river", where=Filter(project="folder:/tmp/acme1")) == []
            store.append("s1", Message("user", "river again"))
            assert [one.id for one in store.search_titles("arbour 0")] == ["s0"]
            assert store.search_titles("globex") == []
            store.rename("s0", "Quay")
            assert store.search_titles("arbour 0") == []
            assert [one.id for one in store.search_titles("qua")] == ["s0"]
            assert store.verify() == []
        tenants.remove("acme")
        assert connection.execute("SELECT count(*) FROM matching_words").fetchone() == (3,)
        assert connection.execute("SELECT count(*) FROM title_parts").fetchone() == (3,)


def test_the_tables_of_tenants_have_the_columns_of_the_store(
    store_database: Callable[[], str],
) -> None:
    target = store_database()
    with open_tenants(target) as tenants, psycopg.connect(target) as connection:
        tenants.add("acme")
        tenants.open_store("acme").close()
        sql = (
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = %s AND column_name <> 'tenant'"
        )
        own = {*connection.execute(sql, ("public",)).fetchall()}
        for schema in build_schema_names("public"):
            shared = {*connection.execute(sql, (schema,)).fetchall()}
            shared |= {("rekindle_version", "version", "integer")}
            shared = {row for row in shared if not row[0].startswith("matching_")}
            missing = {row for row in own - shared if row[0] not in DIRECTORY}
            assert missing == shared - own == set()
