"""A file that is not what was written: a clear error, no further damage, and a way back."""

import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from rekindle import Message, ToolCall, open_store
from rekindle.errors import InvalidInput, RekindleError, StoreDamaged, StoreTooNew
from rekindle.store import recovery, repair_file
from rekindle.store.engines import sqlite_pages
from rekindle.store.graphs.documents import DocumentChange, DocumentPlace
from rekindle.types import Tokens
from tests.acceptance.faults import contents, run_command, start
from tests.contract.tenant_rows import ID, fill
from tests.waiting import PATIENCE

SESSIONS, MESSAGES, PAGE = 40, 20, 4096


def said(session: int, number: int) -> Message:
    text = f"s{session}m{number} " + " ".join(f"w{session * number + place}" for place in range(60))
    calls = (ToolCall("c1", "burn", '{"what": "wood"}'),) if number % 7 == 3 else ()
    return Message(role="user", content=text, tool_calls=calls)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some size, made once."""
    path = tmp_path_factory.mktemp("original") / "sessions.db"
    with open_store(path, durability="relaxed") as store:
        for session in range(SESSIONS):
            messages = [said(session, number) for number in range(MESSAGES)]
            store.append(store.begin(id=f"session{session}", title=f"Talk {session}"), *messages)
        assert store.verify() == []
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged; nothing else is in its folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return Path(shutil.copy(original, folder / "sessions.db"))


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def noise(size: int) -> bytes:
    return bytes((place * 7919 + 13) % 251 for place in range(size))


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def replace_by_another_database(path: Path) -> None:
    path.unlink()
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('here')")
    other.close()


def make_newer(path: Path) -> None:
    future = apsw.Connection(str(path))
    future.execute("PRAGMA user_version = 99")
    future.close()


FAULTS: dict[str, tuple[Callable[[Path], None], type[RekindleError], str]] = {
    "cut in half": (lambda p: truncate(p, p.stat().st_size // 2), StoreDamaged, "repair"),
    "cut inside a page": (lambda p: truncate(p, 10 * PAGE + 123), StoreDamaged, "repair"),
    "cut in the header": (lambda p: truncate(p, 60), StoreDamaged, "repair"),
    "noise over the header": (lambda p: overwrite(p, 0, noise(100)), StoreDamaged, "repair"),
    "noise over the schema": (lambda p: overwrite(p, 100, noise(3000)), StoreDamaged, "repair"),
    "all noise": (lambda p: overwrite(p, 0, noise(p.stat().st_size)), StoreDamaged, "repair"),
    "a text": (lambda p: p.write_text("Dear diary,\n" * 1000) and None, StoreDamaged, "repair"),
    "another program's": (replace_by_another_database, InvalidInput, "not a Rekindle store"),
    "a newer version": (make_newer, StoreTooNew, "upgrade Rekindle"),
}


def read_all(path: Path, readonly: bool) -> None:
    with open_store(path, readonly=readonly) as store:
        for session in range(SESSIONS):
            store.messages(f"session{session}")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
def test_a_file_that_is_not_what_was_written_is_refused_and_left_as_it_is(
    path: Path, fault: str, readonly: bool
) -> None:
    damage, error, advice = FAULTS[fault]
    damage(path)
    before = path.read_bytes()
    with pytest.raises(error, match=advice) as refusal:
        read_all(path, readonly)
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("fault", FAULTS)
def test_the_command_says_what_is_wrong_with_a_file_and_leaves_it(path: Path, fault: str) -> None:
    damage, error, advice = FAULTS[fault]
    damage(path)
    before = path.read_bytes()
    done = run_command(path, "sessions", "verify")
    assert done.returncode == (2 if error is InvalidInput else 1)
    assert "Traceback" not in done.stderr
    assert advice in done.stderr
    assert path.read_bytes() == before


def test_an_empty_file_is_a_store_to_be_filled(path: Path) -> None:
    truncate(path, 0)
    with open_store(path) as store:
        assert store.recent() == []
        assert store.append(store.begin(id="one"), said(0, 0)) == [0]
        assert store.verify() == []


LEAVE_A_LOG = """
import os, signal, sys
from rekindle import Message, open_store
store = open_store(sys.argv[1])
store.append(store.begin(id="late"), Message(role="user", content="only in the log"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_empty_file_beside_a_log_is_damage_and_the_log_is_kept(path: Path) -> None:
    process = start(LEAVE_A_LOG, path)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    truncate(path, 0)
    log = Path(f"{path}-wal").read_bytes()
    assert log
    with pytest.raises(StoreDamaged, match=str(path)):
        open_store(path)
    assert path.read_bytes() == b""
    assert Path(f"{path}-wal").read_bytes() == log


def noise_in_the_middle(path: Path) -> None:
    """A few pages in a row, and some more here and there."""
    pages = path.stat().st_size // PAGE
    for page in (pages // 2, pages // 2 + 1, pages // 2 + 2, pages // 3, pages * 3 // 4):
        overwrite(path, page * PAGE, noise(PAGE))


def test_noise_in_the_middle_is_found_and_reading_around_it_does_no_further_damage(
    path: Path,
) -> None:
    noise_in_the_middle(path)
    before = path.read_bytes()
    read, refused = 0, list[str]()
    with open_store(path) as store:
        for session in range(SESSIONS):
            try:
                got = store.messages(f"session{session}")
            except StoreDamaged as error:
                refused.append(str(error))
            else:
                assert got == [said(session, number) for number in range(MESSAGES)]
                read += 1
    assert all(str(path) in text and "repair" in text for text in refused)
    assert read + len(refused) == SESSIONS
    assert read > SESSIONS * 0.8
    assert path.read_bytes() == before
    done = run_command(path, "sessions", "verify")
    assert done.returncode == 1
    assert "repair" in done.stderr
    assert path.read_bytes() == before


def salvaged(path: Path) -> tuple[int, int]:
    """How many sessions and messages a mended file has; all of them true."""
    with open_store(path) as store:
        assert store.verify() == []
        sessions = store.recent(10_000)
        kept = 0
        for session in sessions:
            for message in store.messages(session):
                about, number = message.text.split(" ")[0][1:].split("m")
                assert message == said(int(about), int(number))
                kept += 1
                if session.id.startswith("session"):
                    assert session.id == f"session{about}"
                    assert message.position == int(number)
        again = store.begin(id="afterwards")
        assert store.append(again, said(0, 0)) == [0]
        assert store.search("s0m0")
    return len(sessions), kept


DAMAGES = {
    "noise in the middle": (noise_in_the_middle, 0.9),
    "cut at three quarters": (lambda p: truncate(p, p.stat().st_size * 3 // 4 // PAGE * PAGE), 0.4),
    "noise over the header": (lambda p: overwrite(p, 0, noise(100)), 0.9),
}


@pytest.mark.parametrize("fault", DAMAGES)
def test_repair_brings_back_what_can_be_and_keeps_the_damaged_file(
    path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, share = DAMAGES[fault]
    damage(path)
    damaged = path.read_bytes()
    mended = repair_file(str(path))
    assert mended
    kept = [name for name, data in contents(path.parent).items() if data == damaged]
    assert len(kept) == 1
    assert kept[0] != path.name
    sessions, messages = salvaged(path)
    with capsys.disabled():
        print(
            f"\n{fault}: {sessions} of {SESSIONS} sessions, {messages} of {SESSIONS * MESSAGES} messages"
        )
    assert messages >= SESSIONS * MESSAGES * share


@pytest.mark.parametrize("fault", ["noise in the middle", "noise over the header"])
def test_repair_keeps_what_stood_in_the_log_and_leaves_no_old_log_to_the_new_file(
    path: Path, fault: str
) -> None:
    start(LEAVE_A_LOG, path).communicate(timeout=PATIENCE)
    assert Path(f"{path}-wal").stat().st_size > 0
    DAMAGES[fault][0](path)
    repair_file(str(path))
    with open_store(path) as store:
        assert store.verify() == []
        assert [message.text for message in store.messages("late")] == ["only in the log"]
        held = sum(len(store.messages(session)) for session in store.recent(10_000))
        assert held > SESSIONS * MESSAGES * 0.9


def test_the_command_repairs_a_damaged_file_and_verify_is_content_afterwards(path: Path) -> None:
    noise_in_the_middle(path)
    damaged = path.read_bytes()
    done = run_command(path, "sessions", "repair", "--yes")
    assert done.returncode == 0, done.stderr
    assert damaged in contents(path.parent).values()
    done = run_command(path, "sessions", "verify")
    assert (done.returncode, done.stdout) == (0, "No problems found.\n")
    assert salvaged(path)[1] > SESSIONS * MESSAGES * 0.9


def read_others(path: Path) -> dict[str, list[Any]]:
    """Return the rows of all tables that repair brings back beside sessions and messages."""
    with closing(apsw.Connection(str(path))) as connection:
        return {
            table.name: sorted(connection.execute(f"SELECT * FROM {table.name}"), key=repr)
            for table in recovery._OTHERS  # pyright: ignore[reportPrivateUsage]
        }


def find_pages(path: Path, table: str, *, has_numbers: bool) -> list[int]:
    """Return the pages of a table, its first page first."""
    data = path.read_bytes()
    root = sqlite_pages.find_roots(data)[table]
    tree = sqlite_pages.walk_tree(data, root, has_numbers=has_numbers)
    return [root, *sorted(tree.pages - {root})]


@pytest.fixture
def full_store(tmp_path: Path) -> Path:
    """A store with a row in every table, and with tables of many pages."""
    file = tmp_path / "full.db"
    with open_store(file, durability="relaxed") as store:
        fill(store, "heron", ["s2"])
        decisions = [(f"n{number:04}", f"note {number} {'y' * 200}") for number in range(400)]
        facts = [(number, f"fact {number} {'x' * 200}") for number in range(400)]

        def plant(tx: Any) -> None:
            tx.run_many(
                "INSERT INTO note_decisions (project, note, state, text, time)"
                " VALUES ('shop', ?, 'added', ?, 1.0)",
                decisions,
            )
            tx.run_many(
                "INSERT INTO memory_facts (owner, number, text, state, since)"
                " VALUES ('ada', ?, ?, 'active', 1.0)",
                facts,
            )

        store._write(plant)  # pyright: ignore[reportPrivateUsage]
        places = [DocumentPlace((ID,), f"k{number:04}") for number in range(200)]
        store.documents.put(ID, [DocumentChange(one, {"long": "z" * 3_000}) for one in places])
        tenants = store.tenants
        tenants.add_tenant("0123456789abcdef", "acme")
        tenants.save_member("0123456789abcdef", "ada", "admin")
        store.repair()  # what was planted of usage adds up to nothing
        store.add_usage("s2", Tokens(100, 20), model="gpt-5")
        assert store.verify() == []
    return file


def test_repair_brings_back_everything_that_people_and_frameworks_stored(full_store: Path) -> None:
    before = read_others(full_store)
    assert {name for name, rows in before.items() if rows} >= {
        "jobs", "memory_facts", "note_decisions", "routes", "graph_values", "experiments",
        "assignments", "people", "tenants", "usage", "preludes", "inbox", "outbox", "folders",
    }  # fmt: skip
    overwrite(full_store, 0, noise(PAGE))  # the header and the root of the schema
    done = run_command(full_store, "sessions", "repair", "--yes")
    assert done.returncode == 0, done.stderr
    assert "401 note_decisions" in done.stdout
    assert "could not be read" not in done.stdout
    assert read_others(full_store) == before
    with open_store(full_store) as store:
        assert store.verify() == []


def test_repair_reports_what_was_lost_of_a_table_and_keeps_the_rest(full_store: Path) -> None:
    before = read_others(full_store)
    # Every way down to the decisions is lost, one page of facts, and the header.
    root = find_pages(full_store, "note_decisions", has_numbers=False)[0]
    leaf = find_pages(full_store, "memory_facts", has_numbers=True)[5]
    for page in (root, leaf):
        overwrite(full_store, (page - 1) * PAGE, noise(PAGE))
    overwrite(full_store, 0, noise(100))
    said = "\n".join(repair_file(full_store))
    assert "note_decisions: 1 damaged pages were skipped" in said
    assert "memory_facts: 1 damaged pages were skipped" in said
    after = read_others(full_store)
    for name in ("note_decisions", "memory_facts"):
        assert {*after[name]} < {*before[name]}
        assert len(after[name]) > 350, name
        del before[name], after[name]
    assert after == before
    with open_store(full_store) as store:
        assert store.verify() == []


def test_a_backup_of_a_live_store_restores_everything(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup.db"
    with open_store(path) as store:
        store.append(store.begin(id="late"), said(7, 7))  # still in the log
        store.backup(copy)
    overwrite(path, 0, noise(path.stat().st_size))
    with pytest.raises(StoreDamaged, match="restore a backup"):
        open_store(path)
    for file in path.parent.iterdir():
        file.unlink()
    shutil.copy(copy, path)
    with open_store(path) as store:
        assert store.verify() == []
        assert store.messages("late") == [said(7, 7)]
        for session in range(SESSIONS):
            expected = [said(session, number) for number in range(MESSAGES)]
            assert store.messages(f"session{session}") == expected
        assert store.resolve("Talk 35").id == "session35"


def test_a_newer_postgresql_database_is_refused_and_left_as_it_is(postgres: object) -> None:
    import psycopg

    url = postgres.database()  # pyright: ignore
    with open_store(url) as store:
        store.append(store.begin(id="one"), said(1, 1))
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE rekindle_version SET version = 99, oldest = 99")
    with pytest.raises(StoreTooNew, match="99"):
        open_store(url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT version FROM rekindle_version").fetchall() == [(99,)]
        assert connection.execute("SELECT count(*) FROM messages").fetchall() == [(1,)]
