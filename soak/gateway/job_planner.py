"""Plans scheduled jobs of every kind for gateways that are killed, and records the requests.

Rules: once, at an interval, by cron. Work: a prompt in a new session, a prompt in one session for all
runs, a command. Targets: the chat of origin, a folder, a certain chat. Sometimes an extra run is
requested.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import NamedTuple

from rekindle import Store
from rekindle.gateway.schedule.planning import JobRequest, add_job, run_job_now
from rekindle.store.conversations.jobs import ScheduledJob
from rekindle.types import Source

PROMPTS = ("plain", "slow", "long", "tool", "tools", "quiet")
TARGETS = ("origin", "local", "memory:ops")
SESSIONS = ("new", "same")
EVERY = 0.4  # seconds between two things that are asked of the scheduler, on average
MOST_OPEN = 8  # jobs that are yet to run once
OPERATOR = Source("local", "terminal")


class PlannedJob(NamedTuple):
    """A job as it was requested."""

    job: ScheduledJob
    kind: str  # of the prompt, or `command`
    tag: str  # a word of its own, in the text and in what the command leaves behind


class JobPlanner:
    """Adds jobs and requests runs, and records both."""

    def __init__(self, store: Store, rng: random.Random, effects: Path) -> None:
        self._store, self._rng = store, rng
        self.effects = effects  # a file to which commands add a line
        self.planned: dict[str, PlannedJob] = {}
        self.asked: dict[str, list[float]] = {}
        self._next = 0.0

    def begin(self) -> None:
        """Add the repeating jobs, with each rule, work and target, and request a first run of each."""
        for when in ("every 1m", "* * * * *"):
            for session in SESSIONS:
                for target in TARGETS:
                    self._add_job(when, self._rng.choice(PROMPTS), target, session)
            for target in TARGETS:
                self._add_job(when, "command", target, "new")
        for id in self.planned:
            self._request_run(id)

    def take_step(self) -> None:
        """Add a job that runs once, or request a run, when it is time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._rng.expovariate(1 / EVERY)
        rng = self._rng
        if rng.random() < 0.25:
            self._request_run(rng.choice(list(self.planned.values())).job.id)
        elif self.count_open() < MOST_OPEN:
            kind = rng.choice(("command", *PROMPTS))
            self._add_job(
                f"{rng.randrange(1, 4)}s", kind, rng.choice(TARGETS), rng.choice(SESSIONS)
            )

    def count_open(self) -> int:
        """Count the requested runs that have not ended."""
        with self._store._engine.begin_read() as tx:
            return tx.run(
                "SELECT count(*) FROM jobs WHERE requested IS NOT NULL"
                " OR (state = 'active' AND rule LIKE '%once%') OR num IN"
                " (SELECT job FROM job_runs WHERE state = 'running')"
            )[0][0]

    def pause(self) -> None:
        """Pause repeating jobs, but keep the times of their next runs."""
        sql = "UPDATE jobs SET state = 'paused' WHERE state = 'active' AND rule NOT LIKE '%once%'"
        self._store.jobs._write(lambda tx: tx.run(sql))

    def _add_job(self, when: str, kind: str, target: str, session: str) -> None:
        number = len(self.planned)
        tag = f"j{number}"
        maker, owner = OPERATOR, "operator"
        if target == "origin":
            chat = f"o{number % 4}"
            maker = Source("memory", chat, user_id=chat, user_name=f"User {chat}")
            owner = f"agent:main:memory:dm:{chat}"
        text = f"{tag} {kind}."
        if kind == "command":
            text = f"echo {tag} >> '{self.effects}'; sleep 0.1; echo {tag} ran"
        request = JobRequest(
            when=when,
            text=text,
            name=tag,
            kind="command" if kind == "command" else "prompt",
            deliver=target,
            session=session,
            is_silent=kind == "quiet",
        )
        job = add_job(
            self._store, request, owner=owner, maker=maker, zone="UTC", platforms=("memory",)
        )
        self.planned[job.id] = PlannedJob(job, kind, tag)

    def _request_run(self, id: str) -> None:
        job = self._store.jobs.find(id)
        if job.requested is None:  # only we ask, so that none has come since
            asked = run_job_now(self._store, job)
            assert asked.requested is not None
            self.asked.setdefault(id, []).append(asked.requested)
