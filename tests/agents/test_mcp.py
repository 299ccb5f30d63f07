"""`rekindle mcp` in real agents: they call its tools, and the answers reach the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import rekindle
from tests import command
from tests.acceptance.test_notes import write_session

from .conftest import OpenLab
from .lab import AgentLab

SOURCE = str(Path(rekindle.__file__).parents[1])
SERVER = {"command": command.COMMAND, "args": ["mcp"]}


def add_to_claude_code(lab: AgentLab) -> None:
    entry = {**SERVER, "alwaysLoad": True}
    (lab.repository / ".mcp.json").write_text(json.dumps({"mcpServers": {"rekindle": entry}}))
    lab.write_json(".claude/settings.json", {"enableAllProjectMcpServers": True})


def add_to_codex(lab: AgentLab) -> None:
    file = lab.home / ".codex" / "config.toml"
    env = "".join(f"{name} = {json.dumps(text)}\n" for name, text in build_server_env(lab).items())
    # Codex waits ten seconds for a server to start, which a busy machine may need.
    file.write_text(
        f"{file.read_text()}\n[mcp_servers.rekindle]\ncommand = {json.dumps(SERVER['command'])}\n"
        f'args = ["mcp"]\nstartup_timeout_sec = 60\n[mcp_servers.rekindle.env]\n{env}'
    )


def add_to_opencode(lab: AgentLab) -> None:
    name = ".config/opencode/opencode.json"
    entry = {"type": "local", "command": [SERVER["command"], "mcp"], "enabled": True}
    lab.write_json(name, {**lab.read_json(name), "mcp": {"rekindle": entry}})


def add_to_gemini(lab: AgentLab) -> None:
    entry = {**SERVER, "trust": True, "env": build_server_env(lab)}
    name = ".gemini/settings.json"
    lab.write_json(name, {**lab.read_json(name), "mcpServers": {"rekindle": entry}})


def build_server_env(lab: AgentLab) -> dict[str, str]:
    """Return what an agent that hands on no environment must be told."""
    return {"REKINDLE_HOME": str(lab.rekindle_home), "PYTHONPATH": SOURCE}


ADD: Mapping[str, Callable[[AgentLab], None]] = {
    "claude-code": add_to_claude_code,
    "codex": add_to_codex,
    "opencode": add_to_opencode,
    "gemini": add_to_gemini,
}
NAMES = {
    "claude-code": "mcp__rekindle__recall_notes",
    "codex": "mcp__rekindlerecall_notes",
    "opencode": "rekindle_recall_notes",
    "gemini": "mcp_rekindle_recall_notes",
}


@pytest.mark.parametrize("agent", ADD)
def test_an_agent_recalls_notes_through_the_server(
    agent: str, open_lab: OpenLab, tmp_path: Path
) -> None:
    lab = open_lab(agent)
    env = {"PYTHONPATH": SOURCE}
    transcripts = tmp_path / "transcripts"
    transcripts.mkdir()
    for number in range(6):
        write_session(
            transcripts, f"a{number}", ("make check-all", "ok", True), where=str(lab.repository)
        )
    command.run(["import", transcripts], env=lab.build_env(env), cwd=lab.repository, check=True)
    ADD[agent](lab)
    run = lab.run(f'Please go on.\ncall: {NAMES[agent]} {{"request": "fix the cart"}}', env=env)
    assert run.exit_code == 0, run.errors
    assert "`make check-all` (6 sessions)" in run.texts[-1]
    assert "make check-all" not in run.texts[0]
