"""Google ADK: both of its SQLite session services. Lists return every session, without counts."""

from __future__ import annotations

from pathlib import Path

from google.adk.events import Event
from google.genai import types

from bench.peers.base import AsyncMeasuredStore
from bench.workload import WorkloadMessage

APP = {"app_name": "bench", "user_id": "bench"}

FRESH = """
import asyncio
from sys import argv
from google.adk.events import Event
from google.genai import types
{open}
async def write():
    session = await service.create_session(app_name="bench", user_id="bench", session_id="s")
    content = types.Content(role="user", parts=[types.Part(text="hello there")])
    await service.append_event(session, Event(author="user", content=content))
asyncio.run(write())
"""


def build_event(said: WorkloadMessage) -> Event:
    if said.answers:
        reply = types.FunctionResponse(id=said.answers, name="tool", response={"result": said.text})
        content = types.Content(role="user", parts=[types.Part(function_response=reply)])
        return Event(author="agent", content=content)
    parts = [types.Part(text=said.text)]
    if said.call:
        id, name, arguments = said.call
        call = types.FunctionCall(id=id, name=name, args={"arguments": arguments})
        parts.append(types.Part(function_call=call))
    author = "user" if said.role == "user" else "agent"
    role = "user" if said.role == "user" else "model"
    return Event(author=author, content=types.Content(role=role, parts=parts))


class AdkStore(AsyncMeasuredStore):
    async def write(self, session: str, said: WorkloadMessage) -> None:
        live = self.sessions.get(session)
        if live is None:
            live = await self.service.create_session(session_id=session, **APP)
            self.sessions[session] = live
        await self.service.append_event(live, build_event(said))

    def finish(self, session: str) -> None:
        self.sessions.pop(session)

    def load(self, session: str) -> int:
        stored = self.run(self.service.get_session(session_id=session, **APP))
        return len(stored.events)

    def list_recent(self, limit: int) -> int:
        answer = self.run(self.service.list_sessions(**APP))
        newest = sorted(answer.sessions, key=lambda session: -session.last_update_time)
        return len(newest[:limit])

    def close(self) -> None:
        self.run(self.service.close())


class AdkSqliteStore(AdkStore):
    fresh = FRESH.format(
        open="from google.adk.sessions.sqlite_session_service import SqliteSessionService\n"
        "service = SqliteSessionService(argv[1] + '/adk.db')"
    )

    def __init__(self, folder: Path) -> None:
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        self.service = SqliteSessionService(str(folder / "adk.db"))
        self.sessions: dict = {}


class AdkDatabaseStore(AdkStore):
    fresh = FRESH.format(
        open="from google.adk.sessions import DatabaseSessionService\n"
        "service = DatabaseSessionService('sqlite+aiosqlite:///' + argv[1] + '/adk.db')"
    )

    def __init__(self, folder: Path) -> None:
        from google.adk.sessions import DatabaseSessionService

        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk.db'}")
        self.sessions: dict = {}
