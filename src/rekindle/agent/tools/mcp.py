"""Expose the tools of MCP servers as our own tools.

One task per server holds its connection, because the same task must open and close it; calls go
through the client of that task. A server found dead before a call is restarted once; if it dies
during a call, that call fails.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from rekindle.config import McpServer
from rekindle.errors import McpServerUnreachable, ToolError
from rekindle.pages.text import replace_surrogates
from rekindle.types import JSON

from .tool import (
    ALL_ABILITIES,
    Ability,
    CallAssessment,
    Tool,
    ToolContext,
    ToolResult,
    build_failure,
)

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool

logger = logging.getLogger(__name__)
logging.getLogger("mcp").addHandler(logging.NullHandler())  # we report failing servers ourselves

CONNECT_SECONDS = 20.0
_ALIVE_SECONDS = 5.0
_MAX_PAGES = 50
_MAX_TOOLS = 500
_MAX_NAME_LENGTH = 64
_MAX_DESCRIPTION_LENGTH = 4000
# `${NAME}` and `${NAME:-default}`, as in other programs.
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^{}]*))?\}")


# Changes a server's settings so that its program runs in the sandbox.
ServerConfiner: TypeAlias = Callable[[McpServer], McpServer]
_CONFINED_ABILITIES: frozenset[Ability] = frozenset(("read_files", "write_files", "run_code"))


class McpConnection:
    """A connection to one MCP server, opened on first use and reopened after the server dies."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        environment: Mapping[str, str] | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        confine: ServerConfiner | None = None,
    ) -> None:
        """Create a connection; `confine` wraps the program of a server that runs in the sandbox."""
        self.name = name
        self._server = server
        self._environment = environment or {}
        self._connect_seconds = connect_seconds
        self._confine = confine if server.sandbox and not server.url else None
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._release = asyncio.Event()

    async def list_tools(self) -> list[ServerTool]:
        """Return the tools that the server lists."""
        tools: list[ServerTool] = []
        client = await self._get_client()
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            try:
                async with asyncio.timeout(self._connect_seconds):
                    page = await client.list_tools(cursor=cursor)
            except Exception as error:
                raise self._to_unreachable(error) from error
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or len(tools) > _MAX_TOOLS:
                break
        return tools[:_MAX_TOOLS]

    def to_tool(self, server_tool: ServerTool, taken: set[str]) -> Tool:
        """Convert a server's tool to ours under an unused name, and add that name to `taken`."""

        async def handler(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
            return await self._call_tool(server_tool.name, dict(arguments))

        def assess(context: ToolContext, arguments: Mapping[str, JSON]) -> CallAssessment:
            shown = json.dumps(dict(arguments), ensure_ascii=False, default=str)
            reasons = (
                () if self._confine else (f"is run by the server {self.name}, outside the sandbox",)
            )
            return CallAssessment(shown, reasons)

        description = server_tool.description or server_tool.title or server_tool.name
        return Tool(
            name=_make_tool_name(self.name, server_tool.name, taken),
            toolset=build_toolset_name(self.name),
            description=replace_surrogates(description)[:_MAX_DESCRIPTION_LENGTH],
            parameters=_clean_schema(server_tool.input_schema),
            handler=handler,
            emoji="🔌",
            seconds=self._server.timeout + 2 * self._connect_seconds,
            abilities=_CONFINED_ABILITIES if self._confine else ALL_ABILITIES,
            assess=assess,
        )

    async def _call_tool(self, name: str, arguments: dict[str, JSON]) -> ToolResult:
        client = await self._get_live_client()
        try:
            async with asyncio.timeout(self._server.timeout):
                return _to_result(await client.call_tool(name, arguments))
        except TimeoutError:
            problem = f"did not answer within {self._server.timeout:g} s"
            raise ToolError(f"the server {self.name} {problem}") from None
        except Exception as error:  # noqa: BLE001  # whatever a connection raises when it breaks
            if await self._is_alive(client):
                raise ToolError(f"{self.name}: {_describe_error(error)}") from None
            logger.warning("the MCP server %s died: %s", self.name, _describe_error(error))
            await self.close()
            raise ToolError(
                f"the server {self.name} died during the call, which may or may not have been"
                " executed; the next call restarts it"
            ) from None

    async def _get_live_client(self) -> Client:
        """Return a client whose server responds; restart a dead server once.

        Check before the call: a call sent to a dying server may have been executed, so it is never
        resent.
        """
        client = await self._get_client()
        if await self._is_alive(client):
            return client
        logger.warning("the MCP server %s is gone; restarting it", self.name)
        await self.close()
        return await self._get_client()

    async def _is_alive(self, client: Client) -> bool:
        """Return whether the server responds. One busy with another call counts as alive."""
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                await client.list_tools(cache_mode="bypass")
        except TimeoutError:
            return True
        except Exception:  # noqa: BLE001  # any other failure means it is dead
            return False
        return True

    async def _get_client(self) -> Client:
        async with self._lock:
            if self._client is not None and self._holder and not self._holder.done():
                return self._client
            self._client, self._release = None, asyncio.Event()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold_connection(ready, self._release))
            try:
                async with asyncio.timeout(self._connect_seconds):
                    client = await asyncio.shield(ready)
            except BaseException as error:
                self._holder.cancel()
                ready.cancel()
                if isinstance(error, Exception):
                    raise self._to_unreachable(error) from error
                raise
            self._client = client
            return client

    async def _hold_connection(self, ready: asyncio.Future[Client], release: asyncio.Event) -> None:
        """Hold the connection open until it is released."""
        try:
            async with AsyncExitStack() as stack:
                server = expand_variables(self._server, self._environment)
                if self._confine is not None:
                    server = await asyncio.to_thread(self._confine, server)
                client = await stack.enter_async_context(_create_client(server, stack))
                if not ready.done():
                    ready.set_result(client)
                await release.wait()
        except Exception as error:  # noqa: BLE001  # a dead server must not end the program
            if not ready.done():
                ready.set_exception(error)
            else:
                logger.warning("the MCP server %s: %s", self.name, _describe_error(error))

    def _to_unreachable(self, error: BaseException) -> McpServerUnreachable:
        message = f"the server {self.name} cannot be reached: {_describe_error(error)}"
        return McpServerUnreachable(message)

    async def close(self) -> None:
        """Close the connection; the next call reconnects."""
        self._release.set()
        holder, self._holder, self._client = self._holder, None, None
        if holder is not None:
            await asyncio.wait([holder], timeout=10)
            holder.cancel()


