"""Sessions as spans: what they contain, and that reading them gives the same conversation."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.transcripts import SessionStarted, SessionUpdated, read_transcript
from rekindle.transcripts.otlp.files import render_session
from rekindle.transcripts.otlp.spans import SpanCursor, build_spans
from rekindle.types import (
    Message,
    Session,
    Tokens,
    ToolCall,
    Usage,
    make_foreign_message,
    replace_fields,
    validate_message,
)
from tests.unit.transcripts.conftest import CORPUS, messages
from tests.unit.transcripts.otlp.collectors import get_attributes

SAMPLE = Path(__file__).resolve().parents[4] / "src" / "rekindle" / "transcripts" / "sample"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SESSION = Session(
    id="s-1",
    source="codex",
    user="ada",
    model="gpt-5",
    title="Tea",
    cwd="/work",
    git_branch="main",
    parent="s-0",
    sub_agent="explore",
    started=1772359200.0,
    tokens=Tokens(input=5, output=7, cache_read=100, cache_write=10, reasoning=2),
    cost=Decimal("0.25"),
)
START = 1772359200.0
CHAT = [
    Message("system", "Be kind."),
    Message("user", "how warm is it?", timestamp=START + 1),
    Message(
        "assistant",
        "I look.",
        [ToolCall("c1", "Bash", '{"command": "sensors"}'), ToolCall("c2", "Read", {"path": "a"})],
        reasoning="hm",
        finish_reason="tool_use",
        platform_message_id="m-1",
        timestamp=START + 3,
    ),
    Message(
        "tool",
        "command not found",
        tool_call_id="c1",
        name="Bash",
        meta={"exit_code": 127, "is_error": True},
        timestamp=START + 5,
    ),
    Message("user", "never mind the noise", timestamp=START + 5.5),
    Message(
        "tool", [{"type": "text", "text": "21"}, IMAGE], tool_call_id="c2", timestamp=START + 6
    ),
    Message("assistant", "It is 21.", finish_reason="stop", timestamp=START + 8),
    Message("user", [{"type": "text", "text": "and here?"}, IMAGE], timestamp=START + 60),
    Message("assistant", None, meta={"model": "gpt-6"}, timestamp=START + 61),
    Message("user", "and here?", timestamp=START + 90),
]


def read_back(
    session: Session, chat: list[Message], folder: Path
) -> tuple[list[Message], Session | None]:
    file = folder / "spans.jsonl"
    file.write_text("".join(render_session(session, chat)), encoding="utf-8")
    events = list(read_transcript(file))
    sessions = [one.session for one in events if isinstance(one, SessionUpdated)]
    return messages(events), sessions[0] if sessions else None


def list_spans(*given: Any, **options: Any) -> list[dict[str, Any]]:
    return [step.span for step in build_spans(*given, **options)]


def test_exported_messages_come_back_equal(tmp_path: Path) -> None:
    again, session = read_back(SESSION, CHAT, tmp_path)
    assert again == CHAT
    assert [one.timestamp for one in again] == [one.timestamp for one in CHAT]
    assert session is not None
    kept = ("id", "user", "model", "title", "parent", "sub_agent", "cwd", "git_branch", "tokens")
    assert {name: getattr(session, name) for name in kept} == {
        name: getattr(SESSION, name) for name in kept
    }


text = st.text(max_size=30) | st.sampled_from(["\ud800 cut", "a\x00b", "<b>&\u2028", "[{}]", "[]"])
parts = st.lists(
    st.one_of(
        st.builds(lambda one: {"type": "text", "text": one}, text),
        st.just(IMAGE),
        st.just({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        st.builds(lambda one: {"type": "file", "file": {"id": one}}, text),
        st.builds(lambda one: {"odd": one}, text),
    ),
    max_size=3,
)
arguments = st.one_of(
    text, st.just('{"a": 1}'), st.dictionaries(text, text | st.integers() | st.none(), max_size=2)
)
calls = st.lists(
    st.builds(ToolCall, st.sampled_from(["c1", "c2", ""]), text, arguments), max_size=2
)
message = st.builds(
    make_foreign_message,
    st.sampled_from(
        ["user", "assistant", "tool", "tool", "system", "developer", "function", "narrator"]
    ),
    content=st.none() | text | parts,
    tool_calls=calls,
    tool_call_id=st.none() | st.sampled_from(["c1", "c2", "gone", ""]),
    name=st.none() | text,
    reasoning=st.none() | text,
    finish_reason=st.none() | text,
    platform_message_id=st.none() | st.text(min_size=1, max_size=5),
    meta=st.none() | st.dictionaries(text, text | st.booleans(), max_size=2),
    timestamp=st.none() | st.floats(START, START + 100),
)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(chat=st.lists(message, min_size=1, max_size=10))
def test_any_messages_come_back_equal(chat: list[Message], tmp_path: Path) -> None:
    assert read_back(SESSION, chat, tmp_path)[0] == chat


def find_transcripts() -> list[Path]:
    found = [*SAMPLE.glob("*.jsonl")]
    for folder in ("claude__*", "codex__*", "tau2__*", "opencode__*", "gemini__*"):
        files = [one for one in sorted(CORPUS.glob(f"{folder}/**/*.json*")) if one.is_file()]
        found += sorted(files, key=lambda one: one.stat().st_size)[:3]
    return found


@pytest.mark.parametrize("path", find_transcripts(), ids=lambda path: path.stem[:40])
def test_real_sessions_come_back_equal(path: Path, tmp_path: Path) -> None:
    chats: dict[str, list[Message]] = {}
    sessions: dict[str, Session] = {}
    id = ""
    for event in read_transcript(path):
        if isinstance(event, SessionStarted | SessionUpdated):
            id = event.session.id
            sessions[id] = event.session
        elif isinstance(event, Message):
            chats.setdefault(id, []).append(event)
    assert chats
    for id, chat in chats.items():
        again, session = read_back(sessions[id], chat, tmp_path)
        assert again == chat
        assert session is not None
        assert (session.id, session.tokens) == (id, sessions[id].tokens)


def test_the_corpus_is_there_to_be_read() -> None:
    if not CORPUS.is_dir():
        pytest.skip(f"the corpus of real transcripts is not at {CORPUS}")
    assert len(find_transcripts()) > 10


def test_readers_of_the_convention_alone_find_the_same_conversation(tmp_path: Path) -> None:
    plain = [*CHAT[1:4], Message("tool", "21", tool_call_id="c2", name="Read"), *CHAT[6:7]]
    lines = []
    for line in render_session(SESSION, plain):
        request = json.loads(line)
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            span["attributes"] = [
                one for one in span["attributes"] if not one["key"].startswith("rekindle.")
            ]
        lines.append(json.dumps(request))
    file = tmp_path / "spans.jsonl"
    file.write_text("\n".join(lines))
    again = messages(read_transcript(file))
    shown = [(one.role, one.content, one.tool_calls, one.tool_call_id) for one in again]
    assert shown == [(one.role, one.content, one.tool_calls, one.tool_call_id) for one in plain]


def test_a_trace_is_a_turn_with_model_calls_and_tools_below_the_agent() -> None:
    spans = list_spans(SESSION, CHAT)
    names = [span["name"] for span in spans]
    assert names == [
        "chat gpt-5",
        "execute_tool Bash",
        "execute_tool Read",
        "chat gpt-5",
        "invoke_agent explore",
        "chat gpt-6",
        "invoke_agent explore",
        "invoke_agent explore",
    ]
    traces = [span["traceId"] for span in spans]
    assert [traces.index(one) for one in traces] == [0, 0, 0, 0, 0, 5, 5, 7]
    root = spans[4]
    assert "parentSpanId" not in root
    assert all(span["parentSpanId"] == root["spanId"] for span in spans[:4])
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert all(
        int(root["startTimeUnixNano"])
        <= int(span["endTimeUnixNano"])
        <= int(root["endTimeUnixNano"])
        for span in spans[:4]
    )
    failed = [span["name"] for span in spans if span["status"].get("code") == 2]
    assert failed == ["execute_tool Bash"]
    assert {get_attributes(span)["gen_ai.conversation.id"] for span in spans} == {"s-1"}


def test_usage_stands_on_the_last_model_call() -> None:
    spans = list_spans(SESSION, CHAT)
    used = [span for span in spans if "gen_ai.usage.input_tokens" in get_attributes(span)]
    assert [span["name"] for span in used] == ["chat gpt-6"]
    attributes = get_attributes(used[0])
    assert attributes["gen_ai.usage.input_tokens"] == 115
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 100
    assert attributes["llm.cost.total"] == 0.25


@pytest.mark.parametrize("cut", range(len(CHAT)))
def test_a_session_in_two_parts_gives_the_same_spans_as_in_one(cut: int) -> None:
    chat = [replace_fields(one, position=index) for index, one in enumerate(CHAT)]
    whole = list_spans(SESSION, chat, usage=Usage())
    first = list(build_spans(SESSION, chat[:cut], is_over=False, usage=Usage()))
    cursor = first[-1].cursor if first else SpanCursor()
    rest = list_spans(SESSION, chat[cursor.turn :], cursor, usage=Usage())
    assert [step.span for step in first] + rest == whole


def test_a_turn_that_counted_as_over_and_went_on_is_not_repeated() -> None:
    chat = [replace_fields(one, position=index) for index, one in enumerate(CHAT[:7])]
    first = list(build_spans(SESSION, chat[:4]))
    rest = list_spans(SESSION, chat, first[-1].cursor)
    assert [span["name"] for span in rest] == ["execute_tool Read", "chat gpt-5"]
    assert {span["traceId"] for span in rest} == {first[0].span["traceId"]}


def test_text_that_cannot_be_encoded_is_replaced() -> None:
    odd = Message("user", "cut \ud800", platform_message_id="a")
    answer = Message("assistant", "ok", [ToolCall("c", "T", {"x": float("nan")})])
    lines = "".join(render_session(SESSION, [odd, answer]))
    assert "NaN" not in json.dumps(json.loads(lines)).replace("nan", "")
    lines.encode()


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    extra=st.dictionaries(
        st.sampled_from(
            ["position", "time", "id", "meta", "role", "content", "tool_calls", "name", "reasoning"]
        ),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers() | st.text()),
    ),
    name=st.sampled_from(["gen_ai.input.messages", "rekindle.messages", "gen_ai.output.messages"]),
)
def test_a_damaged_span_of_our_own_gives_valid_messages_or_none(
    extra: dict[str, Any], name: str, tmp_path: Path
) -> None:
    request = json.loads(next(render_session(SESSION, CHAT[1:3])))
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for one in span["attributes"]:
            if one["key"] == name:
                raw = [{"role": "user", "parts": [], "rekindle": extra}, extra]
                one["value"] = {"stringValue": json.dumps(raw)}
    file = tmp_path / "spans.jsonl"
    file.write_text(json.dumps(request))
    for one in messages(read_transcript(file)):
        assert validate_message(one) is one
