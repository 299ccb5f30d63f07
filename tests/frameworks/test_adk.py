"""The session service for Google's ADK: the same sessions as in its own services, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import Agent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from rekindle import Message, Store, ToolCall, open_store
from rekindle.integrations.adk import RekindleSessionService

from .crash import run_until_killed

ADA: Any = {"app_name": "trips", "user_id": "ada"}
TRIP: Any = {**ADA, "session_id": "trip"}


class ScriptedLlm(BaseLlm):
    """Asks for the weather if it is asked, and says how many contents it was given."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        contents = llm_request.contents
        part = contents[-1].parts[-1]
        made = types.Part(text=f"{len(contents)} contents")
        if part.function_response is None and "weather" in (part.text or ""):
            call = types.FunctionCall(name="find_weather", args={"town": "Turin"})
            made = types.Part(function_call=call)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=10, cached_content_token_count=4, candidates_token_count=5
        )
        yield LlmResponse(content=types.Content(role="model", parts=[made]), usage_metadata=usage)


def find_weather(town: str) -> dict[str, str]:
    """Tell the weather of a town."""
    return {"weather": f"Sunny in {town}"}


async def ask(service: Any, *questions: str) -> str:
    agent = Agent(
        name="guide",
        model=ScriptedLlm(model="scripted"),
        tools=[find_weather],
        output_key="answer",
    )
    runner = Runner(app_name="trips", agent=agent, session_service=service)
    answer = ""
    for question in questions:
        content = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in runner.run_async(user_id="ada", session_id="trip", new_message=content):
            if event.content and event.content.parts and event.content.parts[0].text:
                answer = event.content.parts[0].text
    return answer


def make_event(text: str = "hi", delta: dict[str, Any] | None = None, **fields: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(
        author="user", content=content, actions=EventActions(state_delta=delta or {}), **fields
    )


def check(store: Store, behaviour: Callable[[Any], Awaitable[Any]]) -> None:
    """Expect the same from ADK's own service in memory and from ours."""

    async def run() -> None:
        theirs = await behaviour(InMemorySessionService())
        assert await behaviour(RekindleSessionService(store)) == theirs

    asyncio.run(run())


def test_a_run_goes_on_in_another_process_and_can_be_searched(store: Store) -> None:
    async def talk() -> None:
        await RekindleSessionService(store).create_session(**TRIP)
        assert await ask(RekindleSessionService(store), "How is the weather?") == "3 contents"
        assert await ask(RekindleSessionService(store), "What should I pack?") == "5 contents"

    asyncio.run(talk())
    session = store.session("trip", owner="ada")
    assert (session.source, session.tokens.input, session.tokens.output) == ("google-adk", 18, 15)
    messages = store.messages("trip")
    assert [one.role for one in messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [call.name for one in messages for call in one.tool_calls] == ["find_weather"]
    assert [hit.session.id for hit in store.search("sunny")] == ["trip"]


def test_events_come_back_as_they_were(store: Store) -> None:
    parts = [
        types.Part(text="hm", thought=True, thought_signature=b"\x00\xff"),
        types.Part(text="Let me see."),
        types.Part(function_call=types.FunctionCall(id="c1", name="look", args={"x": [1, None]})),
        types.Part(function_call=types.FunctionCall(id="c2", name="look", args={})),
        types.Part(inline_data=types.Blob(data=b"\x89PNG", mime_type="image/png")),
    ]
    results = [
        types.Part(
            function_response=types.FunctionResponse(id="c1", name="look", response={"a": "ä"})
        ),
        types.Part(
            function_response=types.FunctionResponse(id="c2", name="look", response={"error": "no"})
        ),
    ]
    events = [
        make_event("What is this?", invocation_id="i1"),
        Event(author="guide", content=types.Content(role="model", parts=parts), branch="a.b"),
        Event(author="guide", content=types.Content(role="user", parts=results)),
        Event(author="guide", actions=EventActions(escalate=True), error_code="E"),
        Event(author="guide", content=types.Content(role="model", parts=[])),
        make_event("\ud83d and \x00"),
    ]

    async def run() -> list[Event]:
        service = RekindleSessionService(store)
        session = await service.create_session(**TRIP)
        for event in events:
            await service.append_event(session, event)
        found = await RekindleSessionService(store).get_session(**TRIP)
        assert found is not None
        return found.events

    found = asyncio.run(run())
    assert [one.model_dump(mode="json") for one in found[:-1]] == [
        one.model_dump(mode="json") for one in events[:-1]
    ]
    assert [one.role for one in store.messages("trip")].count("tool") == 2
    assert [bool((one.meta or {}).get("is_error")) for one in store.messages("trip")].count(
        True
    ) == 1


def test_state_has_the_scopes_of_the_framework(store: Store) -> None:
    async def change(service: Any) -> list[Any]:
        session = await service.create_session(
            **TRIP, state={"a": 1, "user:lang": "it", "app:theme": "dark", "temp:x": 1}
        )
        other = await service.create_session(**{**TRIP, "session_id": "other"})
        stranger = await service.create_session(app_name="trips", user_id="eve", session_id="trip")
        delta = {"a": 2, "b": {"c": [1]}, "user:lang": "fr", "app:theme": "light", "temp:y": 2}
        await service.append_event(session, make_event(delta=delta, timestamp=1e9))
        await service.append_event(session, make_event(partial=True))
        seen = [session.state]
        for place in (TRIP, {**TRIP, "session_id": "other"}, {**TRIP, "user_id": "eve"}):
            found = await service.get_session(**place)
            seen += [found.state, len(found.events)]
        listed = (await service.list_sessions(app_name="trips")).sessions
        seen += [sorted((one.user_id, one.id) for one in listed)]
        seen += [[one.id for one in (await service.list_sessions(**ADA)).sessions].count("trip")]
        seen += [await service.get_user_state(**ADA)]
        return [*seen, other.id, stranger.id]

    check(store, change)


def test_a_part_of_the_events_can_be_asked_for(store: Store) -> None:
    async def read(service: Any) -> list[Any]:
        session = await service.create_session(**TRIP)
        for number in range(12):
            await service.append_event(session, make_event(str(number), timestamp=1e9 + number))
        seen: list[Any] = []
        for config in (
            GetSessionConfig(num_recent_events=3),
            GetSessionConfig(num_recent_events=0),
            GetSessionConfig(num_recent_events=100),
            GetSessionConfig(after_timestamp=1e9 + 9),
            GetSessionConfig(after_timestamp=1e9 + 3, num_recent_events=2),
        ):
            found = await service.get_session(**TRIP, config=config)
            seen.append([one.content.parts[0].text for one in found.events])
        return seen

    check(store, read)


def test_ids_are_kept_apart_and_deleted_sessions_are_gone(store: Store) -> None:
    async def run() -> None:
        service = RekindleSessionService(store)
        session = await service.create_session(**TRIP, state={"a": 1})
        stranger = await service.create_session(app_name="trips", user_id="eve", session_id="trip")
        for one, text in ((session, "secret"), (stranger, "other")):
            await service.append_event(one, make_event(text))
        found = await service.get_session(app_name="trips", user_id="eve", session_id="trip")
        assert found is not None
        assert [event.content.parts[0].text for event in found.events] == ["other"]  # pyright: ignore
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**TRIP)
        await service.delete_session(**TRIP)
        await service.delete_session(**TRIP)
        assert await service.get_session(**TRIP) is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, make_event())
        assert store.search("secret") == []
        again = await service.create_session(**TRIP)
        assert (again.state, again.events) == ({}, [])
        await service.append_event(again, make_event("new"))

    asyncio.run(run())
    assert len(store.restore("trip")) == 1


