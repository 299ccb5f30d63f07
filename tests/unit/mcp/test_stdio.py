"""The protocol over stdin and stdout, message by message."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle import Message
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.mcp import stdio
from rekindle.mcp.access import Scope, StoreOpener
from rekindle.mcp.protocol import RequestHandler
from rekindle.mcp.quoting import Quoter
from rekindle.mcp.service import SessionService
from rekindle.mcp.stdio import PROTOCOL_VERSIONS, StdioServer, read_roots
from rekindle.redaction.redactor import Redactor
from tests.new_store import open_new_store
from tests.waiting import PATIENCE

CALL = {"name": "search_sessions", "arguments": {}}


def forbid_service() -> Any:
    raise AssertionError("not needed")


def serve(
    *messages: Any, handler: RequestHandler | None = None, asks_for_roots: bool = False
) -> list[dict[str, Any]]:
    """Serve messages, or raw lines, and return what was answered."""
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
    outgoing = io.BytesIO()
    incoming = io.BytesIO(b"".join(line + b"\n" for line in lines))
    handler = handler or RequestHandler(forbid_service)
    StdioServer(handler, incoming, outgoing, asks_for_roots=asks_for_roots).run()
    return [json.loads(line) for line in outgoing.getvalue().splitlines()]


def ask(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.fixture
def handler(tmp_path: Path) -> RequestHandler:
    """A handler over a store with one session."""
    file = tmp_path / "sessions.db"
    with open_new_store(file) as store:
        store.append(store.begin(id="one", cwd="/gone/shop"), Message("user", "hello"))
        learn_from_sessions(store)
    opener = StoreOpener(lambda readonly: open_new_store(file, readonly=readonly), str(file))
    service = SessionService(opener, Scope("/gone/shop"), Quoter(Redactor()), forbid_service)
    return RequestHandler(lambda: service)


@pytest.mark.parametrize("version", PROTOCOL_VERSIONS)
def test_the_client_chooses_among_the_known_versions(version: str) -> None:
    (answer,) = serve(ask(1, "initialize", {"protocolVersion": version, "capabilities": {}}))
    assert answer["result"]["protocolVersion"] == version
    assert answer["result"]["serverInfo"]["name"] == "rekindle"
    assert set(answer["result"]["capabilities"]) == {"tools", "resources"}


@pytest.mark.parametrize("params", [None, [], {"protocolVersion": "1999"}, {"protocolVersion": []}])
def test_other_versions_are_answered_with_the_newest(params: Any) -> None:
    (answer,) = serve(ask(1, "initialize", params))
    assert answer["result"]["protocolVersion"] == PROTOCOL_VERSIONS[0]


def test_the_tools_are_listed_before_anything_is_loaded() -> None:
    answers = {one["id"]: one for one in serve(ask(1, "tools/list"), ask("b", "ping"))}
    assert len(answers[1]["result"]["tools"]) == 6
    assert answers["b"]["result"] == {}


def test_a_request_is_answered_with_its_result(handler: RequestHandler) -> None:
    (answer,) = serve(ask(7, "tools/call", CALL), handler=handler)
    assert answer["result"]["isError"] is False
    assert "session one: hello" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', -32700),
        ([], -32600),
        ([ask(1, "ping")], -32600),
        ({}, -32600),
        (ask(None, "ping"), -32600),
        (ask([1], "ping"), -32600),
        (ask(1, "no/such"), -32601),
        (ask(1, "server/discover"), -32601),
        (ask(1, "tools/call"), -32602),
        (ask(1, "tools/call", {"name": 1}), -32602),
        (ask(1, "resources/read", {"uri": None}), -32602),
    ],
)
def test_wrong_messages_are_answered_with_an_error(message: Any, code: int) -> None:
    (answer,) = serve(message)
    assert answer["error"]["code"] == code


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"   ",
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": "roots-1", "result": {}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "x"}},
    ],
)
def test_notifications_and_stray_responses_are_not_answered(message: Any) -> None:
    assert serve(message) == []


def test_a_message_that_is_too_long_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 1_000)
    answers = serve(b"x" * 12_345, ask(1, "ping"))
    assert [one.get("error", {}).get("message") for one in answers] == [
        "The message is too long",
        None,
    ]
    assert answers[1]["id"] == 1


def test_many_requests_are_answered_each_once(handler: RequestHandler) -> None:
    answers = serve(*(ask(number, "tools/call", CALL) for number in range(60)), handler=handler)
    assert sorted(one["id"] for one in answers) == list(range(60))
    assert not [one for one in answers if one["result"]["isError"]]


def test_a_request_that_fails_unexpectedly_does_not_end_the_server() -> None:
    answers = serve(ask(1, "tools/call", CALL), ask(2, "ping"))  # `forbid_service` raises
    assert {one["id"]: "error" in one for one in answers} == {1: True, 2: False}


class RecordingHandler(RequestHandler):
    """Remembers the folders of the client that it is given."""

    def __init__(self) -> None:
        super().__init__(forbid_service)
        self.folders: list[Sequence[str]] = []

    def answer(
        self, method: str, params: Mapping[str, Any], client_folders: Sequence[str] = ()
    ) -> dict[str, Any]:
        self.folders.append(client_folders)
        return {}


def talk(answer_to_roots: Any, *, has_roots: bool) -> Sequence[str]:
    """Connect as a client does that answers a request for its roots; return what was understood."""
    handler = RecordingHandler()
    ours, theirs = Pipe(), Pipe()
    server = StdioServer(handler, ours.reader, theirs.writer, asks_for_roots=True)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    capabilities = {"roots": {}} if has_roots else {}
    ours.send(ask(1, "initialize", {"capabilities": capabilities}))
    ours.send(ask(2, "tools/call", CALL))
    while (message := theirs.receive()).get("id") != 2:
        if message.get("method") == "roots/list":
            ours.send({"jsonrpc": "2.0", "id": message["id"], **answer_to_roots})
    ours.writer.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    return handler.folders[0]


class Pipe:
    """A pipe of messages."""

    def __init__(self) -> None:
        import os

        reader, writer = os.pipe()
        self.reader, self.writer = os.fdopen(reader, "rb"), os.fdopen(writer, "wb")

    def send(self, message: Any) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")
        self.writer.flush()

    def receive(self) -> Any:
        return json.loads(self.reader.readline())


def test_a_client_that_has_roots_is_asked_for_them() -> None:
    roots = {"result": {"roots": [{"uri": "file:///gone/my%20shop"}]}}
    assert talk(roots, has_roots=True) == ["/gone/my shop"]
    assert talk(roots, has_roots=False) == []
    assert talk({"error": {"code": 1, "message": "no"}}, has_roots=True) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["roots", "uri", "x"]), inner),
)


@given(json_values)
def test_any_answer_about_roots_gives_folders_or_none(answer: Any) -> None:
    assert all(folder.startswith("/") for folder in read_roots(answer))


@given(st.lists(json_values | st.binary().map(lambda line: line.replace(b"\n", b""))))
def test_no_message_ends_the_server(messages: list[Any]) -> None:
    answers = serve(*messages, ask("last", "ping"))
    assert {"jsonrpc": "2.0", "id": "last", "result": {}} in answers
