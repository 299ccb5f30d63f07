from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from rekindle.transcripts import (
    SessionStarted,
    SessionUpdated,
    UnreadableEntry,
    detect_format,
    read_transcript,
)
from rekindle.transcripts.importer import import_transcripts
from rekindle.types import Tokens
from tests.new_store import open_new_store
from tests.unit.transcripts.conftest import Write, messages

TIME = "2026-03-01T10:00:00.000000"


def event(id: int, source: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": TIME, "source": source, "message": "", **more}


def about(*calls: str, own: str | None = None, answer: str = "gen-1") -> dict[str, Any]:
    native = [
        {"id": id, "function": {"name": "execute_bash", "arguments": f'{{"n":"{id}"}}'}}
        for id in calls
    ]
    message = {"content": "I look.", "role": "assistant", "tool_calls": native}
    response = {
        "id": answer,
        "model": "model-x",
        "choices": [{"finish_reason": "tool_calls", "message": message}],
    }
    return {
        "function_name": "execute_bash",
        "tool_call_id": own or calls[0],
        "model_response": response,
        "total_calls_in_response": len(calls),
    }


def run(id: int, call: dict[str, Any], **more: Any) -> dict[str, Any]:
    args = {"command": "ls", "thought": "I look.", "hidden": False}
    return event(id, "agent", action="run", args=args, tool_call_metadata=call, **more)


def ran(id: int, cause: int, call: dict[str, Any], code: int, suffix: str = "") -> dict[str, Any]:
    extras = {
        "command": "ls",
        "metadata": {"exit_code": code, "suffix": suffix, "working_dir": "/w"},
    }
    return event(
        id, "agent", cause=cause, observation="run", content=f"out {code}", extras=extras,
        tool_call_metadata=call, success=code == 0,
    )  # fmt: skip


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 9,
    "cache_read_tokens": 60,
    "cache_write_tokens": 0,
}
METRICS = {"accumulated_cost": 0.25, "accumulated_token_usage": USAGE}
EVENTS = [
    event(0, "agent", action="system", args={"content": "rules"}),
    event(1, "user", action="message", args={"content": "fix it", "image_urls": None}),
    event(2, "user", action="recall", args={"query": "fix it"}),
    event(3, "environment", cause=2, observation="recall", content="Added", extras={}),
    run(4, about("c1", "c2"), llm_metrics=METRICS),
    run(5, about("c1", "c2", own="c2")),
    ran(6, 4, about("c1", "c2"), 2),
    ran(
        7, 5, about("c1", "c2", own="c2"), -1, "\n[The command has no new output after 30 seconds.]"
    ),
    event(8, "agent", observation="error", content="Unknown tool", extras={"error_id": ""}),
    event(9, "environment", observation="agent_state_changed", content="", extras={}),
    event(10, "agent", action="message", args={"content": "Done.", "wait_for_response": True}),
]


def learned(path: Path) -> Any:
    return next(
        event.session for event in read_transcript(path) if isinstance(event, SessionUpdated)
    )


def test_actions_and_observations_become_answers_and_results(write: Write) -> None:
    path = write(json.dumps(EVENTS, indent=1), name="trajectory.json")
    format = detect_format(path)
    assert format is not None
    assert format.name == "openhands"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert [(c.id, c.arguments) for c in told[1].tool_calls] == [
        ("c1", '{"n":"c1"}'),
        ("c2", '{"n":"c2"}'),
    ]
    assert told[1].text == "I look."
    assert (told[2].content, told[2].tool_call_id, told[2].name) == ("out 2", "c1", "execute_bash")
    assert told[5].text == "Done."
    session = learned(path)
    assert (session.model, session.cwd) == ("model-x", "/w")
    assert session.tokens == Tokens(input=40, output=9, cache_read=60)
    assert session.cost == Decimal("0.25")


def test_a_code_of_minus_one_is_unknown_and_an_error_is_one(write: Write) -> None:
    told = messages(read_transcript(write(EVENTS, name="trajectory.json")))
    assert [m.meta for m in told[2:5]] == [{"exit_code": 2}, {"running": True}, {"is_error": True}]
    assert told[4].tool_call_id is None, "the call that it answers was never written down"
    busy = ran(6, 4, about("c1"), -1, 'Your command "ls" is NOT executed.')
    told = messages(read_transcript(write([*EVENTS[:5], busy], name="t.json")))
    assert told[-1].meta == {"refused": True}


