"""The plugins of agents whose hooks are JavaScript: one file each, from the parts in this folder."""

from __future__ import annotations

import json
from pathlib import Path

from rekindle.coding_agents.agent import InstallTarget
from rekindle.coding_agents.config_edit.parts import OwnFile
from rekindle.hooks.command import list_events

MARK = "// Written by `rekindle install "
_FOLDER = Path(__file__).parent


def build_plugin(agent: str, target: InstallTarget) -> OwnFile:
    """Build the plugin of an agent: the commands of its hooks, how to run one, and its events."""
    events = list_events(agent, before_call=target.before_call)
    commands = {event: target.build_command(agent, event) for event in events}
    head = f"{MARK}{agent}`; `rekindle uninstall {agent}` removes it. Do not edit.\n"
    table = f"const COMMANDS = {json.dumps(commands, indent=2)}\n"
    parts = [(_FOLDER / name).read_text("utf-8") for name in ("run_hook.js", f"{agent}.js")]
    return OwnFile("\n".join([head + table, *parts]), MARK, [*commands.values()])
