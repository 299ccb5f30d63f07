from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rekindle.errors import StoreError
from rekindle.store.core.engine import FollowedOperation
from rekindle.store.core.group_commit import MAX_BATCH_SIZE, GroupCommitter
from tests.waiting import PATIENCE

Work = Callable[[Any], Any]


class Database:
    """A transact that remembers its batches, and can be held up."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.done: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def transact(self, works: Sequence[Work]) -> list[Any]:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        results = [work(self) for work in works]
        self.batches.append(len(works))
        self.done += results
        return results


class Waits:
    """A lock that says when somebody begins to wait for it, and may let them wait for longer."""

    def __init__(self, lock: Any, least_seconds: float = 0.0) -> None:
        self._lock = lock
        self._least_seconds = least_seconds
        self.begun = threading.Event()

    def acquire(self, timeout: float = PATIENCE) -> bool:
        self.begun.set()
        return self._lock.acquire(timeout=max(timeout, self._least_seconds))

    def release(self) -> None:
        self._lock.release()


def start(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a writer waits for ever"


def hold(database: Database, commits: GroupCommitter) -> threading.Thread:
    """A first writer that is in the database until the gate opens."""
    database.gate.clear()
    database.entered.clear()
    first = start(lambda: commits.run(lambda tx: "first"))
    assert database.entered.wait(PATIENCE)
    return first


def queue(commits: GroupCommitter, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(commits._waiting) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_lone_writer_commits_by_itself() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    assert [commits.run(lambda tx, n=n: n) for n in range(5)] == [0, 1, 2, 3, 4]
    assert database.batches == [1] * 5


def test_those_who_wait_together_commit_together_and_in_order() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    threads = [hold(database, commits)]
    results: dict[int, int] = {}
    for number in range(10):
        threads.append(
            start(lambda n=number: results.__setitem__(n, commits.run(lambda tx: n * n)))
        )
        queue(commits, number + 1)
    database.gate.set()
    join(threads)
    assert database.batches == [1, 10]
    assert database.done == ["first", *(number * number for number in range(10))]
    assert results == {number: number * number for number in range(10)}


def test_a_write_that_another_follows_waits_for_its_commit() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    waits = Waits(commits._gather_done, least_seconds=PATIENCE)
    commits._gather_done = waits  # pyright: ignore
    thread = start(lambda: commits.run(FollowedOperation(lambda tx: "first")))
    assert waits.begun.wait(PATIENCE)
    assert commits.run(lambda tx: "second") == "second"
    join([thread])
    assert (database.batches, database.done) == ([2], ["first", "second"])
    # The second one is followed by nothing, although two had met.
    waits.begun.clear()
    assert commits.run(lambda tx: "third") == "third"
    assert not waits.begun.is_set()


def test_writes_that_another_one_follows_wait_for_it_together() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    waits = Waits(commits._gather_done, least_seconds=PATIENCE)
    commits._gather_done = waits  # pyright: ignore
    first = commits.submit(FollowedOperation(lambda tx: "first"), str)
    assert waits.begun.wait(PATIENCE)
    thread = start(lambda: commits.run(FollowedOperation(lambda tx: "second")))
    queue(commits, 2)
    assert database.batches == []
    assert commits.run(lambda tx: "third") == "third"
    join([thread])
    assert (database.batches, first.result(PATIENCE)) == ([3], "first")
    assert database.done == ["first", "second", "third"]


def test_a_write_that_none_follows_waits_ever_less_often() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    waits = Waits(commits._gather_done)
    commits._gather_done = waits  # pyright: ignore
    waited: list[bool] = []
    for number in range(8):
        waits.begun.clear()
        assert commits.run(FollowedOperation(lambda tx, n=number: n)) == number
        waited.append(waits.begun.is_set())
    assert waited == [True, False, True, False, False, False, True, False]
    assert database.batches == [1] * 8


def test_a_batch_has_a_largest_size() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    threads = [hold(database, commits)]
    more = MAX_BATCH_SIZE + 20
    threads += [start(lambda n=n: commits.run(lambda tx: n)) for n in range(more)]
    queue(commits, more)
    database.gate.set()
    join(threads)
    assert max(database.batches) == MAX_BATCH_SIZE
    assert sorted(database.done[1:]) == list(range(more))


def test_one_bad_work_costs_no_other() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    threads = [hold(database, commits)]
    outcomes: dict[int, Any] = {}

    def bad(tx: Any) -> None:
        raise ValueError("bad")

    def write(number: int) -> None:
        try:
            outcomes[number] = commits.run(bad if number == 2 else lambda tx: number)
        except ValueError as error:
            outcomes[number] = str(error)

    for number in range(5):
        threads.append(start(lambda n=number: write(n)))
        queue(commits, number + 1)
    database.gate.set()
    join(threads)
    assert outcomes == {0: 0, 1: 1, 2: "bad", 3: 3, 4: 4}
    assert database.done == ["first", 0, 1, 3, 4]


def test_each_caller_gets_its_own_error() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    threads = [hold(database, commits)]
    errors: dict[int, str] = {}

    def fail(number: int) -> None:
        def work(tx: Any) -> None:
            raise LookupError(number)

        with pytest.raises(LookupError) as caught:
            commits.run(work)
        errors[number] = str(caught.value)

    threads += [start(lambda n=n: fail(n)) for n in range(4)]
    queue(commits, 4)
    database.gate.set()
    join(threads)
    assert errors == {number: str(number) for number in range(4)}
    assert commits.run(lambda tx: "goes on") == "goes on"


def test_a_database_that_is_away_is_told_to_everyone_and_then_forgotten() -> None:
    away = True

    def transact(works: Sequence[Work]) -> list[Any]:
        if away:
            raise ConnectionError("away")
        return [work(None) for work in works]

    commits = GroupCommitter(transact)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            commits.run(lambda tx: 1)
    away = False
    assert commits.run(lambda tx: 2) == 2


class Interrupted:
    """A lock whose next acquire is interrupted."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.reached = threading.Event()

    def acquire(self, *args: Any, **options: Any) -> bool:
        self.reached.set()
        raise KeyboardInterrupt

    def release(self) -> None:
        self.lock.release()


