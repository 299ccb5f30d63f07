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
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages

INFO = {
    "exit_status": "Submitted",
    "submission": "diff --git",
    "model_stats": {"instance_cost": 0.5, "api_calls": 2},
    "mini_version": "1.15.0",
    "config": {"model": {"model_name": "model-x"}, "environment": {"cwd": "/testbed"}},
}


def said(text: str, n: int) -> dict[str, Any]:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    response = {
        "id": f"gen-{n}",
        "created": 1_772_359_200 + n,
        "model": "model-y",
        "choices": [{"finish_reason": "stop", "message": {"content": text, "reasoning": "hm"}}],
        "usage": usage,
    }
    return {"role": "assistant", "content": text, "extra": {"response": response}}


def heard(text: str, **extra: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **({"extra": extra} if extra else {})}


RUN = [
    {"role": "system", "content": "rules"},
    heard("fix it"),
    said("THOUGHT: look\n\n```bash\nls -a\n```", 1),
    heard("<returncode>2</returncode>\n<output>\nno\n</output>"),
    said("two\n```bash\na\n```\n```bash\nb\n```", 2),
    heard("Please always provide EXACTLY ONE action, found 2 actions."),
    said("slow\n```bash\nsleep 99\n```", 3),
    heard("The last command <command>sleep 99</command> timed out and has been killed."),
    said("done\n```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff\n```", 4),
    heard("diff --git"),
]


def document(run: list[Any], **more: Any) -> str:
    return json.dumps(
        {"info": INFO, "messages": run, "trajectory_format": "mini-swe-agent-1", **more}, indent=2
    )


def learned(path: Path) -> Any:
    return next(
        event.session for event in read_transcript(path) if isinstance(event, SessionUpdated)
    )


def test_the_block_of_an_answer_is_the_call_and_the_next_message_its_result(write: Write) -> None:
    path = write(document(RUN, instance_id="repo__1"), name="repo__1.traj.json")
    format = detect_format(path)
    assert format is not None
    assert format.name == "mini-swe-agent"
    told = messages(read_transcript(path))
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"]
    assert [m.role for m in told] == [*roles, "user"]
    call = told[1].tool_calls[0]
    assert (call.name, call.arguments) == ("bash", {"command": "ls -a"})
    assert (told[2].tool_call_id, told[2].name, told[2].meta) == (call.id, "bash", {"exit_code": 2})
    assert told[2].content == RUN[3]["content"]
    assert (told[1].reasoning, told[1].finish_reason) == ("hm", "stop")


def test_an_answer_with_several_blocks_ran_nothing_and_a_killed_command_has_no_code(
    write: Write,
) -> None:
    told = messages(read_transcript(write(document(RUN), name="r.traj.json")))
    assert told[3].tool_calls == ()
    assert told[6].meta is None
    assert told[6].tool_call_id == told[5].tool_calls[0].id


def test_the_submission_is_no_result(write: Write) -> None:
    told = messages(read_transcript(write(document(RUN), name="r.traj.json")))
    assert (told[-1].role, told[-1].tool_call_id) == ("user", None)
    unfinished = {**INFO, "exit_status": "", "submission": None}
    running = json.dumps({"info": unfinished, "messages": RUN})
    assert messages(read_transcript(write(running, name="r.traj.json")))[-1].role == "tool"


def test_the_session_knows_model_folder_tokens_cost_and_end(write: Write) -> None:
    session = learned(write(document(RUN, instance_id="repo__1"), name="repo__1.traj.json"))
    assert (session.model, session.cwd, session.title) == ("model-x", "/testbed", "repo__1")
    assert session.tokens == Tokens(input=160, output=40, cache_read=240)
    assert (session.cost, session.end_reason) == (Decimal("0.5"), "Submitted")
    assert session.started == 1_772_359_201
    assert session.id.startswith("repo__1-")


def test_a_run_is_known_by_its_first_answer_wherever_the_file_lies(write: Write) -> None:
    first = learned(write(document(RUN), name="a/x.traj.json")).id
    assert learned(write(document(RUN[:5]), name="b/x.traj.json")).id == first
    again = [*RUN[:2], said("other\n```bash\nls\n```", 9), *RUN[3:]]
    assert learned(write(document(again), name="a/x.traj.json")).id != first


def test_the_report_beside_the_run_says_whether_it_was_solved(write: Write) -> None:
    path = write(document(RUN), name="r.traj.json")
    write({"resolved": True, "tests_status": {}}, name="r.report.json")
    assert messages(read_transcript(path))[-1].meta == {"resolved": True}
    write({"r": {"resolved": False}}, name="r.report.json")
    assert messages(read_transcript(path))[-1].meta == {"resolved": False}
    write("{cut", name="r.report.json")
    assert messages(read_transcript(path))[-1].meta is None


