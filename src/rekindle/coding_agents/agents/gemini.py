"""Gemini CLI.

hooks and MCP servers: `~/.gemini/settings.json` ($GEMINI_CLI_HOME/.gemini),
`<project>/.gemini/settings.json`; time-outs are in milliseconds
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
from rekindle.json_fields import as_object

DEFAULT_RETENTION_DAYS = 30.0
_DAYS_PER_UNIT = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}


def _find_folder(target: InstallTarget) -> Path:
    base = target.project or target.find_folder("GEMINI_CLI_HOME", "")
    return base / ".gemini"


def _list_files(target: InstallTarget) -> list[AgentFile]:
    hooks = build_hook_table(
        "gemini", target, unit=1000, extra=lambda event: {"name": f"rekindle-{event}"}
    )
    server = JsonEntry(("mcpServers", SERVER_NAME), target.build_mcp_entry())
    return [AgentFile(_find_folder(target) / "settings.json", (hooks, server))]


def _find_retention_days(target: InstallTarget) -> float | None:
    settings = read_settings(_find_folder(target) / "settings.json")
    kept = as_object(settings.load_path("general", "sessionRetention"))
    return None if kept.get("enabled") is False else _parse_days(kept.get("maxAge"))


def _find_hook_switch(target: InstallTarget) -> str | None:
    settings = read_settings(_find_folder(target) / "settings.json")
    is_off = settings.load_path("hooksConfig", "enabled") is False
    return "hooksConfig.enabled" if is_off else None


def _parse_days(text: object) -> float:
    """Return the days of a period such as `30d` or `24h`."""
    unit = _DAYS_PER_UNIT.get(text[-1:]) if isinstance(text, str) else None
    if unit is None or not isinstance(text, str) or not text[:-1].isdecimal():
        return DEFAULT_RETENTION_DAYS
    return int(text[:6].rstrip(text[-1])) * unit


GEMINI = CodingAgent(
    name="gemini",
    title="Gemini CLI",
    program="gemini",
    list_files=_list_files,
    find_skills=lambda target: _find_folder(target) / "skills",
    transcripts="gemini",
    find_retention_days=_find_retention_days,
    find_hook_switch=_find_hook_switch,
)
