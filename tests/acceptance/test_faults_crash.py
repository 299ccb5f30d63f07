"""Processes that die, stop or crowd: nothing that was acknowledged is lost, doubled or reordered."""

import os
import signal
import threading
import time
from pathlib import Path

import psycopg
import pytest
from soak.crash import token_messages
from soak.crash.journal import Journal, JournalEntry, read_entries
from soak.crash.store_audit import audit_store
from soak.crash.writer import SHARED
from soak.crash.writer_kills import kill_writers

from rekindle import Message, Store, open_store
from rekindle.errors import StoreBusy
from tests.acceptance.faults import run, start, strace
from tests.command import start_python
from tests.conftest import Clock
from tests.waiting import PATIENCE


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    folder = tmp_path / "journals"
    folder.mkdir()
    return folder


def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(
    target: str, journals: Path
) -> None:
    """A few kills; `python -m soak crash` makes hundreds of them."""
    report = kill_writers(
        target, journals, kills=6, writers=4, seed=7, pause=0.1, start=start_python
    )
    assert report.wrong == []
    assert report.kills == 6
    assert report.acknowledged > 0
    assert report.stored >= report.acknowledged


def test_eight_processes_append_to_one_file_without_loss_or_disorder(
    tmp_path: Path, journals: Path
) -> None:
    file = str(tmp_path / "sessions.db")
    report = kill_writers(file, journals, kills=0, writers=8, seed=8, start=start_python)
    assert report.wrong == []
    assert report.acknowledged > 0


def test_the_crash_run_notices_what_is_lost_doubled_or_out_of_order(
    tmp_path: Path, journals: Path
) -> None:
    target = str(tmp_path / "sessions.db")
    assert (
        kill_writers(target, journals, kills=0, writers=2, seed=9, start=start_python).wrong == []
    )
    said = [one for one in read_entries(journals, 0) if one.session == SHARED]
    plain = next(one.tokens[0] for one in said if one.tokens[0].endswith("m"))
    forger = Journal(journals, 9, 0)
    forger.write(JournalEntry("appended", SHARED, ("w9x0x0x1m",), (10_000_000,), 1.0, 2.0))
    with open_store(target) as store:
        positions = store.append(SHARED, token_messages.make_message(plain, SHARED))
        forger.write(JournalEntry("appended", SHARED, ("w9x0x0x2m",), tuple(positions), 0.0, 0.5))
        report = audit_store(store, journals)
    assert len(report.lost) == 2
    assert [text for text in report.doubled if plain in text] == report.doubled != []
    assert report.reordered
    assert (report.findings, report.changed) == ([], [])


CREATE = """
import sys
from rekindle import Message, Store, open_store
with open_store(sys.argv[1]) as store:
    store.append(store.begin(), Message(role="user", content="first"))
"""


@pytest.mark.parametrize(
    ("call", "when"),
    [
        *(("pwrite64", when) for when in (1, 2, 4, 12)),
        *(("fdatasync", when) for when in (1, 2, 4)),
        ("?unlink,?unlinkat", 1),  # which of the two exists depends on the machine
    ],
)
def test_a_new_file_can_be_opened_after_its_creation_was_killed(
    tmp_path: Path, call: str, when: int
) -> None:
    path = tmp_path / "sessions.db"
    injected = f"inject={call}:signal=KILL:when={when}"
    process = start(CREATE, path, before=strace("-e", f"trace={call}", "-e", injected))
    _, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, complained
    with open_store(path) as store:
        before = store.stats().messages
        store.append(store.begin(id="next"), Message(role="user", content="after the crash"))
        assert [message.content for message in store.messages("next")] == ["after the crash"]
        assert before in (0, 1)
        assert store.stats().messages == before + 1
        assert store.verify() == []


CREATE_TOGETHER = """
import sys
from rekindle import Message, open_store
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.append(store.begin(id=sys.argv[2]), Message(role="user", content="first"))
"""


