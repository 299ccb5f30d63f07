"""The commands of docs/agents.md that need a real agent."""

from __future__ import annotations

import os
import subprocess

from tests import command
from tests.docs.test_docs import ROOT, blocks

from .hook_setup import KNOWN_COMMAND, set_control_share, stop_helper, teach, warm_up
from .lab import AGENT_SECONDS, AgentLab


def test_three_commands_lead_from_nothing_to_a_warm_session(claude_code: AgentLab) -> None:
    lines = [
        line[2:]
        for block in blocks(ROOT / "docs" / "agents.md")[:2]
        for line in block.body.splitlines()
        if line.startswith("$ ")
    ]
    assert len(lines) == 3
    assert lines[-1].startswith("claude ")
    set_control_share(claude_code, 0)
    teach(claude_code)  # instead of the history of a user
    env = claude_code.build_env()
    env["PATH"] = f"{command.get_scripts_folder()}{os.pathsep}{env['PATH']}"
    try:
        for line in lines:
            if line.startswith("claude "):
                warm_up(claude_code.rekindle_home)
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=claude_code.repository,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=AGENT_SECONDS,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    finally:
        stop_helper(claude_code.rekindle_home)
    texts = [one.text for one in claude_code.model.requests if one.body.get("tools")]
    assert f"`{KNOWN_COMMAND}`" in texts[0]
