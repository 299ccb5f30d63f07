"""`write_file`: write a whole file atomically."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.agent.tools.sandbox_paths import assess_write, replace_file, resolve_path
from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.errors import ToolError
from rekindle.types import JSON


def _write_file(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
    content: str = arguments["content"]
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"content: character {error.start} cannot be encoded as UTF-8") from None
    path = resolve_path(context, arguments["path"])
    is_new = replace_file(path, data)
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    done = "created" if is_new else "replaced"
    return f"{done} {path.asked}: {lines:,} lines, {len(data):,} bytes"


WRITE_FILE = Tool(
    name="write_file",
    toolset="files",
    description=(
        "Write a whole file: create it, with its parent folders, or replace its content. To change"
        " parts of a file, use patch."
    ),
    parameters=build_schema(
        "path",
        "content",
        path={"type": "string", "minLength": 1, "description": "path of the file"},
        content={"type": "string", "description": "the complete new content"},
    ),
    handler=_write_file,
    abilities=frozenset(("read_files", "write_files")),
    assess=assess_write,
    emoji="✍️",
    seconds=30,
)
