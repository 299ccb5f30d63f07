"""Scheduled jobs and their runs.

A run is a message in the inbox: it is claimed in one transaction that also sets when the job runs next,
so that a run is neither lost nor started twice, whoever crashes and however many gateways share the
store. When its message ends, so does the run.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.schedule_rule import ScheduleRule
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import ValueRows, decode_json, encode_json
from rekindle.store.core.tables import JOB_RUNS, JOBS
from rekindle.store.core.text_encoding import escape_text
from rekindle.types import Source, to_json_value

from .message_rows import decode_source, escape_optional

JOB_CHAT_TYPE = "job"  # in the key of a job's conversation; no platform has such chats
MAX_OUTPUT_CHARS = 20_000
# A job whose time has come, or whose run somebody asked for, and none of whose runs goes on. There is
# one index for each half: with OR, SQLite reads the whole table; with IS NOT NULL, PostgreSQL does so
# until it has counted how many there are.
IS_DUE = (
    "num IN (SELECT num FROM jobs WHERE state = 'active' AND next_run <= ?"
    " UNION ALL SELECT num FROM jobs WHERE requested BETWEEN 0 AND 1e12)"
    " AND NOT EXISTS (SELECT 1 FROM job_runs r WHERE r.job = jobs.num AND r.state = 'running')"
)
_ID_CHARS = "abcdefghjkmnpqrstuvwxyz23456789"


class JobPlan(NamedTuple):
    """What a job does, when, for whom, and where its results go.

    `maker` is the source of who made it: a run has the rights of this person. `kind` is prompt or
    command. `session` is `new` for a session per run or `same` for one that all runs share. A silent
    job delivers nothing when there is nothing to report.
    """

    name: str
    owner: str
    maker: Source
    kind: str
    text: str
    rule: ScheduleRule
    target: Source
    deliver: str
    session: str = "new"
    is_silent: bool = False


class ScheduledJob(NamedTuple):
    """A scheduled job; see `JobPlan` for what it does."""

    num: int
    id: str
    name: str
    owner: str
    maker: Source
    kind: str
    text: str
    rule: ScheduleRule
    target: Source
    deliver: str
    session: str
    is_silent: bool
    state: str  # active, paused, done
    next_run: float | None
    last_run: float | None
    requested: float | None  # when somebody asked for a run beside those of the rule
    reason: str | None  # why it was paused, if nobody did it
    created: float
    runs: int


class JobRun(NamedTuple):
    """One run of a job."""

    num: int
    job: int
    due: float
    inbox: int | None
    state: str  # running, done, failed
    session: str | None
    output: str
    reason: str | None
    started: float
    ended: float | None


def _decode_rule(text: str) -> ScheduleRule:
    kind, value, zone = decode_json(text)
    return ScheduleRule(kind, value, zone)


JOB_ROWS = ValueRows(
    JOBS, ScheduledJob, maker=decode_source, target=decode_source, rule=_decode_rule, is_silent=bool
)
RUN_ROWS = ValueRows(JOB_RUNS, JobRun)


def _make_id() -> str:
    return "".join(secrets.choice(_ID_CHARS) for _ in range(6))


class Jobs(StorePart):
    """The jobs of a store. Use `store.jobs`."""

    def add(self, plan: JobPlan, next_run: float) -> ScheduledJob:
        """Store a job that runs first at `next_run`."""
        now = self._clock()
        if not plan.text.strip():
            raise InvalidInput("job: expected a prompt or a command")

        def insert(tx: Transaction) -> ScheduledJob:
            id = _make_id()
            while tx.run("SELECT 1 FROM jobs WHERE id = ?", (id,)):
                id = _make_id()  # short ids are easy to type, and some of thousands are alike
            tx.run(
                "INSERT INTO jobs (id, name, owner, maker, kind, text, rule, platform, target, deliver,"
                " session, is_silent, state, next_run, created)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'active', ?, ?)",
                (
                    id, escape_text(plan.name), escape_text(plan.owner),
                    encode_json(to_json_value(plan.maker)), plan.kind, escape_text(plan.text),
                    encode_json(list(plan.rule)), escape_text(plan.target.platform),
                    encode_json(to_json_value(plan.target)), escape_text(plan.deliver),
                    plan.session, int(plan.is_silent), next_run, now,
                ),
            )  # fmt: skip
            return JOB_ROWS.find(tx, "WHERE id = ?", (id,))[0]

        return self._write(insert)

    def find(self, name: str, *, owner: str | None = None) -> ScheduledJob:
        """Return the job with this id or name; with `owner`, only among theirs."""
        condition, params = _filter_by_owner(owner)
        with self._engine.begin_read() as tx:
            found = JOB_ROWS.find(
                tx,
                f"WHERE (id = ? OR name = ?){condition} ORDER BY num",
                (escape_text(name), escape_text(name), *params),
            )
        if not found:
            raise NotFound(f"Job not found: {name!r:.80}")
        if len(found) > 1:
            ids = ", ".join(one.id for one in found[:5])
            raise InvalidInput(f"several jobs are named {name!r:.80}; use an id: {ids}")
        return found[0]

    def list(self, *, owner: str | None = None, limit: int = 1000) -> list[ScheduledJob]:
        """Return jobs, those that run next first."""
        condition, params = _filter_by_owner(owner)
        with self._engine.begin_read() as tx:
            return JOB_ROWS.find(
                tx,
                f"WHERE true{condition} ORDER BY next_run IS NULL, next_run, num LIMIT ?",
                (*params, limit),
            )

    def count_pending(self, owner: str) -> int:
        """Count the jobs of an owner that may run again: those that are not done."""
        sql = "SELECT count(*) FROM jobs WHERE owner = ? AND state <> 'done'"
        return self._select(sql, (escape_text(owner),))[0][0]

    def list_due(self, platforms: Sequence[str], limit: int = 100) -> list[ScheduledJob]:
        """Return the jobs that are due and deliver to one of these platforms, oldest first.

        A job whose last run has not ended waits for it.
        """
        marks = ", ".join("?" * len(platforms))
        with self._engine.begin_read() as tx:
            rest = f"WHERE {IS_DUE} AND platform IN ({marks}) ORDER BY next_run LIMIT ?"
            values = (self._clock(), *map(escape_text, platforms), limit)
            return JOB_ROWS.find(tx, rest, values)

    def claim_run(self, job: ScheduledJob, next_run: float | None) -> bool:
        """Claim the due run of a job and set its next; return False if somebody else has.

        Call it in one transaction with storing the message of the run.
        """

        def claim(tx: Transaction) -> bool:
            state = "done" if next_run is None else "active"
            return bool(
                tx.run(
                    "UPDATE jobs SET next_run = ?, last_run = ?, runs = runs + 1, state = ?"
                    " WHERE num = ? AND state = 'active' AND next_run = ? RETURNING num",
                    (next_run, job.next_run, state, job.num, job.next_run),
                )
            )

        return self._write(claim)

    def ask_for_run(self, job: ScheduledJob) -> ScheduledJob:
        """Request a run now, besides those of the rule, even for a job that is paused or done."""
        now = self._clock()
        return self._update(job, "requested = ?", (now,))

    def claim_request(self, job: ScheduledJob) -> bool:
        """Claim the run that somebody asked for; return False if somebody else has.

        Call it in one transaction with storing the message of the run.
        """
        sql = (
            "UPDATE jobs SET requested = NULL, last_run = ?, runs = runs + 1"
            " WHERE num = ? AND requested = ? RETURNING num"
        )
        values = (job.requested, job.num, job.requested)
        return self._write(lambda tx: bool(tx.run(sql, values)))

    def add_run(self, job: ScheduledJob, due: float, inbox: int) -> None:
        """Record a run that has begun as a message of the inbox."""
        now = self._clock()
        sql = (
            "INSERT INTO job_runs (job, due, inbox, state, output, started)"
            " VALUES (?, ?, ?, 'running', '', ?) ON CONFLICT (job, due) DO NOTHING"
        )
        self._write(lambda tx: tx.run(sql, (job.num, due, inbox, now)))

    def set_state(
        self, job: ScheduledJob, state: str, *, next_run: float | None, reason: str | None = None
    ) -> ScheduledJob:
        """Pause a job, resume it, or let it run at another time."""
        values = (state, next_run, escape_optional(reason))
        return self._update(job, "state = ?, next_run = ?, reason = ?, requested = NULL", values)

    def _update(self, job: ScheduledJob, change: str, values: Sequence[Any]) -> ScheduledJob:
        def update(tx: Transaction) -> ScheduledJob:
            tx.run(f"UPDATE jobs SET {change} WHERE num = ?", (*values, job.num))
            found = JOB_ROWS.find(tx, "WHERE num = ?", (job.num,))
            if not found:
                raise NotFound(f"Job not found: {job.id!r}")
            return found[0]

        return self._write(update)

    def remove(self, job: ScheduledJob) -> None:
        """Delete a job and the history of its runs; sessions of its runs stay."""

        def delete(tx: Transaction) -> None:
            tx.run("DELETE FROM job_runs WHERE job = ?", (job.num,))
            tx.run("DELETE FROM jobs WHERE num = ?", (job.num,))

        self._write(delete)

    def delete_old_runs(self, older_than: float) -> None:
        """Delete runs that ended more than `older_than` seconds ago, and the routes of such runs."""
        before = self._clock() - older_than

        def delete(tx: Transaction) -> None:
            tx.run("DELETE FROM job_runs WHERE ended < ?", (before,))
            tx.run(
                "DELETE FROM routes WHERE updated < ? AND key LIKE ?",
                (before, f"%:{JOB_CHAT_TYPE}:%:t=%"),
            )

        self._write(delete)

    def list_runs(self, job: ScheduledJob, limit: int = 20) -> list[JobRun]:
        """Return the runs of a job, newest first."""
        with self._engine.begin_read() as tx:
            rest = "WHERE job = ? ORDER BY due DESC, num DESC LIMIT ?"
            return RUN_ROWS.find(tx, rest, (job.num, limit))


def finish_runs(
    tx: Transaction, nums: Sequence[int], state: str, session: str, output: str, reason: str | None,
    now: float,
) -> None:  # fmt: skip
    """End the runs whose inbox messages end, in the same transaction."""
    for num in nums:
        tx.run(
            "UPDATE job_runs SET state = ?, session = ?, output = ?, reason = ?, ended = ?"
            " WHERE inbox = ? AND state = 'running'",
            (
                state, escape_text(session), escape_text(output[:MAX_OUTPUT_CHARS]),
                escape_optional(reason), now, num,
            ),
        )  # fmt: skip


def _filter_by_owner(owner: str | None) -> tuple[str, list[Any]]:
    return ("", []) if owner is None else (" AND owner = ?", [escape_text(owner)])
