"""Jobs of every kind for gateways that are killed: what was asked of the scheduler, and when.

Rules: once, at an interval, by cron. Work: a prompt in a fresh session, a prompt in one session for
all runs, a command. Targets: the chat a job was made in, a folder, a certain chat. Every now and then
somebody asks for a run beside those of the rule.
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
    """A job as it was asked for."""

    job: ScheduledJob
    kind: str  # of the prompt, or `command`
    tag: str  # a word of its own, in the text and in what the command leaves behind


class Planner:
    """Whoever makes jobs and asks for runs, and what they were promised."""

    def __init__(self, store: Store, rng: random.Random, effects: Path) -> None:
        self._store, self._rng = store, rng
        self.effects = effects  # a file to which commands add a line
        self.planned: dict[str, PlannedJob] = {}
        self.asked: dict[str, list[float]] = {}
        self._next = 0.0

    def begin(self) -> None:
        """Make the jobs that run again and again: each rule, work and target is among them.

        A first run of each is asked for at once.
        """
        for when in ("every 1m", "* * * * *"):
            for session in SESSIONS:
                for target in TARGETS:
                    self._add(when, self._rng.choice(PROMPTS), target, session)
            for target in TARGETS:
                self._add(when, "command", target, "new")
        for id in self.planned:
            self._ask(id)

    def act(self) -> None:
        """Make a job that runs once, or ask for a run, when it is time for that."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._rng.expovariate(1 / EVERY)
        rng = self._rng
        if rng.random() < 0.25:
            self._ask(rng.choice(list(self.planned.values())).job.id)
        elif self.count_open() < MOST_OPEN:
            kind = rng.choice(("command", *PROMPTS))
            self._add(f"{rng.randrange(1, 4)}s", kind, rng.choice(TARGETS), rng.choice(SESSIONS))

    def count_open(self) -> int:
        """Count the runs that are asked for and have not ended."""
        with self._store._engine.begin_read() as tx:
            return tx.run(
                "SELECT count(*) FROM jobs WHERE requested IS NOT NULL"
                " OR (state = 'active' AND rule LIKE '%once%') OR num IN"
                " (SELECT job FROM job_runs WHERE state = 'running')"
            )[0][0]

    def pause(self) -> None:
        """Let no more runs begin by a rule, and leave in the store when the next would be due."""
        sql = "UPDATE jobs SET state = 'paused' WHERE state = 'active' AND rule NOT LIKE '%once%'"
        self._store.jobs._write(lambda tx: tx.run(sql))

    def _add(self, when: str, kind: str, target: str, session: str) -> None:
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

    def _ask(self, id: str) -> None:
        job = self._store.jobs.find(id)
        if job.requested is None:  # only we ask, so that none has come since
            asked = run_job_now(self._store, job)
            assert asked.requested is not None
            self.asked.setdefault(id, []).append(asked.requested)