def test_what_the_user_rejects_types_and_what_tools_say_of_themselves(write: Write) -> None:
    mcp = json.dumps({"content": [], "isError": True})
    path = write(
        EVENTS[1],
        run(4, about("c1")),
        event(5, "user", cause=4, observation="user_rejected", content="no", extras={}),
        run(6, about("c2", answer="gen-2")),
        event(7, "agent", cause=6, observation="mcp", content=mcp, extras={}),
        event(8, "user", action="run", args={"command": "git log"}),
        event(9, "environment", cause=8, observation="run", content="log", extras={}),
        event(10, "agent", action="condensation", args={"summary": "so far"}),
        EVENTS[10],
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == [
        "user", "assistant", "tool", "assistant", "tool", "user", "user", "assistant",
    ]  # fmt: skip
    assert told[2].meta == {"refused": True}
    assert told[4].meta == {"is_error": True}
    assert (told[5].text, told[6].text) == ("git log", "log")
    assert told[7].meta == {"compacted": {"summary": "so far"}}


def test_each_line_of_an_evaluation_is_a_conversation_with_its_outcome(write: Write) -> None:
    record = {
        "instance_id": "repo__1",
        "instruction": "fix it",
        "test_result": {"git_patch": "x" * 100_000, "report": {"resolved": False}},
        "metadata": {"llm_config": {"model": "model-y"}},
        "metrics": METRICS,
        "error": "RuntimeError: Agent reached maximum iteration",
        "history": EVENTS,
    }
    pair = {
        **record,
        "test_result": {},
        "history": [[EVENTS[1], None], [EVENTS[10]]],
        "success": True,
    }
    path = write(record, "{broken", pair, {**record, "instance_id": "repo__2"}, name="output.jsonl")
    format = detect_format(path)
    assert format is not None
    assert format.name == "openhands"
    events = list(read_transcript(path))
    assert [e.line for e in events if isinstance(e, UnreadableEntry)] == [2]
    ids = [e.session.id for e in events if isinstance(e, SessionStarted)]
    assert [id.rpartition("-")[0] for id in ids] == ["repo__1", "repo__1", "repo__2"]
    assert len(set(ids)) == 3
    marks = [(m.meta or {}).get("resolved") for m in messages(events)]
    assert [mark for mark in marks if mark is not None] == [False, True, False]
    session = learned(path)
    assert (session.title, session.model) == ("repo__1", "model-y")
    assert session.end_reason == "RuntimeError: Agent reached maximum iteration"


def test_the_oldest_events_are_joined_by_their_order(write: Write) -> None:
    history = [
        {"content": "fix it", "action": "message", "action_risk": None, "wait_for_response": False},
        {"command": "ls", "thought": "I look.", "action": "run", "is_confirmed": "confirmed"},
        {"content": "no", "command_id": -1, "command": "ls", "exit_code": 1, "observation": "run"},
        {"code": "1+1", "thought": "", "action": "run_ipython", "is_confirmed": "confirmed"},
        {"content": "2", "code": "1+1", "observation": "run_ipython"},
        {"content": "Enough?", "action": "message", "action_risk": None},
        {"content": "Yes.", "action": "message", "action_risk": None},
        {"outputs": {}, "thought": "All done.", "action": "finish"},
    ]
    record = {
        "issue": {"title": "T"},
        "issue_type": "issue",
        "instruction": "x",
        "history": history,
    }
    told = messages(read_transcript(write({**record, "success": True}, name="output.jsonl")))
    assert [m.role for m in told] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert told[1].tool_calls[0][1:] == ("run", {"command": "ls"})
    assert (told[2].tool_call_id, told[2].meta) == (told[1].tool_calls[0].id, {"exit_code": 1})
    assert (told[4].name, told[4].meta) == ("run_ipython", None)
    assert told[7].tool_calls[0].name == "finish"
    assert told[7].meta == {"resolved": True}


def newest(n: int, kind: str, source: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "id": f"uuid-{n}", "timestamp": TIME, "source": source, **more}


def action(n: int, call: str, answer: str = "gen-1") -> dict[str, Any]:
    native = {"id": call, "name": "terminal", "arguments": '{"command": "ls"}'}
    return newest(
        n, "ActionEvent", "agent", thought=[{"type": "text", "text": "I look."}],
        reasoning_content="hm", tool_name="terminal", tool_call_id=call, tool_call=native,
        llm_response_id=answer, action={"kind": "TerminalAction", "command": "ls"},
    )  # fmt: skip


def observed(n: int, call: str, **seen: Any) -> dict[str, Any]:
    seen = {"content": [{"type": "text", "text": "out"}], "is_error": False, **seen}
    return newest(
        n, "ObservationEvent", "environment", observation=seen, tool_name="terminal",
        tool_call_id=call, action_id="uuid-2",
    )  # fmt: skip


NEWEST = [
    newest(0, "SystemPromptEvent", "agent", system_prompt={"text": "rules"}),
    newest(1, "MessageEvent", "user", llm_message={"role": "user", "content": [{"text": "fix it"}]}),
    action(2, "c1"),
    action(3, "c2"),
    observed(4, "c1", exit_code=1),
    observed(5, "c2"),
    action(6, "c3", "gen-2"),
    newest(7, "AgentErrorEvent", "agent", error="bad", tool_name="terminal", tool_call_id="c3"),
    action(8, "c4", "gen-3"),
    newest(
        9, "UserRejectObservation", "environment", rejection_reason="no", rejection_source="user",
        tool_name="terminal", tool_call_id="c4",
    ),
    newest(10, "Condensation", "environment", summary="so far", forgotten_event_ids=[]),
    newest(
        11, "MessageEvent", "agent",
        llm_message={"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ),
]  # fmt: skip


def test_events_since_version_1_are_read(write: Write) -> None:
    path = write(*NEWEST)
    format = detect_format(path)
    assert format is not None
    assert format.name == "openhands"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert [call.id for call in told[1].tool_calls] == ["c1", "c2"]
    assert (told[1].text, told[1].reasoning) == ("I look.", "hm")
    assert [m.meta for m in told if m.role == "tool"] == [
        {"exit_code": 1},
        {"is_error": False},
        {"is_error": True},
        {"refused": True, "denial": "user"},
    ]
    assert told[7].text == "Action rejected: no"
    assert told[8].meta == {"compacted": {"summary": "so far"}}


def test_a_folder_of_events_is_one_conversation_in_the_order_of_its_numbers(
    write: Write, tmp_path: Path
) -> None:
    said = [
        event(n, "user", action="message", args={"content": f"{n}"}) for n in range(12)
    ]  # fmt: skip
    for n, one in enumerate(said):
        write(one, name=f"conversations/abc123/events/{n}.json")
    with open_new_store(tmp_path / "store.db") as store:
        intake = import_transcripts(store, [tmp_path / "conversations"])
        assert (intake.failed, intake.unknown) == ((), ())
        assert [m.text for m in store.messages("abc123")] == [str(n) for n in range(12)]
        write(event(12, "user", action="message", args={"content": "12"}),
              name="conversations/abc123/events/12.json")  # fmt: skip
        assert import_transcripts(store, [tmp_path / "conversations"]).messages == 1


def test_a_folder_of_new_events_keeps_the_calls_of_an_answer_together(
    write: Write, tmp_path: Path
) -> None:
    for n, one in enumerate(NEWEST):
        write(one, name=f"conversations/abc123/events/event-{n:05}-uuid{n}.json")
    with open_new_store(tmp_path / "store.db") as store:
        import_transcripts(store, [tmp_path / "conversations"])
        told = store.messages("abc123")
    assert [[call.id for call in m.tool_calls] for m in told if m.tool_calls] == [
        ["c1", "c2"],
        ["c3"],
        ["c4"],
    ]
    assert len(told) == 9


def test_a_list_with_a_damaged_element_keeps_the_others(write: Write) -> None:
    whole = json.dumps([EVENTS[1], "x", 5, EVENTS[10]]).replace('"x"', "x")
    events = list(read_transcript(write(whole, name="t.json")))
    assert [m.text for m in messages(events)] == ["fix it", "Done."]
    assert len([e for e in events if isinstance(e, UnreadableEntry)]) == 2
