"""Opening and closing, read-only stores, and databases of other versions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rekindle import Store, Tokens, open_store
from rekindle.errors import InvalidInput, StoreClosed, StoreError, StoreReadOnly, StoreTooNew
from rekindle.store import Filter
from rekindle.store.core.migrations import LATEST_VERSION, load_migrations
from rekindle.store.engines.sqlite import APPLICATION_ID
from tests.conftest import ENGINES, Clock
from tests.contract.messages import dumped, found, started, texts, user


@pytest.fixture(params=ENGINES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of its own: the copy that an upgrade keeps stands beside its schema."""
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    return request.getfixturevalue("postgres").database()


def is_url(target: str) -> bool:
    return target.startswith("postgresql://")


def run(target: str, *statements: str) -> list[Any]:
    """Statements past the store, as a person with a database tool would run them."""
    rows: list[Any] = []
    if is_url(target):
        with psycopg.connect(target, autocommit=True) as connection:
            for sql in statements:
                cursor = connection.execute(sql)  # pyright: ignore
                rows = cursor.fetchall() if cursor.description else []
    else:
        connection = apsw.Connection(target)
        for sql in statements:
            rows = connection.execute(sql).fetchall()
        connection.close()
    return rows


def set_version(target: str, version: int) -> None:
    if is_url(target):
        oldest = f", oldest = {version}" if version > LATEST_VERSION else ""
        run(target, f"UPDATE rekindle_version SET version = {version}{oldest}")
    else:
        run(target, f"PRAGMA user_version = {version}")


# -- closing


def test_a_closed_store_says_so(store: Store) -> None:
    session = started(store, "needle")
    store.close()
    uses: list[Callable[[], object]] = [
        lambda: store.append(session, user("x")),
        lambda: store.append(store.begin(), user("x")),
        lambda: store.messages(session),
        lambda: store.session(session.id),
        lambda: store.resolve(session.id),
        lambda: store.recent(),
        lambda: store.search("needle"),
        lambda: store.rename(session, "x"),
        lambda: store.end(session, "x"),
        lambda: store.fork(session),
        lambda: store.undo(session),
        lambda: store.add_usage(session, Tokens(1)),
        lambda: store.prune(Filter()),
        lambda: store.purge(),
        lambda: list(store.dump()),
        lambda: store.verify(),
        lambda: store.repair(),
        lambda: store.stats(),
    ]
    for use in uses:
        with pytest.raises(StoreClosed):
            use()


def test_closing_twice_is_closing(target: str) -> None:
    with open_store(target) as store:
        started(store, "a", id="x")
        store.close()
    with open_store(target) as store:
        assert texts(store, "x") == ["a"]


def test_what_was_acknowledged_is_there_without_closing(target: str, clock: Clock) -> None:
    abandoned = open_store(target, clock=clock)
    started(abandoned, "a", id="x")
    with open_store(target, clock=clock) as store:
        assert texts(store, "x") == ["a"]
    abandoned.close()


def test_a_wrong_option_is_refused(target: str) -> None:
    with pytest.raises(InvalidInput, match="durability: expected full or relaxed, got 'none'"):
        open_store(target, durability="none")  # pyright: ignore


def test_a_relaxed_store_holds_the_same(target: str) -> None:
    with open_store(target, durability="relaxed") as store:
        started(store, "a", id="x")
    with open_store(target) as store:
        assert texts(store, "x") == ["a"]


# -- read-only


def test_a_read_only_store_reads_and_searches(store: Store, target: str) -> None:
    started(store, "the needle", *(f"filler {number}" for number in range(100)), id="x")
    store.append("x", user("needle at the end"))
    with open_store(target, readonly=True) as reader:
        assert found(reader, "needle") == ["needle at the end", "the needle"]
        assert reader.session("x") == store.session("x")
        assert len(reader.messages("x")) == 102
        assert dumped(reader) == dumped(store)
        assert reader.verify() == []
        assert reader.stats().messages == 102
        assert [session.id for session in reader.prune(Filter(), dry_run=True)] == ["x"]
        store.append("x", user("needle that came later"))
        assert len(found(reader, "needle")) == 3


def test_a_read_only_store_refuses_every_write(store: Store, target: str) -> None:
    session = started(store, "a")
    before = dumped(store)
    with open_store(target, readonly=True) as reader:
        writes: list[Callable[[], object]] = [
            lambda: reader.append(session, user("x")),
            lambda: reader.append(reader.begin(), user("x")),
            lambda: reader.rename(session, "x"),
            lambda: reader.end(session, "x"),
            lambda: reader.undo(session),
            lambda: reader.fork(session),
            lambda: reader.add_usage(session, Tokens(1)),
            lambda: reader.prune(Filter()),
            lambda: reader.purge(),
            lambda: reader.load(before),
            lambda: reader.mark_imported("x", "y"),
            lambda: reader.repair(),
        ]
        for write in writes:
            with pytest.raises(StoreReadOnly):
                write()
    assert dumped(store) == before


def test_a_reader_creates_nothing(target: str) -> None:
    with pytest.raises(StoreReadOnly):
        open_store(target, readonly=True)
    assert is_url(target) or not Path(target).exists()


# -- versions


def test_a_store_has_the_newest_version(store: Store) -> None:
    assert store.stats().version == LATEST_VERSION


