"""The turn, with the real client, a scripted model and a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Session, Store
from rekindle.agent.compaction import compress_session
from rekindle.agent.model.client import Endpoint, Model, RetryPolicy, TextDelta
from rekindle.agent.model.normalize import normalize_messages
from rekindle.agent.model.providers import find_violations
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult, build_schema
from rekindle.agent.turn import (
    NOT_RUN,
    Advisor,
    Compacted,
    ToolCalled,
    ToolReturned,
    TurnContext,
    TurnEnded,
    TurnEvent,
    TurnLimits,
    run_turn,
)
from rekindle.judging.judge import judge_call
from rekindle.knowledge.notes.records import ADVICE_MARK
from rekindle.store.store_executor import StoreExecutor
from rekindle.testing import ScriptedModel
from rekindle.types import Price, Tokens, ToolCall, Usage
from tests.new_store import open_new_store

USAGE = {"prompt_tokens": 100, "completion_tokens": 10}


def weather(context: ToolContext, given: Any) -> str:
    if given["city"] == "Atlantis":
        raise RuntimeError("the sea took it")
    return f"Sunny in {given['city']}"


async def slow(context: ToolContext, given: Any) -> str:
    await asyncio.sleep(60)
    return "never"


TOOLS = ToolRegistry(
    [
        Tool("weather", "test", "Tells.", build_schema("city", city={"type": "string"}), weather),
        Tool("slow", "test", "Takes its time.", build_schema(), slow),
    ]
).select()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments, "id": f"call_{name}"}]}


class Stage:
    """A store with one user message, and a model that follows a script."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.session: Session = store.begin(owner="ada")
        self.folder = folder
        store.append(self.session, Message("user", "weather please"))

    def run(self, *steps: dict[str, Any], **changes: Any) -> list[TurnEvent]:
        script = {"turns": [{"user": changes.pop("words", "weather"), "steps": list(steps)}]}
        with ScriptedModel(script) as server:
            self.server = server
            return asyncio.run(self._run(server, changes))

    async def _run(self, server: ScriptedModel, changes: dict[str, Any]) -> list[TurnEvent]:
        desk = StoreExecutor(self.store)
        patience = RetryPolicy(max_attempts=2, first_delay=0.01)
        name = changes.pop("model", "scripted")
        async with Model(Endpoint(server.url, name), retry_policy=patience) as model:
            context = ToolContext(self.session.id, self.folder)
            until: Callable[[TurnEvent], bool] = changes.pop("until", lambda _: False)
            if changes.pop("shrinks", False):
                changes["compress"] = lambda old, said, space: compress_session(
                    desk, model, old, said, space, on_request=False
                )
            setting = TurnContext(model, TOOLS, context, **changes)
            seen: list[TurnEvent] = []
            async with aclosing(run_turn(desk, self.session, setting)) as happenings:
                async for happening in happenings:
                    seen.append(happening)
                    if until(happening):
                        break
        desk.close()
        return seen

    def said(self) -> list[tuple[str, str]]:
        return [(m.role, m.text) for m in self.store.messages(self.session)]


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with open_new_store(tmp_path / "sessions.db") as store:
        yield Stage(store, tmp_path)


def last(happenings: list[TurnEvent]) -> TurnEnded:
    assert isinstance(happenings[-1], TurnEnded)
    return happenings[-1]


def test_an_answer_is_streamed_and_handed_out_but_not_stored(stage: Stage) -> None:
    seen = stage.run({"text": "It is sunny.", "usage": USAGE})
    assert "".join(e.text for e in seen if isinstance(e, TextDelta)) == "It is sunny."
    assert (last(seen).message.text, last(seen).reason) == ("It is sunny.", None)
    assert stage.said() == [("user", "weather please")]
    assert last(seen).tokens == stage.store.session(stage.session.id).tokens == Tokens(100, 10)


