"""A new database has the tables of an upgraded one, and a new column is in all that is stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import rekindle.store
from rekindle import open_store
from rekindle.store.core.migrations import build_schema, load_migrations
from tests.conftest import ENGINES
from tests.contract.messages import started

# Everything that the catalog of PostgreSQL knows about our tables, without numbers of objects.
CATALOG = (
    "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default,"
    " is_identity FROM information_schema.columns WHERE table_schema = 'public'"
    " ORDER BY table_name, ordinal_position",
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 2",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
    "SELECT tgname, pg_get_triggerdef(t.oid), prosrc FROM pg_trigger t JOIN pg_proc f"
    " ON f.oid = tgfoid WHERE NOT tgisinternal",
    "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1",
)


def describe_sqlite(*scripts: str) -> dict[str, Any]:
    connection = apsw.Connection(":memory:")

    def run(sql: str) -> list[Any]:
        return connection.execute(sql).fetchall()

    for script in scripts:
        run(script)
    found: dict[str, Any] = {}
    for kind, name, table, sql in run("SELECT type, name, tbl_name, sql FROM sqlite_schema"):
        if kind == "table":
            pragmas = ("table_xinfo", "foreign_key_list")
            details = [run(f"PRAGMA {pragma}({name})") for pragma in pragmas]
            listed = run(f"SELECT type, wr, strict FROM pragma_table_list('{name}')")
            indexes = sorted(row[1:] for row in run(f"PRAGMA index_list({name})"))
            found[name] = [*details, listed, indexes, "CHECK (id = 1)" in sql]
        elif kind == "index" and sql:
            found[name] = [run(f"PRAGMA index_xinfo({name})"), "".join(sql.split())]
        elif kind == "trigger":
            found[name] = [table, sql]
    return found


def describe_postgres(url: str, *scripts: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        for script in scripts:
            connection.execute(script)  # pyright: ignore
        return [connection.execute(sql).fetchall() for sql in CATALOG]  # pyright: ignore


def test_sqlite_has_the_same_tables_new_and_upgraded() -> None:
    upgraded = describe_sqlite(*load_migrations("sqlite").values())
    assert describe_sqlite(build_schema("sqlite")) == upgraded


def test_postgresql_has_the_same_tables_new_and_upgraded(request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("postgres")
    upgraded = describe_postgres(server.database(), *load_migrations("postgres").values())
    assert describe_postgres(server.database(), build_schema("postgres")) == upgraded


# Adds a column to each of both definitions before anything uses them, then goes through the store.
PROGRAM = """
import sys
from collections import namedtuple
from types import ModuleType
import rekindle.message as message
import rekindle.types as types

Session, Message = types.Session, types.Message
at = Session._fields.index("model_config")
names = (*Session._fields[:at], "harbour", *Session._fields[at:])
defaults = {**Session._field_defaults, "harbour": None}
types.Session = namedtuple("Session", names, defaults=[defaults[name] for name in names[1:]])

class WideMessage(Message):
    __slots__ = ()
    _fields = (*Message._fields, "mood")
    mood = property(lambda self: self[12])
    def __new__(cls, *args, mood=None, **fields):
        return tuple.__new__(cls, (*Message(*args, **fields)[:], mood))
    @classmethod
    def _make(cls, values):
        return tuple.__new__(cls, values)

message.Message = types.Message = WideMessage
sys.modules["rekindle.store"] = ModuleType("rekindle.store")  # its own imports come later
sys.modules["rekindle.store"].__path__ = [sys.argv[3]]
from rekindle.store.core import tables
from rekindle.store.core.columns import TableColumn, Index, TEXT

del sys.modules["rekindle.store"]
parts = [part for table in tables.TABLES for part in (table, *table.parts)]
since = 1 + max(tables.ENGINE_VERSION, *(part.since for part in parts))
old = tables.SESSIONS, tables.MESSAGES
tables.SESSIONS = tables.SESSIONS.extend(
    TableColumn("harbour", TEXT, null=True, since=since, updatable=True, imported=True),
    Index("sessions_harbour", "harbour", since=since),
)
tables.MESSAGES = tables.MESSAGES.extend(TableColumn("mood", TEXT, null=True, since=since))
tables.TABLES = (tables.SESSIONS, tables.MESSAGES, *(t for t in tables.TABLES if t not in old))

from rekindle.store import open_store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Source

first, second = sys.argv[1:3]
with open_store(first) as store:
    assert store.stats().version == since
    assert store.session("old").harbour is None
    assert [one.mood for one in store.messages("old")] == [None]
    store.append("old", WideMessage("assistant", "high", mood="calm\\0"))
    assert store.update("old", harbour="Hull\\0").harbour == "Hull\\0"
    store.append(store.begin(id="new"), WideMessage("user", "tide", mood="wild"))
    assert store.fork("old").harbour == "Hull\\0"
    later = types.Session("new", harbour="Bergen", started=1.0)
    store.import_batch([SessionImport(later, is_complete=True)])
    assert {one.harbour for one in store.recent()} == {"Hull\\0", "Bergen"}
    (hit,) = store.search("tide", session="new")
    assert (hit.session.harbour, hit.message.mood) == ("Bergen", "wild")
    source = Source("telegram", "7")
    kept = WideMessage("user", "horn", mood="loud")
    store.inbox.accept("k", source, kept, instance="i", lease_seconds=9.0)
    (waiting,) = store.inbox.list_waiting("k")
    assert waiting.message.mood == "loud"
    assert store.verify() == []
    lines = [*store.dump()]
    with open_store(second) as copy:
        assert copy.load(lines).skipped == []
        assert copy.session("old").harbour == "Hull\\0"
        assert [one.mood for one in copy.messages("old")] == [None, "calm\\0"]
        assert [*copy.dump()] == lines
        assert copy.verify() == []
print("done")
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_column_added_to_the_definition_is_stored_and_copied(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "sqlite":
        targets = [str(tmp_path / "first.db"), str(tmp_path / "second.db")]
    else:
        targets = [request.getfixturevalue("postgres").database() for _ in range(2)]
    with open_store(targets[0]) as store:
        started(store, "low", id="old")
    folder = str(Path(rekindle.store.__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *targets, folder],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == "done\n", ran.stderr