def expand_variables(server: McpServer, environment: Mapping[str, str]) -> McpServer:
    """Expand `${NAME}` in the server's settings, so that no secret has to be in the file."""

    def look_up(match: re.Match[str]) -> str:
        name, default = match.groups()
        value = environment.get(name) or default
        if value is None:
            raise McpServerUnreachable(f"the environment variable {name} is not set")
        return value

    def expand(text: str) -> str:
        return _VARIABLE.sub(look_up, text)

    return replace(
        server,
        command=expand(server.command),
        args=tuple(map(expand, server.args)),
        env={name: expand(text) for name, text in server.env.items()},
        cwd=expand(server.cwd),
        url=expand(server.url),
        headers={name: expand(text) for name, text in server.headers.items()},
    )


def _create_client(server: McpServer, stack: AsyncExitStack) -> Client:
    try:
        from mcp import Client, StdioServerParameters, stdio_client
    except ImportError:
        raise McpServerUnreachable("MCP is not installed: pip install 'rekindle[mcp]'") from None
    if server.url:
        return _create_http_client(server, stack)
    parameters = StdioServerParameters(
        command=str(Path(server.command).expanduser()),
        args=list(server.args),
        env=dict(server.env),
        cwd=Path(server.cwd).expanduser() if server.cwd else None,
    )
    # Keep its stderr off our terminal.
    quiet = stack.enter_context(Path(os.devnull).open("w"))  # noqa: SIM115  # the stack closes it
    return Client(stdio_client(parameters, errlog=quiet), read_timeout_seconds=server.timeout)


def _create_http_client(server: McpServer, stack: AsyncExitStack) -> Client:
    from httpx2 import AsyncClient, Timeout
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    timeout = Timeout(CONNECT_SECONDS, read=server.timeout)
    http = AsyncClient(headers=dict(server.headers), timeout=timeout)
    stack.push_async_callback(http.aclose)
    transport = streamable_http_client(server.url, http_client=http)
    return Client(transport, read_timeout_seconds=server.timeout)


async def connect_servers(
    connections: Sequence[McpConnection], taken: Iterable[str] = ()
) -> tuple[list[Tool], list[str]]:
    """Return the tools of all servers under unused names, and a message per unreachable server.

    The caller closes the connections in any case.
    """
    listings = await asyncio.gather(
        *(one.list_tools() for one in connections), return_exceptions=True
    )
    tools: list[Tool] = []
    problems: list[str] = []
    names = set(taken)
    for connection, listing in zip(connections, listings, strict=True):
        if isinstance(listing, McpServerUnreachable):
            problems.append(str(listing))
        elif isinstance(listing, BaseException):
            raise listing
        else:
            tools += [connection.to_tool(one, names) for one in listing]
    return tools, problems


def build_toolset_name(server: str) -> str:
    """Return the name of the toolset for a server's tools."""
    return f"mcp-{server}"


def build_tool_prefix(server: str) -> str:
    """Return the prefix of a server's tool names; other programs use the same."""
    return f"mcp__{server}__"


def _make_tool_name(server: str, name: str, taken: set[str]) -> str:
    """Return a unique name that is short enough and uses only characters every provider accepts."""
    full = f"{build_tool_prefix(server)}{name}"
    unique = base = re.sub(r"[^A-Za-z0-9_-]", "_", full)
    number = 0
    while len(unique) > _MAX_NAME_LENGTH or unique in taken:
        digest = sha256(f"{number}{full}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
        unique = f"{base[: _MAX_NAME_LENGTH - 7]}_{digest}"
        number += 1
    taken.add(unique)
    return unique


def _clean_schema(given: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the tool's schema, or an empty one if it cannot be serialized."""
    try:
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return {"type": "object"}
    return {"type": "object", **given}


def _to_result(answer: CallToolResult) -> ToolResult:
    parts: list[str] = []
    for block in answer.content:
        text = getattr(block, "text", None)
        if isinstance(text, str):
            parts.append(text)
        else:
            parts.append(f"[{block.type} content omitted]")
    if not parts and answer.structured_content is not None:
        parts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    text = "\n".join(parts)
    return (
        build_failure(text or "the tool failed silently") if answer.is_error else ToolResult(text)
    )


def _describe_error(error: BaseException) -> str:
    """Describe the first underlying error; errors of several tasks come in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, TimeoutError):
        return "no response"
    if isinstance(error, McpServerUnreachable):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