def test_version_2_has_native_calls_and_the_code_beside_the_text(write: Write) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
    }
    other = {**call, "id": "c2"}
    info = {"mini_version": "2.0.0", "config": {}, "model_stats": {"instance_cost": 0.1}}
    run = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "fix it"},
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [call, other],
            "extra": {"actions": [{"command": "ls"}], "timestamp": 1_772_359_200.5},
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "<returncode>0</returncode>",
            "extra": {"returncode": 1, "timestamp": 1_772_359_201.5, "exception_info": None},
        },
        {
            "role": "tool",
            "tool_call_id": "c2",
            "content": "nothing",
            "extra": {"returncode": -1, "exception_info": "action was not executed"},
        },
        heard("bad format", interrupt_type="FormatError"),
        {"role": "exit", "content": "LimitsExceeded", "extra": {"exit_status": "LimitsExceeded"}},
    ]
    path = write(json.dumps({"info": info, "messages": run}, indent=2), name="v2.traj.json")
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "user"]
    assert [c.id for c in told[1].tool_calls] == ["c1", "c2"]
    assert (told[2].name, told[2].meta) == ("bash", {"exit_code": 1})
    assert told[3].meta == {"refused": True, "error": "action was not executed"}
    assert told[2].timestamp == 1_772_359_201.5
    assert learned(path).end_reason == "LimitsExceeded"


def test_items_of_the_responses_api_are_read(write: Write) -> None:
    answer = {
        "object": "response",
        "id": "resp-1",
        "output": [
            {"type": "reasoning", "summary": [{"text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "I look"}]},
            {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
        ],
        "extra": {"timestamp": 1_772_359_200},
    }
    result = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "out",
        "extra": {"returncode": 0},
    }
    info = {"mini_version": "2.0.0"}
    told = messages(
        read_transcript(write({"info": info, "messages": [answer, result]}, name="r.traj.json"))
    )
    assert (told[0].content, told[0].reasoning) == ("I look", "hm")
    assert told[0].tool_calls[0].id == told[1].tool_call_id == "c1"
    assert (told[1].content, told[1].meta) == ("out", {"exit_code": 0})


def test_damaged_messages_are_located_and_the_rest_is_kept(write: Write) -> None:
    broken = document([*RUN[:4], "nobody", 7]).replace('"nobody"', "nobody")
    events = list(read_transcript(write(broken, name="r.traj.json")))
    assert len(messages(events)) == 3
    assert len([event for event in events if isinstance(event, UnreadableEntry)]) == 2
    cut = document(RUN)[:-300]
    events = list(read_transcript(write(cut, name="r.traj.json")))
    assert isinstance(events[0], SessionStarted)
    assert len(messages(events)) == 7
    assert messages(events)[-1].role == "tool"
    assert any(isinstance(event, UnreadableEntry) for event in events)


def test_an_indented_block_is_a_call_and_a_long_submission_hides_no_run(write: Write) -> None:
    run = [
        heard("fix it"),
        said("@step\ndef look():\n    ```bash\n    ls -a\n    ```", 1),
        heard("<returncode>1</returncode>\n<output>\nno\n</output>"),
    ]
    info = {"exit_status": "Submitted", "submission": "x" * 100_000, "mini_version": "1.15.0"}
    path = write(json.dumps({"info": info, "messages": run}), name="a.traj.json")
    format = detect_format(path)
    assert format is not None
    assert format.name == "mini-swe-agent"
    _, answer, result = messages(read_transcript(path))
    assert [call.arguments for call in answer.tool_calls] == [{"command": "ls -a"}]
    assert (result.role, result.meta["exit_code"]) == ("tool", 1)


def test_what_was_run_is_a_call_however_its_command_is_written(write: Write) -> None:
    run = [
        heard("fix it"),
        said("def look():\n    run('ls -a')", 1),
        heard("<returncode>0</returncode>\n<output>\nsrc\n</output>"),
        said("nothing to run", 2),
        heard("Please always provide EXACTLY ONE action, found 0 actions."),
    ]
    path = write(document(run), name="a.traj.json")
    _, answer, result, idle, _ = messages(read_transcript(path))
    assert [call.name for call in answer.tool_calls] == ["bash"]
    assert "run('ls -a')" in answer.tool_calls[0].arguments
    assert result.tool_call_id == answer.tool_calls[0].id
    assert idle.tool_calls == ()
