from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rekindle.transcripts import SessionStarted, SessionUpdated, detect_format, read_transcript
from rekindle.types import Tokens
from tests.unit.transcripts.conftest import Write, messages

HEAD = {"sessionId": "own", "projectHash": "h", "startTime": "2026-03-01T10:00:00Z"}


def record(id: str, type: str, content: Any = "", **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": "2026-03-01T10:00:01Z", "type": type, "content": content, **more}


def call(id: str, status: str, name: str = "read_file", **response: Any) -> dict[str, Any]:
    answer = {"functionResponse": {"id": id, "name": name, "response": response}}
    return {
        "id": id,
        "name": name,
        "args": {"x": id},
        "status": status,
        "result": [answer] if response else None,
    }


def document(*told: dict[str, Any], **more: Any) -> str:
    return json.dumps({**HEAD, "messages": list(told), **more}, indent=2)


def test_a_record_becomes_prompts_answers_and_results(write: Write) -> None:
    tokens = {"input": 100, "output": 5, "cached": 80, "thoughts": 3, "tool": 0, "total": 108}
    thoughts = [{"subject": "Plan", "description": "Look first."}]
    path = write(
        document(
            record("u1", "user", "do it"),
            record("i1", "info", "update available"),
            record(
                "g1",
                "gemini",
                "I do.",
                thoughts=thoughts,
                tokens=tokens,
                model="model-a",
                toolCalls=[call("c1", "success", output="text")],
            ),
            record("g2", "gemini", "Done.", model="model-b"),
            summary="A title",
        )
    )
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant"]
    assert (told[1].content, told[1].reasoning) == ("I do.", "Plan\nLook first.")
    assert [(c.id, c.arguments) for c in told[1].tool_calls] == [("c1", {"x": "c1"})]
    assert (told[2].content, told[2].name, told[2].tool_call_id) == ("text", "read_file", "c1")
    assert told[2].meta == {"is_error": False}
    assert told[3].meta == {"model": "model-b"}
    assert [m.platform_message_id for m in told] == ["u1", "g1", "c1", "g2"]
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert learned.tokens == Tokens(input=20, output=8, cache_read=80, reasoning=3)
    assert (learned.id, learned.model, learned.title) == ("own", "model-a", "A title")


def test_the_status_of_a_call_says_whether_it_failed(write: Write) -> None:
    shell = "Output: Exit Code: 7\nand more\nExit Code: 2\nSignal: 0"
    calls = [
        call("c1", "error", error="not there"),
        call("c2", "cancelled", error="[Operation Cancelled]"),
        call("c3", "success", "run_shell_command", output=shell),
        call("c4", "executing"),
        call("c5", "error"),
    ]
    path = write(document(record("g1", "gemini", toolCalls=calls)))
    answer, *results = messages(read_transcript(path))
    assert [c.id for c in answer.tool_calls] == ["c1", "c2", "c3", "c4", "c5"]
    assert [(m.tool_call_id, m.content) for m in results] == [
        ("c1", "not there"),
        ("c2", "[Operation Cancelled]"),
        ("c3", shell),
        ("c5", None),
    ]
    assert [m.meta for m in results] == [
        {"is_error": True},
        {"is_error": True, "refused": True},
        {"is_error": False, "exit_code": 2},
        {"is_error": True},
    ]


def test_a_line_that_comes_again_replaces_the_one_before_it(write: Write) -> None:
    path = write(
        HEAD,
        record("u1", "user", [{"text": "do it"}]),
        {"$set": {"lastUpdated": "2026-03-01T10:00:02Z"}},
        record("g1", "gemini", "I do."),
        record("g1", "gemini", "I do.", tokens={"input": 5, "output": 1}),
        record("g1", "gemini", "I do.", toolCalls=[call("c1", "success", output="x")]),
        record("g2", "gemini", "Done."),
        {"$set": {"summary": "A title"}},
    )
    told = messages(read_transcript(path))
    assert [m.text for m in told] == ["do it", "I do.", "x", "Done."]
    learned = next(e.session for e in read_transcript(path) if isinstance(e, SessionUpdated))
    assert (learned.id, learned.title) == ("own", "A title")


def test_what_a_late_copy_adds_is_told_once(write: Write) -> None:
    first = record("g1", "gemini", "I do.", toolCalls=[call("c1", "success", output="x")])
    both = [call("c1", "success", output="masked"), call("c2", "success", output="y")]
    path = write(
        HEAD,
        first,
        record("u1", "user", "next"),
        record("g1", "gemini", "I do.", toolCalls=both),
        {"$set": {"messages": [first, record("u1", "user", "next")]}},
    )
    told = messages(read_transcript(path))
    assert [m.text for m in told] == ["I do.", "x", "next", "", "y"]
    assert told[3].platform_message_id == "g1+c2"
    assert [c.id for c in told[3].tool_calls] == ["c2"]


def test_going_back_and_a_compressed_history_are_told_by_the_message_after_them(
    write: Write,
) -> None:
    path = write(
        HEAD,
        record("u1", "user", "one"),
        {"$rewindTo": "u1"},
        record("u2", "user", "<state_snapshot>so far</state_snapshot>"),
        record("e1", "error", "429"),
        record("u3", "user", "two"),
    )
    one, two = messages(read_transcript(path))
    assert one.meta is None
    assert two.meta == {
        "rewound": True,
        "compacted": {"summary": "<state_snapshot>so far</state_snapshot>"},
        "api_error": True,
    }


def test_a_sub_agent_belongs_to_the_session_in_whose_folder_it_lies(write: Write) -> None:
    path = write({**HEAD, "kind": "subagent"}, record("u1", "user", "x"), name="boss/own.jsonl")
    opened = next(e.session for e in read_transcript(path) if isinstance(e, SessionStarted))
    assert (opened.id, opened.parent) == ("own", "boss")


def part(name: str, **given: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **given}}


