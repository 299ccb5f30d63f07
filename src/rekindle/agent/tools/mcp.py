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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rekindle.config import McpServer
from rekindle.errors import ServerUnreachable, ToolError
from rekindle.types import JSON

from .tool import Tool, ToolContext, ToolResult, failure
from .truncate import speakable

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool

logger = logging.getLogger(__name__)
logging.getLogger("mcp").addHandler(logging.NullHandler())  # we tell of servers that fail

CONNECT_SECONDS = 20.0
_ALIVE_SECONDS = 5.0
_MOST_PAGES = 50
_MOST_TOOLS = 500
_LONGEST_NAME = 64
_DESCRIPTION = 4000
# `${NAME}` and `${NAME:-instead}`, as other programs have it.
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Connection:
    """One server, connected when it is first needed and again after it died."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        environment: Mapping[str, str] | None = None,
        seconds: float = CONNECT_SECONDS,
    ) -> None:
        self.name = name
        self._given = server
        self._environment = environment or {}
        self._seconds = seconds  # to connect
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._release = asyncio.Event()

    async def offered(self) -> list[ServerTool]:
        """The tools as the server has them."""
        offered: list[ServerTool] = []
        client = await self._connected()
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            try:
                async with asyncio.timeout(self._seconds):
                    page = await client.list_tools(cursor=cursor)
            except Exception as error:
                raise self._unreachable(error) from error
            offered += page.tools
            cursor = page.next_cursor
            if not cursor or len(offered) > _MOST_TOOLS:
                break
        return offered[:_MOST_TOOLS]

    def tool(self, offered: ServerTool, taken: set[str]) -> Tool:
        """A tool of the server as one of ours, under a name that is not taken; it is then."""

        async def handler(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
            return await self._called(offered.name, dict(arguments))

        said = offered.description or offered.title or offered.name
        return Tool(
            name=_own_name(self.name, offered.name, taken),
            toolset=toolset_of(self.name),
            description=speakable(said)[:_DESCRIPTION],
            parameters=_schema(offered.input_schema),
            handler=handler,
            emoji="🔌",
            seconds=self._given.timeout + 2 * self._seconds,
        )

    async def _called(self, name: str, arguments: dict[str, JSON]) -> ToolResult:
        client = await self._reached()
        try:
            async with asyncio.timeout(self._given.timeout):
                return _result(await client.call_tool(name, arguments))
        except TimeoutError:
            late = f"did not answer within {self._given.timeout:g} s"
            raise ToolError(f"the server {self.name} {late}") from None
        except Exception as error:  # noqa: BLE001  # whatever a connection raises when it breaks
            if await self._is_alive(client):
                raise ToolError(f"{self.name}: {_said(error)}") from None
            logger.warning("the MCP server %s died: %s", self.name, _said(error))
            await self.close()
            raise ToolError(
                f"the server {self.name} died during the call, and whether the call was"
                " carried out is not known; the next call starts it again"
            ) from None

    async def _reached(self) -> Client:
        """A client whose server answers. One that died is started again, once.

        It is asked before the call: a call that was sent to a dying server may have been carried
        out, and is not sent a second time.
        """
        client = await self._connected()
        if await self._is_alive(client):
            return client
        logger.warning("the MCP server %s is gone; it is started again", self.name)
        await self.close()
        return await self._connected()

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
                async with asyncio.timeout(self._seconds):
                    client = await asyncio.shield(ready)
            except BaseException as error:
                self._holder.cancel()
                ready.cancel()
                if isinstance(error, Exception):
                    raise self._unreachable(error) from error
                raise
            self._client = client
            return client

    async def _hold(self, ready: asyncio.Future[Client], release: asyncio.Event) -> None:
        """Keep the connection open until it is released."""
        try:
            async with AsyncExitStack() as stack:
                server = filled_in(self._given, self._environment)
                client = await stack.enter_async_context(_client(server, stack))
                if not ready.done():
                    ready.set_result(client)
                await release.wait()
        except Exception as error:  # noqa: BLE001  # a dead server must not end the program
            if not ready.done():
                ready.set_exception(error)
            else:
                logger.warning("the MCP server %s: %s", self.name, _said(error))

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        said = f"the server {self.name} cannot be reached: {_said(error)}"
        return ServerUnreachable(said)

    async def close(self) -> None:
        """Let the server go; the next call connects again."""
        self._release.set()
        holder, self._holder, self._client = self._holder, None, None
        if holder is not None:
            await asyncio.wait([holder], timeout=10)
            holder.cancel()


def filled_in(server: McpServer, environment: Mapping[str, str]) -> McpServer:
    """The server with `${NAME}` replaced, so that no secret needs to stand in the file."""

    def value(found: re.Match[str]) -> str:
        name, instead = found.groups()
        given = environment.get(name) or instead
        if given is None:
            raise ServerUnreachable(f"the environment variable {name} is not set")
        return given

    def fill(text: str) -> str:
        return _VARIABLE.sub(value, text)

    return replace(
        server,
        command=fill(server.command),
        args=tuple(map(fill, server.args)),
        env={name: fill(text) for name, text in server.env.items()},
        cwd=fill(server.cwd),
        url=fill(server.url),
        headers={name: fill(text) for name, text in server.headers.items()},
    )


def _client(server: McpServer, stack: AsyncExitStack) -> Client:
    try:
        from mcp import Client, StdioServerParameters, stdio_client
    except ImportError:
        raise ServerUnreachable("MCP needs the extra: pip install 'rekindle[mcp]'") from None
    if server.url:
        return _over_http(server, stack)
    parameters = StdioServerParameters(
        command=str(Path(server.command).expanduser()),
        args=list(server.args),
        env=dict(server.env),
        cwd=Path(server.cwd).expanduser() if server.cwd else None,
    )
    # Its stderr must not reach our terminal.
    quiet = stack.enter_context(Path(os.devnull).open("w"))  # noqa: SIM115  # the stack closes it
    return Client(stdio_client(parameters, errlog=quiet), read_timeout_seconds=server.timeout)


def _over_http(server: McpServer, stack: AsyncExitStack) -> Client:
    from httpx2 import AsyncClient, Timeout
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    timeout = Timeout(CONNECT_SECONDS, read=server.timeout)
    http = AsyncClient(headers=dict(server.headers), timeout=timeout)
    stack.push_async_callback(http.aclose)
    transport = streamable_http_client(server.url, http_client=http)
    return Client(transport, read_timeout_seconds=server.timeout)


async def connect(
    connections: Sequence[Connection], taken: Iterable[str] = ()
) -> tuple[list[Tool], list[str]]:
    """The tools of all servers, under names that are not taken, and what could not be reached.

    Whatever comes of it, the connections are to be closed by the caller.
    """
    answers = await asyncio.gather(*(one.offered() for one in connections), return_exceptions=True)
    tools: list[Tool] = []
    problems: list[str] = []
    names = set(taken)
    for connection, answer in zip(connections, answers, strict=True):
        if isinstance(answer, ServerUnreachable):
            problems.append(str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            tools += [connection.tool(one, names) for one in answer]
    return tools, problems


def toolset_of(server: str) -> str:
    """The toolset that the tools of a server are in."""
    return f"mcp-{server}"


def prefix_of(server: str) -> str:
    """How the names of its tools begin, as in other programs."""
    return f"mcp__{server}__"


def _own_name(server: str, name: str, taken: set[str]) -> str:
    """The name in the letters that every provider takes, short enough, and unlike any other."""
    real = f"{prefix_of(server)}{name}"
    own = base = re.sub(r"[^A-Za-z0-9_-]", "_", real)
    number = 0
    while len(own) > _LONGEST_NAME or own in taken:
        digest = sha256(f"{number}{real}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
        own = f"{base[: _LONGEST_NAME - 7]}_{digest}"
        number += 1
    taken.add(own)
    return own


def _schema(given: Mapping[str, JSON]) -> dict[str, JSON]:
    """The schema of a tool; one that could not be sent must not keep all the others from it."""
    try:
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return {"type": "object"}
    return {"type": "object", **given}


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
    if isinstance(error, ServerUnreachable):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