def test_a_newer_database_is_refused_and_left_alone(target: str) -> None:
    with open_store(target) as store:
        started(store, "a", id="x")
    set_version(target, LATEST_VERSION + 7)
    for readonly in (False, True):
        with pytest.raises(
            StoreTooNew, match=f"version {LATEST_VERSION + 7}.*up to {LATEST_VERSION}"
        ):
            open_store(target, readonly=readonly)
    set_version(target, LATEST_VERSION)
    with open_store(target) as store:
        assert texts(store, "x") == ["a"]


def make_old(target: str) -> None:
    """A database as version 1 left it, with a session of two messages."""
    engine = "postgres" if is_url(target) else "sqlite"
    insert_session = (
        "INSERT INTO sessions (id, source, owner, title, title_base, title_number, started,"
        " last_active, next_position, message_count, tool_call_count)"
        " VALUES ('x', 'cli', '', 'Plan', 'plan', 1, 5.0, 6.0, 2, 2, 0)"
    )
    insert_messages = (
        "INSERT INTO messages (session, position, role, time, content) VALUES"
        " (1, 0, 'user', 5.0, 'the needle'), (1, 1, 'assistant', 6.0, 'found')"
    )
    marks = [f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 1"]
    if is_url(target):
        marks = [
            "CREATE TABLE rekindle_version (version INTEGER NOT NULL)",
            "INSERT INTO rekindle_version VALUES (1)",
        ]
    run(target, load_migrations(engine)[1], insert_session, insert_messages, *marks)


def test_an_older_database_is_upgraded_and_its_messages_are_found(target: str) -> None:
    make_old(target)
    with open_store(target) as store:
        assert store.stats().version == LATEST_VERSION
        assert texts(store, "x") == ["the needle", "found"]
        assert found(store, "needle") == ["the needle"]
        assert store.append("x", user("more")) == [2]
        assert store.resolve("plan").message_count == 3
        assert store.verify() == []


def test_what_earlier_versions_mined_is_gone_after_an_upgrade(target: str) -> None:
    engine = "postgres" if is_url(target) else "sqlite"
    make_old(target)
    nothing = "'[]'" if is_url(target) else "x'5b5d'"
    mined = f"INSERT INTO mined VALUES (1, 'r', 0, 1, 'code', 3, 1, NULL, {nothing})"
    run(target, *[load_migrations(engine)[number] for number in range(2, 8)], mined)
    set_version(target, 7)
    with open_store(target) as store:
        assert texts(store, "x") == ["the needle", "found"]
    catalog = (
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        if is_url(target)
        else "SELECT name FROM sqlite_master"
    )
    names = {name for (name,) in run(target, catalog)}
    assert names.isdisjoint({"mining_results", "mining_calls", "candidates", "patterns"})


def test_a_copy_is_kept_of_what_was_upgraded(target: str) -> None:
    make_old(target)
    open_store(target).close()
    open_store(target).close()  # the second time there is nothing to upgrade
    if is_url(target):
        schemas = run(
            target, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rekindle\\_v1\\_%'"
        )
        assert len(schemas) == 1
        kept = run(target, f"SELECT content FROM {schemas[0][0]}.messages ORDER BY position")
    else:
        (copy,) = Path(target).parent.glob("sessions.db.v1-*")
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert run(str(copy), "PRAGMA user_version") == [(1,)]
        kept = run(str(copy), "SELECT content FROM messages ORDER BY position")
    assert kept == [("the needle",), ("found",)]


def test_a_reader_does_not_upgrade(target: str) -> None:
    make_old(target)
    with pytest.raises(StoreError), open_store(target, readonly=True) as store:
        store.search("needle")
    where = "SELECT version FROM rekindle_version" if is_url(target) else "PRAGMA user_version"
    assert run(target, where) == [(1,)]


def test_an_upgrade_that_fails_leaves_the_old_database(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(target)
    from rekindle.store.core import migrations as loader

    broken = {**load_migrations("sqlite"), 2: "CREATE TABLE half (x INTEGER); SELECT nonsense()"}
    monkeypatch.setattr(loader, "load_migrations", lambda engine: broken)
    with pytest.raises(StoreError):
        open_store(target)
    monkeypatch.undo()
    with open_store(target) as store:
        assert texts(store, "x") == ["the needle", "found"]
        assert found(store, "needle") == ["the needle"]


def test_a_database_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    run(str(other), "CREATE TABLE cats (name TEXT)", "INSERT INTO cats VALUES ('Tom')")
    for readonly in (False, True):
        with pytest.raises(InvalidInput, match="not a Rekindle store"):
            open_store(other, readonly=readonly)
    assert run(str(other), "SELECT name FROM cats") == [("Tom",)]


def test_a_new_file_is_private(tmp_path: Path) -> None:
    with open_store(tmp_path / "deep" / "er" / "s.db") as store:
        started(store)
        for file in (tmp_path / "deep" / "er").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_store_is_not_used_by_a_forked_child(store: Store) -> None:
    session = store.begin()
    store.append(session, user("before"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for use in (lambda: store.append(session, user("child")), lambda: store.messages(session)):
            try:
                use()
                said.append("used")
            except StoreClosed as error:
                said.append(str(error))
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(reader, 1000).decode().split("\n")
    os.close(reader)
    os.close(writer)
    assert said == ["this store was opened before the fork: open it in the child process"] * 2
    store.append(session, user("after"))
    assert [message.text for message in store.messages(session)] == ["before", "after"]
