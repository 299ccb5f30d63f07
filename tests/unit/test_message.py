"""Messages: what they refuse, and how they look in the APIs of OpenAI and Anthropic."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from rekindle.errors import InvalidInput
from rekindle.types import ROLES, Message, ToolCall, make_foreign_message, replace_fields

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "hi", "name": "ada"},
    {"role": "user", "content": [{"type": "text", "text": "what is this?"}, IMAGE]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "assistant", "content": "I look.", "name": "helper", "tool_calls": [CALL]},
    {"role": "tool", "content": "a.py", "tool_call_id": "c1"},
    {"role": "tool", "content": [{"type": "text", "text": "a.py"}], "tool_call_id": "c1"},
]


@pytest.mark.parametrize("fields", OPENAI, ids=lambda fields: fields["role"])
def test_a_message_in_openais_format_comes_back_equal(fields: dict[str, Any]) -> None:
    message = Message.from_openai(fields)
    assert message.to_openai() == fields
    assert Message.from_openai(message.to_openai()) == message


def test_the_fields_of_a_response_are_understood() -> None:
    response = {
        "role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None,
        "function_call": None, "tool_calls": [CALL], "reasoning_content": "hm",
    }  # fmt: skip
    call = ToolCall("c1", "ls", '{"path": "."}')
    assert Message.from_openai(response) == Message("assistant", tool_calls=[call], reasoning="hm")
    refused = Message.from_openai({"role": "assistant", "content": None, "refusal": "no"})
    assert refused.content == [{"type": "refusal", "refusal": "no"}]
    old = Message.from_openai({"role": "assistant", "function_call": CALL["function"]})
    assert [(call.id, call.name) for call in old.tool_calls] == [("", "ls")]


def test_what_a_provider_wants_back_with_a_call_is_kept() -> None:
    signed = {"google": {"thought_signature": "abc"}}
    message = Message.from_openai(
        {"role": "assistant", "tool_calls": [{**CALL, "extra_content": signed}]}
    )
    assert message.meta == {"extra_content": {"c1": signed}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "message.role"),
        ({"role": 7}, "message.role"),
        ({"role": "usr"}, "message.role"),
        ({"role": "assistant", "tool_calls": "ls"}, "message.tool_calls"),
        ({"role": "assistant", "tool_calls": ["ls"]}, r"message.tool_calls\[0\]"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, r"tool_calls\[0\].function"),
        ({"role": "assistant", "tool_calls": [CALL, {**CALL, "id": 7}]}, r"tool_calls\[1\].id"),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "ls"}}]},
            r"tool_calls\[0\].function.arguments",
        ),
    ],
)
def test_what_is_not_openais_format_is_refused_with_its_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        Message.from_openai(fields)


def test_arguments_that_are_an_object_are_sent_as_text() -> None:
    message = Message("assistant", tool_calls=[ToolCall("1", "say", {"text": "ä"})])
    assert message.to_openai()["tool_calls"][0]["function"]["arguments"] == '{"text":"ä"}'


# -- Anthropic


def test_an_assistant_is_text_and_tool_use_for_anthropic() -> None:
    calls = [
        ToolCall("1", "ls", '{"path": "."}'),
        ToolCall("2", "ls"),
        ToolCall("3", "ls", "{oops"),
    ]
    assert Message("assistant", "I look.", calls).to_anthropic() == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "1", "name": "ls", "input": {"path": "."}},
            {"type": "tool_use", "id": "2", "name": "ls", "input": {}},
            {"type": "tool_use", "id": "3", "name": "ls", "input": {"unreadable": "{oops"}},
        ],
    }


def test_a_result_is_a_block_of_the_user_for_anthropic() -> None:
    failed = Message("tool", "no such file", tool_call_id="1", meta={"is_error": True})
    block = {"type": "tool_result", "tool_use_id": "1", "is_error": True}
    text = {"type": "text", "text": "no such file"}
    assert failed.to_anthropic() == {"role": "user", "content": [{**block, "content": [text]}]}


def test_images_become_sources_and_other_parts_text_for_anthropic() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "text", "text": " "},
        IMAGE,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    assert Message("user", parts).to_anthropic()["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "text", "text": "[input_audio: not supported here]"},
    ]


def test_a_system_message_is_no_message_for_anthropic() -> None:
    with pytest.raises(InvalidInput, match="load_conversation"):
        Message("system", "Be brief.").to_anthropic()


# -- roles


def test_a_wrong_role_is_refused_with_the_roles_there_are() -> None:
    for role in ("usr", "", None, 7, ["user"]):
        with pytest.raises(InvalidInput, match=r"message\.role") as refused:
            Message(role=role)  # pyright: ignore[reportArgumentType]
        assert all(known in str(refused.value) for known in ROLES)


def test_a_role_of_another_program_is_kept_when_asked_for() -> None:
    info = make_foreign_message("info", "started", name="x")
    assert (info.role, info.content, info.name) == ("info", "started", "x")
    assert replace_fields(info, content="new").role == "info"
    assert make_foreign_message("user", "hi") == Message("user", "hi")


# -- a message is no list


def test_json_of_a_message_is_an_error_that_says_what_to_do() -> None:
    message = Message("user", "hi")
    for options in ({}, {"indent": 2}):
        for value in (message, [message], {"a": message}):
            with pytest.raises(TypeError, match="to_openai"):
                json.dumps(value, **options)
    with pytest.raises(TypeError, match="not a sequence"):
        list(message)


def test_a_message_can_be_copied_pickled_and_changed() -> None:
    message = Message("assistant", "hi", [ToolCall("1", "ls")], position=3)
    for other in (
        copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message)),
        message._replace(name=None), Message(**message._asdict()),
    ):  # fmt: skip
        assert other == message
        assert other.position == 3
    assert message._replace(content="bye").content == "bye"
    assert repr(message).startswith("Message(role='assistant', content='hi'")
