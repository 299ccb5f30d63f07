"""What the agent works with, as the settings want it: tools, limits, folders.

The chat and the gateway both begin here, so that a setting means the same in both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rekindle.agent.tools.builtin.process import background_tools
from rekindle.agent.tools.builtin.toolset import STANDARD
from rekindle.agent.tools.registry import EVERYTHING, Registry, Toolbox
from rekindle.agent.tools.tool import Tool
from rekindle.config import Config, McpServer, surroundings
from rekindle.processes.types import Processes

from .turn import Limits


class Equipment(NamedTuple):
    """Tools, limits and folders of an agent.

    `problems` are servers that could not be reached: whoever opened it tells its user.
    """

    toolbox: Toolbox
    limits: Limits
    folders: tuple[Path, ...] = ()
    problems: Sequence[str] = ()


@asynccontextmanager
async def equipped(
    config: Config,
    names: Iterable[str] | None = None,
    more: Iterable[Tool] = (),
    processes: Processes | None = None,
) -> AsyncGenerator[Equipment]:
    """What the settings give an agent; its MCP servers run as long as this is open.

    `names` are the tools and toolsets to switch on, instead of those in the settings; `more` are
    tools that need higher rooms. With `processes` commands can be left running.
    """
    from rekindle.agent.tools.mcp import Connection, connect

    one = config.agent
    wanted = _listed(one.tools) if names is None else tuple(names)
    servers = {name: server for name, server in config.servers.items() if _is_wanted(name, wanted)}
    registry = Registry((*_standard(config, processes), *more))
    _, environment = surroundings()
    seconds = config.mcp.start_seconds
    connections = [Connection(*each, environment, seconds) for each in servers.items()]
    try:
        tools, problems = await connect(connections, (tool.name for tool in registry.tools))
        for tool in tools:
            registry.register(tool)
        here = _without_missing(wanted, servers, registry)
        folders = tuple(Path(each).expanduser() for each in one.folders.split(os.pathsep) if each)
        limits = Limits(one.steps, one.tokens, one.cost, one.context)
        yield Equipment(registry.select(here), limits, folders, problems)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


def _standard(config: Config, processes: Processes | None) -> Sequence[Tool]:
    if processes is None:
        return STANDARD
    ours = background_tools(processes, config.processes.place)
    return (*ours, *(tool for tool in STANDARD if tool.name not in {one.name for one in ours}))


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _is_wanted(server: str, names: Iterable[str]) -> bool:
    return any(name == EVERYTHING or _is_of(server, name) for name in names)


def _is_of(server: str, name: str) -> bool:
    """Does a toolset or tool of this name belong to the server?"""
    from rekindle.agent.tools.mcp import prefix_of, toolset_of

    return name == toolset_of(server) or name.startswith(prefix_of(server))


def _without_missing(
    names: Iterable[str], servers: Mapping[str, McpServer], registry: Registry
) -> list[str]:
    """The names, without those of servers that did not come: that is said already, once."""
    known = {EVERYTHING, *(tool.name for tool in registry.tools)}
    known |= {tool.toolset for tool in registry.tools}
    return [
        name
        for name in names
        if name in known or not any(_is_of(server, name) for server in servers)
    ]
