"""Checks the jobs and the deliveries after a run in which gateways were killed.

Compares the jobs, runs, inbox, outbox and sessions of the store with the messages of the chat network,
the files in the results folder, and the lines that commands wrote.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle import Store
from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
from rekindle.store.conversations.jobs import JobRun, ScheduledJob
from rekindle.store.conversations.message_rows import INBOX_ROWS, OUTBOX_ROWS
from rekindle.testing import ChatServer
from rekindle.types import Tokens
from soak.gateway.job_planner import JobPlanner, PlannedJob

if TYPE_CHECKING:
    from soak.gateway.conversation_audit import GatewayReport

EVERY = 1_000_000
TOLERANCE = 2.0  # seconds between reading the clock for a claim and for the row of its run


def audit_schedules(
    store: Store,
    server: ChatServer,
    planner: JobPlanner,
    answers: dict[str, str],
    report: GatewayReport,
) -> None:
    """Add lost, duplicate or damaged runs, deliveries and totals to the report."""
    inbound, outbound = _read_messages(store)
    replies: defaultdict[int, list[OutboundMessage]] = defaultdict(list)
    for one in outbound:
        if one.reply_to is not None:
            replies[one.reply_to].append(one)
    effects = Counter(
        planner.effects.read_text().split() if planner.effects.exists() else list[str]()
    )
    jobs = store.jobs.list(limit=EVERY)
    report.jobs = len(jobs)
    for id in planner.planned.keys() - {job.id for job in jobs}:
        report.wrong.append(f"job {id} is lost")
    for job in jobs:
        runs = sorted(store.jobs.list_runs(job, EVERY), key=lambda run: run.num)
        report.runs += len(runs)
        planned = planner.planned.get(job.id)
        asked = planner.asked.get(job.id, [])
        if planned is None:
            planned = PlannedJob(job, "chat", job.name)
        report.wrong += _check_dues(planned, job, runs, asked)
        report.wrong += _check_runs(store, planned, runs, inbound, replies, answers, report)
        if planned.kind == "command":
            report.wrong += _check_effects(planned, runs, effects[planned.tag], report)
    report.wrong += _check_network(server, outbound, report)
    report.wrong += _check_folder(planner.effects.parent / "home" / "results", outbound, report)
    report.wrong += _check_totals(store, inbound.values())


def list_made_jobs(store: Store, session: str) -> list[str]:
    """Return the ids of the jobs that were created in a session, by its tool results."""
    found: list[str] = []
    for message in store.messages(session):
        if message.role == "tool" and '"next_run"' in message.text:
            found.append(json.loads(message.text)["id"])
    return found


def list_job_messages(store: Store) -> frozenset[str]:
    """Return the network's ids of the messages that jobs have posted."""
    return frozenset(
        one.platform_message_id
        for one in _read_messages(store)[1]
        if ":job:" in one.key and one.platform_message_id
    )


def _read_messages(store: Store) -> tuple[dict[int, InboundMessage], list[OutboundMessage]]:
    with store._engine.begin_read() as tx:
        inbound = INBOX_ROWS.find(tx, "WHERE num > ? ORDER BY num", (0,))
        outbound = OUTBOX_ROWS.find(tx, "WHERE num > ? ORDER BY num", (0,))
    return {one.num: one for one in inbound}, outbound


# -- runs


def _check_dues(
    planned: PlannedJob, job: ScheduledJob, runs: Sequence[JobRun], asked: Sequence[float]
) -> Iterator[str]:
    """Yield runs that differ from those of the job's rule and its requests, each once."""
    dues = Counter(run.due for run in runs)
    for due in asked:
        if dues[due] != 1:
            yield f"job {job.id}: the run asked for at {due!r} ran {dues[due]} times"
    by_rule = [run for run in runs if run.due not in asked]
    if job.runs != len(runs):
        yield f"job {job.id}: counts {job.runs} runs, {len(runs)} are stored"
    if job.rule.kind == "once":
        if [run.due for run in by_rule] != [job.rule.value] or job.state != "done":
            yield f"job {job.id}: once at {job.rule.value!r}, ran at {[r.due for r in by_rule]}"
        return
    first, *followers = [*(run.due for run in by_rule), job.next_run or 0.0]
    if first != planned.job.next_run:
        yield f"job {job.id}: was first due at {planned.job.next_run!r}, ran first at {first!r}"
    for run, following in zip(by_rule, followers, strict=True):
        if following not in _list_followers(run):
            yield (
                f"job {job.id}: after {run.due!r}, started {run.started!r}, comes {following!r}"
                f" ({job.rule.to_text()})"
            )


