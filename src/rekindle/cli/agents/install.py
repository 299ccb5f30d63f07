"""`rekindle install` and `rekindle uninstall`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    DryRunOption,
    YesOption,
    print_line,
    print_notice,
    require_confirmation,
)
from rekindle.cli.store_access import load_settings
from rekindle.config import find_home, get_home_and_env

from .control_share import print_control_share

if TYPE_CHECKING:
    from rekindle.coding_agents.agent import CodingAgent, InstallTarget
    from rekindle.coding_agents.install import FileChange
    from rekindle.coding_agents.install_records import InstallRecords

_MAX_ATTEMPTS = 20


class AgentName(StrEnum):
    """The agents that Rekindle can be installed into."""

    claude_code = "claude-code"
    codex = "codex"
    opencode = "opencode"
    gemini = "gemini"
    pi = "pi"
    mcp = "mcp"


AgentsArgument = Annotated[
    list[AgentName],
    typer.Argument(
        metavar="AGENT...",
        help="claude-code, codex, opencode, gemini, pi, or mcp.",
        show_default=False,
    ),
]
ProjectOption = Annotated[
    bool,
    typer.Option(
        "--project/--user",
        help="Change the configuration of this project instead of your own.",
        show_default=False,
    ),
]


def install_agents(
    agents: AgentsArgument,
    project: ProjectOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Install Rekindle into agents that you already use, such as Claude Code and Codex.

    Adds hooks and the MCP server to the agent's own configuration; shows the change and asks first.
    Nothing else in the files changes, and a backup is kept. `mcp` is the entry for any MCP client:
    printed, or with --project written to .mcp.json.

    \b
    Examples:
      rekindle install claude-code
      rekindle install codex gemini --dry-run
      rekindle install opencode --project --yes
    """
    from rekindle.coding_agents.agents import INSTALLABLE
    from rekindle.coding_agents.install import apply_install, plan_install

    chosen = [INSTALLABLE[name] for name in dict.fromkeys(agents)]
    target, records = open_target(project)
    target = replace(target, before_call=load_settings().warm.before_call)
    if target.project is None and AgentName.mcp in agents:
        _print_mcp_entry(target)
        chosen = [agent for agent in chosen if agent.name != AgentName.mcp]
    changed = _change_agents(
        chosen,
        lambda agent: plan_install(agent, target, records),
        lambda change: apply_install(change, records),
        "already installed",
        "installed",
        dry_run=dry_run,
        yes=yes,
    )
    if dry_run or not chosen:
        return
    _write_launcher(target)
    for agent in chosen:
        if agent.program and shutil.which(agent.program) is None:
            print_notice(f"{agent.title}: the program `{agent.program}` was not found on PATH.")
        if agent.next_steps and agent in changed:
            print_line(agent.next_steps)
    if changed:
        print_line("Check with `rekindle doctor`; import earlier sessions with `rekindle import`.")
        print_control_share()


def uninstall_agents(
    agents: AgentsArgument,
    project: ProjectOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Remove Rekindle from agents. Sessions in the store stay.

    A file that nobody else changed since the installation becomes what it was, byte for byte; from
    others only the entries of Rekindle are removed.

    \b
    Examples:
      rekindle uninstall claude-code
      rekindle uninstall codex gemini --yes
    """
    from rekindle.coding_agents.agents import INSTALLABLE
    from rekindle.coding_agents.install import apply_uninstall, plan_uninstall

    target, records = open_target(project)
    _change_agents(
        [INSTALLABLE[name] for name in dict.fromkeys(agents)],
        lambda agent: plan_uninstall(agent, target, records),
        lambda change: apply_uninstall(change, records),
        "not installed",
        "removed",
        dry_run=dry_run,
        yes=yes,
    )


def open_target(project: bool) -> tuple[InstallTarget, InstallRecords]:
    """Return where to install, and the records of earlier installations."""
    from rekindle.coding_agents.agent import InstallTarget
    from rekindle.coding_agents.install import find_project
    from rekindle.coding_agents.install_records import InstallRecords

    home, env = get_home_and_env()
    folder = find_project(Path.cwd(), home) if project else None
    rekindle_home = find_home()
    return InstallTarget(home, env, rekindle_home, folder), InstallRecords(rekindle_home)


def _change_agents(
    agents: Sequence[CodingAgent],
    plan: Callable[[CodingAgent], list[FileChange]],
    apply: Callable[[FileChange], Path | None],
    unchanged: str,
    done: str,
    *,
    dry_run: bool,
    yes: bool,
) -> list[CodingAgent]:
    """Plan, show, ask and apply; start over if a file has changed. Return the changes."""
    from rekindle.errors import ConfigChanged

    for attempt in range(_MAX_ATTEMPTS):
        changes = {agent.name: plan(agent) for agent in agents}
        _show_changes(agents, changes, unchanged)
        changed = [agent for agent in agents if changes[agent.name]]
        if dry_run or not changed:
            return []
        require_confirmation("Apply this change?", yes=yes)
        try:
            for agent in changed:
                _apply_changes(agent, changes[agent.name], apply, done)
            return changed
        except ConfigChanged:
            if attempt == _MAX_ATTEMPTS - 1:
                raise
            print_notice("A file was changed by another program meanwhile. Looking again.")
    return []


def _apply_changes(
    agent: CodingAgent,
    changes: Sequence[FileChange],
    apply: Callable[[FileChange], Path | None],
    done: str,
) -> None:
    backups = [backup for change in changes if (backup := apply(change))]
    parts = dict.fromkeys(part.name for change in changes for part in change.file.parts)
    print_line(f"{agent.title}: {done} {' and '.join(parts)}.")
    for backup in backups:
        print_line(f"  backup: {backup}")


def _show_changes(
    agents: Sequence[CodingAgent], changes: dict[str, list[FileChange]], unchanged: str
) -> None:
    from rekindle.coding_agents.config_edit.diff import render_diff

    for agent in agents:
        if not changes[agent.name]:
            print_line(f"{agent.title}: {unchanged}; nothing to change.")
        for change in changes[agent.name]:
            before, after = (
                None if content is None else content.decode("utf-8", "replace")
                for content in (change.before, change.after)
            )
            for line in render_diff(str(change.path), before, after):
                print_line(line)


def _print_mcp_entry(target: InstallTarget) -> None:
    import json

    from rekindle.coding_agents.agent import SERVER_NAME

    print_line(json.dumps({"mcpServers": {SERVER_NAME: target.build_mcp_entry()}}, indent=2))


def _write_launcher(target: InstallTarget) -> None:
    from rekindle.hooks.command import write_launcher

    write_launcher(target.rekindle_home)
