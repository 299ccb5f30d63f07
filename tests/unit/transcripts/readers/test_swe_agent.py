from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from rekindle.transcripts import SessionUpdated, UnreadableEntry, detect_format, read_transcript
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages


def step(action: str, observation: str, **more: Any) -> dict[str, Any]:
    response = f"I do.\n```\n{action}\n```"
    state = '{"open_file": "n/a", "working_dir": "/repo"}'
    known = {"action": action, "observation": observation, "response": response, "state": state}
    return {**known, "thought": "I do.", **more}


def saw(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "primary", **more}


STATS = {"instance_cost": 0.5, "tokens_sent": 100, "tokens_received": 7, "api_calls": 2}
INFO = {"exit_status": "submitted", "submission": "diff", "model_stats": STATS}
OLD = {
    "environment": "swe_main",
    "trajectory": [
        step("open a.py\n", "[File: a.py]"),
        step("ls -a\n", "a.py"),
        step("submit\n", "diff"),
    ],
    "history": [
        saw("system", "rules"),
        saw("user", "a demonstration", is_demo=True),
        saw("user", "We solve this issue."),
        saw("assistant", "I do.\n```\nopen a.py\n\n```", thought="I do.", action="open a.py\n"),
        saw("user", "[File: a.py]\n(Open file: a.py)\nbash-$"),
        saw("assistant", "I do.\n```\nsubmit\n\n```", thought="I do.", action="submit\n"),
    ],
    "info": INFO,
}


def learned(path: Path) -> Any:
    return next(
        event.session for event in read_transcript(path) if isinstance(event, SessionUpdated)
    )


def test_a_step_is_an_answer_with_its_result_and_the_history_has_the_prompt(write: Write) -> None:
    path = write(json.dumps(OLD, indent=2), name="repo__1.traj")
    format = detect_format(path)
    assert format is not None
    assert format.name == "swe-agent"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", *["assistant", "tool"] * 3]
    assert told[0].text == "We solve this issue."
    assert [m.tool_calls[0].name for m in told[1::2]] == ["open", "bash", "submit"]
    assert told[3].tool_calls[0].arguments == {"command": "ls -a\n"}
    assert all(
        a.tool_calls[0].id == r.tool_call_id for a, r in zip(told[1::2], told[2::2], strict=True)
    )
    assert [m.platform_message_id for m in told] == [
        m.platform_message_id for m in messages(read_transcript(path))
    ]
    assert len({m.platform_message_id for m in told}) == 7


def test_a_result_is_what_the_model_saw_and_what_the_tool_gave_where_the_history_lacks_it(
    write: Write,
) -> None:
    told = messages(read_transcript(write(OLD, name="repo__1.traj")))
    assert [m.text for m in told[2::2]] == [
        "[File: a.py]\n(Open file: a.py)\nbash-$",
        "a.py",
        "diff",
    ]


def test_the_session_knows_its_end_and_what_it_cost(write: Write) -> None:
    session = learned(write(OLD, name="repo__1.traj"))
    assert (session.end_reason, session.cwd) == ("submitted", "/repo")
    assert (session.tokens, session.cost) == (Tokens(input=100, output=7), Decimal("0.5"))
    assert session.id.startswith("repo__1-")
    assert learned(write(OLD, name="other/repo__1.traj")).id != session.id


def test_calls_of_functions_are_taken_from_the_history(write: Write) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    state = {"working_dir": "/testbed"}
    new = {
        "trajectory": [
            step("find x", "raw", execution_time=0.5, state=state, query=[{"role": "user"}]),
            step("", "", response="no call", thought="no call", state=state),
        ],
        "history": [
            saw("system", "rules", message_type="system_prompt"),
            saw("user", [{"type": "text", "text": "the issue"}], message_type="observation"),  # type: ignore[arg-type]
            saw("assistant", "I do.", action="find x", tool_calls=[call]),
            saw("tool", "OBSERVATION:\nraw", tool_call_ids=["c1"], message_type="observation"),
        ],
        "info": INFO,
        "replay_config": json.dumps({"agent": {"model": {"name": "model-x"}}}),
        "environment": "main",
    }
    path = write(json.dumps(new, indent=2), name="new.traj")
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant"]
    assert told[0].content == "the issue"
    assert told[1].tool_calls == (("c1", "find", '{"a": 1}'),)
    assert (told[2].tool_call_id, told[2].name) == ("c1", "find")
    assert (told[2].text, told[2].meta) == ("OBSERVATION:\nraw", {"duration": 0.5})
    assert (told[3].text, told[3].tool_calls) == ("no call", ())
    assert learned(path).model == "model-x"


def test_of_several_attempts_the_chosen_one_is_read(write: Write) -> None:
    path = write({"attempts": [OLD, OLD], **OLD}, name="retry.traj")
    format = detect_format(path)
    assert format is not None
    assert format.name == "swe-agent"
    assert len(messages(read_transcript(path))) == 7


def test_damaged_steps_are_located_and_the_rest_is_kept(write: Write) -> None:
    whole = json.dumps({**OLD, "trajectory": [OLD["trajectory"][0], "x", 5, OLD["trajectory"][1]]})
    events = list(read_transcript(write(whole.replace('"x", 5', "x, 5"), name="r.traj")))
    assert [m.role for m in messages(events)] == ["user", *["assistant", "tool"] * 2]
    assert len([event for event in events if isinstance(event, UnreadableEntry)]) == 2


def test_a_run_that_was_cut_before_its_history_still_has_its_steps(write: Write) -> None:
    whole = json.dumps(OLD)
    events = list(read_transcript(write(whole[: whole.index('"history"') + 40], name="r.traj")))
    assert [m.role for m in messages(events)] == ["assistant", "tool"] * 3
    assert any(isinstance(event, UnreadableEntry) for event in events)
