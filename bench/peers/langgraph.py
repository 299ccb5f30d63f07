"""LangGraph: `SqliteSaver`, one checkpoint per message, as after a step of a graph.

A checkpoint contains the whole state of its thread. Messages are plain dicts, which are cheaper than the
message classes of an application.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from bench.peers.base import MeasuredStore
from bench.workload import WorkloadMessage


def build_config(session: str) -> dict:
    return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}


class LangGraphStore(MeasuredStore):
    fresh = """
import sqlite3
from sys import argv
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
saver = SqliteSaver(sqlite3.connect(argv[1] + "/graph.db", check_same_thread=False))
state = {"messages": [{"role": "user", "content": "hello there"}]}
checkpoint = {**empty_checkpoint(), "channel_values": state, "channel_versions": {"messages": 1}}
place = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
saver.put(place, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {"messages": 1})
"""

    def __init__(self, folder: Path) -> None:
        db = sqlite3.connect(str(folder / "graph.db"), check_same_thread=False)
        self.saver = SqliteSaver(db)
        self.state: dict[str, tuple[dict, list[dict]]] = {}

    def append(self, session: str, said: WorkloadMessage) -> None:
        at, messages = self.state.get(session) or (build_config(session), [])
        message: dict = {"role": said.role, "content": said.text}
        if said.call:
            message["tool_calls"] = [said.call._asdict()]
        if said.answers:
            message["tool_call_id"] = said.answers
        messages.append(message)
        step = len(messages)
        versions = {"messages": step}
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"messages": messages},
            "channel_versions": versions,
        }
        at = self.saver.put(
            at, checkpoint, {"source": "loop", "step": step, "parents": {}}, versions
        )
        self.state[session] = (at, messages)

    def finish(self, session: str) -> None:
        del self.state[session]

    def load(self, session: str) -> int:
        stored = self.saver.get_tuple(build_config(session))
        return len(stored.checkpoint["channel_values"]["messages"])

    def close(self) -> None:
        self.saver.conn.close()