def test_calls_and_results_are_stored_as_they_exist(stage: Stage) -> None:
    seen = stage.run(call("weather", city="Rome"), {"text": "Sunny."})
    assert [type(e).__name__ for e in seen if isinstance(e, (ToolCalled, ToolReturned))] == [
        "ToolCalled",
        "ToolReturned",
    ]
    assert stage.said()[1:] == [("assistant", ""), ("tool", "Sunny in Rome")]
    assert stage.store.messages(stage.session)[2].name == "weather"
    assert last(seen).message.text == "Sunny."


def test_a_tool_that_fails_or_is_not_there_is_a_result(stage: Stage) -> None:
    stage.run(call("weather", city="Atlantis"), call("wether", city="Rome"), {"text": "Sorry."})
    results = [m for m in stage.store.messages(stage.session) if m.role == "tool"]
    assert all((m.meta or {})["is_error"] is True for m in results)
    assert "the sea took it" in results[0].text
    assert "weather" in results[1].text, "the near name is told"


def test_advice_stands_behind_the_result_that_it_is_about(stage: Stage) -> None:
    def advise(call: ToolCall, result: ToolResult) -> str:
        return "Try Rome." if result.is_error else ""

    stage.run(
        call("weather", city="Atlantis"),
        call("weather", city="Rome"),
        {"text": "Sunny."},
        advisor=Advisor(after_call=advise),
    )
    failed, worked = [m.text for m in stage.store.messages(stage.session) if m.role == "tool"]
    assert failed.endswith(f"\n\n{ADVICE_MARK} Try Rome.")
    assert worked == "Sunny in Rome"
    assert any("Try Rome." in str(request) for request in stage.server.requests)


def test_a_call_that_is_known_to_fail_is_stopped_once(stage: Stage) -> None:
    def advise(call: ToolCall) -> str:
        return "Try Rome." if "Atlantis" in str(call.arguments) else ""

    stage.run(
        call("weather", city="Atlantis"),
        call("weather", city="Atlantis"),
        call("weather", city="Rome"),
        {"text": "Sunny."},
        advisor=Advisor(before_call=advise),
    )
    results = [m for m in stage.store.messages(stage.session) if m.role == "tool"]
    assert results[0].text == f"{NOT_RUN}\n\n{ADVICE_MARK} Try Rome."
    assert "the sea took it" in results[1].text, "the second time it runs"
    assert results[2].text == "Sunny in Rome"
    assert judge_call(ToolCall("1", "weather", {}), results[0]).outcome == "refused"


def test_endless_calls_end_at_the_limit_of_steps(stage: Stage) -> None:
    step = {**call("weather", city="Rome"), "endless": True}
    ended = last(stage.run(step, limits=TurnLimits(iterations=4)))
    assert ended.reason == "it took 4 steps without an answer"
    assert "go on" in ended.message.text
    assert sum(role == "tool" for role, _ in stage.said()) == 4


def test_tokens_and_cost_have_limits(stage: Stage) -> None:
    step = {**call("weather", city="Rome"), "endless": True, "usage": USAGE}
    ended = last(stage.run(step, limits=TurnLimits(tokens=300)))
    assert ended.reason == "it took 330 tokens, the limit is 300"
    price = Price(input=Decimal(1_000), output=Decimal(1_000))
    ended = last(stage.run(step, limits=TurnLimits(cost=Decimal("0.2")), price=price))
    assert ended.reason == "it cost 0.22, the limit is 0.2"
    assert "I stopped: it cost 0.22" in ended.message.text


def test_each_model_is_counted_for_what_it_took_and_cost(stage: Stage) -> None:
    price = Price(Decimal(2), Decimal(10), Decimal("0.2"), Decimal("2.5"))
    told = {"cached_tokens": 60, "cache_write_tokens": 30}
    usage = {**USAGE, "prompt_tokens_details": told}
    ended = last(stage.run({"text": "Sunny.", "usage": usage}, price=price))
    taken = Usage(Tokens(10, 10, 60, 30), Decimal("0.000207"))
    assert ended.usage == {"scripted": taken}
    stage.run({"text": "Sunny.", "usage": USAGE}, model="other")
    session = stage.store.session(stage.session.id)
    assert (session.tokens, session.cost) == (Tokens(110, 20, 60, 30), Decimal("0.000207"))
    assert stage.store.usage(session) == {"scripted": taken, "other": Usage(Tokens(100, 10))}


