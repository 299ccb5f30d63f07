from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rekindle import Store, open_store
from rekindle.errors import InvalidInput, StoreDamaged
from rekindle.store import Filter
from tests.contract.messages import call, dumped, found, result, started, texts, turns, user

Reopened = Callable[[], Store]


def plant(store: Store, sql: str, *params: Any) -> None:
    """Damage from inside, through the engine of the store."""
    store._engine.transact([lambda tx: tx.run(sql, params)])


def plant_unguarded(target: str, sql: str) -> None:
    """Damage that the database itself would refuse."""
    if target.startswith("postgresql://"):
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # no foreign keys
            connection.execute(sql)  # pyright: ignore
    else:
        connection = apsw.Connection(target)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(sql)
        connection.close()


@pytest.fixture
def lived(store: Store) -> Store:
    """A store in which something of everything happened."""
    session = store.begin(id="a", title="Plan")
    store.append(session, *turns("one", "two"), call("ls"), result("x"))
    store.undo("a")
    store.append("a", *turns("three"))
    store.redo("a")
    store.append("a", *(user(f"filler {number}") for number in range(150)))
    store.undo("a", turns=3)
    store.fork("a", at=1)
    store.compress("a", user("summary"))
    started(store, "four", id="b")
    store.end("b", "done")
    store.prune(Filter(source="local", messages=(("=", 1),), ended="done"))
    return store


def test_nothing_is_found_in_a_store_in_use(lived: Store) -> None:
    progress: list[tuple[int, int]] = []
    assert lived.verify(lambda done, total: progress.append((done, total))) == []
    total = lived.stats().messages
    assert progress[-1] == (total, total)


def test_nothing_is_found_in_an_empty_store(store: Store) -> None:
    assert store.verify() == []
    assert store.repair() == []


@pytest.mark.parametrize(
    ("check", "where", "detail", "sql"),
    [
        (
            "count",
            "a",
            "recorded 999 messages",
            "UPDATE sessions SET message_count = 999 WHERE id = 'a'",
        ),
        ("count", "a", "recorded 9 tool calls",
         "UPDATE sessions SET tool_call_count = 9 WHERE id = 'a'"),
        ("order", "a", "next position is 1",
         "UPDATE sessions SET next_position = 1 WHERE id = 'a'"),
        ("chain", "", "descends from itself",
         "UPDATE sessions SET parent = (SELECT id FROM sessions WHERE forked_at IS NOT NULL)"
         " WHERE id = 'a'"),
        ("foreign key", "", "removed by a missing rewind",
         "UPDATE messages SET rewind = 999 WHERE content = 'one' AND origin IS NULL"),
        ("search index", "words", "missing from the index", "DELETE FROM words WHERE {id} ="
         " (SELECT min(id) FROM messages)"),
    ],
)  # fmt: skip
def test_planted_damage_is_found_and_mended(
    lived: Store, check: str, where: str, detail: str, sql: str
) -> None:
    said = texts(lived, "a")
    key = "rowid" if lived.stats().engine == "sqlite" else "id"
    plant(lived, sql.format(id=key))
    findings = lived.verify()
    assert findings
    assert {finding.check for finding in findings} <= {check, "count"}
    (finding,) = [finding for finding in findings if detail in finding.detail]
    assert finding.check == check
    assert finding.repairable
    assert where in finding.where
    mended = lived.repair()
    assert mended or check == "search index"
    assert lived.verify() == []
    assert set(said) <= set(texts(lived, "a"))
    assert found(lived, "one") == ["one", "one!"]
    last = max(message.position or 0 for message in lived.messages("a", rewound=True))
    assert lived.append("a", user("goes on")) == [last + 1]


def test_messages_that_lost_their_session_get_a_new_one(lived: Store, target: str) -> None:
    lost = texts(lived, "a", rewound=True)
    plant_unguarded(target, "DELETE FROM sessions WHERE id = 'a'")
    findings = lived.verify()
    assert {finding.check for finding in findings} == {"foreign key"}
    assert any("missing session" in finding.detail for finding in findings)
    mended = lived.repair()
    assert any("recovered_" in line for line in mended)
    assert lived.verify() == []
    (recovered,) = lived.recent(where=Filter(source="recovered"))
    assert texts(lived, recovered, rewound=True) == lost
    assert recovered.message_count == len(texts(lived, recovered))
    started(lived, "a new one", id="new")
    assert texts(lived, "new") == ["a new one"]


