"""OpenCode.

plugin: `~/.config/opencode/plugins/` ($XDG_CONFIG_HOME), `<project>/.opencode/plugins/`
MCP servers: `opencode.json` or `opencode.jsonc`, in the user's folder or the project's root
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.coding_agents.agent import SERVER_NAME, AgentFile, CodingAgent, InstallTarget
from rekindle.coding_agents.config_edit.parts import JsonEntry
from rekindle.coding_agents.plugins import build_plugin

# OpenCode adds this line itself to a file that does not have it.
_INITIAL = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'
_CONFIG_NAMES = ("opencode.json", "opencode.jsonc")


def _find_user_folder(target: InstallTarget) -> Path:
    return target.find_folder("XDG_CONFIG_HOME", ".config") / "opencode"


def _find_plugin_folder(target: InstallTarget) -> Path:
    return target.project / ".opencode" if target.project else _find_user_folder(target)


def _find_config(target: InstallTarget) -> Path:
    folder = target.project or _find_user_folder(target)
    known = [folder / name for name in _CONFIG_NAMES]
    return next((path for path in known if path.exists()), known[0])


def _list_files(target: InstallTarget) -> list[AgentFile]:
    value: dict[str, Any] = {"type": "local", "command": target.list_mcp_words(), "enabled": True}
    if env := target.build_mcp_env():
        value["environment"] = env
    server = JsonEntry(("mcp", SERVER_NAME), value)
    plugin = build_plugin("opencode", target)
    return [
        AgentFile(_find_plugin_folder(target) / "plugins" / "rekindle.js", (plugin,)),
        AgentFile(_find_config(target), (server,), initial=_INITIAL),
    ]


OPENCODE = CodingAgent(
    name="opencode",
    title="OpenCode",
    program="opencode",
    list_files=_list_files,
    find_skills=lambda target: _find_plugin_folder(target) / "skills",
    transcripts="opencode",
)
