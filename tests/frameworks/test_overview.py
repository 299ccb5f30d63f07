"""What every framework gets: search, forks, undo, verdicts, notes at the start, experiments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from rekindle import Message, Store, iter_judged_sessions, learn_from_sessions, wrap
from rekindle.experiments.experiment import ArmShare, Experiment
from rekindle.integrations.adk import RekindleSessionService
from rekindle.integrations.agno import RekindleDb
from rekindle.integrations.notes import load_notes
from rekindle.integrations.openai_agents import RekindleSession
from rekindle.integrations.pydantic_ai import RekindleHistory
from rekindle.integrations.strands import RekindleSessionManager
from rekindle.learning.notes.decisions import add_note
from rekindle.learning.notes.playbooks import find_project

from . import test_adk, test_agno, test_langgraph, test_openai_agents, test_strands, test_wrap

WEATHER, PACK = "How is the weather?", "What should I pack?"


def write_with_openai_agents(store: Store) -> str:
    session = RekindleSession("trip", store)
    asyncio.run(test_openai_agents.talk(session, "What is 1 + 2?", "Again?"))
    return "trip"


def write_with_langgraph(store: Store) -> str:
    graph = test_langgraph.build_graph(store)
    for text in (WEATHER, PACK):
        test_langgraph.say(graph, text)
    return "talk"


def write_with_pydantic_ai(store: Store) -> str:
    agent = Agent(TestModel())

    def look(x: int) -> dict[str, int]:
        return {"x": x}

    agent.tool_plain(look)

    async def talk() -> None:
        history = RekindleHistory("trip", store)
        for question in (WEATHER, PACK):
            result = await agent.run(question, message_history=await history.load())
            await history.add(result.new_messages())

    asyncio.run(talk())
    return "trip"


def write_with_adk(store: Store) -> str:
    async def talk() -> None:
        service = RekindleSessionService(store)
        await service.create_session(**test_adk.TRIP)
        await test_adk.ask(service, WEATHER, PACK)

    asyncio.run(talk())
    return "trip"


def write_with_agno(store: Store) -> str:
    test_agno.ask(RekindleDb(store), WEATHER, PACK)
    return "trip"


def write_with_strands(store: Store) -> str:
    test_strands.ask(RekindleSessionManager("trip", store), WEATHER, PACK)
    return "trip"


def write_with_client(store: Store) -> str:
    client = wrap(test_wrap.make_client(), store, session="trip")

    def create(messages: list[object]) -> object:
        done = client.chat.completions.create(model="m", messages=messages)  # pyright: ignore
        return done.choices[0].message

    test_wrap.talk(create)
    return "trip"


WRITERS = [
    write_with_openai_agents,
    write_with_langgraph,
    write_with_pydantic_ai,
    write_with_adk,
    write_with_agno,
    write_with_strands,
    write_with_client,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__[11:])
def test_a_session_of_any_framework_is_like_any_other(
    store: Store, write: Callable[[Store], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    id = write(store)
    messages = store.messages(id)
    requests = [one for one in messages if one.role == "user"]
    last = requests[-1].text.split()[-1].strip("?")
    assert {hit.session.id for hit in store.search(last)} == {id}

    fork = store.fork(id, at=messages[1].position)
    assert [one.text for one in store.messages(fork)] == [one.text for one in messages[:2]]
    store.undo(id)
    assert len(store.messages(id)) == messages.index(requests[-1])
    store.redo(id)
    assert store.messages(id) == messages

    judged = {one.session.id: one for one in iter_judged_sessions(store)}
    calls = [call for one in messages for call in one.tool_calls]
    assert len(judged[id].calls) == len(calls)
    assert store.session(id).cwd == str(folder)
    assert store.verify() == []


def test_notes_reach_a_session_once_and_experiments_decide(store: Store, tmp_path: Path) -> None:
    folder = str(tmp_path)
    for number in range(3):
        session = store.begin(id=f"earlier {number}", cwd=folder)
        store.append(session, Message("user", "Which unit?"), Message("assistant", "Metres."))
    learn_from_sessions(store)
    project = find_project(store, folder)
    assert project is not None
    assert load_notes(store, "before", "How far is Rome?", folder=folder) == ""
    add_note(store, project, "Always answer in metric units.", time.time())
    told = load_notes(store, "trip", "How far is Rome?", folder=folder)
    assert "metric units" in told
    assert load_notes(store, "before", "How far is Rome?", folder=folder) == ""  # as it began
    shares = (ArmShare("warm", 0.5), ArmShare("cold", 0.5))
    store.experiments.start(Experiment("trial", shares, "seed", time.time()))
    texts = {
        f"s{n}": load_notes(store, f"s{n}", "How far is Rome?", folder=folder) for n in range(20)
    }
    assert load_notes(store, "trip", "And now?", folder=folder) == told
    arms = {one.session: one.arm for one in store.experiments.list_assignments("trial")}
    assert arms.keys() == texts.keys()
    assert {arm: bool(texts[id]) for id, arm in arms.items()} == {"warm": True, "cold": False}
