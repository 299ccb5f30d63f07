"""Build an agent's tools, limits and folders from the settings.

Both the chat and the gateway use this, so that a setting means the same in both.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rekindle.agent.model.client import Endpoint, Model, RetryPolicy
from rekindle.agent.tools.builtin.process import build_background_tools
from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.registry import ALL_TOOLS, Toolbox, ToolRegistry
from rekindle.agent.tools.tool import PermissionRules, Tool
from rekindle.config import Config, McpServer, get_home_and_env
from rekindle.errors import InvalidSetting, McpServerUnreachable
from rekindle.processes.operations import Processes
from rekindle.sandbox.detection import open_sandbox
from rekindle.sandbox.sandbox import ConfineRequest, Sandbox, SandboxOptions
from rekindle.types import JSON

from .persona import PersonaSettings
from .turn import TurnLimits

_OPENAI_URL = "https://api.openai.com"


class Toolkit(NamedTuple):
    """An agent's tools, limits, folders and permissions.

    `problems` lists what the caller should report to its user: no sandbox, MCP servers that could not
    be reached. Commands get the variables in `pass_on` although they look like secrets.
    """

    toolbox: Toolbox
    limits: TurnLimits
    folders: tuple[Path, ...] = ()
    problems: Sequence[str] = ()
    sandbox: Sandbox = Sandbox("none")
    rules: PermissionRules = PermissionRules()
    pass_on: frozenset[str] = frozenset()


@asynccontextmanager
async def open_toolkit(
    config: Config,
    tool_names: Iterable[str] | None = None,
    extra_tools: Iterable[Tool] = (),
    processes: Processes | None = None,
    model_name: str | None = None,
) -> AsyncGenerator[Toolkit]:
    """Open the toolkit that the settings describe; its MCP servers run until it is closed.

    `tool_names` are the tools and toolsets to enable instead of those in the settings; `extra_tools` are
    tools defined outside the agent. With `processes`, commands can run in the background. The limits are
    those of the model in the settings, or of another one.
    """
    from rekindle.agent.tools.mcp import McpConnection, connect_servers

    settings = config.agent
    wanted = _split_names(settings.tools) if tool_names is None else tuple(tool_names)
    servers = {name: server for name, server in config.servers.items() if _is_wanted(name, wanted)}
    registry = ToolRegistry((*_list_builtin_tools(config, processes), *extra_tools))
    _, environment = get_home_and_env()
    connect_seconds = config.mcp.start_seconds
    sandbox = await asyncio.to_thread(open_configured_sandbox, config)
    confine = partial(_confine_server, sandbox, environment)
    connections = [
        McpConnection(*each, environment, connect_seconds, confine) for each in servers.items()
    ]
    try:
        tools, problems = await connect_servers(connections, (tool.name for tool in registry.tools))
        for tool in tools:
            registry.register(tool)
        selected = _drop_unreachable(wanted, servers, registry)
        folders = tuple(
            Path(each).expanduser() for each in settings.extra_folders.split(os.pathsep) if each
        )
        limits = build_turn_limits(config, model_name or config.model.name)
        problems = [f"MCP: {problem}" for problem in problems]
        if sandbox.mode == "none":
            problems.insert(0, f"Sandbox: {sandbox.describe_mode()}")
        yield Toolkit(
            toolbox=registry.select(selected),
            limits=limits,
            folders=folders,
            problems=problems,
            sandbox=sandbox,
            rules=PermissionRules(config.permissions.allow, config.permissions.refuse),
            pass_on=frozenset(_split_names(config.sandbox.environment)),
        )
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


def build_turn_limits(config: Config, model: str) -> TurnLimits:
    """Build the limits of a turn with a model."""
    settings, sizes = config.agent, config.get_limits(model)
    return TurnLimits(
        iterations=settings.max_steps,
        tokens=settings.max_tokens,
        cost=settings.max_cost,
        context=sizes.context,
        compress_at=settings.compress_at,
        answer=sizes.answer,
    )


def build_persona_settings(config: Config) -> PersonaSettings:
    """Build the settings of the agent's persona; files are names within the working folder."""
    settings = config.agent
    files = [name for name in _split_names(settings.instruction_files) if _is_file_name(name)]
    return PersonaSettings(settings.prompt, files, settings.instruction_chars)


def build_model_config(config: Config, model: Model) -> Mapping[str, JSON]:
    """Build the model settings that are stored with a session."""
    settings = config.agent
    values = {
        "provider": model.provider,
        "context": config.get_limits(model.endpoint.model).context,
        "max_steps": settings.max_steps,
        "max_tokens": settings.max_tokens,
    }
    return {name: value for name, value in values.items() if value}


def require_model_name(config: Config, name: str | None = None, hint: str = "") -> str:
    """Return the model in the settings, or another one; raise `InvalidSetting` if none can be used."""
    model = name or config.model.name
    if not model:
        raise InvalidSetting(
            f"No model configured. Set REKINDLE_MODEL, or name under [model] in {config.file}{hint}."
        )
    if not config.model.api_key and config.model.base_url.startswith(_OPENAI_URL):
        raise InvalidSetting(
            "No API key configured. Set OPENAI_API_KEY, or set OPENAI_BASE_URL to an endpoint that"
            " needs none."
        )
    return model


def open_model(config: Config, name: str | None = None) -> Model:
    """Open the client of the model in the settings, or of another one at the same address."""
    settings = config.model
    endpoint = Endpoint(
        settings.base_url,
        name or settings.name,
        settings.api_key,
        connect_seconds=settings.connect_seconds,
        silence_seconds=settings.silence_seconds,
        answer_seconds=settings.answer_seconds,
    )
    return Model(endpoint, retry_policy=RetryPolicy(settings.attempts))


def _is_file_name(name: str) -> bool:
    return name == os.path.basename(name) and name not in (".", "..")


def open_configured_sandbox(config: Config) -> Sandbox:
    """Return the sandbox that the settings describe."""
    settings = config.sandbox
    options = SandboxOptions(
        readable=_split_paths(settings.readable),
        writable=_split_paths(settings.writable),
        network=settings.network,
        own=(str(config.home),),
    )
    return open_sandbox(settings.mode, options)


def _confine_server(
    sandbox: Sandbox, environment: Mapping[str, str], server: McpServer
) -> McpServer:
    """Return the server with its program run in the sandbox, in the current folder."""
    if sandbox.mode != "bubblewrap":  # Landlock cannot protect files that run code later
        reason = sandbox.problem or f"this one is {sandbox.mode}"
        raise McpServerUnreachable(f"it must run in a sandbox by bubblewrap; {reason}")
    folder = str(Path(server.cwd).expanduser()) if server.cwd else os.getcwd()
    request = ConfineRequest(
        session=f"mcp {folder}",
        roots=(folder,),
        cwd=os.path.realpath(folder),
        environment=server.env,
        user_environment=environment,
        background=True,
    )
    program = shutil.which(str(Path(server.command).expanduser())) or server.command
    # It may read its own program and the files that its arguments name.
    named = tuple(word for word in (program, *server.args) if os.path.isabs(word))
    options = sandbox.options._replace(readable=(*sandbox.options.readable, *named))
    confined = sandbox._replace(options=options).confine(request)
    words = (*confined.wrapper, program, *server.args)
    return replace(server, command=words[0], args=words[1:], env=confined.environment, cwd=folder)


def _split_paths(text: str) -> tuple[str, ...]:
    return tuple(path for path in text.split(os.pathsep) if path)


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
