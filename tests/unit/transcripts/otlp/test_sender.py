"""Sending to a collector: once, in order, redacted, and over outages and crashes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.errors import CollectorError, InvalidInput
from rekindle.redaction.redactor import Redactor
from rekindle.store import Store
from rekindle.transcripts.export.redact import SessionRedactor
from rekindle.transcripts.otlp.collector import Collector, CollectorSettings, open_collector
from rekindle.transcripts.otlp.progress import SendProgress
from rekindle.transcripts.otlp.sender import SessionSender
from rekindle.types import Message, Tokens, ToolCall
from tests.new_store import open_new_store
from tests.unit.transcripts.otlp.collectors import TestCollector, get_attributes, run_collector
from tests.waiting import wait_until

TOKEN = "gh" + "p_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"
JSON = CollectorSettings(is_json=True, attempts=3, first_delay=0.01)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_new_store(tmp_path / "sessions.db") as store:
        yield store


@pytest.fixture
def server() -> Iterator[TestCollector]:
    with run_collector() as server:
        yield server


class Lab:
    """A sender whose process can be replaced by a new one."""

    def __init__(self, store: Store, server: TestCollector, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.collector = Collector(f"{server.url}/v1/traces", settings=JSON)

    def send(self, *, crash_before_done: bool = False, rest_seconds: float | None = None) -> int:
        with SendProgress(self.folder, self.collector.address) as progress:
            if crash_before_done:
                progress.finish_plan = lambda: None  # type: ignore[method-assign]
            return (
                self.make_sender(progress)
                .send_new(self.store.recent(100), rest_seconds=rest_seconds)
                .spans
            )

    def make_sender(
        self, progress: SendProgress, stop: threading.Event | None = None
    ) -> SessionSender:
        redactor = SessionRedactor(Redactor())
        wait = (stop or threading.Event()).wait
        return SessionSender(self.store, self.collector, progress, redactor, wait)


@pytest.fixture
def lab(store: Store, server: TestCollector, tmp_path: Path) -> Lab:
    return Lab(store, server, tmp_path / "otlp")


def ask(text: str = "hello") -> list[Message]:
    call = ToolCall("c", "Bash", {"command": "ls"})
    return [
        Message("user", text),
        Message("assistant", "I look.", [call]),
        Message("tool", "a.txt", tool_call_id="c"),
        Message("assistant", "There is a.txt."),
    ]


def test_only_what_is_new_is_sent(lab: Lab, store: Store, server: TestCollector) -> None:
    session = store.begin(title="T")
    store.append(session, *ask())
    assert lab.send() == 4
    assert lab.send() == 0
    store.append(session, *ask("again"))
    assert lab.send() == 4
    assert len(set(server.ids)) == len(server.ids) == 8
    assert len({span["traceId"] for span in server.spans}) == 2


def test_secrets_are_removed(lab: Lab, store: Store, server: TestCollector) -> None:
    session = store.begin(title=f"use {TOKEN}")
    call = ToolCall("c", "Bash", {"command": f"curl -H 'X: {TOKEN}' h"})
    store.append(
        session,
        Message("user", f"the token is {TOKEN}"),
        Message("assistant", TOKEN, [call], reasoning=TOKEN, meta={"x": TOKEN}),
        Message("tool", f"GITHUB_TOKEN={TOKEN}", tool_call_id="c", meta={"stdout": TOKEN}),
    )
    assert lab.send() == 3
    assert TOKEN.encode() not in b"".join(request.body for request in server.requests)


def test_a_crash_before_the_answer_is_noted_sends_the_same_spans_again(
    lab: Lab, store: Store, server: TestCollector
) -> None:
    session = store.begin()
    store.append(session, *ask())
    store.add_usage(session, Tokens(input=10, output=5))
    lab.send(crash_before_done=True)
    first = server.spans
    server.requests.clear()
    store.append(session, *ask("more"))
    store.add_usage(session, Tokens(input=1, output=2))
    assert lab.send() == 8
    assert server.spans[:4] == first
    counts = [get_attributes(one).get("gen_ai.usage.input_tokens", 0) for one in server.spans]
    assert sum(counts) == 11


def test_a_damaged_end_of_the_journal_loses_nothing(
    lab: Lab, store: Store, server: TestCollector
) -> None:
    session = store.begin()
    store.append(session, *ask())
    lab.send()
    (journal,) = lab.folder.glob("*.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"plan": {"x": [1')
    store.append(session, *ask("again"))
    assert lab.send() == 4
    assert len(set(server.ids)) == len(server.ids) == 8
    assert journal.stat().st_mode & 0o777 == 0o600


def test_a_turn_that_may_go_on_has_no_span_of_its_own_yet(
    lab: Lab, store: Store, server: TestCollector
) -> None:
    session = store.begin()
    store.append(session, *ask()[:2])
    assert lab.send(rest_seconds=600) == 1
    store.append(session, *ask()[2:])
    assert lab.send(rest_seconds=600) == 2
    store.end(session, "done")
    assert lab.send(rest_seconds=600) == 1
    assert [span["name"].split()[0] for span in server.spans] == [
        "chat", "execute_tool", "chat", "invoke_agent",
    ]  # fmt: skip


def test_usage_that_is_counted_late_stands_on_the_turn(
    lab: Lab, store: Store, server: TestCollector
) -> None:
    session = store.begin()
    store.append(session, *ask())
    assert lab.send(rest_seconds=600) == 3
    store.add_usage(session, Tokens(input=10, output=5))
    store.end(session, "done")
    assert lab.send(rest_seconds=600) == 1
    assert lab.send(rest_seconds=600) == 0
    counts = [get_attributes(one).get("gen_ai.usage.input_tokens") for one in server.spans]
    assert counts == [None, None, None, 10]


def test_a_busy_collector_is_asked_again(lab: Lab, store: Store, server: TestCollector) -> None:
    store.append(store.begin(), *ask())
    server.answers = [(503, {}), (429, {"Retry-After": "0.02"})]
    retries: list[str] = []
    lab.collector.report_retry = retries.append
    assert lab.send() == 4
    assert len(retries) == 2
    assert "busy (HTTP 503)" in retries[0]


def test_a_collector_that_refuses_is_named_and_receives_all_later(
    lab: Lab, store: Store, server: TestCollector
) -> None:
    store.append(store.begin(), *ask())
    server.answers = [(401, {})]
    with pytest.raises(CollectorError, match="OTEL_EXPORTER_OTLP_HEADERS"):
        lab.send()
    server.answers = [(503, {})] * 3
    with pytest.raises(CollectorError, match="busy"):
        lab.send()
    assert lab.send() == 4
    assert len(set(server.ids)) == 4


def test_a_collector_out_of_reach_is_one_error(lab: Lab, store: Store) -> None:
    store.append(store.begin(), *ask())
    lab.collector = Collector("http://127.0.0.1:9/v1/traces", settings=JSON)
    with pytest.raises(CollectorError, match=r"127\.0\.0\.1:9"):
        lab.send()


def test_too_large_a_request_is_divided(lab: Lab, store: Store, server: TestCollector) -> None:
    store.append(store.begin(), *ask(), *ask("again"))
    server.max_spans = 3
    assert lab.send() == 8
    assert len(set(server.ids)) == 8


def test_two_senders_to_one_collector_are_kept_apart(lab: Lab) -> None:
    with (
        SendProgress(lab.folder, lab.collector.address),
        pytest.raises(CollectorError, match="Another process"),
    ):
        lab.send()


def test_following_sends_messages_as_they_are_stored(
    lab: Lab, store: Store, server: TestCollector
) -> None:
    session = store.begin()
    store.append(session, *ask()[:2])
    stop = threading.Event()
    with SendProgress(lab.folder, lab.collector.address) as progress:
        sender = lab.make_sender(progress, stop)
        thread = threading.Thread(
            target=sender.follow,
            args=(lambda is_sweep: store.recent(10), lambda report: None, lambda text: None),
        )
        thread.start()
        try:
            wait_until(lambda: len(server.ids) == 1)
            store.append(session, *ask()[2:])
            wait_until(lambda: len(server.ids) == 3)
            store.append(session, *ask("next")[:2])
            wait_until(lambda: len(server.ids) == 5)
        finally:
            stop.set()
            thread.join()
    assert len(set(server.ids)) == 5
    assert lab.send() == 1  # the last turn, which counts as over now


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}, "/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "URL/api/public/otel/"}, "/api/public/otel/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/own"}, "/own"),
    ],
)
def test_the_environment_names_the_collector(
    env: dict[str, str], path: str, server: TestCollector
) -> None:
    env = {name: value.replace("URL", server.url) for name, value in env.items()} | {
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20c2VjcmV0,x-team=a",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "desk",
        "OTEL_RESOURCE_ATTRIBUTES": "openinference.project.name=tea",
    }
    collector = open_collector(env)
    collector.send([], lambda seconds: True)
    (request,) = server.requests
    assert request.path == path
    assert request.headers["authorization"] == "Basic c2VjcmV0"
    assert request.headers["x-team"] == "a"
    (group,) = json.loads(request.body)["resourceSpans"]
    attributes = {
        one["key"]: one["value"]["stringValue"] for one in group["resource"]["attributes"]
    }
    assert attributes == {"service.name": "desk", "openinference.project.name": "tea"}
    assert "c2VjcmV0" not in repr(collector) + collector.address


@pytest.mark.parametrize(
    ("to", "env"),
    [
        (None, {}),
        ("ftp://x", {}),
        ("localhost:4318", {}),
        ("http://user:hunter2hunter2@x", {}),
        ("http://[x", {}),
        ("http://x:0", {}),
        ("http://x/a b", {}),
        ("http://x", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
        ("http://x", {"OTEL_EXPORTER_OTLP_HEADERS": "a=hunter2hunter2%0d%0aX: y"}),
    ],
)
def test_an_invalid_collector_is_refused_without_showing_a_secret(
    to: str | None, env: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_collector(env, to)
    assert "hunter2hunter2" not in str(refused.value)
