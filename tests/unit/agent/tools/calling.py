"""Calls a tool as a session would."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult
from rekindle.types import ToolCall


def call(tool: Tool, context: ToolContext, /, **arguments: Any) -> ToolResult:
    box = ToolRegistry([tool]).select()
    return asyncio.run(box.run(ToolCall("1", tool.name, json.dumps(arguments)), context))


def text(tool: Tool, context: ToolContext, /, **arguments: Any) -> str:
    result = call(tool, context, **arguments)
    assert not result.is_error, result.content
    return result.content


def error(tool: Tool, context: ToolContext, /, **arguments: Any) -> str:
    result = call(tool, context, **arguments)
    assert result.is_error, result.content
    return json.loads(result.content)["error"]


def name_sleep(number: int) -> str:
    """Return a `sleep` that no other test runs: in a sandbox, its process id means nothing here."""
    return f"sleep {number}.{os.getpid()}"


def remains_asleep(command: str) -> bool:
    """Return whether this `sleep` is running in any sandbox; wait a moment for it to end."""
    words = command.replace(" ", "\0").encode() + b"\0"
    end = time.monotonic() + 5
    while _has_process(words):
        if time.monotonic() > end:
            return True
        time.sleep(0.02)
    return False


def is_sleeping(command: str) -> bool:
    """Return whether this `sleep` is running now."""
    return _has_process(command.replace(" ", "\0").encode() + b"\0")


def _has_process(words: bytes) -> bool:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes() == words:
                return True
        except OSError:
            continue
    return False
