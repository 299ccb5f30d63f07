"""pi.

extension: `~/.pi/agent/extensions/` ($PI_CODING_AGENT_DIR), `<project>/.pi/extensions/`
MCP servers: none
"""

from __future__ import annotations

from pathlib import Path

from rekindle.coding_agents.agent import AgentFile, CodingAgent, InstallTarget
from rekindle.coding_agents.plugins import build_plugin


def _find_folder(target: InstallTarget) -> Path:
    if target.project is not None:
        return target.project / ".pi"
    return target.find_folder("PI_CODING_AGENT_DIR", ".pi/agent")


def _list_files(target: InstallTarget) -> list[AgentFile]:
    plugin = build_plugin("pi", target)
    return [AgentFile(_find_folder(target) / "extensions" / "rekindle.js", (plugin,))]


PI = CodingAgent(
    name="pi",
    title="pi",
    program="pi",
    list_files=_list_files,
    find_skills=lambda target: _find_folder(target) / "skills",
    transcripts="pi",
)
