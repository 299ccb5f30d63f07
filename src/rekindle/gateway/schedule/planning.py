"""Make, change and describe jobs, for the command line and for the `schedule` tool."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from time import time
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from rekindle.errors import InvalidInput
from rekindle.routing.delivery_target import FOLDER, ORIGIN, resolve_target
from rekindle.routing.schedule_rule import compute_next_run, parse_rule
from rekindle.store import Store
from rekindle.store.conversations.jobs import JobPlan, JobRun, ScheduledJob
from rekindle.types import Source

MAX_JOBS_PER_OWNER = 200
MAX_TEXT_CHARS = 20_000
MAX_NAME_CHARS = 80


class JobRequest(NamedTuple):
    """A job as somebody asked for it."""

    when: str
    text: str
    name: str = ""
    kind: str = "prompt"
    deliver: str = ORIGIN
    zone: str = ""
    session: str = "new"
    is_silent: bool = False


def add_job(
    store: Store, request: JobRequest, *, owner: str, maker: Source, zone: str,
    platforms: Collection[str] = (),
) -> ScheduledJob:  # fmt: skip
    """Check a request and store its job. `zone` is that of the maker, unless the request names one."""
    if len(request.text) > MAX_TEXT_CHARS:
        raise InvalidInput(f"job: its text is too long; at most {MAX_TEXT_CHARS:,} characters")
    if len(request.name) > MAX_NAME_CHARS:
        raise InvalidInput(f"job: its name is too long; at most {MAX_NAME_CHARS} characters")
    if request.session not in ("new", "same"):
        raise InvalidInput("job: its session is `new` (one per run) or `same` (one for all)")
    if store.jobs.count_pending(owner) >= MAX_JOBS_PER_OWNER:
        raise InvalidInput(f"job: you have {MAX_JOBS_PER_OWNER} already; remove some first")
    now, zone = time(), _check_zone(request.zone or zone)
    rule = parse_rule(request.when, zone, now)
    homes = {home.platform: home for home in store.routes.list_homes()}
    known = {*platforms, *homes, *store.routes.list_platforms()} - {FOLDER}
    target = resolve_target(request.deliver, origin=maker, homes=homes, platforms=known)
    plan = JobPlan(
        name=request.name or " ".join(request.text.split())[:40],
        owner=owner,
        maker=maker,
        kind=request.kind,
        text=request.text,
        rule=rule,
        target=target,
        deliver=request.deliver,
        session=request.session,
        is_silent=request.is_silent,
    )
    next_run = compute_next_run(rule, now)
    assert next_run is not None
    return store.jobs.add(plan, next_run)


def pause_job(store: Store, job: ScheduledJob) -> ScheduledJob:
    """Stop a job from running until it is resumed."""
    return store.jobs.set_state(job, "paused", next_run=None)


def resume_job(store: Store, job: ScheduledJob) -> ScheduledJob:
    """Resume a paused job at its next scheduled time."""
    next_run = compute_next_run(job.rule, time())
    if next_run is None:
        raise InvalidInput(f"job {job.id}: its time has passed; add it again")
    return store.jobs.set_state(job, "active", next_run=next_run)


def run_job_now(store: Store, job: ScheduledJob) -> ScheduledJob:
    """Let a job run as soon as a gateway sees it; its state and its later runs stay as they are."""
    return store.jobs.ask_for_run(job)


def describe_job(job: ScheduledJob) -> str:
    """Describe a job in one line."""
    state = f"next {format_moment(job.next_run, job.rule.zone)}" if job.next_run else job.state
    reason = f" ({job.reason})" if job.reason else ""
    return f"{job.id} “{job.name}”: {job.rule.to_text()} ({job.rule.zone}), {state}{reason}"


def format_moment(seconds: float | None, zone: str) -> str:
    """Format a time in the zone of a job."""
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


def job_to_dict(job: ScheduledJob) -> dict[str, Any]:
    """Return a job as JSON types."""
    return {
        "id": job.id, "name": job.name, "kind": job.kind, "text": job.text,
        "schedule": job.rule.to_text(), "zone": job.rule.zone, "deliver": job.deliver,
        "session": job.session, "silent": job.is_silent, "state": job.state,
        "next_run": job.next_run, "last_run": job.last_run, "runs": job.runs,
        "reason": job.reason, "owner": job.owner, "created": job.created,
    }  # fmt: skip


def run_to_dict(run: JobRun) -> dict[str, Any]:
    """Return a run as JSON types."""
    return {
        "due": run.due, "started": run.started, "ended": run.ended, "state": run.state,
        "session": run.session, "output": run.output, "reason": run.reason,
    }  # fmt: skip


def _check_zone(zone: str) -> str:
    from zoneinfo import ZoneInfoNotFoundError

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(f"schedule: unknown time zone {zone!r:.60}") from error
    return zone
