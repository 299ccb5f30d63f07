"""A column that is added to the definition of a table is in everything that is built from it."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest

from rekindle import Message
from rekindle.errors import InvalidInput
from rekindle.store.core import columns, tables
from rekindle.store.core.columns import Index, TableColumn
from rekindle.store.core.migrations import LATEST_VERSION, build_schema, load_migrations
from rekindle.store.core.rows import MessageRows, SessionRows
from rekindle.types import Session, Tokens

NEXT = LATEST_VERSION + 1
HARBOUR = TableColumn("harbour", columns.KEY, null=True, since=NEXT, updatable=True)
DEPTH = TableColumn("depth", columns.REAL, default="0", since=NEXT)
SESSIONS = tables.SESSIONS.extend(
    HARBOUR, DEPTH, Index("sessions_harbour", "harbour WHERE harbour IS NOT NULL", since=NEXT)
)
MESSAGES = tables.MESSAGES.extend(TableColumn("mood", columns.TEXT, null=True, since=NEXT))
ALL = [
    {"sessions": SESSIONS, "messages": MESSAGES}.get(table.name, table) for table in tables.TABLES
]
# Plain fields stand before those that are converted.
AT = Session._fields.index("model_config")
WIDE_FIELDS = (*Session._fields[:AT], "harbour", "depth", *Session._fields[AT:])
WideSession: Any = namedtuple("WideSession", WIDE_FIELDS)


def widen(session: Session, harbour: str | None, depth: float) -> Any:
    return WideSession(**session._asdict(), harbour=harbour, depth=depth)


def test_a_new_database_has_the_column() -> None:
    sqlite, postgres = build_schema("sqlite", ALL), build_schema("postgres", ALL)
    assert ", harbour TEXT, depth REAL NOT NULL DEFAULT 0) STRICT" in sqlite
    assert 'harbour TEXT COLLATE "C", depth DOUBLE PRECISION NOT NULL DEFAULT 0)' in postgres
    for sql in (sqlite, postgres):
        assert "content TEXT, mood TEXT)" in sql
        assert "INDEX sessions_harbour ON sessions (harbour) WHERE harbour IS NOT NULL" in sql


def test_an_old_database_gets_the_column() -> None:
    assert load_migrations("sqlite", ALL)[NEXT].split(";\n") == [
        "ALTER TABLE sessions ADD COLUMN harbour TEXT",
        "ALTER TABLE sessions ADD COLUMN depth REAL NOT NULL DEFAULT 0",
        "CREATE INDEX sessions_harbour ON sessions (harbour) WHERE harbour IS NOT NULL",
        "ALTER TABLE messages ADD COLUMN mood TEXT",
    ]
    assert load_migrations("postgres", ALL)[NEXT].split(";\n")[:2] == [
        'ALTER TABLE sessions ADD COLUMN harbour TEXT COLLATE "C"',
        "ALTER TABLE sessions ADD COLUMN depth DOUBLE PRECISION NOT NULL DEFAULT 0",
    ]
    assert NEXT not in load_migrations("sqlite")


def test_rows_of_all_versions_are_recognised() -> None:
    assert tables.SESSIONS.widths == {34, 36, 38, 40, 41}
    assert SESSIONS.widths == {34, 36, 38, 40, 41, 43}
    assert tables.MESSAGES.widths == {13}


@pytest.mark.parametrize("odd", ["", "\0"])
def test_a_session_comes_back_with_the_column(odd: str) -> None:
    rows = SessionRows(SESSIONS, WideSession)
    assert (
        "s.pruned, s.last_request, s.sub_agent, s.harbour, s.depth, s.model_config, s.tokens_input"
        in rows.select
    )
    session = widen(Session("x", started=1.0, tokens=Tokens(4)), f"Hull{odd}", 2.5)
    stored = rows.build_new(session) | {"tokens_input": 4}
    assert (stored["depth"], stored.get("is_escaped")) == (2.5, 1 if odd else None)
    values = [
        stored.get(name.removeprefix("s."), None if "tokens" not in name else 0)
        for name in rows.select.replace("nullif(s.owner, '')", "owner").split(", ")
    ]
    values[2] = None  # the owner, by nullif
    values[-2:] = [0, stored.get("is_escaped", 0)]
    read: Any = rows.read(tuple(values))
    assert (read.id, read.harbour, read.depth, read.tokens) == ("x", f"Hull{odd}", 2.5, Tokens(4))


def test_a_value_of_the_wrong_type_is_refused() -> None:
    rows = SessionRows(SESSIONS, WideSession)
    rows.check(widen(Session("x"), None, 0.0))
    with pytest.raises(InvalidInput, match=r"session\.harbour: expected text, got int"):
        rows.check(widen(Session("x"), 7, 0.0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match=r"session\.depth: expected UTC seconds, got 'deep'"):
        rows.check(widen(Session("x"), None, "deep"))  # pyright: ignore[reportArgumentType]


def test_a_session_class_in_another_order_is_refused() -> None:
    late: Any = namedtuple("late", (*Session._fields, "harbour", "depth"))
    with pytest.raises(TypeError, match="plain fields come first"):
        SessionRows(SESSIONS, late)


class WideMessage(Message):
    """A message with one more field."""

    _fields = (*Message._fields, "mood")
    mood: str | None = property(lambda self: self[12])  # type: ignore[assignment]


def make_message(mood: Any) -> Any:
    return tuple.__new__(WideMessage, (*Message("user", "hi")[:], mood))


def test_a_message_comes_back_with_the_column() -> None:
    rows = MessageRows(MESSAGES, WideMessage)
    assert rows.select.endswith("m.content, m.mood")
    assert rows.insert.startswith(f"INSERT INTO messages ({rows.inserted})")
    assert rows.inserted.endswith("content, mood")
    *values, content, mood = rows.write(make_message("calm\0"), 2.0, None)
    assert (content, rows.insert.count("?"), len(values)) == ("hi", 12, 8)
    read: Any = rows.read((0, "user", 2.0, None, None, None, None, content, mood))
    assert (read.text, read.mood, type(read)) == ("hi", "calm\0", WideMessage)
    old: Any = rows.read((0, "user", 2.0, None, None, None, None, content))
    assert (old.text, old.mood) == ("hi", None)
    with pytest.raises(InvalidInput, match=r"message\.mood: expected text, got int"):
        rows.write(make_message(7), 2.0, None)
