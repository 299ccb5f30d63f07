"""Tools of MCP servers, as tools of ours.

Each server has one task that holds its connection, since the connection must be opened and closed
by the same task; calls go through the client that it offers. A server that was found dead is
started once more before a call; one that dies during a call makes that call fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from ..errors import InvalidSetting, RekindleError
from ..types import JSON
from .tools.tool import Tool, ToolContext, ToolError, ToolResult, failure

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
CALL_SECONDS = 120.0
_ALIVE_SECONDS = 5.0
_MOST_PAGES = 50
_MOST_TOOLS = 500
_LONGEST_NAME = 64
_DESCRIPTION = 4000
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_KEYS = ("command", "args", "env", "cwd", "url", "headers", "timeout", "enabled")


class Server(NamedTuple):
    """How one server is reached: by a command that speaks over its pipes, or by a URL."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = {}
    seconds: float = CALL_SECONDS


class ServerUnreachable(RekindleError):
    """A server could not be started, or does not answer."""


def servers_from(settings: Mapping[str, JSON]) -> list[Server]:
    """The servers that are switched on in a table such as `mcpServers` of an .mcp.json."""
    found: list[Server] = []
    for name, table in settings.items():
        at = f"mcp.servers.{name}"
        if not _SERVER_NAME.fullmatch(name):
            allowed = "up to 32 letters, digits, _ and -"
            raise InvalidSetting(f"{at}: {name!r:.60} is not allowed as a name; allowed: {allowed}")
        given = _table(at, table)
        server = _server(at, name, given)
        if given.get("enabled", True):
            found.append(server)
    return found


def _server(at: str, name: str, table: Mapping[str, JSON]) -> Server:
    for key in table:
        if key not in (*_KEYS, "type"):
            raise InvalidSetting(f"{at}.{key}: no such setting; allowed: {', '.join(_KEYS)}")
    command, url = table.get("command"), table.get("url")
    if isinstance(command, str) == isinstance(url, str):
        raise InvalidSetting(f"{at}: needs either command (a text) or url (a text)")
    if isinstance(url, str) and not re.match(r"https?://\S+$", url):
        raise InvalidSetting(f"{at}.url: {url!r:.60} is not allowed; allowed: an http(s) URL")
    args = cast("list[object]", table.get("args", []))
    if type(args) is not list or not all(isinstance(arg, str) for arg in args):
        raise InvalidSetting(f"{at}.args: expected a list of texts, got {args!r:.60}")
    seconds = table.get("timeout", CALL_SECONDS)
    if (
        not isinstance(seconds, (int, float))
        or isinstance(seconds, bool)
        or not 0 < seconds <= 3600
    ):
        raise InvalidSetting(f"{at}.timeout: {seconds!r:.60} is not allowed; allowed: 1 to 3600 s")
    cwd = table.get("cwd")
    if cwd is not None and not isinstance(cwd, str):
        raise InvalidSetting(f"{at}.cwd: expected a text, got {cwd!r:.60}")
    return Server(
        name=name,
        command=command,
        args=tuple(map(str, args)),
        env=_texts(f"{at}.env", table.get("env", {})),
        cwd=cwd,
        url=url,
        headers=_texts(f"{at}.headers", table.get("headers", {})),
        seconds=float(seconds),
    )


def _table(at: str, value: JSON) -> dict[str, JSON]:
    if not isinstance(value, Mapping):
        raise InvalidSetting(f"{at}: expected a table, got {value!r:.60}")
    return {str(key): field for key, field in cast("Mapping[object, JSON]", value).items()}


def _texts(at: str, value: JSON) -> dict[str, str]:
    table = _table(at, value)
    for key, field in table.items():
        if not isinstance(field, str):
            raise InvalidSetting(f"{at}.{key}: expected a text")  # its value may be a secret
    return table


