"""A small MCP server for tests: over its pipes, or over HTTP on the port that it is given."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("small")
if len(sys.argv) > 2 and sys.argv[1] == "starts":  # notes each start, for tests to count
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{os.getpid()}\n")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def whoami() -> str:
    """The process id."""
    return str(os.getpid())


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("not today")


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(1)


@server.tool()
def seen(name: str) -> str:
    """An environment variable."""
    return os.environ.get(name, "not set")


@server.tool(name="odd name.with/signs")
def odd() -> str:
    """A name that not every provider takes."""
    return "odd"


@server.tool()
async def slow() -> str:
    """Takes its time."""
    await asyncio.sleep(30)
    return "late"


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
