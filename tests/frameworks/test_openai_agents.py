"""The session of the OpenAI Agents SDK: the same conversation as in the SDK's own sessions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from agents import (
    Agent,
    ModelResponse,
    Runner,
    Session,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import SessionSettings
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from rekindle import Store
from rekindle.integrations.openai_agents import RekindleSession, UsageHooks

set_tracing_disabled(True)


class ScriptedModel(Model):
    """Thinks and calls a tool first, then says how many items it was given."""

    def __init__(self) -> None:
        self._answers = 0

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self._answers += 1
        if self._answers == 1:
            call = {"call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'}
            output: list[Any] = [
                ResponseReasoningItem(
                    id="r",
                    type="reasoning",
                    summary=[{"type": "summary_text", "text": "hm"}],  # pyright: ignore
                ),
                ResponseFunctionToolCall(id="f1", type="function_call", status="completed", **call),  # pyright: ignore
            ]
        else:
            text = ResponseOutputText(
                type="output_text", text=f"{len(input)} items", annotations=[]
            )
            output = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def talk(session: Any, *questions: str, hooks: Any = None) -> None:
    agent = Agent(name="helper", model=ScriptedModel(), tools=[add])
    for question in questions:
        await Runner.run(agent, question, session=session, hooks=hooks)


def test_a_conversation_is_the_same_as_in_the_own_session_of_the_sdk(store: Store) -> None:
    async def compare() -> None:
        ours, theirs = RekindleSession("plan", store), SQLiteSession("plan")
        assert isinstance(ours, Session)
        for session in (ours, theirs):
            await talk(session, "What is 1 + 2?", "Again?")
        assert await ours.get_items() == await theirs.get_items()
        for limit in (0, 1, 3, 100, None):
            assert await ours.get_items(limit) == await theirs.get_items(limit)
        assert await ours.pop_item() == await theirs.pop_item()
        assert await ours.get_items() == await theirs.get_items()
        for session in (ours, theirs):
            await session.clear_session()
            assert await session.get_items() == []
            assert await session.pop_item() is None

    asyncio.run(compare())
    store.redo("plan")
    assert len(store.messages("plan")) == 6


def test_rekindle_sees_requests_calls_and_usage(store: Store) -> None:
    session = RekindleSession("plan", store, owner="ada", title="Sums")
    asyncio.run(talk(session, "What is 1 + 2?", hooks=UsageHooks(session)))
    stored = store.session("plan", owner="ada")
    assert (stored.source, stored.title) == ("openai-agents", "Sums")
    assert (stored.tokens.input, stored.tokens.output) == (20, 10)
    messages = store.messages("plan")
    assert [each.role for each in messages] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [call.name for each in messages for call in each.tool_calls] == ["add"]
    assert [hit.session.id for hit in store.search("items")] == ["plan"]


def test_another_process_goes_on_where_the_first_one_stopped(store: Store) -> None:
    asyncio.run(talk(RekindleSession("plan", store), "What is 1 + 2?"))
    again = RekindleSession("plan", store)
    before = asyncio.run(again.get_items())
    asyncio.run(talk(again, "And now?"))
    assert asyncio.run(again.get_items())[: len(before)] == before


def test_a_limit_of_the_settings_holds(store: Store) -> None:
    session = RekindleSession("plan", store, session_settings=SessionSettings(limit=2))
    asyncio.run(talk(session, "What is 1 + 2?"))
    assert len(asyncio.run(session.get_items())) == 2


def test_a_session_of_somebody_else_is_not_read(store: Store) -> None:
    asyncio.run(talk(RekindleSession("plan", store, owner="ada"), "What is 1 + 2?"))
    stranger = RekindleSession("plan", store, owner="eve")
    assert asyncio.run(stranger.get_items()) == []
    assert asyncio.run(stranger.pop_item()) is None
    asyncio.run(stranger.clear_session())
    assert len(store.messages("plan")) == 5


def test_many_sessions_of_a_store_share_its_threads(store: Store) -> None:
    before = {*threading.enumerate()}

    async def talk() -> int:
        sessions = [RekindleSession(str(number), store) for number in range(40)]
        for session in sessions:
            await session.add_items([{"role": "user", "content": "hello"}])
            assert len(await session.get_items()) == 1
        return len({*threading.enumerate()} - before)

    assert asyncio.run(talk()) < 30