def test_undo_and_messages_of_other_programs_reach_the_agent(store: Store) -> None:
    async def run() -> None:
        service = RekindleSessionService(store)
        await service.create_session(**TRIP)
        await ask(service, "How is the weather?", "What should I pack?")
        store.undo("trip")
        call = ToolCall("c", "look", '{"x": 1}')
        store.append(
            "trip",
            Message("user", "By hand"),
            Message("assistant", "Let me see.", [call]),
            Message("tool", "a cat", tool_call_id="c", name="look"),
        )
        assert await ask(service, "And now?") == "8 contents"

    asyncio.run(run())


def test_events_of_two_writers_are_all_kept(store: Store) -> None:
    async def run() -> None:
        services = [RekindleSessionService(store) for _ in range(2)]
        await services[0].create_session(**TRIP)
        sessions = [await one.get_session(**TRIP) for one in services]
        await asyncio.gather(
            *(
                service.append_event(session, make_event(f"{n}", {f"key{n}": n}))  # pyright: ignore
                for n in range(10)
                for service, session in zip(services, sessions, strict=True)
            )
        )
        found = await services[0].get_session(**TRIP)
        assert found is not None
        assert len(found.events) == 20
        assert found.state == {f"key{n}": n for n in range(10)}

    asyncio.run(run())


def test_what_a_killed_process_stored_is_there(tmp_path: Path) -> None:
    run_until_killed(
        """
        import asyncio
        from rekindle import open_store
        from rekindle.integrations.adk import RekindleSessionService
        from tests.frameworks.test_adk import TRIP, ask

        async def talk():
            service = RekindleSessionService(open_store("s.db"))
            await service.create_session(**TRIP)
            await ask(service, "How is the weather?")
            die()

        asyncio.run(talk())
        """,
        tmp_path,
    )
    with open_store(tmp_path / "s.db") as store:
        service = RekindleSessionService(store)
        found = asyncio.run(service.get_session(**TRIP))
        assert found is not None
        assert found.state == {"answer": "3 contents"}
        assert asyncio.run(ask(RekindleSessionService(store), "More?")) == "5 contents"