def test_a_rewind_that_lost_its_session_is_found_and_taken_away(store: Store, target: str) -> None:
    session = store.begin(id="a")
    store.append(session, *turns("one"))
    store.undo("a")
    plant_unguarded(target, "DELETE FROM messages")
    plant_unguarded(target, "DELETE FROM sessions")
    plant_unguarded(target, "DELETE FROM words")
    assert {finding.check for finding in store.verify()} == {"foreign key"}
    store.repair()
    assert store.verify() == []


def test_words_in_the_index_without_a_message_are_found_and_taken_away(
    lived: Store, target: str
) -> None:
    plant_unguarded(target, "DELETE FROM messages WHERE content = 'filler 7'")
    findings = lived.verify()
    assert "search index" in {finding.check for finding in findings}
    lived.repair()
    assert lived.verify() == []
    assert found(lived, "filler 8", rewound=True)


def test_a_message_that_cannot_be_read_is_named_and_costs_no_other(lived: Store) -> None:
    plant(lived, "UPDATE messages SET body = '{broken' WHERE content = 'x'")
    (finding,) = lived.verify()
    assert (finding.check, finding.repairable) == ("message", False)
    assert "position 5" in finding.where
    with pytest.raises(StoreDamaged, match="position 5"):
        lived.messages("a")
    lived.repair()
    lived.append(lived.begin(id="c"), *(user(f"more {n}") for n in range(200)))
    assert len(lived.search("more", limit=500)) == 200
    assert found(lived, "one") == ["one", "one!"]


def test_repair_mends_nothing_in_a_store_that_is_well(lived: Store) -> None:
    before = dumped(lived)
    assert lived.repair() == []
    assert dumped(lived) == before
    assert found(lived, "one") == ["one", "one!"]


def test_repair_builds_the_index_anew(lived: Store) -> None:
    everything = "INSERT INTO words (words) VALUES ('delete-all')"
    plant(lived, everything if lived.stats().engine == "sqlite" else "DELETE FROM words")
    progress: list[tuple[int, int]] = []
    lived.repair(lambda done, total: progress.append((done, total)))
    total = lived.stats().messages
    assert progress[-1] == (total, total)
    assert found(lived, "one") == ["one", "one!"]
    assert found(lived, "filler 149", rewound=True) == ["filler 149"]


def test_a_backup_is_equal_and_opens_by_itself(lived: Store, tmp_path: Path) -> None:
    copy = tmp_path / "backup.db"
    progress: list[tuple[int, int]] = []
    lived.backup(copy, lambda done, total: progress.append((done, total)))
    assert progress[-1][0] == progress[-1][1]
    with open_store(copy) as backup:
        assert dumped(backup) == dumped(lived)
        assert backup.verify() == []
        assert found(backup, "one") == ["one", "one!"]
    left = {file.name for file in tmp_path.iterdir() if not file.name.startswith("sessions.db")}
    assert left <= {"backup.db", "backup.db-turns"}
    assert copy.stat().st_mode & 0o077 == 0


def test_a_backup_replaces_an_older_one(lived: Store, tmp_path: Path) -> None:
    copy = tmp_path / "backup.db"
    lived.backup(copy)
    lived.append(lived.begin(id="later"), user("later"))
    lived.backup(str(copy))
    with open_store(copy, readonly=True) as backup:
        assert texts(backup, "later") == ["later"]


def test_a_backup_of_a_store_that_is_written_to_is_whole(
    store: Store, reopened: Reopened, tmp_path: Path
) -> None:
    other, stop = reopened(), threading.Event()
    sessions = [started(store, "start", id=name) for name in "ab"]

    def write() -> None:
        for number in range(2000):
            if stop.is_set():
                return
            other.append(sessions[number % 2].id, user(f"needle {number}"))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(2):
            copy = tmp_path / f"backup{number}.db"
            acknowledged = {session.id: len(store.messages(session)) for session in sessions}
            store.backup(copy)
            with open_store(copy) as backup:
                assert backup.verify() == []
                for name, count in acknowledged.items():
                    assert len(backup.messages(name)) >= count
    finally:
        stop.set()
        writing.join()
    assert store.verify() == []


def test_verify_sees_one_moment_while_others_write(store: Store, reopened: Reopened) -> None:
    other, stop = reopened(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            session = started(other, "a", "b")
            other.undo(session)
            other.fork(session)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert [store.verify() for _ in range(8)] == [[]] * 8
    finally:
        stop.set()
        writing.join()


def test_a_title_that_two_sessions_have_cannot_be_planted(lived: Store) -> None:
    with pytest.raises(InvalidInput):
        plant(lived, "UPDATE sessions SET title = 'Same', title_base = 'same', title_number = 1")
    assert lived.verify() == []
