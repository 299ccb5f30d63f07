"""What users and operators learn when something fails, and the metrics of a gateway."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rekindle.gateway.live_draft import DRAFT_SUFFIX
from rekindle.testing import ChatServer, ScriptedModel
from rekindle.types import Source
from tests.acceptance.stores import make_store
from tests.acceptance.test_gateway import ADA, BOB, Place
from tests.waiting import PATIENCE, wait_until

KEY = "sk-proj-Zx8vQ2mN4bT6kL0pR3wY7uJ1"
BODY = f"Traceback in /srv/llm/app.py for org-4711: bad key {KEY} ProviderCrash"
DETAILS = (KEY, "/srv", "org-4711", "Traceback", "ProviderCrash", "127.0.0.1", "http", "Error",
           "Model", "scripted", "Stream", "JSON", "api_key", "{", "4711")  # fmt: skip


def fail(word: str, **fault: Any) -> dict[str, Any]:
    return {"user": word, "steps": [{"text": "fine", "faults": [{**fault, "always": True}]}]}


SCRIPT = {
    "turns": [
        fail("key", status=401, message=BODY),
        fail("money", status=429, code="insufficient_quota", message=BODY),
        fail("busy", status=429, message=BODY, retry_after=600),
        fail("broken", status=500, message=BODY),
        fail("odd", status=422, message=BODY),
        fail("long", status=400, code="context_length_exceeded", message=BODY),
        fail("garbage", garbage=True),
        fail("cut", cut=1),
        fail("inside", error=BODY),
        {"user": "late", "steps": [{"text": "fine", "wait": 60.0}]},
    ]
}
WORDS = [turn["user"] for turn in SCRIPT["turns"]]


@pytest.fixture
def place(target: str, tmp_path: Path) -> Iterator[Place]:
    make_store(target)
    with ChatServer(redeliver_seconds=0.3) as server, ScriptedModel(SCRIPT) as model:
        place = Place(tmp_path / "home", target, server, model)
        place.env |= {
            "OPENAI_API_KEY": KEY,
            "REKINDLE_MODEL_ATTEMPTS": "1",
            "REKINDLE_MODEL_SILENCE_SECONDS": "1",
            "REKINDLE_GATEWAY_EDIT_SECONDS": "0",
        }
        yield place


def texts(place: Place, chat: str) -> list[str]:
    return [one.text for one in place.server.list_sent(chat)]


def ask(place: Place, who: Source, text: str) -> str:
    """Send a message and return what is answered."""
    count = len(texts(place, who.chat_id))
    place.server.post_message(who, text)
    wait_until(lambda: len(texts(place, who.chat_id)) > count)
    wait_until(lambda: not texts(place, who.chat_id)[-1].endswith(DRAFT_SUFFIX))
    return texts(place, who.chat_id)[-1]


def wait_for_errors(place: Place, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(place.status()["errors"]) >= count)
    return place.status()["errors"]


def test_users_read_friendly_errors_and_operators_the_cause(place: Place) -> None:
    began = time.time()
    with place.gateway() as process:
        for number, word in enumerate(WORDS):
            who = Source("memory", f"c{number}", user_id=str(number), user_name="Cy")
            answer = ask(place, who, word)
            assert answer.startswith("I could not answer")
            assert len(answer) < 200
            assert [detail for detail in DETAILS if detail in answer] == [], word
        errors = wait_for_errors(place, len(WORDS))
        shown = place.run("gateway", "status").stdout
        process.terminate()
        _, log = process.communicate(timeout=PATIENCE)
    assert {one["key"] for one in errors} == {f"agent:main:memory:dm:c{n}" for n in range(10)}
    assert all(began - 1 < one["time"] < time.time() + 1 for one in errors)
    kinds = {one["kind"] for one in errors}
    assert kinds >= {
        "ModelRequestRejected", "ModelOverloaded", "ModelUnreachable", "CompressionFailed",
        "StreamBroken",
    }  # fmt: skip
    causes = "\n".join(one["cause"] for one in errors)
    for word in ("refused with HTTP 401", "out of credit", "HTTP 500", "timed out", "/srv/llm"):
        assert word in causes
    assert "Last errors:" in shown
    assert "agent:main:memory:dm:c9" in shown
    logged = [json.loads(line) for line in log.splitlines()]
    failed = [one for one in logged if one["level"] == "error" and "failed" in one["message"]]
    assert len(failed) == len(WORDS)
    assert all(one["key"].startswith("agent:main:memory:dm:c") for one in failed)
    assert all(one["session"] for one in failed)
    sessions = [place.run("sessions", "show", one["session"]).stdout for one in failed]
    for text in (causes, shown, log, *sessions):
        assert KEY not in text
    assert not any("/srv" in one for one in sessions), "the friendly text is what is stored"


def test_a_model_that_is_not_there_is_said_and_a_saved_message_is_answered_later(
    place: Place,
) -> None:
    with place.gateway(OPENAI_BASE_URL="http://127.0.0.1:1/v1") as process:
        answer = ask(place, ADA, "hello")
        assert answer == (
            "I could not answer: the model cannot be reached right now."
            " Your message is saved; send /retry to try again."
        )
        (error,) = wait_for_errors(place, 1)
        assert (error["kind"], error["times"]) == ("ModelUnreachable", 1)
        assert "could not connect" in error["cause"]
        process.terminate()
        assert process.wait(PATIENCE) == 0
    with place.gateway():
        assert ask(place, ADA, "/retry") == "You said: hello"
        kept = [one for one in place.status()["errors"] if one["time"] == error["time"]]
        assert kept == [error], "errors outlive the gateway that had them"


def read_metrics(place: Place) -> dict[tuple[str, tuple[str, ...]], float]:
    port = place.status()["gateways"][0]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = page.read().decode()
    families = [*text_string_to_metric_families(text)]
    assert all(one.type != "unknown" and one.documentation for one in families)
    return {
        (sample.name.removeprefix("rekindle_"), tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_count_what_happens_and_name_nobody(place: Place) -> None:
    place.env["REKINDLE_GATEWAY_ALLOW"] = "memory:1=owner memory:2=user"
    place.env["REKINDLE_GATEWAY_USER_TURNS"] = "1"
    eve = Source("memory", "evechat", user_id="evil", user_name="Eve")
    with place.gateway() as process:
        ask(place, ADA, "hello umbrella")
        ask(place, ADA, "key")
        ask(place, BOB, "hello")
        assert "limit for today" in ask(place, BOB, "hello again")
        ask(place, eve, "let me in")
        done = place.run("schedule", "add", "1h", "--command", "true", "--name", "tick")
        job = json.loads(place.run("schedule", "list", "--json").stdout)[0]["id"]
        assert done.returncode == 0, done.stderr
        place.run("schedule", "run", job)
        wait_until(lambda: read_metrics(place).get(("job_runs_total", ("done",))) == 1)
        wait_until(lambda: read_metrics(place)["active_conversations", ()] == 0)
        expected = {
            ("turns_total", ("answered",)): 3,
            ("turns_total", ("failed",)): 1,
            ("turns_total", ("refused",)): 1,
            ("turn_seconds_count", ()): 5,
            ("turn_seconds_bucket", ("+Inf",)): 5,
            ("refusals_total", ("user",)): 1,
            ("errors_total", ("ModelRequestRejected",)): 1,
            ("inbox_messages", ("waiting",)): 0,
            ("inbox_messages", ("running",)): 0,
            ("outbox_messages", ()): 0,
            ("platform_connected", ("memory",)): 1,
            ("up", ()): 1,
        }

        def read_expected() -> dict[tuple[str, tuple[str, ...]], float | None]:
            found = read_metrics(place)
            return {name: found.get(name) for name in expected}

        with suppress(TimeoutError):  # what was delivered is counted after it can be read
            wait_until(lambda: read_expected() == expected)
        assert read_expected() == expected
        found = read_metrics(place)
        assert found["refusals_total", ("stranger",)] >= 1  # more if it is delivered again
        assert found["deliveries_total", ("sent",)] >= 5
        assert found["tokens_total", ("input",)] > 0
        assert ("cost_total", ()) in found
        labels = {label for _, values in found for label in values}
        assert not labels & {"Ada", "ada", "bob", "evil", "Eve", "umbrella", "tick"}
        assert not any(len(label) > 24 for label in labels)
        process.kill()


def test_a_platform_that_is_gone_is_seen_in_the_metrics(place: Place) -> None:
    first = place.env["REKINDLE_GATEWAY_PLATFORMS"]
    pager = ChatServer()
    pager.__enter__()
    platforms = f"{first} rekindle.testing:connect={pager.address},name=pager"
    try:
        with place.gateway(REKINDLE_GATEWAY_PLATFORMS=platforms):
            wait_until(lambda: place.status()["gateways"])
            wait_until(lambda: read_metrics(place)["platform_connected", ("pager",)] == 1)
            pager.__exit__()
            pager = None
            wait_until(lambda: read_metrics(place)["platform_connected", ("pager",)] == 0)
            assert read_metrics(place)["platform_connected", ("memory",)] == 1
    finally:
        if pager is not None:
            pager.__exit__()
