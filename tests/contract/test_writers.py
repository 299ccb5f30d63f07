"""Many threads, processes and stores at once: nothing is lost, doubled or reordered."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle import Store
from rekindle.errors import NotFound
from tests.contract.messages import answer, found, started, texts, user
from tests.waiting import PATIENCE

Reopened = Callable[[], Store]
ROOT = Path(__file__).parents[2]


def together(*works: Callable[[], None]) -> None:
    """Run works at the same time; the first error of any is raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  carried over to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_with_sessions_of_their_own_lose_nothing(store: Store) -> None:
    sessions = [store.begin(id=f"s{number}") for number in range(8)]

    def write(number: int) -> None:
        for count in range(40):
            assert store.append(sessions[number], user(f"{number}.{count}")) == [count]

    together(*(lambda number=number: write(number) for number in range(8)))
    for number in range(8):
        assert texts(store, f"s{number}") == [f"{number}.{count}" for count in range(40)]
    assert store.verify() == []


def test_threads_in_one_session_are_ordered_as_acknowledged(
    store: Store, reopened: Reopened
) -> None:
    session = store.begin(id="shared")
    stores = [store, store, reopened(), reopened()]
    acknowledged: list[dict[int, str]] = [{} for _ in stores]
    stores[2].begin(id="shared")
    stores[3].begin(id="shared")

    def write(number: int) -> None:
        for count in range(40):
            text = f"{number}.{count}"
            (position,) = stores[number].append(session.id if number > 1 else session, user(text))
            acknowledged[number][position] = text

    together(*(lambda number=number: write(number) for number in range(4)))
    stored = store.messages("shared")
    assert [message.position for message in stored] == list(range(160))
    places = {at: text for each in acknowledged for at, text in each.items()}
    assert [message.content for message in stored] == [places[at] for at in range(160)]
    for each in acknowledged:  # what one writer said comes in the order it was said
        assert list(each) == sorted(each)
    assert store.session("shared").message_count == 160
    assert store.verify() == []


def test_of_appends_that_share_a_commit_only_those_to_a_deleted_session_fail(
    store: Store, reopened: Reopened
) -> None:
    for name in ("kept", "gone"):
        store.append(store.begin(id=name), user(f"{name} first"))
    other = reopened()
    other.end("gone", "over")
    other.prune_session("gone")
    submitted = [
        (name, store.submit_append(name, user(f"{name} {number} a"), answer(f"{name} {number} b")))
        for number in range(20)
        for name in ("kept", "kept", "gone")
    ]
    at = 1
    for name, future in submitted:
        if name == "gone":
            assert isinstance(future.exception(), NotFound)
        else:
            assert future.result() == [at, at + 1]
            at += 2
    kept = [f"kept {number} {part}" for number in range(20) for part in "abab"]
    assert texts(store, "kept") == ["kept first", *kept]
    assert store.session("kept").message_count == len(kept) + 1
    assert store.verify() == []


def test_the_same_delivery_through_many_threads_is_stored_once(
    store: Store, reopened: Reopened
) -> None:
    stores = [store, store, reopened(), reopened()]
    positions: list[int] = []
    started(store, "first", id="x")

    def write(opened: Store) -> None:
        for number in range(20):
            positions.extend(
                opened.append("x", user(f"m{number}", platform_message_id=f"p{number}"))
            )

    together(*(lambda opened=opened: write(opened) for opened in stores))
    assert sorted(texts(store, "x")) == sorted(["first", *(f"m{number}" for number in range(20))])
    assert sorted(positions) == sorted(list(range(1, 21)) * 4)
    assert store.verify() == []


def test_a_session_that_was_read_and_then_deleted_elsewhere_is_not_written_to(
    store: Store, reopened: Reopened
) -> None:
    other = reopened()
    for name in ("gone", "next"):
        started(other, "first", id=name)
    assert store.session("gone").id == "gone"
    other.end("gone", "over")
    other.prune_session("gone")
    for delivery in (None, "p1"):
        with pytest.raises(NotFound):
            store.append("gone", user("late", platform_message_id=delivery))
    assert texts(other, "next") == ["first"]
    assert store.verify() == []


