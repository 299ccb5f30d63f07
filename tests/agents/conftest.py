"""Fixtures for tests with the real agents: `claude_code`, `codex`, `opencode`, `gemini`, `pi`.

    def test_…(codex: AgentLab) -> None:
        … configure codex.home …
        run = codex.run("Please go on.\\nrun: some-command")
        assert "…" in run.texts[0]

Agents are installed from npm when a test first needs them (programs.py). Without npm the tests are
skipped, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import servers

from .lab import AgentLab
from .model_server import ModelServer
from .programs import install_agent

OpenLab = Callable[[str], AgentLab]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that only the step for real agents runs it."""
    for item in items:
        if item.nodeid.startswith("tests/agents/"):
            item.add_marker(pytest.mark.agents)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A scripted model that keeps the requests it receives."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def open_lab(tmp_path: Path, model: ModelServer) -> OpenLab:
    """Call it with the name of an agent for a lab with that agent."""

    def open_one(agent: str) -> AgentLab:
        try:
            program = install_agent(agent)
        except servers.Missing as reason:
            warnings.warn(f"{agent.upper()} IS NOT TESTED: {reason}", stacklevel=1)
            pytest.skip(str(reason))
        return AgentLab(agent, program, tmp_path / agent, model)

    return open_one


@pytest.fixture
def claude_code(open_lab: OpenLab) -> AgentLab:
    return open_lab("claude-code")


@pytest.fixture
def codex(open_lab: OpenLab) -> AgentLab:
    return open_lab("codex")


@pytest.fixture
def opencode(open_lab: OpenLab) -> AgentLab:
    return open_lab("opencode")


@pytest.fixture
def gemini(open_lab: OpenLab) -> AgentLab:
    return open_lab("gemini")


@pytest.fixture
def pi(open_lab: OpenLab) -> AgentLab:
    return open_lab("pi")
