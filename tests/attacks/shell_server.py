"""An MCP server with one tool: run a shell command."""

from __future__ import annotations

import os
import signal
import subprocess

from mcp.server.mcpserver import MCPServer

SECONDS = 10

server = MCPServer("shell")


@server.tool()
def run(command: str) -> str:
    """Run a shell command, and end it with everything that it started if it takes too long."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return output.decode("utf-8", "replace")


if __name__ == "__main__":
    server.run("stdio")
