from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.transcripts.discovery import SAMPLE
from rekindle.transcripts.export import atif
from rekindle.types import Message, Session, Tokens, ToolCall, replace_fields
from tests.unit.transcripts.conftest import CORPUS, Write, messages


def call(id: str, name: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"tool_call_id": id, "function_name": name, "arguments": arguments}


def trajectory(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "run-1",
        "agent": {"name": "a", "version": "1", "model_name": "m-1"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        **more,
    }


SYSTEM = {"source": "system", "message": "You are kind."}
USER = {"source": "user", "message": "look", "timestamp": "2026-03-01T10:00:00Z"}
LOOKS = {
    "source": "agent",
    "message": "Looking.",
    "reasoning_content": "hm",
    "tool_calls": [call("c1", cmd="ls"), call("c2", "read", path="a")],
    "observation": {
        "results": [
            {"source_call_id": "c2", "content": "of c2"},
            {"source_call_id": "c1", "content": "of c1"},
        ]
    },
    "metrics": {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 3, "cost_usd": 0.5},
}


def test_a_step_is_an_answer_with_its_results(write: Write) -> None:
    path = write(trajectory(SYSTEM, USER, LOOKS))
    format = detect_format(path)
    assert format is not None
    assert format.name == "atif"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool"]
    assert (told[1].content, told[1].reasoning) == ("Looking.", "hm")
    assert told[1].tool_calls[0] == ToolCall("c1", "bash", {"cmd": "ls"})
    assert [(m.tool_call_id, m.name, m.content) for m in told[2:]] == [
        ("c2", "read", "of c2"),
        ("c1", "bash", "of c1"),
    ]
    assert len({m.platform_message_id for m in told}) == 4


def test_the_session_is_told_with_its_tokens_and_cost(write: Write) -> None:
    final = {"total_prompt_tokens": 100, "total_completion_tokens": 9, "total_cached_tokens": 40}
    path = write(trajectory(USER, LOOKS, final_metrics={**final, "total_cost_usd": 0.25}))
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert (learned.id, learned.source, learned.model) == ("run-1", "atif", "m-1")
    assert learned.tokens == Tokens(input=60, output=9, cache_read=40)
    assert (learned.cost, learned.started) == (Decimal("0.25"), 1772359200.0)
    without = next(
        e.session
        for e in read_transcript(write(trajectory(USER, LOOKS)))
        if isinstance(e, SessionUpdated)
    )
    assert without.tokens == Tokens(input=7, output=4, cache_read=3)
    assert without.cost == Decimal("0.5")


def test_results_that_name_no_call_are_matched_by_order(write: Write) -> None:
    step = {**LOOKS, "observation": {"results": [{"content": "one"}, {"content": "two"}]}}
    alone = {"source": "agent", "message": "raw", "observation": {"results": [{"content": "x"}]}}
    told = messages(read_transcript(write(trajectory(step, alone))))
    assert [(m.tool_call_id, m.name) for m in told if m.role == "tool"] == [
        ("c1", "bash"),
        ("c2", "read"),
        (None, None),
    ]


def test_sub_agents_are_sessions_of_their_own(write: Write) -> None:
    refs = [{"session_id": "run-1", "trajectory_id": "sub-1"}]
    asks = {
        "source": "agent",
        "message": "",
        "tool_calls": [call("c1", "task")],
        "observation": {"results": [{"source_call_id": "c1", "subagent_trajectory_ref": refs}]},
    }
    sub = {"trajectory_id": "sub-1", **trajectory(USER, LOOKS)}
    path = write(trajectory(USER, asks, subagent_trajectories=[sub]), name="x.json")
    events = list(read_transcript(path))
    opened = [e.session for e in events if isinstance(e, SessionStarted)]
    assert [(s.id, s.parent) for s in opened] == [("run-1", None), ("sub-1@run-1", "run-1")]
    assert next(m.meta for m in messages(events) if m.role == "tool") == {"agent": "sub-1@run-1"}
    assert len(messages(events)) == 3 + 4


def test_a_continued_trajectory_names_the_one_before_it(write: Write) -> None:
    masked = {**trajectory(USER), "session_id": "NORMALIZED_SESSION_ID"}
    write(masked, name="t.json")
    copied = {**USER, "is_copied_context": True}
    write({**masked, "steps": [copied, LOOKS]}, name="t.cont-1.json")
    path = write(masked, name="t.cont-2.json")
    first, second, third = (
        next(
            e.session
            for e in read_transcript(path.with_name(name))
            if isinstance(e, SessionStarted)
        )
        for name in ("t.json", "t.cont-1.json", "t.cont-2.json")
    )
    assert (first.parent, second.parent, third.parent) == (None, first.id, second.id)
    assert len({first.id, second.id, third.id}) == 3
    told = messages(read_transcript(path.with_name("t.cont-1.json")))
    assert [m.meta for m in told[:2]] == [{"copied": True}, None]


def test_a_summarizer_belongs_to_the_session_that_it_summarizes(write: Write) -> None:
    path = write({**trajectory(USER), "session_id": "run-1-summarization-2-questions"})
    assert (
        next(e.session.parent for e in read_transcript(path) if isinstance(e, SessionStarted))
        == "run-1"
    )


def test_a_bad_step_is_located_and_the_others_survive(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = json.dumps(trajectory(USER, {"message": "no source"}, LOOKS), indent=1)
    path.write_text(text.replace('"user"', "user"))
    events = list(read_transcript(path))
    assert [m.role for m in messages(events)] == ["assistant", "tool", "tool"]
    damage = [e for e in events if isinstance(e, UnreadableEntry)]
    assert [d.what.split(":")[0] for d in damage] == ["steps[0]", "steps[1]"]
    assert damage[0].line < damage[1].line


CHAT = [
    Message(role="system", content="Be kind."),
    Message(role="user", content="", name="ann", finish_reason="odd"),
    Message(
        role="assistant",
        content=None,
        reasoning="hm",
        tool_calls=(
            ToolCall("c1", "Bash", {"command": "ls"}),
            ToolCall("c2", "f", "not json"),
            ToolCall("c2", "g", '{"path":"a.txt"}'),
            ToolCall("", "", '{"b": 1}'),
        ),
        finish_reason="tool_use",
        meta={"model": "m-2"},
    ),
    Message(role="tool", tool_call_id="c2", name="f", content="ok", meta={"is_error": False}),
    Message(role="tool", tool_call_id="c1", name=None, content=None),
    Message(role="tool", tool_call_id="", name="h", content=""),
    Message(role="tool", tool_call_id="elsewhere", name="g", content="an orphan"),
    Message(role="user", tool_calls=(ToolCall("u1", "phone", {}),)),
    Message(role="tool", tool_call_id="u1", name="phone", content="rang"),
    Message(role="assistant", content="half \ud83d"),
    Message(
        role="user",
        content=[
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}},
            {"type": "image_url", "image_url": {"url": "https://pictures.example/x.png"}},
        ],
    ),
    Message(role="tool", tool_call_id=None, content=[{"type": "text", "text": "a", "more": 1}]),
]


