"""Scheduled jobs in the store: each run is claimed once, and ends with its message."""

from __future__ import annotations

import pytest

from rekindle import Store
from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.schedule_rule import ScheduleRule
from rekindle.store.conversations import jobs
from rekindle.store.conversations.jobs import IS_DUE, JobPlan, ScheduledJob
from rekindle.types import Source
from tests.conftest import Clock
from tests.contract.messages import user

ADA = Source("memory", "ada", user_id="1", user_name="Ada")
PLAN = JobPlan(
    name="build", owner="ada", maker=ADA, kind="prompt", text="check\0 \ud800",
    rule=ScheduleRule("interval", 60.0, "Europe/Berlin"), target=ADA, deliver="origin",
)  # fmt: skip
KEY = "agent:main:memory:job:x:t=1"


def claim(store: Store, job: ScheduledJob, next_run: float | None, key: str = KEY) -> int | None:
    def act() -> int | None:
        if not store.jobs.claim_run(job, next_run):
            return None
        said = user("check", platform_message_id=f"{job.id}@{job.next_run!r}")
        num = store.inbox.accept(key, ADA, said, instance="a", lease_seconds=30).inbound.num
        store.jobs.add_run(job, job.next_run or 0.0, num)
        return num

    return store.transaction(act)


def test_a_job_comes_back_as_it_was(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now + 60)
    assert store.jobs.find(job.id) == store.jobs.find("build") == job
    assert (job.text, job.rule, job.maker, job.target) == (PLAN.text, PLAN.rule, ADA, ADA)
    assert (job.state, job.next_run, job.runs) == ("active", clock.now + 60, 0)


