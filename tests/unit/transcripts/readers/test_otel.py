from __future__ import annotations

import json
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
from rekindle.types import Message, Tokens, ToolCall
from tests.unit.transcripts.conftest import Write, messages


def wrapped(value: Any) -> dict[str, Any]:
    """A value in the wrapping of OTLP."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [wrapped(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def pairs(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": wrapped(value)} for key, value in values.items()]


def span(id: str, about: dict[str, Any], start: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "traceId": "t1",
        "spanId": id,
        "name": id,
        "startTimeUnixNano": str((1772359200 + start) * 10**9),
        "endTimeUnixNano": str((1772359202 + start) * 10**9),
        "attributes": pairs(about),
        "status": {},
        **more,
    }


def export(*spans: Any) -> dict[str, Any]:
    scope = {"scope": {"name": "x"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}


def part_text(value: str) -> dict[str, Any]:
    return {"type": "text", "content": value}


SYSTEM = {"role": "system", "parts": [part_text("Be kind.")]}
USER = {"role": "user", "parts": [part_text("how warm is it?")]}
ASKS = {
    "role": "assistant",
    "parts": [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c1", "name": "warmth", "arguments": {"at": "x"}},
    ],
    "finish_reason": "tool_call",
}
TOLD = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "21"}]}
SAYS = {"role": "assistant", "parts": [part_text("It is 21.")], "finish_reason": "stop"}


def chat(id: str, given: list[Any], told: list[Any], start: int = 0, **more: Any) -> dict[str, Any]:
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "talk",
        "gen_ai.request.model": "m-1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.input.messages": json.dumps(given),
        "gen_ai.output.messages": json.dumps(told),
        **more,
    }
    return span(id, about, start)


def tool(id: str, call: str | None, result: Any, start: int = 0, **more: Any) -> dict[str, Any]:
    about = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "warmth",
        "gen_ai.tool.call.id": call,
        "gen_ai.tool.call.arguments": '{"at": "x"}',
        "gen_ai.tool.call.result": result,
    }
    return span(
        id, {key: value for key, value in about.items() if value is not None}, start, **more
    )


ERROR = {"status": {"code": 2, "message": "it broke"}}
TURN = [
    chat("s1", [SYSTEM, USER], [ASKS]),
    tool("s2", "c1", "21", 2),
    chat("s3", [SYSTEM, USER, ASKS, TOLD], [SAYS], 4),
    span("s4", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}),
]


def test_a_conversation_is_told_once_though_every_call_repeats_it(write: Write) -> None:
    path = write(export(*TURN), name="spans.json")
    format = detect_format(path)
    assert format is not None
    assert format.name == "otel"
    events = list(read_transcript(path))
    assert [e.session.id for e in events if isinstance(e, SessionStarted)] == ["talk"]
    told = messages(events)
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant"]
    assert (told[1].reasoning, told[1].finish_reason) == ("hm", "tool_call")
    assert told[1].tool_calls == (ToolCall("c1", "warmth", {"at": "x"}),)
    assert (told[2].tool_call_id, told[2].name, told[2].content) == ("c1", "warmth", "21")
    assert told[3].content == "It is 21."
    assert len({m.platform_message_id for m in told}) == 4
    learned = next(e.session for e in events if isinstance(e, SessionUpdated))
    assert (learned.model, learned.started) == ("m-1", 1772359200.0)
    assert learned.tokens == Tokens(input=12, output=6, cache_read=8)


@pytest.mark.parametrize("layout", ["lines", "laid out", "two documents"])
def test_every_container_of_otlp_gives_the_same_messages(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "spans"
    if layout == "lines":
        path.write_text("\n".join(json.dumps(export(one)) for one in TURN))
    elif layout == "laid out":
        path.write_text(json.dumps(export(*TURN), indent=2))
    else:
        path.write_text(json.dumps(export(*TURN[:2]), indent=1) + json.dumps(export(*TURN[2:])))
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant"]


def test_the_status_of_a_tool_s_span_is_the_label(write: Write) -> None:
    def label(**more: Any) -> Message:
        path = write(export(TURN[0], tool("s2", "c1", "hm", 2, **more), TURN[2]))
        return next(m for m in messages(read_transcript(path)) if m.role == "tool")

    assert label(**ERROR).meta == {"is_error": True, "error": "it broke", "duration": 2.0}
    assert label(status={"code": "STATUS_CODE_OK"}).meta == {"is_error": False, "duration": 2.0}
    assert label().meta == {"duration": 2.0}, "a status that nobody set says nothing"
    assert label(**ERROR).content == "21", "the text is the one that the model was given"


def test_an_exception_tells_what_went_wrong(write: Write) -> None:
    raised = {"name": "exception", "attributes": pairs({"exception.message": "no such place"})}
    broken = tool("s2", "c1", None, 2, status={"code": 2}, events=[raised])
    told = messages(read_transcript(write(export(TURN[0], broken))))
    assert (told[2].meta or {})["error"] == "no such place"
    assert told[2].content is None


def test_calls_without_recorded_messages_are_still_calls(write: Write) -> None:
    bare = span("s1", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1"})
    told = messages(
        read_transcript(write(export(bare, tool("s2", "c1", "21"), tool("s3", "c2", "x", **ERROR))))
    )
    assert [m.role for m in told] == ["assistant", "tool", "tool"]
    assert [c.id for c in told[0].tool_calls] == ["c1", "c2"]
    assert told[0].tool_calls[0].arguments == '{"at": "x"}'
    assert [(m.meta or {}).get("is_error") for m in told[1:]] == [None, True]


def test_what_the_user_says_twice_is_said_twice(write: Write) -> None:
    path = write(
        export(
            chat("s1", [USER], [SAYS]),
            chat("s2", [USER, SAYS, USER], [SAYS], 2),
        )
    )
    assert [m.role for m in messages(read_transcript(path))] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_a_span_that_is_exported_twice_counts_once(write: Write) -> None:
    told = messages(read_transcript(write(export(*TURN[:3], TURN[0], TURN[2]))))
    assert len(told) == 4


def test_a_sub_agent_is_a_session_of_its_own(write: Write) -> None:
    task = {"role": "user", "parts": [part_text("find the thermometer")]}
    found = {"role": "assistant", "parts": [part_text("on the wall")]}
    path = write(
        export(
            TURN[0],
            chat("sub", [SYSTEM, task], [found], 1),
            *TURN[1:],
        )
    )
    events = list(read_transcript(path))
    opened = [e.session for e in events if isinstance(e, SessionStarted)]
    assert [(s.id, s.parent) for s in opened[:2]] == [("talk", None), ("sub@talk", "talk")]
    by_session: dict[str, list[str]] = {}
    id = ""
    for event in events:
        if isinstance(event, SessionStarted):
            id = event.session.id
        elif isinstance(event, Message):
            by_session.setdefault(id, []).append(event.role)
    assert by_session == {
        "talk": ["user", "assistant", "tool", "assistant"],
        "sub@talk": ["user", "assistant"],
    }


def test_traces_without_a_conversation_are_sessions_of_their_own(write: Write) -> None:
    def bare(id: str, trace: str) -> dict[str, Any]:
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([USER]),
            "gen_ai.output.messages": json.dumps([SAYS]),
        }
        return span(id, about, traceId=trace)

    events = list(read_transcript(write(export(*(bare(f"s{n}", f"t{n}") for n in range(100))))))
    assert len({e.session.id for e in events if isinstance(e, SessionStarted)}) == 100
    assert len(messages(events)) == 200


def event(name: str, **about: Any) -> dict[str, Any]:
    return {"name": name, "attributes": pairs(about)}


def test_the_older_convention_tells_messages_as_events(write: Write) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "warmth", "arguments": "{}"}}
    asks = {"role": "assistant", "tool_calls": [call]}
    first = [
        event("gen_ai.system.message", content="Be kind."),
        event("gen_ai.user.message", content="how warm is it?"),
        event("gen_ai.choice", index=0, finish_reason="tool_calls", message=json.dumps(asks)),
    ]
    second = [
        *first[:2],
        event("gen_ai.assistant.message", tool_calls=json.dumps([call])),
        event("gen_ai.tool.message", id="c1", content="21"),
        event(
            "gen_ai.choice", **{"gen_ai.event.content": json.dumps({"message": {"content": "21!"}})}
        ),
    ]
    path = write(
        export(
            span("s1", {"gen_ai.system": "openai"}, events=first),
            span("s2", {"gen_ai.system": "openai"}, 2, events=second),
        )
    )
    told = messages(read_transcript(path))
    assert [(m.role, m.content) for m in told] == [
        ("user", "how warm is it?"),
        ("assistant", None),
        ("tool", "21"),
        ("assistant", "21!"),
    ]
    assert told[1].tool_calls == (ToolCall("c1", "warmth", "{}"),)
    assert (told[1].finish_reason, told[2].name) == ("tool_calls", "warmth")


def test_messages_in_log_records_are_read_too(write: Write) -> None:
    def log(name: str, **body: Any) -> dict[str, Any]:
        return {"traceId": "t1", "spanId": "s1", "eventName": name, "body": wrapped(body)}

    logs = [
        log("gen_ai.user.message", content="hi"),
        log("gen_ai.choice", index=0, message={"role": "assistant", "content": "hello"}),
    ]
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}
    path = write(document, export(span("s1", {"gen_ai.operation.name": "chat"})))
    format = detect_format(path)
    assert format is not None
    assert format.name == "otel"
    told = messages(read_transcript(path))
    assert [(m.role, m.content) for m in told] == [("user", "hi"), ("assistant", "hello")]


def flat(side: str, *said: dict[str, str]) -> dict[str, str]:
    return {
        f"llm.{side}_messages.{index}.message.{key}": value
        for index, one in enumerate(said)
        for key, value in one.items()
    }


def test_openinference_tells_messages_as_attributes(write: Write) -> None:
    call = "tool_calls.0.tool_call."
    asks = {
        "role": "assistant",
        f"{call}id": "c1",
        f"{call}function.name": "warmth",
        f"{call}function.arguments": "{}",
    }
    user = {"role": "user", "content": "how warm is it?"}
    told = {"role": "tool", "tool_call_id": "c1", "content": "21"}
    kind = "openinference.span.kind"
    count = {"llm.token_count.prompt": "7", "llm.token_count.completion": "2"}
    path = write(
        export(
            span("s1", {kind: "LLM", **flat("input", user), **flat("output", asks), **count}),
            span("s2", {kind: "TOOL", "tool.name": "warmth", "output.value": "21"}, 2, **ERROR),
            span(
                "s3",
                {kind: "LLM", **flat("input", user, asks, told), **flat("output", user)},
                4,
            ),
        )
    )
    events = list(read_transcript(path))
    chat = messages(events)
    assert [m.role for m in chat] == ["user", "assistant", "tool", "assistant"]
    assert (chat[2].meta or {})["is_error"] is True
    learned = next(e.session for e in events if isinstance(e, SessionUpdated))
    assert learned.tokens == Tokens(input=7, output=2)


def test_openllmetry_numbers_prompts_and_completions(write: Write) -> None:
    about = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "hi",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "hello",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "f",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}",
    }
    told = messages(read_transcript(write(export(span("s1", about)))))
    assert [(m.role, m.content) for m in told] == [("user", "hi"), ("assistant", "hello")]
    assert told[1].tool_calls == (ToolCall("c1", "f", "{}"),)


def nested(
    id: str, name: str, about: dict[str, Any], *children: Any, **more: Any
) -> dict[str, Any]:
    return {
        "timestamp": "2026-03-01T10:00:00Z",
        "trace_id": "t1",
        "span_id": id,
        "span_name": name,
        "span_attributes": about,
        "duration": "PT1M2.5S",
        "status_code": "Ok",
        "status_message": "",
        "events": [],
        "child_spans": list(children),
        **more,
    }


def test_a_step_that_ran_the_code_of_an_answer_is_a_call(tmp_path: Path) -> None:
    task = {"role": "user", "content": "New task"}
    first = {"role": "assistant", "content": "Look.\nCode:\n```py\nls()\n```"}
    calls = "Calling tools:\n[{'id': 'call_1', 'type': 'function', 'function': " \
            "{'name': 'python_interpreter', 'arguments': 'ls()'}}]"  # fmt: skip
    seen = {"role": "tool-response", "content": "Call id: call_1\nObservation:\na.txt"}
    asked = [{"role": "tool-call", "content": calls}, seen]
    llm = {"openinference.span.kind": "LLM"}
    steps = [
        nested("s0", "create_agent", {}),
        nested(
            "s1",
            "Step 1",
            {"openinference.span.kind": "CHAIN", "output.value": "a.txt"},
            nested("l1", "m", {**llm, **flat("input", task), **flat("output", first)}),
            nested("f1", "ls", {"openinference.span.kind": "TOOL"}, parent_span_id="s1"),
        ),
        nested(
            "s2",
            "Step 2",
            {"openinference.span.kind": "CHAIN", "output.value": "boom"},
            nested(
                "l2", "m", {**llm, **flat("input", task, first, *asked), **flat("output", first)}
            ),
            status_code="Error",
            status_message="it broke",
        ),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"trace_id": "t1", "spans": steps}, indent=1))
    format = detect_format(path)
    assert format is not None
    assert format.name == "otel"
    told = messages(read_transcript(path))
    assert [m.role for m in told] == ["user", "assistant", "tool", "assistant", "tool"]
    assert told[1].tool_calls == (ToolCall("call_1", "python_interpreter", "ls()"),)
    assert told[2].content == seen["content"], "what the model was given"
    assert told[3].tool_calls[0].arguments == "ls()"
    assert told[4].content == "boom"
    assert [(m.meta or {})["is_error"] for m in told if m.role == "tool"] == [False, True]


def test_an_agent_inside_an_agent_is_a_session_of_its_own(tmp_path: Path) -> None:
    def model(id: str, *said: str) -> dict[str, Any]:
        given = [{"role": "user", "content": words} for words in said]
        told = {"role": "assistant", "content": f"answer of {id}"}
        kind = {"openinference.span.kind": "LLM"}
        return nested(id, "m", {**kind, **flat("input", *given), **flat("output", told)})

    agent = {"openinference.span.kind": "AGENT"}
    inner = nested("a2", "search", agent, model("l2", "find it"), model("l3", "find it", "more"))
    outer = nested("a1", "manager", agent, model("l1", "the task"), inner, model("l4", "the task"))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"trace_id": "t1", "spans": [outer]}))
    told: dict[str, list[str]] = {}
    id = ""
    for event in read_transcript(path):
        if isinstance(event, SessionStarted):
            id = event.session.id
            assert event.session.parent == ("t1" if "@" in id else None)
        elif isinstance(event, Message):
            told.setdefault(id, []).append(event.text)
    assert told == {
        "t1": ["the task", "answer of l1", "answer of l4"],
        "l2@t1": ["find it", "answer of l2", "more", "answer of l3"],
    }


def test_spans_in_a_list_are_read(write: Write) -> None:
    one = {**TURN[0], "trace_id": "t1", "span_id": "s1"}
    path = write(f"[{json.dumps(one)}, 7, {json.dumps(TURN[2])}]")
    format = detect_format(path)
    assert format is not None
    assert format.name == "otel"
    assert [m.role for m in messages(read_transcript(path))] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_spans_as_the_sdk_prints_them_are_read(tmp_path: Path) -> None:
    one = {
        "name": "chat m-1",
        "context": {"trace_id": "0x1", "span_id": "0x2", "trace_state": "[]"},
        "parent_id": None,
        "start_time": "2026-03-01T10:00:00Z",
        "end_time": "2026-03-01T10:00:01Z",
        "status": {"status_code": "UNSET"},
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([USER]),
            "gen_ai.output.messages": json.dumps([SAYS]),
        },
        "events": [],
    }
    other = {**one, "context": {"trace_id": "0x2", "span_id": "0x3"}}
    path = tmp_path / "printed"
    path.write_text(json.dumps(one, indent=4) + "\n" + json.dumps(other, indent=4))
    format = detect_format(path)
    assert format is not None
    assert format.name == "otel"
    events = list(read_transcript(path))
    assert {e.session.id for e in events if isinstance(e, SessionStarted)} == {"0x1", "0x2"}
    assert sorted(m.role for m in messages(events)) == ["assistant", "assistant", "user", "user"]


def test_notes_about_a_trace_are_no_trace(write: Write) -> None:
    assert detect_format(write({"trace_id": "t1", "errors": [], "scores": []})) is None


def test_a_bad_line_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    lines = [json.dumps(export(one)) for one in TURN]
    path.write_text("\n".join([lines[0], lines[1][:-9], '{"resourceSpans": [7]}', *lines[2:]]))
    events = list(read_transcript(path))
    assert [m.role for m in messages(events)] == ["user", "assistant", "tool", "assistant"]
    assert [e.line for e in events if isinstance(e, UnreadableEntry)] == [2]
