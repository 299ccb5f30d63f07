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
from rekindle.types import Tokens, ToolCall
from tests.unit.transcripts.conftest import messages


def call(id: str, name: str, requestor: str = "assistant", **given: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": given, "requestor": requestor}


def said(role: str, content: str | None, *calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": list(calls) or None, **more}


def result(id: str, content: str, error: bool | None, requestor: str = "assistant") -> Any:
    return {"id": id, "role": "tool", "content": content, "requestor": requestor, "error": error}


USAGE = {"usage": {"prompt_tokens": 10, "completion_tokens": 3}}
MESSAGES = [
    said("assistant", "Hi!"),
    said("user", "my phone is dead", usage={"prompt_tokens": 99}),
    said("assistant", None, call("c1", "look", line=1), timestamp="2026-03-01T10:00:00", **USAGE),
    result("c1", "found", False),
    said("user", None, call("u1", "toggle", "user")),
    result("u1", "Error: no battery", True, "user"),
    said("assistant", None, call("c2", "mend"), **USAGE),
    result("c2", "hm", None),
]


def simulation(id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "task_id": "t-1",
        "start_time": "2026-03-01T10:00:00",
        "end_time": "2026-03-01T10:01:00",
        "termination_reason": "user_stop",
        "agent_cost": 0.25,
        "reward_info": {"reward": 1.0},
        "messages": MESSAGES,
        "trial": 2,
        **more,
    }


def write(tmp_path: Path, *simulations: Any, tasks: Any = ()) -> Path:
    path = tmp_path / "run.json"
    info = {"agent_info": {"llm": "m-1"}, "user_info": {}, "environment_info": {}}
    run = {"info": info, "tasks": list(tasks), "simulations": list(simulations)}
    path.write_text(json.dumps(run, indent=1))
    return path


def test_a_tool_message_answers_the_call_that_its_id_names(tmp_path: Path) -> None:
    path = write(tmp_path, simulation("s-1"))
    format = detect_format(path)
    assert format is not None
    assert format.name == "tau2"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == [message["role"] for message in MESSAGES]
    assert told[2].tool_calls == (ToolCall("c1", "look", {"line": 1}),)
    assert [(m.tool_call_id, m.name, m.content) for m in told if m.role == "tool"] == [
        ("c1", "look", "found"),
        ("u1", "toggle", "Error: no battery"),
        ("c2", "mend", "hm"),
    ]
    assert len({m.platform_message_id for m in told}) == len(told)


def test_the_error_flag_is_the_label_and_null_is_none(tmp_path: Path) -> None:
    told = [
        m for m in messages(read_transcript(write(tmp_path, simulation("s-1")))) if m.role == "tool"
    ]
    assert told[0].meta == {"is_error": False}
    assert told[1].meta == {"is_error": True, "requestor": "user"}
    assert "is_error" not in (told[2].meta or {})


def test_calls_of_the_simulated_user_are_part_of_its_messages(tmp_path: Path) -> None:
    told = messages(read_transcript(write(tmp_path, simulation("s-1"))))
    assert (told[4].role, told[4].tool_calls) == ("user", (ToolCall("u1", "toggle", {}),))


def test_the_session_tells_the_agent_s_side(tmp_path: Path) -> None:
    events = list(
        read_transcript(write(tmp_path, simulation("s-1"), simulation("s-2", reward_info=None)))
    )
    learned = [e.session for e in events if isinstance(e, SessionUpdated)]
    assert [s.id for s in learned] == ["s-1", "s-2"]
    one = learned[0]
    assert (one.model, one.end_reason, one.cost) == ("m-1", "user_stop", Decimal("0.25"))
    assert (one.started, one.ended) == (1772359200.0, 1772359260.0)
    assert one.tokens == Tokens(input=20, output=6)
    last = [m for m in messages(events) if (m.meta or {}).get("task")]
    assert [m.meta for m in last] == [
        {"reward": 1.0, "task": "t-1", "trial": 2.0},
        {"task": "t-1", "trial": 2.0},
    ]


def test_a_run_is_known_when_its_tasks_are_longer_than_the_head(tmp_path: Path) -> None:
    path = write(tmp_path, simulation("s-1"), tasks=[{"id": "t", "text": "x" * 300_000}])
    format = detect_format(path)
    assert format is not None
    assert format.name == "tau2"
    assert len(messages(read_transcript(path))) == len(MESSAGES)


def test_a_simulation_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "sim.json"
    path.write_text(json.dumps(simulation("s-1")))
    format = detect_format(path)
    assert format is not None
    assert format.name == "tau2"
    events = list(read_transcript(path))
    assert [e.session.id for e in events if isinstance(e, SessionStarted)] == ["s-1"]
    assert len(messages(events)) == len(MESSAGES)


def test_several_results_in_one_message_are_several_messages(tmp_path: Path) -> None:
    several = {"role": "tool", "tool_messages": [result("a", "1", False), result("b", "2", True)]}
    told = messages(
        read_transcript(write(tmp_path, simulation("s", messages=[MESSAGES[0], several])))
    )
    assert [(m.tool_call_id, m.content) for m in told[1:]] == [("a", "1"), ("b", "2")]
    assert told[1].platform_message_id != told[2].platform_message_id


def test_a_bad_element_is_located_and_the_others_survive(tmp_path: Path) -> None:
    bad = simulation("s-1", messages=[MESSAGES[0], "no message", MESSAGES[1]])
    events = list(read_transcript(write(tmp_path, bad, 5, simulation("s-2"))))
    assert len(messages(events)) == 2 + len(MESSAGES)
    assert [e.what for e in events if isinstance(e, UnreadableEntry)] == [
        "item:2: expected a message with a role"
    ]
