"""The real agents write, and a watcher imports it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from rekindle import open_store
from rekindle.transcripts.writers import AGENTS
from rekindle.types import Session
from tests import command
from tests.waiting import PATIENCE, wait_until

from .conftest import OpenLab
from .lab import AgentLab


def list_sessions(lab: AgentLab) -> list[Session]:
    file = lab.rekindle_home / "sessions.db"
    if not file.exists():
        return []
    with open_store(file) as store:
        return store.recent()


@pytest.mark.parametrize("agent", AGENTS)
def test_what_an_agent_writes_is_in_the_store_without_a_command(
    agent: str, open_lab: OpenLab
) -> None:
    lab = open_lab(agent)
    homes = {"HOME": str(lab.home), "REKINDLE_HOME": str(lab.rekindle_home)}
    output = lab.rekindle_home / "watch.log"
    with output.open("wb") as file:
        watcher = command.start(["watch"], env={**os.environ, **homes}, stdout=file, stderr=file)
    try:
        wait_until(lambda: b"Watching" in output.read_bytes())
        run = lab.run("Please go on.\nrun: expr 40000 + 2")
        ended = time.monotonic()
        assert run.exit_code == 0, run.errors
        wait_until(lambda: [one.message_count for one in list_sessions(lab)] == [4])
        print(f"{agent}: complete {time.monotonic() - ended:.2f} s after the agent's end")
    finally:
        watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(PATIENCE) == 0
    (session,) = list_sessions(lab)
    assert (session.id, session.source) == (run.session, agent)
    assert session.cwd == str(lab.repository)
