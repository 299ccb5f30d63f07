"""`rekindle sessions send` and `sessions export -f otlp`, with a collector that listens."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import open_store
from rekindle.types import Message, ToolCall
from tests import command
from tests.acceptance.test_cli import Rekindle
from tests.new_store import open_new_store
from tests.unit.transcripts.otlp.collectors import TestCollector, run_collector
from tests.waiting import PATIENCE, wait_until

TOKEN = "gh" + "p_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"
KEY = "c2VjcmV0LWtleQ=="


@pytest.fixture
def server() -> Iterator[TestCollector]:
    with run_collector() as server:
        yield server


@pytest.fixture
def rekindle(tmp_path: Path, server: TestCollector) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    rekindle = Rekindle(tmp_path)
    rekindle.env |= {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Basic%20{KEY}",
    }
    with open_new_store(rekindle.store) as store:
        session = store.begin(source="codex", title="Tea")
        store.append(
            session,
            Message("user", f"log in with {TOKEN}"),
            Message("assistant", "I look.", [ToolCall("c", "Bash", {"command": "ls"})]),
            Message("tool", "a.txt", tool_call_id="c", name="Bash"),
            Message("assistant", "There is a.txt."),
        )
    return rekindle


def test_sessions_are_sent_once_without_secrets(rekindle: Rekindle, server: TestCollector) -> None:
    done = rekindle.run("sessions", "send", "--json")
    assert json.loads(done.stdout) == {
        "spans": 4, "rejected": 0, "to": f"{server.url}/v1/traces",
    }  # fmt: skip
    assert b"github" in done.stderr
    assert KEY.encode() not in done.stdout + done.stderr
    (request,) = server.requests
    assert request.headers["authorization"] == f"Basic {KEY}"
    assert TOKEN.encode() not in request.body
    assert rekindle("sessions", "send", "Tea").startswith("0 spans sent to ")
    server.answers = [(401, {})]
    with open_store(rekindle.store) as store:
        store.append(store.resolve("Tea"), Message("user", "more"), Message("assistant", "yes"))
    refused = rekindle.refusal("sessions", "send", code=1)
    assert "OTEL_EXPORTER_OTLP_HEADERS" in refused
    assert KEY not in refused
    assert rekindle("sessions", "send").startswith("2 spans sent to ")
    assert len(set(server.ids)) == len(server.ids) == 6


def test_following_survives_kill_9_without_loss_or_repetition(
    rekindle: Rekindle, server: TestCollector
) -> None:
    def start() -> subprocess.Popen[bytes]:
        words = ("sessions", "send", "--follow")
        return command.start(words, env=rekindle.env, stdout=subprocess.PIPE, cwd=rekindle.home)

    child = start()
    try:
        wait_until(lambda: len(server.ids) == 3)
        child.kill()
        child.communicate()
        with open_store(rekindle.store) as store:
            session = store.resolve("Tea")
            store.append(session, Message("user", "more"), Message("assistant", "yes"))
            child = start()
            wait_until(lambda: len(set(server.ids)) == 5)
            store.append(session, Message("user", "and more"), Message("assistant", "yes"))
            wait_until(lambda: len(set(server.ids)) == 7)
        child.send_signal(signal.SIGTERM)
        said, _ = child.communicate(timeout=PATIENCE)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    assert child.returncode == 0
    assert b"spans sent to" in said
    names = [span["name"] for span in server.spans]
    # The first request may be repeated, if the kill came before its answer was noted.
    assert len(set(server.ids)) == 7
    assert len(names) in (7, 10)


def test_an_exported_file_is_imported_again_as_the_same_conversation(rekindle: Rekindle) -> None:
    rekindle("sessions", "export", "Tea", "-f", "otlp", "-o", "spans.jsonl")
    rekindle("--store", "second.db", "import", "spans.jsonl")
    with open_store(rekindle.store) as first, open_store(rekindle.home / "second.db") as second:
        session = first.resolve("Tea")
        assert second.messages(session.id) == first.messages(session)
    rekindle("sessions", "export", "Tea", "-f", "otlp", "--redact", "-o", "redacted.jsonl")
    assert TOKEN not in (rekindle.home / "redacted.jsonl").read_text()
    assert "http://localhost:4318" in rekindle.refusal(
        "sessions", "send", OTEL_EXPORTER_OTLP_ENDPOINT=""
    )
