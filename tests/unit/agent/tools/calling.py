"""Calls a tool as a session would."""

from __future__ import annotations

import asyncio
import json
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