class Connection:
    """One server, connected when it is first needed and again after it died."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._release = asyncio.Event()

    async def tools(self) -> list[Tool]:
        """What the server offers, under names that begin with its own."""
        offered: list[ServerTool] = []
        client = await self._connected()
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    page = await client.list_tools(cursor=cursor)
            except Exception as error:
                raise ServerUnreachable(f"{self.server.name}: {_said(error)}") from error
            offered += page.tools
            cursor = page.next_cursor
            if not cursor or len(offered) > _MOST_TOOLS:
                break
        taken: set[str] = set()
        return [self._tool(one, taken) for one in offered[:_MOST_TOOLS]]

    def _tool(self, offered: ServerTool, taken: set[str]) -> Tool:
        async def handler(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
            return await self._called(offered.name, dict(arguments))

        parameters = dict(offered.input_schema)
        parameters.setdefault("type", "object")
        return Tool(
            name=_own_name(self.server.name, offered.name, taken),
            toolset=f"mcp-{self.server.name}",
            description=(offered.description or offered.title or offered.name)[:_DESCRIPTION],
            parameters=parameters,
            handler=handler,
            emoji="🔌",
            seconds=self.server.seconds + 2 * CONNECT_SECONDS,
        )

    async def _called(self, name: str, arguments: dict[str, JSON]) -> ToolResult:
        client = await self._reached()
        try:
            async with asyncio.timeout(self.server.seconds):
                return _result(await client.call_tool(name, arguments))
        except TimeoutError:
            late = f"did not answer within {self.server.seconds:g} s"
            raise ToolError(f"the server {self.server.name} {late}") from None
        except Exception as error:  # noqa: BLE001  # whatever a connection raises when it breaks
            if await self._is_alive(client):
                raise ToolError(f"{self.server.name}: {_said(error)}") from None
            logger.warning("the MCP server %s died: %s", self.server.name, _said(error))
            await self.close()
            raise ToolError(
                f"the server {self.server.name} died during the call, and whether the call was"
                " carried out is not known; the next call starts it again"
            ) from None

    async def _reached(self) -> Client:
        """A client whose server answers. One that died is started again, once.

        It is asked before the call: a call that was sent to a dying server may have been carried
        out, and is not sent a second time.
        """
        try:
            client = await self._connected()
            if await self._is_alive(client):
                return client
            logger.warning("the MCP server %s is gone; it is started again", self.server.name)
            await self.close()
            return await self._connected()
        except ServerUnreachable as error:
            raise ToolError(f"the server {error}") from None

    async def _is_alive(self, client: Client) -> bool:
        """Does anybody answer? One that is busy with another call may take its time."""
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                await client.list_tools(cache_mode="bypass")
        except TimeoutError:
            return True
        except Exception:  # noqa: BLE001  # any other failure means the same
            return False
        return True

    async def _connected(self) -> Client:
        async with self._lock:
            if self._client is not None and self._holder and not self._holder.done():
                return self._client
            self._client, self._release = None, asyncio.Event()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(ready, self._release))
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    client = await asyncio.shield(ready)
            except BaseException as error:
                self._holder.cancel()
                ready.cancel()
                if isinstance(error, Exception):
                    said = f"{self.server.name} cannot be reached: {_said(error)}"
                    raise ServerUnreachable(said) from error
                raise
            self._client = client
            return client

    async def _hold(self, ready: asyncio.Future[Client], release: asyncio.Event) -> None:
        """Keep the connection open until it is released."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(_client(self.server, stack))
                if not ready.done():
                    ready.set_result(client)
                await release.wait()
        except Exception as error:  # noqa: BLE001  # a dead server must not end the program
            if not ready.done():
                ready.set_exception(error)
            else:
                logger.warning("the MCP server %s: %s", self.server.name, _said(error))

    async def close(self) -> None:
        """Let the server go; the next call connects again."""
        self._release.set()
        holder, self._holder, self._client = self._holder, None, None
        if holder is not None:
            await asyncio.wait([holder], timeout=10)
            holder.cancel()


def _client(server: Server, stack: AsyncExitStack) -> Client:
    try:
        from mcp import Client, StdioServerParameters, stdio_client
    except ImportError:
        raise ServerUnreachable("MCP needs the extra: pip install 'rekindle[mcp]'") from None
    if server.url is not None:
        return _over_http(server.url, server, stack)
    parameters = StdioServerParameters(
        command=server.command or "", args=list(server.args), env=dict(server.env), cwd=server.cwd
    )
    # Its stderr must not reach our terminal.
    quiet = stack.enter_context(Path(os.devnull).open("w"))  # noqa: SIM115  # the stack closes it
    return Client(stdio_client(parameters, errlog=quiet), read_timeout_seconds=server.seconds)


def _over_http(url: str, server: Server, stack: AsyncExitStack) -> Client:
    from httpx2 import AsyncClient, Timeout
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    timeout = Timeout(CONNECT_SECONDS, read=server.seconds)
    http = AsyncClient(headers=dict(server.headers), timeout=timeout)
    stack.push_async_callback(http.aclose)
    transport = streamable_http_client(url, http_client=http)
    return Client(transport, read_timeout_seconds=server.seconds)


async def connect(servers: Sequence[Server]) -> tuple[list[Tool], list[Connection], list[str]]:
    """The tools of all servers, their connections (to be closed), and what could not be reached."""
    connections = [Connection(server) for server in servers]
    answers = await asyncio.gather(*(one.tools() for one in connections), return_exceptions=True)
    tools: list[Tool] = []
    problems: list[str] = []
    for answer in answers:
        if isinstance(answer, ServerUnreachable):
            problems.append(str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            tools += answer
    return tools, connections, problems


def _own_name(server: str, name: str, taken: set[str]) -> str:
    """`server_tool` in the letters that every provider takes, told apart where shortening mixes up."""
    base = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{name}")[:_LONGEST_NAME]
    own, number = base, 2
    while own in taken:
        own = f"{base[: _LONGEST_NAME - 4]}_{number}"
        number += 1
    taken.add(own)
    return own


def _result(answer: CallToolResult) -> ToolResult:
    parts: list[str] = []
    for block in answer.content:
        text = getattr(block, "text", None)
        if isinstance(text, str):
            parts.append(text)
        else:
            parts.append(f"[{block.type}, which cannot be shown]")
    if not parts and answer.structured_content is not None:
        parts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    text = "\n".join(parts)
    return (
        failure(text or "the tool failed and said nothing") if answer.is_error else ToolResult(text)
    )


def _said(error: BaseException) -> str:
    """The first real cause: errors of several tasks come in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
