"""Starting the runs of jobs that are due, and keeping their results as files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Store, open_store
from rekindle.errors import InvalidInput
from rekindle.gateway.access.gate import Gate
from rekindle.gateway.access.rules import AccessRules
from rekindle.gateway.schedule import planning
from rekindle.gateway.schedule.scheduler import Scheduler
from rekindle.platforms.folder import FolderPlatform
from rekindle.routing.schedule_rule import ScheduleRule
from rekindle.store.conversations.inbox import AcceptResult
from rekindle.store.conversations.jobs import JobPlan
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Source

ADA = Source("memory", "ada", user_id="1")
PLAN = JobPlan(
    name="build", owner="ada", maker=ADA, kind="prompt", text="check",
    rule=ScheduleRule("interval", 60.0), target=ADA, deliver="origin",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "sessions.db") as opened:
        yield opened


def start_due(store: Store) -> list[AcceptResult]:
    """Start what is due, as a gateway does."""
    started: list[AcceptResult] = []
    executor = StoreExecutor(store)
    scheduler = Scheduler(
        executor,
        Gate(store.people, AccessRules({("memory", "*"): "owner"})),
        ["memory"],
        instance="a",
        lease_seconds=30.0,
        on_start=started.append,
    )
    asyncio.run(scheduler.start_due())
    executor.close()
    return started


def test_a_job_that_cannot_be_started_does_not_hold_up_others(store: Store) -> None:
    now = time.time()
    broken = PLAN._replace(rule=ScheduleRule("cron", "0 9 * * *", "Mars/Olympus"))
    store.jobs.add(broken, now - 20)
    good = store.jobs.add(PLAN, now - 10)
    (started,) = start_due(store)
    assert started.inbound.message.platform_message_id == f"{good.id}@{now - 10!r}"


def test_two_runs_within_a_second_have_conversations_of_their_own(store: Store) -> None:
    due = float(int(time.time()) - 10)
    job = store.jobs.add(PLAN, due + 0.2)
    (first,) = start_due(store)
    store.inbox.finish_turn([first.inbound], "", [], [])
    store.jobs.set_state(job, "active", next_run=due + 0.4)
    (second,) = start_due(store)
    assert first.inbound.key != second.inbound.key


def test_jobs_that_are_done_do_not_count_against_the_limit(store: Store) -> None:
    request = planning.JobRequest("1h", "check")

    def add() -> None:
        planning.add_job(store, request, owner="ada", maker=ADA, zone="UTC")

    def fill() -> None:
        for _ in range(planning.MAX_JOBS_PER_OWNER):
            add()

    store.transaction(fill)
    with pytest.raises(InvalidInput, match="you have 200 already"):
        add()
    job = store.jobs.list(owner="ada")[0]
    store.jobs.set_state(job, "done", next_run=None)
    add()


def test_a_draft_that_a_crash_left_is_replaced_by_the_result(tmp_path: Path) -> None:
    async def send_twice() -> tuple[str, str]:
        platform = FolderPlatform(tmp_path)
        target = Source("folder", "results")
        (tmp_path / ".parcel-1-a.draft").write_text("hal")  # cut off by kill -9
        first = await platform.send(target, "whole", "parcel-1-a")
        return first, await platform.send(target, "whole", "parcel-1-a")

    first, second = asyncio.run(send_twice())
    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == [first]
    assert (tmp_path / first).read_text() == "whole"