def response(name: str, answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": answer, **more}}


HISTORY = [
    {"role": "user", "parts": [{"text": "This is the Gemini CLI. We are setting up the context"}]},
    {"role": "model", "parts": [{"text": "Got it. Thanks for the context!"}]},
    {"role": "user", "parts": [{"text": "do it"}]},
    {
        "role": "model",
        "parts": [
            {"text": "plan", "thought": True},
            {"text": "I do."},
            part("read_file", id="c1"),
            part("list"),
            part("list"),
        ],
    },
    {
        "role": "user",
        "parts": [
            response("read_file", {"output": "text"}, id="c1"),
            response("list", {"error": "no folder"}),
            response("list", {"files": ["a"]}),
        ],
    },
    {"role": "model", "parts": [{"text": "Done."}]},
]


def test_a_history_is_read_with_calls_and_results_by_id_or_by_order(write: Write) -> None:
    path = write(json.dumps(HISTORY, indent=1), name="history.json")
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert (told[1].content, told[1].reasoning) == ("I do.", "plan")
    made = [c.id for c in told[1].tool_calls]
    assert made[0] == "c1"
    assert [m.tool_call_id for m in told[2:5]] == made
    assert [m.content for m in told[2:5]] == ["text", "no folder", '{"files": ["a"]}']
    assert [m.meta for m in told[2:5]] == [{"is_error": False}, {"is_error": True}, None]
    again = [m.platform_message_id for m in messages(read_transcript(path))]
    assert again == [m.platform_message_id for m in told]
    assert len(set(again)) == len(again)


def test_a_checkpoint_holds_the_same_history(write: Write) -> None:
    path = write(json.dumps({"history": HISTORY, "authType": "x"}), name="checkpoint.json")
    format = detect_format(path)
    assert format is not None
    assert format.name == "gemini"
    assert [m.role for m in messages(read_transcript(path))].count("tool") == 3


def test_records_and_histories_are_known_by_their_content(tmp_path: Path) -> None:
    long = "x" * 200_000
    for value in (
        [{"role": "user", "parts": [{"text": long}]}],
        {**HEAD, "messages": [record("u1", "user", long)]},
    ):
        path = tmp_path / "chat.json"
        path.write_text(json.dumps(value))
        format = detect_format(path)
        assert format is not None
        assert format.name == "gemini"
        assert [m.text for m in messages(read_transcript(path))] == [long]


def test_what_hooks_add_to_a_prompt_is_not_part_of_it_and_the_setup_names_the_folder(
    write: Write,
) -> None:
    setup = "<session_context>\n- **Workspace Directories:**\n  - /work/my repo\n- **Directory"
    path = write(
        {**HEAD, "kind": "main"},
        {"$set": {"messages": [record("s", "user", [{"text": setup}])]}},
        record(
            "u1",
            "user",
            [
                {"text": "<hook_context>a note</hook_context>\n\ndo it"},
                {"text": "<hook_context>another</hook_context>"},
            ],
        ),
        record("g1", "gemini", "Done."),
    )
    events = list(read_transcript(path))
    assert [m.content for m in messages(events)] == ["do it", "Done."]
    (started,) = [e.session for e in events if isinstance(e, SessionStarted)]
    assert started.cwd == "/work/my repo"
