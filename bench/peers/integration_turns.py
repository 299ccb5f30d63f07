"""The turns that `python -m bench integrations` times, in an environment that has the frameworks.

    python -m bench.peers.integration_turns FRAMEWORK FOLDER ROUNDS TURNS WARM

Prints JSON: for each round, the seconds and CPU seconds per turn of every backend. A session grows by a
turn at a time, and each turn does what the framework does with its backend in one. The backends take
turns with each other after every turn, and each has a folder of its own, in the order of the figures.

Up to WARM rounds before do not count: they end when no write-ahead log grows any more. A flush of a log
that grows also writes the size of the file, and the logs of the backends are of different sizes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from bench.peers.integration_names import FILES, FLUSHED_FILES, FULL, JSON_TABLE, PLAIN, RELAXED
from rekindle import open_store
from rekindle.files import sync_path
from rekindle.store import Store

QUESTION = "Where is the parser, and why does it fail on empty input? " * 4
RESULT = "src/parser.py:41: def parse(text):\n    if not text:\n        raise ValueError\n" * 12
ANSWER = (
    "It is in src/parser.py. It raises ValueError for an empty text, because nobody checks. " * 5
)
GIVEN, SAID = 900, 60  # tokens of an answer: every provider reports them
NOTES_PER_TURN = 2

Turn = Callable[[str, int], None]  # of a session, by number
Folders = Iterator[Path]
LOOP = asyncio.new_event_loop()


def make_openai_agents(folders: Folders) -> dict[str, Turn]:
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

    path, store = next(folders) / "theirs.db", open_full(folders)
    return {
        "SQLiteSession": build(lambda id: SQLiteSession(id, path)),
        FULL: build(lambda id: RekindleSession(id, store)),
    }


def make_langgraph(folders: Folders) -> dict[str, Turn]:
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    from rekindle.integrations.langgraph import RekindleCheckpointer

    connection = sqlite3.connect(next(folders) / "theirs.db", check_same_thread=False)
    return {
        "SqliteSaver": build_graph(SqliteSaver(connection)),
        FULL: build_graph(RekindleCheckpointer(open_full(folders))),
        PLAIN: build_graph(RekindleCheckpointer(open_full(folders), sessions=False)),
    }


def make_langgraph_async(folders: Folders) -> dict[str, Turn]:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from rekindle.integrations.langgraph import RekindleCheckpointer

    async def make() -> Any:
        return AsyncSqliteSaver(await aiosqlite.connect(next(folders) / "theirs.db"))

    return {
        "AsyncSqliteSaver": build_graph(LOOP.run_until_complete(make()), is_async=True),
        FULL: build_graph(RekindleCheckpointer(open_full(folders)), is_async=True),
        PLAIN: build_graph(RekindleCheckpointer(open_full(folders), sessions=False), is_async=True),
    }


def build_graph(checkpointer: Any, is_async: bool = False) -> Turn:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph

    usage: Any = {"input_tokens": GIVEN, "output_tokens": SAID, "total_tokens": GIVEN + SAID}

    def call(state: Any) -> Any:
        made = {"id": f"c{len(state['messages'])}", "name": "grep", "args": {"pattern": "parse"}}
        return {"messages": [AIMessage("", tool_calls=[made], usage_metadata=usage)]}

    def use(state: Any) -> Any:
        id = state["messages"][-1].tool_calls[0]["id"]
        return {"messages": [ToolMessage(RESULT, tool_call_id=id)]}

    def answer(state: Any) -> Any:
        return {"messages": [AIMessage(ANSWER, usage_metadata=usage)]}

    graph: Any = StateGraph(MessagesState)
    for name, node in (("call", call), ("use", use), ("answer", answer)):
        graph.add_node(name, node)
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


def make_langgraph_store(folders: Folders) -> dict[str, Turn]:
    import sqlite3

    from langgraph.store.sqlite import SqliteStore

    from rekindle.integrations.langgraph import RekindleStore

    def build(store: Any) -> Turn:
        def run(id: str, number: int) -> None:
            place = ("memories", id)
            store.search(place, limit=10)
            store.get(place, "m0-0")
            for one in range(NOTES_PER_TURN):
                store.put(place, f"m{number}-{one}", {"text": ANSWER, "turn": number})

        return run

    connection = sqlite3.connect(
        next(folders) / "theirs.db", check_same_thread=False, isolation_level=None
    )
    theirs = SqliteStore(connection)
    theirs.setup()
    return {"SqliteStore": build(theirs), FULL: build(RekindleStore(open_full(folders)))}


def make_langgraph_store_async(folders: Folders) -> dict[str, Turn]:
    import aiosqlite
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    from rekindle.integrations.langgraph import RekindleStore

    def build(store: Any) -> Turn:
        async def run(id: str, number: int) -> None:
            place = ("memories", id)
            await store.asearch(place, limit=10)
            await store.aget(place, "m0-0")
            for one in range(NOTES_PER_TURN):
                await store.aput(place, f"m{number}-{one}", {"text": ANSWER, "turn": number})

        return run_async(run)

    async def make() -> Any:
        path = next(folders) / "theirs.db"
        store = AsyncSqliteStore(await aiosqlite.connect(path, isolation_level=None))
        await store.setup()
        return store

    theirs = LOOP.run_until_complete(make())
    return {"AsyncSqliteStore": build(theirs), FULL: build(RekindleStore(open_full(folders)))}


def make_adk(folders: Folders) -> dict[str, Turn]:
    from google.adk.events import Event
    from google.adk.sessions import DatabaseSessionService
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

    from rekindle.integrations.adk import RekindleSessionService

    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=GIVEN, candidates_token_count=SAID, total_token_count=GIVEN + SAID
    )

    def make_event(author: str, number: int, is_answer: bool = False, **part: Any) -> Any:
        role = "user" if author == "user" else "model"
        content = types.Content(role=role, parts=[types.Part(**part)])
        used = usage if is_answer else None
        return Event(author=author, content=content, invocation_id=str(number), usage_metadata=used)

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
                make_event("guide", number, True, function_call=call),
                make_event("guide", number, function_response=result),
                make_event("guide", number, True, text=ANSWER),
            ):
                await service.append_event(session, event)

        return run_async(run)

    theirs = DatabaseSessionService(f"sqlite+aiosqlite:///{next(folders) / 'theirs.db'}")
    return {
        "DatabaseSessionService": build(theirs),
        "SqliteSessionService": build(SqliteSessionService(str(next(folders) / "theirs.db"))),
        FULL: build(RekindleSessionService(open_full(folders))),
    }


def make_agno(folders: Folders) -> dict[str, Turn]:
    from agno.db.base import SessionType
    from agno.db.sqlite import SqliteDb
    from agno.metrics import RunMetrics
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
            metrics=RunMetrics(input_tokens=2 * GIVEN, output_tokens=2 * SAID),
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

    return {
        "SqliteDb": build(SqliteDb(db_file=str(next(folders) / "theirs.db"))),
        FULL: build(RekindleDb(open_full(folders))),
    }


def make_strands(folders: Folders) -> dict[str, Turn]:
    return build_strands(folders, is_restored=False)


def make_strands_restored(folders: Folders) -> dict[str, Turn]:
    return build_strands(folders, is_restored=True)


def build_strands(folders: Folders, is_restored: bool) -> dict[str, Turn]:
    """Return turns of an agent that goes on, or of one that is restored from its session each time."""
    from strands.session.file_session_manager import FileSessionManager
    from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

    from rekindle.integrations.strands import RekindleSessionRepository

    class FlushingFiles(FileSessionManager):
        def _write_file(self, path: str, data: dict[str, Any]) -> None:
            super()._write_file(path, data)
            sync_path(path)
            sync_path(os.path.dirname(path))

    def build(repository: Any) -> Turn:
        def run(id: str, number: int) -> None:
            if number == 0:
                repository.create_session(Session(id, SessionType.AGENT))
                repository.create_agent(id, SessionAgent("default", {}, {}))
            elif is_restored:
                repository.read_session(id)
                repository.read_agent(id, "default")
                repository.list_messages(id, "default")
            for index, message in enumerate(make_strands_messages(number)):
                made = SessionMessage.from_message(message, number * 4 + index)
                repository.create_message(id, "default", made)
            repository.update_agent(id, SessionAgent("default", {"turns": number}, {}))

        return run

    return {
        FILES: build(FileSessionManager("unused", storage_dir=str(next(folders)))),
        FLUSHED_FILES: build(FlushingFiles("unused", storage_dir=str(next(folders)))),
        FULL: build(RekindleSessionRepository(open_full(folders))),
        RELAXED: build(
            RekindleSessionRepository(
                open_store(next(folders) / "sessions.db", durability="relaxed")
            )
        ),
    }


def make_strands_messages(number: int) -> Iterator[Any]:
    use = {"toolUseId": f"c{number}", "name": "grep", "input": {"pattern": "parse"}}
    result = {"toolUseId": f"c{number}", "status": "success", "content": [{"text": RESULT}]}
    usage = {"inputTokens": GIVEN, "outputTokens": SAID, "totalTokens": GIVEN + SAID}
    for role, block in (
        ("user", {"text": QUESTION}),
        ("assistant", {"toolUse": use}),
        ("user", {"toolResult": result}),
        ("assistant", {"text": ANSWER}),
    ):
        metadata = {"metadata": {"usage": usage}} if role == "assistant" else {}
        yield {"role": role, "content": [block], **metadata}


def make_pydantic_ai(folders: Folders) -> dict[str, Turn]:
    """Return turns with a history; the framework has no backend, so a table of JSON stands for one."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.usage import RequestUsage

    from rekindle.integrations.pydantic_ai import RekindleHistory

    usage = RequestUsage(input_tokens=GIVEN, output_tokens=SAID)

    def make_messages(number: int) -> list[Any]:
        call = ToolCallPart("grep", {"pattern": "parse"}, tool_call_id=f"c{number}")
        result = ToolReturnPart("grep", RESULT, tool_call_id=f"c{number}")
        return [
            ModelRequest([UserPromptPart(QUESTION)]),
            ModelResponse([call], usage=usage, model_name="model"),
            ModelRequest([result]),
            ModelResponse([TextPart(ANSWER)], usage=usage, model_name="model"),
        ]

    def build(make: Callable[[str], Any]) -> Turn:
        histories: dict[str, Any] = {}

        async def run(id: str, number: int) -> None:
            history = histories.get(id) or histories.setdefault(id, make(id))
            await history.load()
            await history.add(make_messages(number))

        return run_async(run)

    table = JsonTable(next(folders) / "theirs.db")
    store = open_full(folders)
    return {
        JSON_TABLE: build(lambda id: JsonHistory(id, table)),
        FULL: build(lambda id: RekindleHistory(id, store)),
    }


