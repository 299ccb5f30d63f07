"""Items of the Responses API become messages that people can read, and come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle import Message, Store, ToolCall
from rekindle.integrations.responses_items import item_to_message, message_to_items

CALL = {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}", "id": "f"}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": ""},
    {"role": "developer", "content": "be brief", "type": "message"},
    {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:,", "detail": "auto"},
        ],
    },
    {"role": "user", "content": []},
    {"role": "user", "content": None},
    {"role": "user"},
    {"role": "critic", "content": "a role of its own"},
    {
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "content": [{"type": "output_text", "text": "done", "annotations": []}],
    },
    {
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "content": [{"type": "refusal", "refusal": "no"}],
    },
    CALL,
    {**CALL, "arguments": {"already": "parsed"}},
    {"type": "function_call_output", "call_id": "c", "output": "3"},
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "3"}],
    },
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "think"}]},
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search"}},
    {"type": "item_reference", "id": "m"},
    {"type": None, "role": "user"},
]


@pytest.mark.parametrize("item", ITEMS, ids=[str(number) for number in range(len(ITEMS))])
def test_an_item_comes_back_as_it_was(store: Store, item: dict[str, Any]) -> None:
    session = store.begin()
    store.append(session, item_to_message(item))
    (message,) = store.messages(session)
    assert message_to_items(message) == [item]


@given(st.dictionaries(st.sampled_from(["type", "role", "content", "call_id", "name", "arguments",
    "output", "summary", "id"]), st.one_of(st.none(), st.text(max_size=5), st.sampled_from(
    ["message", "user", "function_call", "function_call_output", "reasoning"]),
    st.lists(st.dictionaries(st.sampled_from(["type", "text"]),
    st.sampled_from(["input_text", "x"])), max_size=2))))  # fmt: skip
def test_whatever_an_item_holds_it_comes_back(item: dict[str, Any]) -> None:
    assert message_to_items(item_to_message(item)) == [item]


def test_people_can_read_what_was_said() -> None:
    assert item_to_message(ITEMS[3]).text == "look"
    assert item_to_message(ITEMS[9]).text == "done"
    assert item_to_message(CALL).tool_calls == (ToolCall("c", "run", "{}"),)
    result = item_to_message(ITEMS[13])
    assert (result.role, result.text, result.tool_call_id) == ("tool", "3", "c")
    assert item_to_message(ITEMS[15]).reasoning == "think"


def test_messages_of_other_programs_become_plain_items() -> None:
    calls = [ToolCall("a", "ls", "{}"), ToolCall("b", "cat", "{}")]
    assert message_to_items(Message("assistant", "Look:", calls)) == [
        {"role": "assistant", "content": "Look:"},
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "cat", "arguments": "{}"},
    ]
    assert message_to_items(Message("tool", "out", tool_call_id="a")) == [
        {"type": "function_call_output", "call_id": "a", "output": "out"}
    ]