def test_processes_that_create_a_store_at_the_same_moment_make_it_once(
    target: str, tmp_path: Path
) -> None:
    crowd = [start(CREATE_TOGETHER, target, f"p{number}") for number in range(6)]
    for process in crowd:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    complaints = [process.communicate(timeout=PATIENCE)[1] for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 6, complaints
    with open_store(target) as store:
        assert {session.id for session in store.recent()} == {f"p{number}" for number in range(6)}
        assert store.verify() == []
    # An upgrade keeps the old version; there was none.
    assert [path.name for path in tmp_path.iterdir() if ".v" in path.name] == []
    if target.startswith("postgresql"):
        with psycopg.connect(target) as connection:
            kept = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rekindle%'"
            assert connection.execute(kept).fetchall() == []


CREATE_MANY = """
import os, sys
from rekindle import open_store
for number in range(20):
    os.write(1, b".")
    os.read(0, 1)
    open_store(os.path.join(sys.argv[1], f"{number}.db")).close()
"""


def test_a_file_that_others_are_making_right_now_is_never_taken_for_a_strangers(
    tmp_path: Path,
) -> None:
    crowd = [start(CREATE_MANY, str(tmp_path)) for _ in range(6)]
    while all(process.stdout and process.stdout.read(1) for process in crowd):
        for process in crowd:  # all of them at one moment
            assert process.stdin is not None
            process.stdin.write(".")
            process.stdin.flush()
    complaints = [process.communicate(timeout=PATIENCE)[1] for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 6, complaints


STOP_WITH_THE_LOCK = """
import os, signal, sys
from rekindle import open_store

def stop(done, total):
    os.write(1, b"holding\\n")
    os.kill(os.getpid(), signal.SIGSTOP)

with open_store(sys.argv[1]) as store:
    store.repair(progress=stop)
"""


def test_a_writer_that_stands_still_makes_others_busy_until_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with open_store(path, busy_seconds=0.5) as store:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        holder = start(STOP_WITH_THE_LOCK, path)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "holding\n"
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
            for _ in range(2):
                with pytest.raises(StoreBusy, match=r"store\.busy_seconds"):
                    store.append("one", Message(role="user", content="in vain"))
            assert [message.content for message in store.messages("one")] == ["before"]
            assert [hit.message.content for hit in store.search("before")] == ["before"]
            holder.send_signal(signal.SIGCONT)
            assert holder.wait(PATIENCE) == 0
        finally:
            holder.kill()
            holder.communicate()
        assert store.append("one", Message(role="user", content="after")) == [1]
        assert [message.content for message in store.messages("one")] == ["before", "after"]
        assert store.verify() == []


def test_many_threads_behind_a_writer_that_stands_still_wait_no_longer_than_one(
    tmp_path: Path,
) -> None:
    path, busy, threads = tmp_path / "sessions.db", 0.5, 12
    answers: list[tuple[str, float]] = []

    def write(store: Store, name: str) -> None:
        begun = time.monotonic()
        try:
            store.append(store.begin(id=name), Message(role="user", content="in vain"))
        except StoreBusy as error:
            answers.append((str(error), time.monotonic() - begun))

    with open_store(path, busy_seconds=busy) as store:
        store.append(store.begin(id="one"), Message(role="user", content="before"))
        holder = start(STOP_WITH_THE_LOCK, path)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "holding\n"
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
            crowd = [
                threading.Thread(target=write, args=(store, f"t{number}"))
                for number in range(threads)
            ]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()
        finally:
            holder.kill()
            holder.communicate()
        assert len(answers) == threads
        # One round for whoever came first, one for all who came after, and room for a busy machine.
        assert max(waited for _, waited in answers) < busy * threads / 2
        assert store.append(store.begin(id="two"), Message(role="user", content="after")) == [0]
        assert store.verify() == []


def test_a_clock_that_jumps_back_changes_neither_order_nor_last_activity(
    target: str, clock: Clock
) -> None:
    with open_store(target, clock=clock) as store:
        session = store.begin(id="jumping", title="Jump")
        store.append(session, Message(role="user", content="noon"))
        noon = clock.now
        clock.forward(-86_400)
        positions = store.append(session, Message(role="user", content="yesterday"))
        assert positions == [1]
        assert store.session("jumping").last_active == noon
        assert [message.content for message in store.messages("jumping")] == ["noon", "yesterday"]
        begun = [store.begin() for _ in range(1000)]
        assert len({one.id for one in begun}) == 1000
        store.append(begun[0], Message(role="user", content="still yesterday"))
        assert [one.id for one in store.recent()] == ["jumping", begun[0].id]
        child = store.fork(session)
        store.undo(session)
        clock.forward(2 * 86_400)
        assert [m.content for m in store.messages(child)] == ["noon", "yesterday"]
        assert store.append(session, Message(role="user", content="tomorrow")) == [2]
        assert store.session("jumping").last_active == clock.now
        assert store.verify() == []


READ = """
import sys
from rekindle import open_store
with open_store(sys.argv[1]) as store:
    print([message.content for message in store.messages("one")], store.verify())
"""


def test_what_an_append_returned_for_is_there_after_kill_9_in_the_next_moment(
    target: str,
) -> None:
    code = """
import os, signal, sys
from rekindle import Message, Store, open_store
store = open_store(sys.argv[1])
store.append(store.begin(id="one"), Message(role="user", content="just in time"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, target)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert run(READ, target) == "['just in time'] []\n"
