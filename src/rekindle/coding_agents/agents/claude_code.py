"""Claude Code.

settings: `~/.claude/settings.json` ($CLAUDE_CONFIG_DIR), `<project>/.claude/settings.json`
MCP servers: `~/.claude.json`, which Claude Code rewrites itself and locks for that with a folder, and
`<project>/.mcp.json`
"""

from __future__ import annotations

from pathlib import Path

from rekindle.coding_agents.agent import (
    SERVER_NAME,
    AgentFile,
    CodingAgent,
    InstallTarget,
    build_hook_table,
    read_settings,
)
from rekindle.coding_agents.config_edit.parts import JsonEntry
from rekindle.json_fields import as_number

DEFAULT_RETENTION_DAYS = 30.0


def _find_folder(target: InstallTarget) -> Path:
    if target.project is not None:
        return target.project / ".claude"
    return target.find_folder("CLAUDE_CONFIG_DIR", ".claude")


def _find_server_file(target: InstallTarget) -> Path:
    if target.project is not None:
        return target.project / ".mcp.json"
    legacy = _find_folder(target) / ".config.json"
    if legacy.is_file() and legacy.stat().st_size:
        return legacy  # which Claude Code prefers too
    return target.find_folder("CLAUDE_CONFIG_DIR", "") / ".claude.json"


def _list_files(target: InstallTarget) -> list[AgentFile]:
    # Without alwaysLoad, only the names of the tools are shown to the model.
    server = {"type": "stdio", **target.build_mcp_entry(), "alwaysLoad": True}
    entry = JsonEntry(("mcpServers", SERVER_NAME), server)
    return [
        AgentFile(
            _find_folder(target) / "settings.json", (build_hook_table("claude-code", target),)
        ),
        AgentFile(_find_server_file(target), (entry,), has_lock_folder=target.scope == "user"),
    ]


def _find_retention_days(target: InstallTarget) -> float | None:
    settings = read_settings(_find_folder(target) / "settings.json")
    days = as_number(settings.load_path("cleanupPeriodDays"))
    return DEFAULT_RETENTION_DAYS if days is None else days


def _find_hook_switch(target: InstallTarget) -> str | None:
    settings = read_settings(_find_folder(target) / "settings.json")
    return "disableAllHooks" if settings.load_path("disableAllHooks") is True else None


CLAUDE_CODE = CodingAgent(
    name="claude-code",
    title="Claude Code",
    program="claude",
    list_files=_list_files,
    find_skills=lambda target: _find_folder(target) / "skills",
    transcripts="claude-code",
    find_retention_days=_find_retention_days,
    find_hook_switch=_find_hook_switch,
)
