"""Codex.

hooks: `~/.codex/hooks.json` ($CODEX_HOME), `<project>/.codex/hooks.json`; Codex skips them until its
user has trusted them, and asks again when a command or a time-out changes
MCP servers: `config.toml` in the same folders
"""

from __future__ import annotations

from pathlib import Path

from rekindle.coding_agents.agent import (
    SERVER_NAME,
    AgentFile,
    CodingAgent,
    InstallTarget,
    build_hook_table,
)
from rekindle.coding_agents.config_edit.parts import TomlTable


def _find_folder(target: InstallTarget) -> Path:
    if target.project is not None:
        return target.project / ".codex"
    return target.find_folder("CODEX_HOME", ".codex")


def _list_files(target: InstallTarget) -> list[AgentFile]:
    folder = _find_folder(target)
    server = TomlTable(("mcp_servers", SERVER_NAME), target.build_mcp_entry())
    return [
        AgentFile(folder / "hooks.json", (build_hook_table("codex", target),)),
        AgentFile(folder / "config.toml", (server,)),
    ]


def _find_skills(target: InstallTarget) -> Path:
    return (target.project or target.home) / ".agents" / "skills"


CODEX = CodingAgent(
    name="codex",
    title="Codex",
    program="codex",
    list_files=_list_files,
    find_skills=_find_skills,
    transcripts="codex",
    next_steps=(
        "Codex skips hooks, without a word, until you have trusted them: start `codex`, open /hooks,"
        " and trust those of Rekindle. `rekindle doctor` shows whether you have."
    ),
)