class JsonTable:
    """New messages of each run as one row of JSON, which is how programs keep a history themselves."""

    def __init__(self, path: Path) -> None:
        import sqlite3

        self.connection = sqlite3.connect(path, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, session, messages)")
        self.connection.execute("CREATE INDEX by_session ON runs (session)")

    def load(self, session: str) -> list[bytes]:
        found = self.connection.execute(
            "SELECT messages FROM runs WHERE session = ? ORDER BY id", (session,)
        )
        return [row[0] for row in found]

    def add(self, session: str, messages: bytes) -> None:
        self.connection.execute(
            "INSERT INTO runs (session, messages) VALUES (?, ?)", (session, messages)
        )
        self.connection.commit()


class JsonHistory:
    """The history of one session in such a table."""

    def __init__(self, session: str, table: JsonTable) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        self.session, self.table, self.adapter = session, table, ModelMessagesTypeAdapter

    async def load(self) -> list[Any]:
        rows = await asyncio.to_thread(self.table.load, self.session)
        return [message for row in rows for message in self.adapter.validate_json(row)]

    async def add(self, messages: list[Any]) -> None:
        dumped = self.adapter.dump_json(messages)
        await asyncio.to_thread(self.table.add, self.session, dumped)


FRAMEWORKS: dict[str, Callable[[Folders], dict[str, Turn]]] = {
    "openai-agents": make_openai_agents,
    "langgraph": make_langgraph,
    "langgraph-async": make_langgraph_async,
    "langgraph-store": make_langgraph_store,
    "langgraph-store-async": make_langgraph_store_async,
    "google-adk": make_adk,
    "agno": make_agno,
    "pydantic-ai": make_pydantic_ai,
    "strands": make_strands,
    "strands-restored": make_strands_restored,
}


