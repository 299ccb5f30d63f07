"""Agno: `SqliteDb`. Its durable unit is a run, so each message is stored as a run.

This is its cheapest way to have every message on disk before the next one.
"""

from __future__ import annotations

from pathlib import Path

from agno.db.base import SessionType
from agno.db.sqlite import SqliteDb
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session.agent import AgentSession

from bench.peers.base import MeasuredStore
from bench.workload import WorkloadMessage


class AgnoStore(MeasuredStore):
    fresh = """
from sys import argv
from agno.db.sqlite import SqliteDb
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session.agent import AgentSession
db = SqliteDb(db_file=argv[1] + "/agno.db")
db.upsert_session(AgentSession(session_id="s", agent_id="bench"))
run = RunOutput(run_id="s0", session_id="s", messages=[Message(role="user", content="hello there")])
db.upsert_run(run, session_id="s", run_index=0)
"""

    def __init__(self, folder: Path) -> None:
        self.db = SqliteDb(db_file=str(folder / "agno.db"))
        self.next: dict[str, int] = {}

    def append(self, session: str, said: WorkloadMessage) -> None:
        if session not in self.next:
            self.next[session] = 0
            self.db.upsert_session(AgentSession(session_id=session, agent_id="bench"))
        index = self.next[session]
        self.next[session] += 1
        call = said.call
        function = call and {"name": call.name, "arguments": call.arguments}
        calls = [{"id": call.id, "type": "function", "function": function}] if call else None
        message = Message(
            role=said.role, content=said.text, tool_calls=calls, tool_call_id=said.answers
        )
        run = RunOutput(
            run_id=f"{session}{index}", agent_id="bench", session_id=session, messages=[message]
        )
        self.db.upsert_run(run, session_id=session, run_index=index)

    def load(self, session: str) -> int:
        stored = self.db.get_session(session, session_type=SessionType.AGENT)
        return sum(len(run.messages) for run in stored.runs)

    def list_recent(self, limit: int) -> int:
        stored = self.db.get_sessions(
            session_type=SessionType.AGENT, limit=limit, sort_by="updated_at", sort_order="desc"
        )
        return len(stored)

    def close(self) -> None:
        self.db.db_engine.dispose()
