"""A real Phoenix receives sessions from the command, and shows them as it shows those of others."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from rekindle import Message, Tokens, ToolCall, open_store
from tests import command
from tests.environments import install_packages
from tests.ports import find_port
from tests.waiting import wait_until

pytestmark = pytest.mark.phoenix
PACKAGE = "arize-phoenix==20.26.1"  # what is tested must not change by itself
PROJECT = "tea house"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Phoenix that keeps its data in a folder and talks to nobody."""
    python, folder = install_packages("phoenix", PACKAGE), tmp_path_factory.mktemp("phoenix")
    port = find_port()
    env = {
        **os.environ, "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(find_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false", "HOME": str(folder),
    }  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        words = [str(python.with_name("phoenix")), "serve"]
        server = subprocess.Popen(words, env=env, stdout=log, stderr=log)
    try:

        def is_up() -> bool:
            assert server.poll() is None, (folder / "log").read_text()[-2000:]
            return fetch(f"{address}/v1/projects") is not None

        wait_until(is_up)
        yield address
    finally:
        server.kill()
        server.wait()


def fetch(url: str) -> Any:
    """The data of an answer, or None as long as there is none."""
    try:
        with urllib.request.urlopen(url.replace(" ", "%20"), timeout=30) as answer:
            return json.loads(answer.read())["data"]
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.fixture(scope="module")
def sent(url: str, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The spans that Phoenix has of a session of two turns, sent twice, in their order."""
    path = tmp_path_factory.mktemp("store") / "sessions.db"
    with open_store(path) as store:
        session = store.begin(id="s-1", source="codex", user="ada", model="gpt-5", title="Tea")
        call = ToolCall("c1", "Bash", {"command": "sensors"})
        store.append(session, Message("user", "how warm is it?"))
        store.append(
            session, Message("assistant", "I look.", [call]), used={"gpt-5": Tokens(50, 7)}
        )
        store.append(session, Message("tool", "no such file", tool_call_id="c1", name="Bash"))
        store.append(session, Message("assistant", "21 degrees"), used={"gpt-5": Tokens(60, 5)})
        store.append(session, Message("user", "thanks"), Message("assistant", "You are welcome."))
        store.end(session, "done")
    env = {**os.environ, "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT}"}
    for folder in (
        "home",
        "again",
    ):  # another home does not know what was sent: the ids are the same
        env["REKINDLE_HOME"] = str(path.parent / folder)
        words = ["--store", path, "sessions", "send", "--to", url]
        command.run(words, env=env, check=True, capture_output=True, text=True)
    spans: list[dict[str, Any]] = []

    def is_stored() -> bool:
        spans[:] = fetch(f"{url}/v1/projects/{PROJECT}/spans?limit=100") or []
        return len(spans) >= 6

    wait_until(is_stored)
    return sorted(spans, key=lambda span: (span["start_time"], span["parent_id"] is not None))


def test_a_session_has_its_traces_and_tokens(url: str, sent: list[dict[str, Any]]) -> None:
    (session,) = fetch(f"{url}/v1/projects/{PROJECT}/sessions")
    assert session["session_id"] == "s-1"
    traces = {span["context"]["trace_id"] for span in sent}
    assert {trace["trace_id"] for trace in session["traces"]} == traces
    assert len(traces) == 2, "one for each turn"
    assert (session["token_count_prompt"], session["token_count_completion"]) == (110, 12)


def test_the_spans_of_a_turn_have_kinds_parents_inputs_and_outputs(
    sent: list[dict[str, Any]],
) -> None:
    assert len({span["context"]["span_id"] for span in sent}) == len(sent) == 6
    kinds = sorted(span["span_kind"] for span in sent)
    assert kinds == ["AGENT", "AGENT", "LLM", "LLM", "LLM", "TOOL"]
    roots = {span["context"]["span_id"]: span for span in sent if span["span_kind"] == "AGENT"}
    assert all(span["parent_id"] in roots for span in sent if span["span_kind"] != "AGENT")
    values = {
        (span["span_kind"], read(span, "input.value"), read(span, "output.value"))
        for span in sent if span["span_kind"] in ("AGENT", "TOOL")
    }  # fmt: skip
    assert values == {
        ("AGENT", "how warm is it?", "21 degrees"), ("AGENT", "thanks", "You are welcome."),
        ("TOOL", '{"command": "sensors"}', "no such file"),
    }  # fmt: skip
    assert {read(span, "user.id") for span in sent} == {"ada"}


def test_model_calls_have_messages_calls_and_tokens(sent: list[dict[str, Any]]) -> None:
    first, *_ = (span for span in sent if span["span_kind"] == "LLM")
    assert read(first, "llm.model_name") == "gpt-5"
    assert read(first, "llm.input_messages.0.message.content") == "how warm is it?"
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert read(first, f"{call}.function.name") == "Bash"
    assert read(first, f"{call}.function.arguments") == '{"command": "sensors"}'
    (tool,) = (span for span in sent if span["span_kind"] == "TOOL")
    assert read(tool, "tool.name") == "Bash"
    counted = [read(span, "llm.token_count.total") for span in sent]
    assert sum(int(count or 0) for count in counted) == 122


def read(span: dict[str, Any], name: str) -> Any:
    """An attribute, flat as it was sent or nested as Phoenix keeps it."""
    found: Any = span["attributes"]
    if name in found:
        return found[name]
    for part in name.split("."):
        if isinstance(found, list):
            found = found[int(part)]
        elif isinstance(found, dict):
            found = found.get(part)
    return found
