"""A stored conversation as a provider accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Store, ToolCall, format_conversation, load_conversation
from rekindle.agent.model.chat_completions import from_chat_message
from rekindle.agent.model.providers import PROVIDERS, Provider, find_violations
from rekindle.errors import InvalidInput
from tests.new_store import open_new_store

LOOK = Message(
    "assistant", "I look.", [ToolCall("1", "ls", "{}"), ToolCall("2", "cat", '{"n": 1}')]
)
BROKEN = [  # two users in a row, and of two calls only the second has a result
    Message("user", "hi", name="ada"),
    Message("user", "are you there?", name="bob"),
    LOOK,
    Message("tool", "text", tool_call_id="2", meta={"is_error": True}),
    Message("user", "and now?"),
]


def saved(store: Store, *messages: Message) -> str:
    session = store.begin()
    store.append(session, *messages)
    return session.id


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_new_store(tmp_path / "sessions.db") as opened:
        yield opened


@pytest.mark.parametrize("provider", [one for one in PROVIDERS if one != "anthropic"])
def test_an_interrupted_conversation_is_sent_as_the_provider_accepts_it(
    store: Store, provider: Provider
) -> None:
    fields = load_conversation(store, saved(store, *BROKEN), provider)
    assert [*fields] == ["messages"]
    sent = [from_chat_message(message) for message in fields["messages"]]
    assert find_violations(provider, sent) == []


def test_anthropic_gets_blocks_and_the_system_text_beside_them(store: Store) -> None:
    opening = [Message("system", "Be brief."), Message("system", "Be kind.")]
    fields = load_conversation(store, saved(store, *BROKEN), "anthropic", opening=opening)
    assert fields["system"] == "Be brief.\n\nBe kind."
    user, assistant, results = fields["messages"]
    assert [message["role"] for message in fields["messages"]] == ["user", "assistant", "user"]
    assert "ada" in user["content"][0]["text"]
    assert "bob" in user["content"][0]["text"]
    assert [block["type"] for block in assistant["content"]] == ["text", "tool_use", "tool_use"]
    asked = [block["id"] for block in assistant["content"][1:]]
    kinds = [block["type"] for block in results["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]
    answered = results["content"][:2]
    assert sorted(block["tool_use_id"] for block in answered) == sorted(asked)
    assert [block.get("is_error") for block in answered].count(True) == 1


def test_a_conversation_without_a_system_message_has_no_system_field() -> None:
    assert [*format_conversation([Message("user", "hi")], "anthropic")] == ["messages"]


def test_what_is_stored_stays_as_it_is(store: Store) -> None:
    session = saved(store, *BROKEN)
    load_conversation(store, session, "mistral")
    assert store.messages(session) == BROKEN


def test_a_provider_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="openai, anthropic, gemini, mistral"):
        format_conversation([], "cohere")  # pyright: ignore[reportArgumentType]