def test_deliveries_that_share_commits_are_stored_once_in_each_session(
    store: Store, reopened: Reopened
) -> None:
    stores = [store, reopened()]
    names = [f"s{number}" for number in range(6)]
    for name in names:
        started(store, "first", id=name)
    promised: list[dict[tuple[str, str], int]] = [{}, {}]

    def write(number: int) -> None:
        opened = stores[number]
        for count in range(12):
            submitted = {
                (name, f"p{count}"): opened.submit_append(
                    name, user(f"m{count}", platform_message_id=f"p{count}")
                )
                for name in names
            }
            again = opened.submit_append(names[0], user("again", platform_message_id=f"p{count}"))
            promised[number] |= {key: one.result()[0] for key, one in submitted.items()}
            assert again.result() == [promised[number][names[0], f"p{count}"]]

    together(lambda: write(0), lambda: write(1))
    assert promised[0] == promised[1]
    for name in names:
        found = {message.platform_message_id: message.position for message in store.messages(name)}
        assert found == {None: 0} | {f"p{n}": promised[0][name, f"p{n}"] for n in range(12)}
        assert store.session(name).message_count == 13
    assert store.verify() == []


def test_one_title_asked_for_by_many_is_numbered_without_a_gap(
    store: Store, reopened: Reopened
) -> None:
    stores = [store, store, reopened(), reopened()]
    together(
        *(lambda opened=opened: [started(opened, title="Plan") for _ in range(10)] and None
          for opened in stores)
    )  # fmt: skip
    titles = {session.title for session in store.recent()}
    assert titles == {"Plan", *(f"Plan #{number}" for number in range(2, 41))}


def test_a_session_begun_by_many_is_created_once(store: Store, reopened: Reopened) -> None:
    stores = [store, reopened(), reopened()]
    begun = [opened.begin(id="x", title="Plan") for opened in stores]
    together(
        *(lambda at=at: stores[at].append(begun[at], user(f"m{at}")) and None for at in range(3))
    )
    assert sorted(texts(store, "x")) == ["m0", "m1", "m2"]
    assert [(session.id, session.title) for session in store.recent()] == [("x", "Plan")]


def test_readers_see_whole_appends_while_others_write(store: Store) -> None:
    session, done = store.begin(id="x"), threading.Event()
    store.append(session, user("0"), answer("0"))

    def write() -> None:
        for number in range(1, 100):
            store.append(session, user(f"{number}"), answer(f"{number}"))
        done.set()

    def read() -> None:
        seen = 0
        while not done.is_set():
            messages = store.messages("x")
            assert len(messages) % 2 == 0
            assert len(messages) >= seen
            seen = len(messages)
            assert store.session("x").message_count % 2 == 0
            assert len(store.search("0")) in (1, 2)

    together(write, read, read)
    assert len(store.messages("x")) == 200


def test_one_refused_write_does_not_cost_those_beside_it(store: Store) -> None:
    from rekindle.errors import InvalidInput

    sessions = [started(store, "start", id=f"s{number}") for number in range(4)]
    silent = store.begin(id="silent")
    store.append(silent, answer("welcome"))
    refused: list[int] = []

    def write(number: int) -> None:
        for count in range(25):
            store.append(sessions[number], user(f"{count}"))

    def fail() -> None:
        for _ in range(25):
            try:
                store.undo(silent)
            except InvalidInput:
                refused.append(1)

    together(fail, *(lambda number=number: write(number) for number in range(4)))
    assert len(refused) == 25
    for session in sessions:
        assert texts(store, session) == ["start", *(str(count) for count in range(25))]
    assert store.verify() == []


WRITER = """
import sys
from rekindle import Message, open_store

target, name = sys.argv[1:]
with open_store(target) as store:
    shared, own = store.begin(id="shared"), store.begin(id=f"own {name}")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(100):
        session = own if number % 2 else shared
        said = Message(role="user", content=f"{name} {number}", platform_message_id=f"{name}{number}")
        (position,) = store.append(session, said)
        print(session.id, position, said.content, sep="|", flush=True)
        if number % 10 == 0:
            assert store.append(session, said) == [position]
"""


def test_processes_on_one_store_lose_and_double_nothing(store: Store, target: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, target, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        )
        for name in "abcd"
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    acknowledged: dict[tuple[str, int], str] = {}
    for process in processes:
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        for line in output.splitlines():
            session, position, text = line.split("|")
            assert (session, int(position)) not in acknowledged
            acknowledged[session, int(position)] = text
    assert len(acknowledged) == 400
    for session in store.recent():
        stored = store.messages(session)
        assert [message.position for message in stored] == list(range(len(stored)))
        for message in stored:
            assert acknowledged.pop((session.id, message.position or 0)) == message.content
    assert acknowledged == {}
    for name in "abcd":
        assert texts(store, f"own {name}") == [f"{name} {n}" for n in range(1, 100, 2)]
    assert len(found(store, "a OR b OR c OR d", limit=1000)) == 400
    assert store.verify() == []
