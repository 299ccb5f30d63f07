"""`write_file`: a whole file at once, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.agent.tools.sandbox_paths import locate, replace_file
from rekindle.agent.tools.tool import Tool, ToolContext, schema
from rekindle.errors import ToolError
from rekindle.types import JSON


def _write(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    content: str = arguments["content"]
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"content: character {error.start} cannot be written as UTF-8") from None
    place = locate(context, arguments["path"])
    is_new = replace_file(place, data)
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    done = "created" if is_new else "replaced"
    return f"{done} {place.asked}: {lines:,} lines, {len(data):,} bytes"


WRITE_FILE = Tool(
    name="write_file",
    toolset="files",
    description=(
        "Write a whole file: create it, with its folders, or replace all of its content. To change"
        " parts of a file use patch."
    ),
    parameters=schema(
        "path",
        "content",
        path={"type": "string", "minLength": 1, "description": "the file"},
        content={"type": "string", "description": "all of its new content"},
    ),
    handler=_write,
    emoji="✍️",
    seconds=30,
)