def open_full(folders: Folders) -> Store:
    return open_store(next(folders) / "sessions.db")


def run_async(turn: Callable[[str, int], Any]) -> Turn:
    return lambda id, number: LOOP.run_until_complete(turn(id, number))


def make_folders(folder: Path) -> Folders:
    for number in count():
        path = folder / f"{number:02}"
        path.mkdir()
        yield path


def measure_framework(
    framework: str, folder: Path, rounds: int, turns: int, warm: int
) -> list[dict[str, Any]]:
    """Return the seconds and CPU seconds per turn of every backend, by round."""
    backends = FRAMEWORKS[framework](make_folders(folder))
    logs = -1
    for number in range(warm):
        run_round(backends, f"warm-{number}", turns, number)
        before, logs = logs, sum(path.stat().st_size for path in folder.glob("*/*-wal"))
        if logs == before:
            break
    return [run_round(backends, f"session-{number}", turns, number) for number in range(rounds)]


def run_round(backends: dict[str, Turn], session: str, turns: int, number: int) -> dict[str, Any]:
    names = list(backends)
    figures = {name: {"wall": 0.0, "cpu": 0.0} for name in names}
    for turn in range(turns):
        shift = (number + turn) % len(names)  # none is always the first
        for name in names[shift:] + names[:shift]:
            wall, cpu = time.perf_counter(), time.process_time()
            backends[name](session, turn)
            figures[name]["wall"] += (time.perf_counter() - wall) / turns
            figures[name]["cpu"] += (time.process_time() - cpu) / turns
    return figures


if __name__ == "__main__":
    chosen, place, *numbers = sys.argv[1:]
    print(json.dumps(measure_framework(chosen, Path(place), *map(int, numbers))), flush=True)
    os._exit(0)  # threads of the backends would wait for their connections
