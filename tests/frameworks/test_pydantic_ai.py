"""The message history of Pydantic AI comes back equal, and Rekindle can read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, ImageUrl
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from rekindle import Message, Store, ToolCall
from rekindle.integrations.pydantic_ai import RekindleHistory

MESSAGES: list[ModelMessage] = [
    ModelRequest(
        parts=[UserPromptPart(["What is this?", ImageUrl("https://example.com/a.png")])],
        instructions="be brief",
    ),
    ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s"),
            TextPart("Let me see."),
            ToolCallPart("look", {"x": 1}, "c1"),
            ToolCallPart("look", '{"x": 2}', "c2"),
            ToolCallPart("look", None, "c3"),
        ],
        model_name="some-model",
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("look", {"a": [1]}, "c1"),
            ToolReturnPart("look", "text", "c2"),
            ToolReturnPart("look", "again", "c3", outcome="retried"),
            UserPromptPart([BinaryContent(b"\x00\xff", media_type="image/png")]),
        ]
    ),
    ModelResponse(parts=[]),
]


def test_a_run_goes_on_with_what_is_stored(store: Store) -> None:
    agent = Agent(TestModel(), system_prompt="be brief")

    def look(x: int) -> dict[str, int]:
        return {"x": x}

    agent.tool_plain(look)

    async def talk() -> list[Any]:
        history = RekindleHistory("plan", store, title="Look")
        results: list[Any] = []
        for question in ("Hello?", "More?"):
            results.append(await agent.run(question, message_history=await history.load()))
            await history.add(results[-1].new_messages())
        assert await history.load() == results[-1].all_messages()
        return results

    asyncio.run(talk())
    stored = store.session("plan")
    assert (stored.source, stored.title) == ("pydantic-ai", "Look")
    assert stored.tokens.input > 0
    roles = [each.role for each in store.messages("plan")]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]


def test_every_kind_of_part_comes_back(store: Store) -> None:
    history = RekindleHistory("parts", store)
    asyncio.run(history.add(MESSAGES))
    # Pydantic AI's own JSON makes an image of binary content.
    same = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(MESSAGES))
    assert asyncio.run(RekindleHistory("parts", store).load()) == same


def test_undo_leaves_a_history_that_can_be_used(store: Store) -> None:
    agent = Agent(TestModel(custom_output_text="yes"), system_prompt="be brief")

    async def talk() -> None:
        history = RekindleHistory("plan", store)
        for question in ("One?", "Two?"):
            result = await agent.run(question, message_history=await history.load())
            await history.add(result.new_messages())
        store.undo("plan", 2)  # the system prompt is before the first user message
        result = await agent.run("Three?", message_history=await history.load())
        assert result.output == "yes"

    asyncio.run(talk())


def test_messages_of_other_programs_are_read(store: Store) -> None:
    session = store.begin(id="other")
    call = ToolCall("c", "look", '{"x": 1}')
    store.append(
        session,
        Message("system", "be brief"),
        Message("user", "What is this?"),
        Message("assistant", "Let me see.", [call], reasoning="hm"),
        Message("tool", "a cat", tool_call_id="c", name="look"),
        Message("assistant", "A cat."),
    )
    messages = asyncio.run(RekindleHistory("other", store).load())
    kinds = [(each.kind, [part.part_kind for part in each.parts]) for each in messages]
    assert kinds == [
        ("request", ["system-prompt", "user-prompt"]),
        ("response", ["thinking", "text", "tool-call"]),
        ("request", ["tool-return"]),
        ("response", ["text"]),
    ]


def test_messages_and_what_they_cost_are_stored_together_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ModelResponse(parts=[TextPart("Yes.")], usage=RequestUsage(input_tokens=7))

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("stop")

    async def talk() -> None:
        history = RekindleHistory("talk", store)
        with monkeypatch.context() as patch:
            patch.setattr("rekindle.store.sessions.usage.add_tokens", fail)
            with pytest.raises(RuntimeError, match="stop"):
                await history.add([answer])
        assert await history.load() == []
        await history.add([answer])
        assert len(await history.load()) == 1

    asyncio.run(talk())
    assert store.session("talk").tokens.input == 7
