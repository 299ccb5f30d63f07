"""Hermes Agent: `SessionDB`, its SQLite state file with full-text search."""

from __future__ import annotations

from pathlib import Path

from hermes_state import SessionDB

from bench.peers.base import MeasuredStore
from bench.workload import WorkloadMessage


class HermesStore(MeasuredStore):
    fresh = """
from pathlib import Path
from sys import argv
from hermes_state import SessionDB
db = SessionDB(Path(argv[1]) / "state.db")
db.create_session("s", "bench")
db.append_message("s", "user", "hello there")
"""

    def __init__(self, folder: Path) -> None:
        self.db = SessionDB(folder / "state.db")
        self.known: set[str] = set()

    def append(self, session: str, said: WorkloadMessage) -> None:
        if session not in self.known:
            self.known.add(session)
            self.db.create_session(session, "bench")
        call = said.call
        function = call and {"name": call.name, "arguments": call.arguments}
        calls = [{"id": call.id, "type": "function", "function": function}] if call else None
        self.db.append_message(
            session, said.role, said.text, tool_calls=calls, tool_call_id=said.answers
        )

    def load(self, session: str) -> int:
        return len(self.db.get_messages_as_conversation(session))

    def list_recent(self, limit: int) -> int:
        return len(self.db.list_sessions_rich(limit=limit, order_by_last_active=True))

    def search(self, query: str, newest: bool, around: bool = True) -> int:
        return len(self.db.search_messages(query, limit=20, sort="newest" if newest else None))

    def close(self) -> None:
        self.db.close()
