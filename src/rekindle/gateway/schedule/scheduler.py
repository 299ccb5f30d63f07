"""Starts the runs of jobs that are due: each once, by whichever gateway is first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import time

from rekindle.errors import StoreError
from rekindle.gateway.access.gate import Gate
from rekindle.routing.schedule_rule import compute_next_run
from rekindle.store.conversations.inbox import AcceptResult
from rekindle.store.conversations.jobs import ScheduledJob
from rekindle.store.store_executor import StoreExecutor

from .run_message import build_run_key, build_run_message

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
JOBS_PER_COMMIT = 20


class Scheduler:
    """Looks for due jobs. `on_start` gets the message of every run that was started."""

    def __init__(
        self,
        executor: StoreExecutor,
        gate: Gate,
        platforms: Sequence[str],
        *,
        instance: str,
        lease_seconds: float,
        on_start: Callable[[AcceptResult], None],
    ) -> None:
        self._executor = executor
        self._store = executor.store
        self._gate = gate
        self._platforms = platforms
        self._instance = instance
        self._lease_seconds = lease_seconds
        self._on_start = on_start

    async def start_due(self) -> None:
        """Start every run that is due. Runs that were missed are made up for by one."""
        due = await self._executor.run(self._store.jobs.list_due, self._platforms)
        for at in range(0, len(due), JOBS_PER_COMMIT):
            jobs = due[at : at + JOBS_PER_COMMIT]
            try:
                self._announce(await self._executor.run(self._start_together, jobs))
            except StoreError:
                raise
            except Exception:  # noqa: BLE001  # each alone: the one that cannot be started is found
                await self._start_one_by_one(jobs)

    async def _start_one_by_one(self, jobs: Sequence[ScheduledJob]) -> None:
        for job in jobs:
            try:
                self._announce([(job, await self._executor.run(self._start_run, job))])
            except StoreError:
                raise
            except Exception:  # a job that cannot be started must not keep others from it
                logger.exception("job %s could not be started", job.id)

    def _announce(self, started: Sequence[tuple[ScheduledJob, AcceptResult | None]]) -> None:
        for job, accepted in started:
            if accepted is not None:
                logger.info("job %s started", job.id)
                self._on_start(accepted)

    def _start_together(
        self, jobs: Sequence[ScheduledJob]
    ) -> list[tuple[ScheduledJob, AcceptResult | None]]:
        """Start the runs of jobs in one transaction: many that are due at once cost few commits."""
        return self._store.transaction(lambda: [(job, self._start_run(job)) for job in jobs])

    def _start_run(self, job: ScheduledJob) -> AcceptResult | None:
        is_requested = job.requested is not None
        due, now = job.requested or job.next_run or 0.0, time()
        if self._gate.find_role(job.maker) is None:
            reason = "the person who made it may no longer talk"
            self._store.jobs.set_state(job, "paused", next_run=None, reason=reason)
            logger.warning("job %s is paused: %s", job.id, reason)
            return None
        next_run = compute_next_run(job.rule, max(now, due), last=due)

        def claim_and_store() -> AcceptResult | None:
            jobs = self._store.jobs
            if not (jobs.claim_request(job) if is_requested else jobs.claim_run(job, next_run)):
                return None
            accepted = self._store.inbox.accept(
                build_run_key(job, due),
                job.target,
                build_run_message(job, due),
                instance=self._instance,
                lease_seconds=self._lease_seconds,
            )
            jobs.add_run(job, due, accepted.inbound.num)
            return accepted

        return self._store.transaction(claim_and_store)