def test_an_id_that_is_taken_is_not_given_again(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr(jobs, "_make_id", lambda: next(ids))
    assert [store.jobs.add(PLAN, clock.now).id for _ in range(2)] == ["aaaaaa", "bbbbbb"]


def test_a_job_belongs_to_its_owner(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now)
    assert store.jobs.list(owner="bob") == []
    with pytest.raises(NotFound):
        store.jobs.find(job.id, owner="bob")
    store.jobs.add(PLAN, clock.now)
    with pytest.raises(InvalidInput, match="several jobs"):
        store.jobs.find("build")


def test_a_due_run_is_claimed_once(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now + 60)
    assert store.jobs.list_due(["memory"]) == []
    clock.now += 61
    (due,) = store.jobs.list_due(["memory"])
    assert store.jobs.list_due(["matrix"]) == []
    assert claim(store, due, clock.now + 60) is not None
    assert claim(store, due, clock.now + 60) is None, "another gateway was faster"
    (run,) = store.jobs.list_runs(job)
    assert (run.due, run.state, run.ended) == (due.next_run, "running", None)


def test_a_job_waits_for_its_last_run_and_a_run_ends_with_its_message(
    store: Store, clock: Clock
) -> None:
    job = store.jobs.add(PLAN, clock.now)
    (due,) = store.jobs.list_due(["memory"])
    claim(store, due, clock.now + 10)
    clock.now += 20
    assert store.jobs.list_due(["memory"]) == []
    (inbound,) = store.inbox.list_waiting(KEY)
    session = store.begin(owner="ada")
    begun = store.inbox.start_turn(inbound, session)
    store.inbox.finish_turn([begun], session, [user("all green")], [(ADA, "all green")])
    (run,) = store.jobs.list_runs(job)
    assert (run.state, run.session, run.output) == ("done", session.id, "all green")
    assert [one.id for one in store.jobs.list_due(["memory"])] == [job.id]


def test_a_run_without_an_answer_has_failed_with_the_reason(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now)
    claim(store, job, None)
    (inbound,) = store.inbox.list_waiting(KEY)
    store.inbox.finish_turn([inbound], "", [], [(ADA, "sorry")], reason="broken")
    (run,) = store.jobs.list_runs(job)
    assert (run.state, run.output, run.reason) == ("failed", "sorry", "broken")
    assert store.jobs.find(job.id).state == "done"


def test_a_run_keeps_its_output_though_nothing_is_sent(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now)
    claim(store, job, None)
    (inbound,) = store.inbox.list_waiting(KEY)
    assert store.inbox.finish_turn([inbound], "", [], [], output="42 files") == []
    (run,) = store.jobs.list_runs(job)
    assert (run.state, run.output) == ("done", "42 files")


@pytest.mark.parametrize(
    ("key", "ended"), [(KEY, "done"), (KEY.partition(":t=")[0], None)], ids=["new", "same"]
)
def test_the_session_of_a_run_ends_with_it_unless_the_next_continues_it(
    store: Store, clock: Clock, key: str, ended: str | None
) -> None:
    job = store.jobs.add(PLAN, clock.now)
    claim(store, job, None, key)
    (inbound,) = store.inbox.list_waiting(key)
    session = store.begin(owner="ada")
    begun = store.inbox.start_turn(inbound, session)
    store.inbox.finish_turn([begun], session, [user("all green")], [])
    found = store.session(session.id)
    assert found.end_reason == ended
    assert (found.ended is None) == (ended is None)


def test_a_failed_claim_leaves_nothing(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now)

    def act() -> None:
        store.jobs.claim_run(job, clock.now + 60)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.transaction(act)
    assert store.jobs.list_due(["memory"]) == [job]


def test_a_run_on_request_leaves_the_rule_and_the_state_alone(store: Store, clock: Clock) -> None:
    later = clock.now + 500
    once = store.jobs.add(PLAN._replace(rule=ScheduleRule("once", later)), later)
    paused = store.jobs.set_state(store.jobs.add(PLAN, clock.now), "paused", next_run=None)
    for job, state, next_run in ((once, "active", later), (paused, "paused", None)):
        asked = store.jobs.ask_for_run(job)
        (due,) = store.jobs.list_due(["memory"])
        assert due == asked
        assert store.jobs.claim_request(due)
        assert not store.jobs.claim_request(due), "another gateway was faster"
        after = store.jobs.find(job.id)
        assert (after.state, after.next_run, after.requested) == (state, next_run, None)
        assert after.runs == 1


def test_old_runs_and_their_routes_are_deleted(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now)
    store.routes.open(KEY, ADA)
    store.routes.open("agent:main:memory:group:x:t=1", ADA)
    claim(store, job, None)
    (inbound,) = store.inbox.list_waiting(KEY)
    store.inbox.finish_turn([inbound], "", [], [])
    clock.now += 100
    store.jobs.delete_old_runs(200)
    assert len(store.jobs.list_runs(job)) == 1
    store.jobs.delete_old_runs(50)
    assert store.jobs.list_runs(job) == []
    assert [route.key for route in store.routes.list()] == ["agent:main:memory:group:x:t=1"]


def test_a_job_is_paused_resumed_and_removed(store: Store, clock: Clock) -> None:
    job = store.jobs.add(PLAN, clock.now)
    paused = store.jobs.set_state(job, "paused", next_run=None, reason="because")
    assert (paused.state, paused.reason) == ("paused", "because")
    assert store.jobs.list_due(["memory"]) == []
    active = store.jobs.set_state(paused, "active", next_run=clock.now)
    assert active.reason is None
    claim(store, active, clock.now + 60)
    store.jobs.remove(active)
    assert store.jobs.list() == []
    with pytest.raises(NotFound):
        store.jobs.find("build")


def test_due_jobs_are_found_by_an_index(store: Store, clock: Clock) -> None:
    def add_many() -> None:
        for number in range(2000):
            store.jobs.add(PLAN, clock.now + 60 + number)

    store.transaction(add_many)
    is_sqlite = store.stats().engine == "sqlite"
    explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        rows = tx.run(f"{explain} SELECT num FROM jobs WHERE {IS_DUE}", (clock.now,))
    plan = " ".join(str(row[-1]) for row in rows)
    assert "jobs_due" in plan
    assert "jobs_requested" in plan
    assert "SCAN jobs" not in plan
    assert "Seq Scan on jobs" not in plan


def test_failed_messages_are_queued_again(store: Store) -> None:
    one = store.inbox.post("k", ADA, "one")
    two = store.inbox.post("k", ADA, "two")
    for message in (one, two):
        store.inbox.mark_failed(message, "gone", retry_after=None)
    assert [m.num for m in store.inbox.list_by_state(["failed"])] == [two.num, one.num]
    assert store.inbox.requeue_failed([one.num]) == 1
    assert store.inbox.requeue_failed([one.num]) == 0
    (again,) = store.inbox.list_due()
    assert (again.num, again.attempts, again.reason) == (one.num, 0, None)
    assert store.inbox.requeue_failed() == 1
