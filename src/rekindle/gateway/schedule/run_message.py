"""The message that starts a run of a job, and its job fields.

A run has a key of its own, on the platform that its result goes to: only the gateway makes keys of this
chat type, so what stands in such a message can be trusted.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, cast
from zoneinfo import ZoneInfo

from rekindle.routing.key import KeyParts, join_key, parse_key
from rekindle.routing.source import from_json, to_json
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.store.conversations.jobs import JOB_CHAT_TYPE, ScheduledJob
from rekindle.types import JSON, Message, Source

NOTHING = "NOTHING"  # the answer of a silent job that has nothing to report


class RunInfo(NamedTuple):
    """What the message of a run says about its job."""

    job: str
    name: str
    kind: str
    owner: str
    maker: Source
    is_silent: bool
    due: str


def build_run_key(job: ScheduledJob, due: float) -> str:
    """Build the key of a run: one for all runs of a job that keeps its session."""
    thread = None if job.session == "same" else f"{due:.6f}"  # two may be due in one second
    return join_key(KeyParts(job.target.platform, JOB_CHAT_TYPE, job.id, thread))


def build_run_message(job: ScheduledJob, due: float) -> Message:
    """Build the message that starts a run."""
    moment = datetime.fromtimestamp(due, ZoneInfo(job.rule.zone))
    meta: dict[str, JSON] = {
        "job": job.id,
        "name": job.name,
        "kind": job.kind,
        "owner": job.owner,
        "maker": to_json(job.maker),
        "silent": job.is_silent,
        "due": moment.strftime("%Y-%m-%d %H:%M %Z"),
    }
    return Message("user", job.text, platform_message_id=f"{job.id}@{due!r}", meta={"run": meta})


def read_run(inbound: InboundMessage) -> RunInfo | None:
    """Return what a message says about its job, or None if it is not a run."""
    if f":{JOB_CHAT_TYPE}:" not in inbound.key or parse_key(inbound.key).chat_type != JOB_CHAT_TYPE:
        return None
    meta = (inbound.message.meta or {}).get("run")
    if not isinstance(meta, dict):
        return None
    run = cast(dict[str, JSON], meta)
    return RunInfo(
        job=str(run["job"]),
        name=str(run["name"]),
        kind=str(run["kind"]),
        owner=str(run["owner"]),
        maker=from_json(run["maker"]),
        is_silent=run["silent"] is True,
        due=str(run["due"]),
    )


def build_run_prompt(run: RunInfo) -> str:
    """Build the section of the system prompt for a scheduled run."""
    lines = [
        "## Scheduled run",
        "",
        f"This is a run of a scheduled job that was due at {run.due}. Nobody is waiting in this chat"
        " and nobody can answer questions: do what the job says and report the result.",
    ]
    if run.is_silent:
        lines.append(f"If there is nothing to report, answer with the one word {NOTHING}.")
    return "\n".join(lines)


def is_nothing(run: RunInfo | None, text: str) -> bool:
    """Return whether a silent job has nothing to report."""
    return run is not None and run.is_silent and text.strip().strip(".!*`“”\"'").upper() == NOTHING