def _list_followers(run: JobRun) -> set[float]:
    """Return the possible next due times of a job that runs every minute."""
    found: set[float] = set()
    for moment in (run.started - TOLERANCE, run.started):
        beats = max(0, (max(moment, run.due) - run.due) // 60) + 1
        found.add(run.due + 60 * beats)
    return found


def _check_runs(
    store: Store,
    planned: PlannedJob,
    runs: Sequence[JobRun],
    inbound: dict[int, InboundMessage],
    replies: dict[int, list[OutboundMessage]],
    answers: dict[str, str],
    report: GatewayReport,
) -> Iterator[str]:
    """Yield errors in the states of runs, their sessions and their results."""
    job = planned.job
    wanted = answers.get(planned.kind, "").replace("{user}", job.text)
    if planned.kind == "chat":
        wanted = f"[job] {job.text}"
    sessions: defaultdict[str, list[JobRun]] = defaultdict(list)
    for run in runs:
        where = f"job {job.id} ({planned.kind}, {job.rule.kind}), run {run.num}"
        message = inbound.get(run.inbox or 0)
        if run.state not in ("done", "failed") or message is None:
            yield f"{where} did not end: {run.state}, message {message}"
            continue
        if run.state == "failed":
            report.failed_runs[(run.reason or "").split(":")[0]] += 1
            if not run.reason:
                yield f"{where} failed without a reason"
        if run.state == "failed" and planned.kind != "command":
            continue
        shown = " ".join(" ".join(one.text for one in replies.get(message.num, ())).split())
        if planned.kind == "command":
            expected = f"{planned.tag} ran" if run.state == "done" else run.output
        else:
            sessions[run.session or ""].append(run)
            expected = "" if planned.kind == "quiet" else wanted
            if run.output != wanted:
                yield f"{where}: its output is {run.output[:80]!r}, wanted {wanted[:80]!r}"
        if shown != " ".join(expected.split()):
            yield f"{where}: posted {shown[:80]!r}, wanted {expected[:80]!r}"
    if job.session == "new" and any(len(ran) > 1 for ran in sessions.values()):
        yield f"job {job.id}: two runs share a session"
    if job.session == "same" and len(sessions) > 1:
        yield f"job {job.id}: its runs are in {len(sessions)} sessions"
    failed = sum(run.state == "failed" for run in runs)
    for session, ran in sessions.items():
        said = [one.text for one in store.messages(session) if one.role == "user"]
        if not len(ran) <= len(said) <= len(ran) + failed or {*said} != {job.text}:
            yield f"job {job.id}: session {session} has {len(said)} prompts for {len(ran)} runs"


def _check_effects(
    planned: PlannedJob, runs: Sequence[JobRun], effects: int, report: GatewayReport
) -> Iterator[str]:
    """Yield an error if a command took effect in too many or too few runs."""
    done = sum(run.state == "done" for run in runs)
    report.commands_run += done
    if not done <= effects <= len(runs):
        counts = f"{done} of {len(runs)} runs done, {effects} effects"
        yield f"job {planned.job.id}: {counts}"


# -- deliveries


def _check_network(
    server: ChatServer, outbound: Sequence[OutboundMessage], report: GatewayReport
) -> Iterator[str]:
    """Yield the differences between the network's record and the outbox."""
    sent = server.list_sent()
    places = {one.id: place for place, one in enumerate(sent)}
    owners = Counter(one.platform_message_id for one in outbound if one.platform_message_id)
    last: dict[str, int] = {}
    for one in outbound:
        if one.target.platform != "memory":
            continue
        report.deliveries += 1
        if one.state != "sent" or one.platform_message_id not in places:
            if one.state == "failed":
                report.undeliverable += ":job:" in one.key  # others are counted with their chat
            else:
                yield f"delivery {one.num} ({one.state}, {one.platform_message_id}) is not shown"
            continue
        place = places[one.platform_message_id]
        shown = sent[place]
        if owners[shown.id] > 1:
            yield f"message {shown.id} stands for {owners[shown.id]} deliveries"
        if (shown.text, shown.chat) != (one.text, one.target.chat_id):
            yield f"delivery {one.num}: {one.text[:60]!r} is shown as {shown.text[:60]!r}"
        if place < last.get(one.key, -1):
            yield f"delivery {one.num}: shown before an earlier one of {one.key}"
        last[one.key] = place
    failed = sum(one.state == "failed" for one in outbound if one.target.platform == "memory")
    unknown = [shown for shown in sent if not owners[shown.id]]
    if len(unknown) > failed:  # one that was given up may have arrived nevertheless
        for shown in unknown[:5]:
            yield f"message {shown.id} in {shown.chat} ({shown.nonce}) is of no delivery"


def _check_folder(
    folder: Path, outbound: Sequence[OutboundMessage], report: GatewayReport
) -> Iterator[str]:
    """Yield the differences between the files and the outbox."""
    files = {path.name: path for path in folder.iterdir()} if folder.exists() else {}
    for one in outbound:
        if one.target.platform != "folder":
            continue
        report.files += 1
        path = files.pop(one.platform_message_id or "", None)
        if path is None:
            yield f"result {one.num} ({one.state}): no file {one.platform_message_id}"
        elif path.read_text() != one.text:
            yield f"result {one.num}: another text in {path.name}"
    yield from (f"a file of no result: {name}" for name in files)


# -- totals


def _check_totals(store: Store, inbound: Iterable[InboundMessage]) -> Iterator[str]:
    """Yield the routes whose tokens are not the sum of those of their sessions."""
    sessions: defaultdict[str, set[str]] = defaultdict(set)
    for one in inbound:
        if one.session:
            sessions[one.key].add(one.session)
    for route in store.routes.list(limit=EVERY):
        total = Tokens()
        for id in sessions[route.key]:
            total = total.add(store.session(id).tokens)
        if total != route.tokens:
            yield f"route {route.key}: {route.tokens}, its sessions: {total}"