def test_an_empty_answer_is_asked_for_once_more_and_then_said(stage: Stage) -> None:
    ended = last(stage.run({"text": "", "endless": True}))
    assert ended.reason == "the model answered with nothing"
    assert len(stage.server.requests) == 2


def test_a_model_that_fails_is_told_to_the_user(stage: Stage) -> None:
    ended = last(stage.run({"text": "x", "faults": [{"status": 500, "always": True}]}))
    assert "HTTP 500" in (ended.reason or "")
    assert "Your message is saved" in ended.message.text
    assert stage.said() == [("user", "weather please")]


def test_a_turn_that_is_stopped_in_a_tool_leaves_a_valid_history(stage: Stage) -> None:
    seen = stage.run(call("slow"), until=lambda happening: isinstance(happening, ToolCalled))
    assert isinstance(seen[-1], ToolCalled)
    history = stage.store.messages(stage.session)
    assert [m.role for m in history] == ["user", "assistant"]
    assert find_violations("openai", history) != []
    assert find_violations("openai", normalize_messages(history)) == []


def test_what_is_said_meanwhile_joins_the_turn(stage: Stage) -> None:
    async def steering() -> list[Message]:
        extra = Message("user", "and in weather Paris")
        stage.store.append(stage.session, extra)
        return [extra]

    stage.run(call("weather", city="Rome"), {"text": "Both sunny."}, steering=steering)
    assert ("user", "and in weather Paris") in stage.said()
    assert stage.server.requests[-1].messages[-1].text == "and in weather Paris"


def test_a_conversation_that_is_too_long_goes_on_in_a_child(stage: Stage) -> None:
    for number in range(30):
        stage.store.append(
            stage.session,
            Message("assistant", f"answer {number}"),
            Message("user", f"weather again {number}"),
        )
    before = stage.said()
    full = {**call("weather", city="Rome"), "usage": {"prompt_tokens": 900}}
    limits = TurnLimits(context=1000)
    seen = stage.run(full, {"text": "Short."}, words="again 29", shrinks=True, limits=limits)
    (shrunk,) = [e for e in seen if isinstance(e, Compacted)]
    assert last(seen).session.id == shrunk.session.id != stage.session.id
    assert stage.said()[: len(before)] == before, "nothing of the parent is lost"
    parent = stage.store.session(stage.session.id)
    assert (parent.end_reason, shrunk.session.parent) == ("compression", parent.id)
    assert len(shrunk.messages) < 40
    assert any("[Summary" in message.text for message in shrunk.messages)
    assert [message.role for message in shrunk.messages[-2:]] == ["assistant", "tool"]
    assert shrunk.tokens.total > 0, "the summary is counted too"
    child = stage.store.session(shrunk.session.id)
    assert last(seen).tokens == parent.tokens.add(child.tokens)


def test_a_conversation_that_cannot_be_shortened_any_more_is_told(stage: Stage) -> None:
    fault = {"status": 400, "code": "context_length_exceeded", "always": True}
    ended = last(stage.run({"text": "x", "faults": [fault]}, shrinks=True))
    assert "too long" in (ended.reason or "")
    assert stage.store.session(stage.session.id).ended is None


def test_a_summary_that_fails_changes_nothing(stage: Stage) -> None:
    for number in range(30):
        stage.store.append(stage.session, Message("user", f"weather {number}"))
    before = stage.said()
    fault = {"status": 400, "code": "context_length_exceeded", "always": True}
    ended = last(stage.run({"text": "x", "faults": [fault]}, shrinks=True))
    assert "too long" in (ended.reason or "")
    assert stage.said() == before
    assert stage.store.session(stage.session.id).ended is None
