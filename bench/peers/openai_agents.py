"""OpenAI Agents SDK: `SQLiteSession` on a file. It has no listing and no search."""

from __future__ import annotations

from pathlib import Path

from agents import SQLiteSession

from bench.peers.base import AsyncMeasuredStore
from bench.workload import WorkloadMessage


def build_items(said: WorkloadMessage) -> list[dict]:
    if said.answers:
        return [{"type": "function_call_output", "call_id": said.answers, "output": said.text}]
    spoken = [{"role": said.role, "content": said.text}]
    if said.call:
        id, name, arguments = said.call
        call = {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}
        spoken.append(call)
    return spoken


class OpenAIAgentsStore(AsyncMeasuredStore):
    fresh = """
import asyncio
from sys import argv
from agents import SQLiteSession
session = SQLiteSession("s", argv[1] + "/sessions.db")
asyncio.run(session.add_items([{"role": "user", "content": "hello there"}]))
"""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sessions.db"
        self.open: dict[str, SQLiteSession] = {}

    async def write(self, session: str, said: WorkloadMessage) -> None:
        if session not in self.open:
            self.open[session] = SQLiteSession(session, self.path)
        await self.open[session].add_items(build_items(said))

    def finish(self, session: str) -> None:
        self.open.pop(session).close()

    def load(self, session: str) -> int:
        resumed = SQLiteSession(session, self.path)
        try:
            return len(self.run(resumed.get_items()))
        finally:
            resumed.close()

    def close(self) -> None:
        for session in self.open.values():
            session.close()
