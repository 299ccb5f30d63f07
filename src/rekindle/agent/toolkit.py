"""Build an agent's tools, limits and folders from the settings.

Both the chat and the gateway use this, so that a setting means the same in both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rekindle.agent.tools.builtin.process import build_background_tools
from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.registry import ALL_TOOLS, Toolbox, ToolRegistry
from rekindle.agent.tools.tool import Tool
from rekindle.config import Config, McpServer, get_home_and_env
from rekindle.processes.operations import Processes

from .turn import TurnLimits


class Toolkit(NamedTuple):
    """An agent's tools, limits and folders.

    `problems` lists the MCP servers that could not be reached; the caller reports them to its user.
    """

    toolbox: Toolbox
    limits: TurnLimits
    folders: tuple[Path, ...] = ()
    problems: Sequence[str] = ()


@asynccontextmanager
async def open_toolkit(
    config: Config,
    tool_names: Iterable[str] | None = None,
    extra_tools: Iterable[Tool] = (),
    processes: Processes | None = None,
) -> AsyncGenerator[Toolkit]:
    """Open the toolkit that the settings describe; its MCP servers run until it is closed.

    `tool_names` are the tools and toolsets to enable instead of those in the settings; `extra_tools` are
    tools defined outside the agent. With `processes`, commands can run in the background.
    """
    from rekindle.agent.tools.mcp import McpConnection, connect_servers

    settings = config.agent
    wanted = _split_names(settings.tools) if tool_names is None else tuple(tool_names)
    servers = {name: server for name, server in config.servers.items() if _is_wanted(name, wanted)}
    registry = ToolRegistry((*_list_builtin_tools(config, processes), *extra_tools))
    _, environment = get_home_and_env()
    connect_seconds = config.mcp.start_seconds
    connections = [McpConnection(*each, environment, connect_seconds) for each in servers.items()]
    try:
        tools, problems = await connect_servers(connections, (tool.name for tool in registry.tools))
        for tool in tools:
            registry.register(tool)
        selected = _drop_unreachable(wanted, servers, registry)
        folders = tuple(
            Path(each).expanduser() for each in settings.extra_folders.split(os.pathsep) if each
        )
        limits = TurnLimits(
            settings.max_steps, settings.max_tokens, settings.max_cost, settings.context
        )
        yield Toolkit(registry.select(selected), limits, folders, problems)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


def _list_builtin_tools(config: Config, processes: Processes | None) -> Sequence[Tool]:
    if processes is None:
        return BUILTIN_TOOLS
    background = build_background_tools(processes, config.processes.backend)
    return (
        *background,
        *(tool for tool in BUILTIN_TOOLS if tool.name not in {one.name for one in background}),
    )


def _split_names(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _is_wanted(server: str, names: Iterable[str]) -> bool:
    return any(name == ALL_TOOLS or _belongs_to_server(server, name) for name in names)


def _belongs_to_server(server: str, name: str) -> bool:
    """Return whether a toolset or tool of this name belongs to the server."""
    from rekindle.agent.tools.mcp import build_tool_prefix, build_toolset_name

    return name == build_toolset_name(server) or name.startswith(build_tool_prefix(server))


def _drop_unreachable(
    names: Iterable[str], servers: Mapping[str, McpServer], registry: ToolRegistry
) -> list[str]:
    """Return the names without those of unreachable servers, which are already reported."""
    known = {ALL_TOOLS, *(tool.name for tool in registry.tools)}
    known |= {tool.toolset for tool in registry.tools}
    return [
        name
        for name in names
        if name in known or not any(_belongs_to_server(server, name) for server in servers)
    ]
