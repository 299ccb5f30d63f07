"""Checks the conversations after a run in which gateways were killed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from rekindle import Message, Store
from rekindle.agent.model.normalize import normalize_messages
from rekindle.agent.model.providers import Provider, find_violations
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.testing import ChatServer
from soak.gateway.schedule_audit import list_job_messages, list_made_jobs

if TYPE_CHECKING:
    from soak.gateway.gateway_kills import People

GAVE_UP = "I couldn't answer this message"


@dataclass
class GatewayReport:
    """The counts of a run, and every broken promise."""

    kills: int = 0
    when: Counter[str] = field(default_factory=Counter[str])  # what was going on at each kill
    messages: int = 0
    commands: int = 0
    undeliverable: int = 0
    given_up: int = 0
    model_calls: int = 0
    repeats: int = 0
    seconds: float = 0.0
    seed: int = 0
    jobs: int = 0
    runs: int = 0
    failed_runs: Counter[str] = field(default_factory=Counter[str])  # by reason
    commands_run: int = 0
    job_messages: frozenset[str] = frozenset()  # of the network: results, not answers
    cut_calls: int = (
        0  # tool calls without a stored result; the model is told that they were cut off
    )
    deliveries: int = 0
    files: int = 0
    wrong: list[str] = field(default_factory=list)

    def summarize(self) -> str:
        return (
            f"{self.kills} kills in {self.seconds:.0f} s ({self.describe_moments()});"
            f" {self.messages} messages and {self.commands} commands,"
            f" {self.undeliverable} answers undeliverable and {self.given_up} messages given up, with"
            f" the reason;"
            f" {self.jobs} jobs with {self.runs} runs ({self.describe_failed()}),"
            f" {self.deliveries} deliveries to chats and {self.files} to the folder;"
            f" {self.model_calls} model calls, {self.repeats} sends repeated and recognised;"
            f" {len(self.wrong)} promises broken"
        )

    def describe_failed(self) -> str:
        found = ", ".join(f"{count} {reason}" for reason, count in self.failed_runs.most_common())
        return found or "none failed"

    def describe_moments(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.when.most_common())


def audit_conversations(
    store: Store, server: ChatServer, people: People, report: GatewayReport
) -> None:
    """Add every broken promise to the report."""
    report.messages = sum(map(len, people.said.values()))
    report.commands = sum(map(len, people.commands.values()))
    if server.unacknowledged:
        report.wrong.append(f"never taken in: {server.unacknowledged}")
    if any(store.inbox.get_counts()[:3]):
        report.wrong.append(f"left over: {store.inbox.get_counts()}")
    report.job_messages = list_job_messages(store)
    for chat in sorted({*people.said, *people.commands}):
        report.wrong += _check_chat(store, server, people, report, chat)
    report.wrong += _check_transcripts(store, report)
    report.wrong += [f"verify: {finding}" for finding in store.verify()]


def _check_chat(
    store: Store, server: ChatServer, people: People, report: GatewayReport, chat: str
) -> Iterator[str]:
    """Yield the differences between a chat and the store."""
    key = f"agent:main:memory:dm:{chat}"
    failed = [parcel for parcel in store.inbox.list_outbound(key) if parcel.state == "failed"]
    hopeless = {
        one.message.text: one
        for one in store.inbox.list_undeliverable(100_000)
        if isinstance(one, InboundMessage) and one.key == key
    }
    report.undeliverable += len(failed)
    report.given_up += len(hopeless)
    reasons = [one.reason for one in (*failed, *hopeless.values())]
    yield from (f"{chat}: undeliverable without a reason" for reason in reasons if not reason)
    missing = {one.text for one in failed}
    texts = [one.text for one in server.list_sent(chat) if one.id not in report.job_messages]
    named = Counter(
        found for text in texts for found in re.findall(r"^Title set\.\n.*“(t\d+)”", text)
    )
    for title in people.commands[chat]:
        excused = f"/title {title}" in hopeless or any(f"“{title}”" in text for text in missing)
        if named[title] != 1 and not excused:
            yield f"{chat}: /title {title} was answered {named[title]} times"
    given_up = [text for text in texts if text.startswith(GAVE_UP)]
    if len(given_up) != len(hopeless) and not missing:
        yield f"{chat}: {len(hopeless)} messages were given up, {len(given_up)} were told"
    if not any(text.startswith("/title") for text in hopeless):  # whose place among them varies
        yield from _check_answers(store, people, chat, texts, hopeless, whole=not missing)


def _check_answers(
    store: Store,
    people: People,
    chat: str,
    texts: list[str],
    hopeless: Mapping[str, InboundMessage],
    *,
    whole: bool,
) -> Iterator[str]:
    """Yield errors in the order and the text of the answers."""
    notice = next((text for text in texts if text.startswith(GAVE_UP)), GAVE_UP)
    said = people.said[chat]
    wanted = [notice if text in hopeless else answer for text, answer in said]
    shown = " ".join(" ".join(text for text in texts if not text.startswith("Title set.")).split())
    if whole and shown != " ".join(" ".join(wanted).split()):
        yield f"{chat}: shows\n    {_describe_difference(shown, ' '.join(wanted))}"
    session = store.routes.get(f"agent:main:memory:dm:{chat}").session
    unplaced = {text for text, one in hopeless.items() if one.session is None}
    stored = [m.text for m in store.messages(session) if m.role == "user"]
    if stored != [text for text, _ in said if text not in unplaced]:
        yield f"{chat}: of {len(said)} said {len(stored)} are stored, or in another order"
    finals = [m.text for m in store.messages(session) if is_final(m)]
    placed = [
        answer for (text, _), answer in zip(said, wanted, strict=True) if text not in unplaced
    ]
    if finals != placed:
        yield f"{chat}: the stored answers are not those that were given"
    owned = [job.id for job in store.jobs.list(owner=f"agent:main:memory:dm:{chat}", limit=10_000)]
    for id in {*list_made_jobs(store, session)} - {*owned}:
        yield f"{chat}: was told that job {id} was made, there is none"
    if len(owned) > sum(text.endswith(" later.") for text, _ in said):
        yield f"{chat}: has made {len(owned)} jobs, more than it was asked for"


def is_final(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


def _describe_difference(shown: str, wanted: str) -> str:
    place = next((n for n, (a, b) in enumerate(zip(shown, wanted, strict=False)) if a != b), -1)
    start = max(0, place - 60)
    return f"…{shown[start : place + 80]!r}\n    wanted …{wanted[start : place + 80]!r}"


def _check_transcripts(store: Store, report: GatewayReport) -> Iterator[str]:
    """Yield the sessions whose messages a provider would reject."""
    for session in store.recent(100_000):
        messages = store.messages(session)
        report.cut_calls += _count_unanswered(messages)
        for provider in get_args(Provider):
            found = find_violations(provider, normalize_messages(messages, provider))
            if found:
                yield f"session {session.id} is not valid for {provider}: {found[0]}"


def _count_unanswered(messages: Sequence[Message]) -> int:
    """Count the calls that a kill cut off: they have no result before the next other message."""
    count, open_calls = 0, list[str]()
    for message in (*messages, Message("user", "")):
        if message.role == "tool":
            open_calls = [id for id in open_calls if id != message.tool_call_id]
        else:
            count += len(open_calls)
            open_calls = [call.id for call in message.tool_calls]
    return count
