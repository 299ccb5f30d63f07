"""The turns that `python -m bench integrations` times, in an environment that has the frameworks.

    python -m bench.contestants.integration_turns FRAMEWORK FOLDER ROUNDS TURNS

Prints JSON: for each round, the seconds and CPU seconds of every backend, which take turns. A session
grows by a turn at a time, and each turn does what the framework does with its backend in one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rekindle import open_store
from rekindle.store.async_store import AsyncStore

QUESTION = "Where is the parser, and why does it fail on empty input? " * 4
RESULT = "src/parser.py:41: def parse(text):\n    if not text:\n        raise ValueError\n" * 12
ANSWER = (
    "It is in src/parser.py. It raises ValueError for an empty text, because nobody checks. " * 5
)
FULL, RELAXED = "rekindle", "rekindle, relaxed"

Turn = Callable[[str, int], None]  # of a session, by number


def make_openai_agents(folder: Path) -> dict[str, Turn]:
    from agents import SQLiteSession

    from rekindle.integrations.openai_agents import RekindleSession

    def build(make: Callable[[str], Any]) -> Turn:
        sessions: dict[str, Any] = {}

        async def run(id: str, number: int) -> None:
            session = sessions.get(id) or sessions.setdefault(id, make(id))
            await session.get_items()
            await session.add_items([{"role": "user", "content": QUESTION}])
            call = {"type": "function_call", "call_id": f"c{number}", "name": "grep"}
            output = {"type": "function_call_output", "call_id": f"c{number}", "output": RESULT}
            text = {"type": "output_text", "text": ANSWER, "annotations": []}
            answer = {"type": "message", "role": "assistant", "content": [text], "id": f"m{number}"}
            await session.add_items([{**call, "arguments": '{"pattern": "parse"}'}, output, answer])

        return run_async(run)

    backends = {"SQLiteSession": build(lambda id: SQLiteSession(id, folder / "theirs.db"))}
    for name, store in open_stores(folder).items():
        backends[name] = build(lambda id, store=store: RekindleSession(id, store))
    return backends


def make_langgraph(folder: Path) -> dict[str, Turn]:
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    from rekindle.integrations.langgraph import RekindleCheckpointer

    connection = sqlite3.connect(folder / "theirs.db", check_same_thread=False)
    backends = {"SqliteSaver": build_graph(SqliteSaver(connection))}
    for name, store in open_stores(folder).items():
        backends[name] = build_graph(RekindleCheckpointer(store))
        if name == FULL:
            plain = RekindleCheckpointer(store, sessions=False)
            backends["rekindle, sessions=False"] = build_graph(plain)
    return backends


def make_langgraph_async(folder: Path) -> dict[str, Turn]:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from rekindle.integrations.langgraph import RekindleCheckpointer

    connection = LOOP.run_until_complete(connect_aiosqlite(aiosqlite, folder / "theirs.db"))

    async def make() -> Any:
        return AsyncSqliteSaver(connection)

    saver = LOOP.run_until_complete(make())
    backends = {"AsyncSqliteSaver": build_graph(saver, is_async=True)}
    for name, store in open_stores(folder).items():
        backends[name] = build_graph(RekindleCheckpointer(store), is_async=True)
    return backends


async def connect_aiosqlite(aiosqlite: Any, path: Path) -> Any:
    return await aiosqlite.connect(path)


def build_graph(checkpointer: Any, is_async: bool = False) -> Turn:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph

    def call(state: Any) -> Any:
        made = {"id": f"c{len(state['messages'])}", "name": "grep", "args": {"pattern": "parse"}}
        return {"messages": [AIMessage("", tool_calls=[made])]}

    def use(state: Any) -> Any:
        id = state["messages"][-1].tool_calls[0]["id"]
        return {"messages": [ToolMessage(RESULT, tool_call_id=id)]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("call", call)
    graph.add_node("use", use)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(ANSWER)]})
    for start, end in ((START, "call"), ("call", "use"), ("use", "answer")):
        graph.add_edge(start, end)
    app = graph.compile(checkpointer=checkpointer)

    async def run(id: str, number: int) -> None:
        config = {"configurable": {"thread_id": id}}
        await app.ainvoke({"messages": [HumanMessage(QUESTION)]}, config)

    def invoke(id: str, number: int) -> None:
        config = {"configurable": {"thread_id": id}}
        app.invoke({"messages": [HumanMessage(QUESTION)]}, config)

    return run_async(run) if is_async else invoke


def make_adk(folder: Path) -> dict[str, Turn]:
    from google.adk.events import Event
    from google.adk.sessions import DatabaseSessionService
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

    from rekindle.integrations.adk import RekindleSessionService

    def make_event(author: str, number: int, **part: Any) -> Any:
        role = "user" if author == "user" else "model"
        content = types.Content(role=role, parts=[types.Part(**part)])
        return Event(author=author, content=content, invocation_id=str(number))

    def build(service: Any) -> Turn:
        async def run(id: str, number: int) -> None:
            place = {"app_name": "bench", "user_id": "ada", "session_id": id}
            session = await service.get_session(**place)
            if session is None:
                session = await service.create_session(**place)
            call = types.FunctionCall(id=f"c{number}", name="grep", args={"pattern": "parse"})
            result = types.FunctionResponse(id=call.id, name="grep", response={"result": RESULT})
            for event in (
                make_event("user", number, text=QUESTION),
                make_event("guide", number, function_call=call),
                make_event("guide", number, function_response=result),
                make_event("guide", number, text=ANSWER),
            ):
                await service.append_event(session, event)

        return run_async(run)

    backends = {
        "DatabaseSessionService": build(
            DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'theirs.db'}")
        ),
        "SqliteSessionService": build(SqliteSessionService(str(folder / "other.db"))),
    }
    for name, store in open_stores(folder).items():
        backends[name] = build(RekindleSessionService(store))
    return backends


def make_agno(folder: Path) -> dict[str, Turn]:
    from agno.db.base import SessionType
    from agno.db.sqlite import SqliteDb
    from agno.models.message import Message
    from agno.run.agent import RunOutput
    from agno.run.base import RunStatus
    from agno.session import AgentSession

    from rekindle.integrations.agno import RekindleDb

    def make_run(id: str, number: int) -> Any:
        function = {"name": "grep", "arguments": '{"pattern": "parse"}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages = [
            Message(role="user", content=QUESTION),
            Message(role="assistant", tool_calls=[call]),
            Message(role="tool", content=RESULT, tool_call_id=call["id"], tool_name="grep"),
            Message(role="assistant", content=ANSWER),
        ]
        return RunOutput(
            run_id=f"{id}-{number}",
            session_id=id,
            agent_id="guide",
            content=ANSWER,
            messages=messages,
            status=RunStatus.completed,
        )

    def build(db: Any) -> Turn:
        def run(id: str, number: int) -> None:
            session = db.get_session(id, SessionType.AGENT)
            if session is None:
                session = AgentSession(session_id=id, agent_id="guide", session_data={}, runs=[])
                db.upsert_session(session)
            db.upsert_run(make_run(id, number), id, run_index=number)
            db.upsert_session(session)

        return run

    backends = {"SqliteDb": build(SqliteDb(db_file=str(folder / "theirs.db")))}
    for name, store in open_stores(folder).items():
        backends[name] = build(RekindleDb(store))
    return backends


def make_strands(folder: Path) -> dict[str, Turn]:
    from strands.session.file_session_manager import FileSessionManager
    from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

    from rekindle.integrations.strands import RekindleSessionRepository

    def build(repository: Any) -> Turn:
        def run(id: str, number: int) -> None:
            if number == 0:
                repository.create_session(Session(id, SessionType.AGENT))
                repository.create_agent(id, SessionAgent("default", {}, {}))
            use = {"toolUseId": f"c{number}", "name": "grep", "input": {"pattern": "parse"}}
            content = [{"text": RESULT}]
            result = {"toolUseId": f"c{number}", "status": "success", "content": content}
            for index, (role, block) in enumerate(
                (
                    ("user", {"text": QUESTION}),
                    ("assistant", {"toolUse": use}),
                    ("user", {"toolResult": result}),
                    ("assistant", {"text": ANSWER}),
                )
            ):
                message: Any = {"role": role, "content": [block]}
                made = SessionMessage.from_message(message, number * 4 + index)
                repository.create_message(id, "default", made)
            repository.update_agent(id, SessionAgent("default", {"turns": number}, {}))

        return run

    files = FileSessionManager("unused", storage_dir=str(folder / "files"))
    backends = {"FileSessionManager": build(files)}
    for name, store in open_stores(folder).items():
        backends[name] = build(RekindleSessionRepository(store))
    return backends


FRAMEWORKS: dict[str, Callable[[Path], dict[str, Turn]]] = {
    "openai-agents": make_openai_agents,
    "langgraph": make_langgraph,
    "langgraph-async": make_langgraph_async,
    "google-adk": make_adk,
    "agno": make_agno,
    "strands": make_strands,
}
LOOP = asyncio.new_event_loop()


def open_stores(folder: Path) -> dict[str, AsyncStore]:
    return {
        FULL: AsyncStore(open_store(folder / "full.db")),
        RELAXED: AsyncStore(open_store(folder / "relaxed.db", durability="relaxed")),
    }


def run_async(turn: Callable[[str, int], Any]) -> Turn:
    return lambda id, number: LOOP.run_until_complete(turn(id, number))


def measure(framework: str, folder: Path, rounds: int, turns: int) -> list[dict[str, Any]]:
    """Return the seconds and CPU seconds per turn of every backend, by round."""
    backends = FRAMEWORKS[framework](folder)
    taken: list[dict[str, Any]] = []
    for number in range(rounds + 1):
        names = list(backends)
        shift = number % len(names)  # none is always the first
        figures: dict[str, Any] = {}
        for name in names[shift:] + names[:shift]:
            wall, cpu = time.perf_counter(), time.process_time()
            for turn in range(turns):
                backends[name](f"session-{number}", turn)
            figures[name] = {
                "wall": (time.perf_counter() - wall) / turns,
                "cpu": (time.process_time() - cpu) / turns,
            }
        if number:  # the first one warms up
            taken.append(figures)
    return taken


if __name__ == "__main__":
    chosen, place, rounds, turns = sys.argv[1:]
    print(json.dumps(measure(chosen, Path(place), int(rounds), int(turns))), flush=True)
    import os

    os._exit(0)  # threads of the backends would wait for their connections