def back(session: Session, told: list[Message], folder: Path) -> tuple[list[Message], Session]:
    path = folder / "exported.json"
    path.write_text("".join(atif.render_session(session, told)))
    format = detect_format(path)
    assert format is not None
    assert format.name == "atif"
    events = list(read_transcript(path))
    return messages(events), next(e.session for e in events if isinstance(e, SessionUpdated))


def test_what_is_exported_comes_back_as_equal_messages(tmp_path: Path) -> None:
    session = Session(
        id="s-1",
        source="codex",
        model="m-1",
        title="A title",
        cwd="/work",
        git_branch="main",
        parent="s-0",
        started=1772359200.0,
        tokens=Tokens(input=5, output=7, cache_read=100, cache_write=10, reasoning=2),
        cost=Decimal("0.25"),
    )
    told = [replace_fields(m, platform_message_id=f"id-{n}") for n, m in enumerate(CHAT)]
    again, learned = back(session, told, tmp_path)
    assert again == told
    assert learned == replace_fields(session, source="atif")


def transcripts() -> list[Path]:
    found = [*SAMPLE.glob("*.jsonl")]
    for folder in ("claude__*", "codex__*", "tau2__*", "atif__*", "opencode__*"):
        found += [p for p in sorted(CORPUS.glob(f"{folder}/**/*.json*")) if p.is_file()][:6]
    return found


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem[:40])
def test_real_sessions_come_back_as_equal_messages(path: Path, tmp_path: Path) -> None:
    told: dict[str, list[Message]] = {}
    sessions: dict[str, Session] = {}
    id = ""
    for event in read_transcript(path):
        if isinstance(event, SessionStarted | SessionUpdated):
            id = event.session.id
            sessions[id] = event.session
        elif isinstance(event, Message):
            told.setdefault(id, []).append(event)
    assert told
    for id, chat in told.items():
        again, learned = back(sessions[id], chat, tmp_path)
        assert again == chat
        assert learned.id == id
