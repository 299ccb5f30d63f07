"""Strands Agents: `FileSessionManager`, one JSON file per message. It never flushes to the disk."""

from __future__ import annotations

from pathlib import Path

from strands.session.file_session_manager import FileSessionManager
from strands.types.session import SessionAgent, SessionMessage

from bench.peers.base import MeasuredStore
from bench.workload import WorkloadMessage

AGENT = "bench"


def build_blocks(said: WorkloadMessage) -> dict:
    text = {"text": said.text}
    if said.answers:
        result = {"toolUseId": said.answers, "status": "success", "content": [text]}
        return {"role": "user", "content": [{"toolResult": result}]}
    content: list[dict] = [text]
    if said.call:
        id, name, arguments = said.call
        content.append({"toolUse": {"toolUseId": id, "name": name, "input": arguments}})
    return {"role": said.role, "content": content}


class StrandsStore(MeasuredStore):
    fresh = """
from sys import argv
from strands.session.file_session_manager import FileSessionManager
from strands.types.session import SessionAgent, SessionMessage
files = FileSessionManager("s", storage_dir=argv[1])
files.create_agent("s", SessionAgent("bench", state={}, conversation_manager_state={}))
message = {"role": "user", "content": [{"text": "hello there"}]}
files.create_message("s", "bench", SessionMessage.from_message(message, 0))
"""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.open: dict[str, list] = {}  # session -> [its files, next position]

    def append(self, session: str, said: WorkloadMessage) -> None:
        if session not in self.open:
            files = FileSessionManager(session, storage_dir=self.folder)
            agent = SessionAgent(AGENT, state={}, conversation_manager_state={})
            files.create_agent(session, agent)
            self.open[session] = [files, 0]
        files, position = self.open[session]
        files.create_message(
            session, AGENT, SessionMessage.from_message(build_blocks(said), position)
        )
        self.open[session][1] += 1

    def finish(self, session: str) -> None:
        del self.open[session]

    def load(self, session: str) -> int:
        files = FileSessionManager(session, storage_dir=self.folder)
        return len(files.list_messages(session, AGENT))
