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
        for job in await self._executor.run(self._store.jobs.list_due, self._platforms):
            try:
                started = await self._executor.run(self._start_run, job)
            except StoreError:
                raise
            except Exception:  # a job that cannot be started must not keep others from it
                logger.exception("job %s could not be started", job.id)
                continue
            if started is not None:
                logger.info("job %s started", job.id)
                self._on_start(started)

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