def test_who_is_interrupted_while_waiting_leaves_the_queue_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rekindle.store.core import group_commit

    database = Database()
    commits = GroupCommitter(database.transact)
    first = hold(database, commits)
    ended: list[str] = []
    job = group_commit._Job

    def interrupted(work: Work) -> Any:
        made = job(work)
        made.wake = Interrupted(made.wake)  # pyright: ignore
        return made

    def leave() -> None:
        try:
            commits.run(lambda tx: "left")
        except KeyboardInterrupt:
            ended.append("interrupted")

    monkeypatch.setattr(group_commit, "_Job", interrupted)
    leaver = start(leave)
    join([leaver])
    monkeypatch.setattr(group_commit, "_Job", job)
    stays = start(lambda: ended.append(commits.run(lambda tx: "stayed")))
    queue(commits, 1)
    database.gate.set()
    join([first, stays])
    assert ended == ["interrupted", "stayed"]
    assert database.done == ["first", "stayed"]
    assert commits.run(lambda tx: "next") == "next"


def test_who_is_interrupted_while_leading_leaves_the_queue_usable() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    threads = [hold(database, commits), *(start(lambda: commits.run(lambda tx: 1)) for _ in "ab")]
    queue(commits, 2)
    database.gate.set()
    join(threads)  # from now on a leader waits a moment for company
    gathered, commits._gather_done = commits._gather_done, Interrupted(commits._gather_done)  # pyright: ignore
    with pytest.raises(KeyboardInterrupt):
        commits.run(lambda tx: "never")
    commits._gather_done = gathered
    after: list[str] = []
    join([start(lambda: after.append(commits.run(lambda tx: "after")))])
    assert after == ["after"]
    assert "never" not in database.done


def test_an_interrupt_in_the_database_reaches_the_leader_and_nobody_waits_for_ever() -> None:
    database = Database()
    calls: list[int] = []

    def transact(works: Sequence[Work]) -> list[Any]:
        calls.append(len(works))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return database.transact(works)

    commits = GroupCommitter(transact)
    threads = [hold(database, commits)]
    outcomes: list[str] = []

    def write(number: int) -> None:
        try:
            commits.run(lambda tx: number)
            outcomes.append("written")
        except KeyboardInterrupt:
            outcomes.append("interrupted")
        except StoreError as error:
            outcomes.append(str(error))

    for number in range(3):
        threads.append(start(lambda n=number: write(n)))
        queue(commits, number + 1)
    database.gate.set()
    join(threads)
    # The database may have committed: to try again could write twice.
    unknown = "interrupted; it is unknown whether this write was committed"
    assert sorted(outcomes) == ["interrupted", unknown, unknown]
    assert calls == [1, 3]
    assert commits.run(lambda tx: "next") == "next"


def test_under_load_every_work_runs_once_and_batches_are_shared() -> None:
    database = Database()

    def slow(works: Sequence[Work]) -> list[Any]:
        time.sleep(0.002)
        return database.transact(works)

    commits = GroupCommitter(slow)
    counts: dict[int, list[int]] = {number: [] for number in range(8)}

    def write(number: int) -> None:
        for count in range(40):
            counts[number].append(commits.run(lambda tx, count=count: (number, count))[1])

    join([start(lambda n=n: write(n)) for n in range(8)])
    assert all(each == list(range(40)) for each in counts.values())
    assert len(database.done) == len(set(database.done)) == 320
    assert len(database.batches) < 160
    for number in range(8):
        mine = [count for who, count in database.done if who == number]
        assert mine == list(range(40))


def test_submitted_jobs_wait_without_a_thread_and_share_a_commit() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    first = hold(database, commits)
    futures = [commits.submit(lambda tx, n=n: n, lambda result: result * 10) for n in range(50)]
    before = threading.active_count()
    assert not any(future.done() for future in futures)
    database.gate.set()
    assert [future.result(PATIENCE) for future in futures] == [n * 10 for n in range(50)]
    assert threading.active_count() <= before + 1
    assert database.batches == [1, 50]
    join([first])
    commits.close()


def test_a_submitted_job_that_fails_fails_alone() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)

    def fail(tx: Any) -> None:
        raise ValueError("no")

    first = hold(database, commits)
    good, bad, last = (commits.submit(work, str) for work in (lambda tx: 1, fail, lambda tx: 3))
    database.gate.set()
    assert (good.result(PATIENCE), last.result(PATIENCE)) == ("1", "3")
    assert isinstance(bad.exception(PATIENCE), ValueError)
    join([first])
    commits.close()
    assert commits.run(lambda tx: "after") == "after"
    assert commits.submit(lambda tx: "after", str).result(PATIENCE) == "after"


def test_writers_and_submitted_jobs_pass_the_lead_to_each_other() -> None:
    database = Database()
    commits = GroupCommitter(database.transact)
    results: list[Any] = []

    def write() -> None:
        for n in range(200):
            results.append(commits.run(lambda tx, n=n: n))
            results.append(commits.submit(lambda tx, n=n: n, int).result(PATIENCE))

    join([start(write) for _ in range(4)])
    assert sorted(results) == sorted([*range(200)] * 8)
