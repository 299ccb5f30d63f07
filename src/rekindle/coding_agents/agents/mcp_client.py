"""Any other client of MCP servers: `<project>/.mcp.json`, which several of them read.

For a user there is no such file: each client has its own, and the entry is printed instead.
"""

from __future__ import annotations

from rekindle.coding_agents.agent import SERVER_NAME, AgentFile, CodingAgent, InstallTarget
from rekindle.coding_agents.config_edit.parts import JsonEntry


def _list_files(target: InstallTarget) -> list[AgentFile]:
    if target.project is None:
        return []
    server = JsonEntry(("mcpServers", SERVER_NAME), target.build_mcp_entry())
    return [AgentFile(target.project / ".mcp.json", (server,))]


MCP_CLIENT = CodingAgent(
    name="mcp",
    title="MCP client",
    program="",
    list_files=_list_files,
    find_skills=lambda target: (target.project or target.home) / ".agents" / "skills",
    transcripts="",
)
