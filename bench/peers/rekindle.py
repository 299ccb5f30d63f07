"""Rekindle through its public API, with default settings."""

from __future__ import annotations

from pathlib import Path

from bench.peers.base import MeasuredStore
from bench.workload import WorkloadMessage
from rekindle import Message, ToolCall, open_store


def build_message(said: WorkloadMessage) -> Message:
    calls = (ToolCall(*said.call),) if said.call else ()
    return Message(role=said.role, content=said.text, tool_calls=calls, tool_call_id=said.answers)


class RekindleAdapter(MeasuredStore):
    fresh = """
from sys import argv
from rekindle import Message, open_store
store = open_store(argv[1] + "/rekindle.db")
store.append(store.begin(id="s"), Message(role="user", content="hello there"))
"""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder / "rekindle.db")
        self.begun: dict[str, object] = {}

    def append(self, session: str, said: WorkloadMessage) -> None:
        begun = self.begun.get(session)
        if begun is None:
            begun = self.begun[session] = self.store.begin(id=session)
        self.store.append(begun, build_message(said))

    def finish(self, session: str) -> None:
        self.begun.pop(session, None)  # the time limit may come before its first message

    def load(self, session: str) -> int:
        return len(self.store.messages(session))

    def list_recent(self, limit: int) -> int:
        return len(self.store.recent(limit))

    def search(self, query: str, newest: bool, around: bool = True) -> int:
        order = "newest" if newest else "best"
        return len(self.store.search(query, limit=20, order=order, context=1 if around else 0))

    def close(self) -> None:
        self.store.close()
