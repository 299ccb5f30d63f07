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
from rekindle.types import Message, Tokens
from tests.unit.transcripts.conftest import Write, messages

USER = {"role": "user", "content": "how warm is it?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "warmth", "arguments": '{"at": "x"}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "tool_call_id": "c1", "content": "21"}
CHAT = [{"role": "system", "content": "Be brief."}, USER, ASKS, TOLD]


def containers() -> dict[str, bytes]:
    both = [{"messages": CHAT, "id": "one"}, {"messages": CHAT, "id": "two"}]
    return {
        "messages, one per line": "\n".join(map(json.dumps, CHAT)).encode(),
        "a list": json.dumps(CHAT).encode(),
        "a list, laid out": json.dumps(CHAT, indent=2).encode(),
        "an object": json.dumps({"model": "m", "tools": [{"a": []}], "messages": CHAT}).encode(),
        "an object, laid out": json.dumps({"messages": CHAT, "model": "m"}, indent=2).encode(),
        "objects, one per line": "\n".join(map(json.dumps, both)).encode(),
        "objects in a list": json.dumps(both).encode(),
        "objects in a list, laid out": json.dumps(both, indent=2).encode(),
        "lists in a list, two": json.dumps([CHAT, CHAT]).encode(),
        "a list, one message on each line": b"[\n%s\n]"
        % ",\n".join(map(json.dumps, CHAT)).encode(),
    }


@pytest.mark.parametrize("container", containers())
def test_every_container_gives_the_same_messages(tmp_path: Path, container: str) -> None:
    path = tmp_path / "no-name-to-go-by"
    path.write_bytes(containers()[container])
    format = detect_format(path)
    assert format is not None
    assert format.name == "openai-chat"
    events = list(read_transcript(path))
    sessions = [event for event in events if isinstance(event, SessionStarted)]
    told = messages(events)
    assert len(told) == 4 * len(sessions)
    assert len(sessions) == (2 if container.startswith(("objects", "lists")) else 1)
    assert len({event.session.id for event in sessions}) == len(sessions)
    assert [m.role for m in told[:4]] == ["system", "user", "assistant", "tool"]
    assert told[2].tool_calls[0].name == "warmth"
    assert told[2].tool_calls[0].arguments == '{"at": "x"}'
    assert (told[3].tool_call_id, told[3].name, told[3].content) == ("c1", "warmth", "21")
    assert not [event for event in events if isinstance(event, UnreadableEntry)]


def test_calls_may_be_text_and_arguments_objects_and_ids_missing(write: Write) -> None:
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}, {"name": "g", "arguments": "{}"}]
    path = write(
        USER,
        {"role": "assistant", "content": "", "tool_calls": json.dumps(calls)},
        {"role": "tool", "content": "of f"},
        {"role": "tool", "content": "of g"},
        {"role": "assistant", "content": None, "function_call": {"name": "h", "arguments": "{}"}},
        {"role": "function", "name": "h", "content": "of h"},
    )
    told = messages(read_transcript(path))
    assert [(c.name, c.arguments) for c in told[1].tool_calls] == [("f", {"a": 1}), ("g", "{}")]
    asked = [c.id for m in told for c in m.tool_calls]
    assert [m.tool_call_id for m in told if m.role == "tool"] == asked
    assert [m.name for m in told if m.role == "tool"] == ["f", "g", "h"]


def test_a_list_with_one_message_on_a_line_of_its_own_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('[\n{"role": "user", "content": "a"}\n]')
    assert [type(event) for event in read_transcript(path)] == [
        SessionStarted,
        Message,
        SessionUpdated,
    ]
    path.write_text('{"messages": [\n{"role": "user", "content": "a"}\n]}')
    assert [type(event) for event in read_transcript(path)] == [
        SessionStarted,
        Message,
        SessionUpdated,
    ]


def test_an_id_that_several_messages_share_does_not_make_them_one(write: Write) -> None:
    path = write({**USER, "id": "x"}, {**USER, "id": "x"}, {**USER, "id": "REDACTED"})
    told = messages(read_transcript(path))
    assert told[0].platform_message_id == "x"
    assert len({m.platform_message_id for m in told}) == 3
    assert "REDACTED" not in {m.platform_message_id for m in told}


def test_a_list_of_conversations_with_a_bad_element_gives_the_others(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps([{"id": "a", "messages": CHAT}, 7, {"messages": [USER, 3]}]))
    events = list(read_transcript(path))
    assert len(messages(events)) == 5
    assert len([e for e in events if isinstance(e, UnreadableEntry)]) == 2


def test_ids_are_stable_while_the_file_grows(write: Write) -> None:
    path = write(*CHAT)

    def places() -> list[tuple[Any, ...]]:
        opened = next(e.session.id for e in read_transcript(path) if isinstance(e, SessionStarted))
        return [(opened, m.platform_message_id) for m in messages(read_transcript(path))]

    before = places()
    write(USER, append=True)
    assert places()[:4] == before
    assert len(set(places())) == 5


def test_what_stands_beside_the_messages_is_taken(write: Write) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 4}
    about = {"session_id": "s", "title": "T", "model": "m", "usage": usage, "created": 1700000000}
    learned = next(
        e.session
        for e in read_transcript(write({**about, "messages": CHAT}))
        if isinstance(e, SessionUpdated)
    )
    assert (learned.id, learned.title, learned.model) == ("s", "T", "m")
    assert (learned.tokens, learned.started) == (Tokens(input=10, output=4), 1700000000.0)


def test_a_document_that_was_cut_gives_what_came_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    whole = json.dumps({"messages": CHAT}, indent=1).encode()
    path.write_bytes(whole[: whole.rindex(b'"tool"')])
    events = list(read_transcript(path))
    assert [m.role for m in messages(events)] == ["system", "user", "assistant"]
    assert [e.what for e in events if isinstance(e, UnreadableEntry)] == [
        "unexpected end of document, 3 levels deep"
    ]


def test_a_bad_element_is_located_and_the_others_survive(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('[\n{"role":"user","content":"a"},\n{"role":oops},\n7,\n'
                    '{"role":"user","content":"b"}]')  # fmt: skip
    events = list(read_transcript(path))
    assert [m.text for m in messages(events)] == ["a", "b"]
    assert [e.line for e in events if isinstance(e, UnreadableEntry)] == [3, 4]


def test_text_of_many_megabytes_comes_through_whole(tmp_path: Path) -> None:
    long = 'a "quoted" \\ text ] } , ' * 200_000
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"messages": [USER, {"role": "user", "content": long}]}, indent=1))
    assert [m.content for m in messages(read_transcript(path))] == [USER["content"], long]


def test_protocol_facts_of_a_result_are_kept(write: Write) -> None:
    path = write(USER, ASKS, {**TOLD, "is_error": True, "exit_code": 2})
    told: list[Message] = messages(read_transcript(path))
    assert told[2].meta == {"is_error": True, "exit_code": 2}


def test_a_bracket_too_many_does_not_cost_what_stands_before_it(write: Write) -> None:
    whole = json.dumps(
        {"messages": [{"role": "user", "content": f"text {n}"} for n in range(6)]}, indent=2
    )
    lines = whole.split("\n")
    at = next(number for number, line in enumerate(lines) if "text 3" in line)
    lines[at - 2] = "    },"
    told = [message.text for message in messages(read_transcript(write("\n".join(lines))))]
    assert told[:3] == ["text 0", "text 1", "text 2"]
