"""A coding agent: where it keeps its files, and what Rekindle adds to them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rekindle.errors import InvalidInput
from rekindle.hooks.command import (
    AGENT_EVENTS,
    CALL_EVENT,
    SHELL_TOOLS,
    build_hook_command,
    build_shared_hook_command,
    is_hook_command,
    list_events,
)

from .config_edit.config_file import decode_config, read_config
from .config_edit.json_text import JsonDocument
from .config_edit.parts import ConfigPart, HookTable

Scope: TypeAlias = Literal["user", "project"]
SERVER_NAME = "rekindle"  # of the MCP server, in every agent
# Changes of these make Codex ask its user again, so do not change them.
HOOK_SECONDS = 5
LAST_HOOK_SECONDS = 3  # Codex allows no more at the end of a session
_HOME_VARIABLES = ("REKINDLE_HOME", "XDG_DATA_HOME")  # that decide where Rekindle's home is


def list_program_words() -> list[str]:
    """Return the words that start this installation of Rekindle from anywhere."""
    script = Path(sysconfig.get_path("scripts")) / "rekindle"
    return [str(script)] if script.exists() else [sys.executable, "-m", "rekindle.cli"]


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """Where to install: for a user, or in the repository `project`."""

    home: Path  # of the user
    env: Mapping[str, str]
    rekindle_home: Path
    project: Path | None = None
    before_call: bool = False  # whether hooks run before calls

    @property
    def scope(self) -> Scope:
        return "user" if self.project is None else "project"

    def find_folder(self, variable: str, default: str) -> Path:
        """Return the user's folder that a variable of the environment names, or the default."""
        given = self.env.get(variable)
        if not given:
            return self.home / default
        return self.home / given[2:] if given.startswith("~/") else Path(given).absolute()

    def build_command(self, agent: str, event: str) -> str:
        """Build the command of a hook; the one of a project names no folder of this user."""
        if self.project is not None:
            return build_shared_hook_command(agent, event)
        return build_hook_command(agent, event, self.rekindle_home)

    def list_mcp_words(self) -> list[str]:
        """Return the words that start the MCP server."""
        if self.project is not None:
            return ["rekindle", "mcp"]
        return [*list_program_words(), "mcp"]

    def build_mcp_env(self) -> dict[str, str]:
        """Return the environment that the MCP server needs: some agents hand on nothing of theirs."""
        is_default = self.project is not None or not any(map(self.env.get, _HOME_VARIABLES))
        return {} if is_default else {"REKINDLE_HOME": str(self.rekindle_home)}

    def build_mcp_entry(self) -> dict[str, Any]:
        """Build the entry of the MCP server as most agents take it."""
        program, *arguments = self.list_mcp_words()
        entry: dict[str, Any] = {"command": program, "args": arguments}
        return {**entry, "env": env} if (env := self.build_mcp_env()) else entry


@dataclass(frozen=True, slots=True)
class AgentFile:
    """A file that the agent reads, and the parts that Rekindle adds to it."""

    path: Path
    parts: tuple[ConfigPart, ...]
    has_lock_folder: bool = False  # the agent locks it with a folder `<file>.lock`
    initial: str = ""  # the text of a new file, without the parts


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """An agent that Rekindle can be installed into."""

    name: str
    title: str
    program: str
    list_files: Callable[[InstallTarget], list[AgentFile]]
    find_skills: Callable[[InstallTarget], Path]  # the folder of its skills
    transcripts: str  # the name of its sessions in `transcripts.discovery`
    next_steps: str = ""  # what the user has to do after an installation
    # Return after how many days the agent deletes a session, given its target; None for never.
    find_retention_days: Callable[[InstallTarget], float | None] = lambda target: None
    # Return the setting by which the user has turned hooks off, if there is one.
    find_hook_switch: Callable[[InstallTarget], str | None] = lambda target: None


def read_settings(file: Path) -> JsonDocument:
    """Read a JSON file of an agent; one that is missing or cannot be parsed counts as empty."""
    try:
        return JsonDocument(decode_config(file, read_config(file)))
    except (OSError, InvalidInput):
        return JsonDocument("")


def build_hook_table(
    agent: str,
    target: InstallTarget,
    *,
    unit: int = 1,
    extra: Callable[[str], Mapping[str, Any]] = lambda event: {},
) -> HookTable:
    """Build the hooks of an agent that takes commands; `unit` is a second in its time-outs."""
    hooks: dict[str, dict[str, Any]] = {}
    for event, native_name in list_events(agent, before_call=target.before_call).items():
        seconds = LAST_HOOK_SECONDS if event == "end" else HOOK_SECONDS
        hooks[native_name] = {
            **extra(event),
            "type": "command",
            "command": target.build_command(agent, event),
            "timeout": seconds * unit,
        }
    matchers = {AGENT_EVENTS[agent][CALL_EVENT]: SHELL_TOOLS[agent]}
    return HookTable(hooks, lambda command: is_hook_command(command, agent), matchers)
