"""The `send_file` tool: an agent sends a file of the workspace to the chat it is talking in.

The file is copied when the tool is called, and sent like a text: from the outbox, until the platform
has confirmed it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from rekindle.agent.tools.sandbox_paths import assess_read, open_file, resolve_path
from rekindle.agent.tools.tool import Tool, ToolContext, build_schema
from rekindle.errors import ToolError
from rekindle.routing.source import from_json
from rekindle.types import JSON

MAX_BYTES = 50 * 1024 * 1024
MAX_CAPTION_CHARS = 1000
ROUTE_KEY_NOTE = "route_key"  # the note of a session that holds the key of its conversation


def create_file_tool(folder: Path, excluded: Collection[str] = ()) -> Tool:
    """Create the tool; `folder` keeps the copies until they are old.

    It is not offered in chats of the `excluded` platforms, which cannot send files.
    """

    def handle(context: ToolContext, arguments: Mapping[str, JSON]) -> str:
        key = (context.notes or {}).get(ROUTE_KEY_NOTE)
        assert context.store is not None
        asked, caption = str(arguments["path"]), str(arguments.get("caption", ""))
        copy = _copy_file(context, asked, folder)
        target = from_json(json.loads(context.address)[1])
        context.store.inbox.post(str(key), target, caption, file=str(copy))
        return json.dumps({"queued": asked, "bytes": copy.stat().st_size})

    def find_missing(context: ToolContext) -> str | None:
        if not (context.store and context.address and (context.notes or {}).get(ROUTE_KEY_NOTE)):
            return "there is no chat to send a file to"
        platform = from_json(json.loads(context.address)[1]).platform
        return f"{platform} cannot send files" if platform in excluded else None

    return Tool(
        name="send_file",
        toolset="files",
        description="Send a file of the workspace to this chat, with an optional caption.",
        parameters=build_schema(
            "path",
            path={"type": "string", "minLength": 1},
            caption={"type": "string", "maxLength": MAX_CAPTION_CHARS},
        ),
        handler=handle,
        assess=assess_read,
        missing=find_missing,
        emoji="📎",
        abilities=frozenset(("read_files", "reach_people")),
    )


def delete_old_copies(folder: Path, before: float) -> None:
    """Delete copies that were made before a time; those that were sent are not needed any more."""
    for copy in folder.glob("*/*"):
        try:
            if copy.stat().st_mtime < before:
                copy.unlink()
                copy.parent.rmdir()
        except OSError:  # another gateway was faster
            continue


def _copy_file(context: ToolContext, asked: str, folder: Path) -> Path:
    path = resolve_path(context, asked)
    with open_file(path) as (opened, version):
        if version.size > MAX_BYTES:
            raise ToolError(f"{asked}: larger than {MAX_BYTES // 1_000_000} MB")
        with os.fdopen(os.dup(opened), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    target = folder / secrets.token_hex(8)
    target.mkdir(parents=True, mode=0o700)
    copy = target / path.parts[-1]
    with open(os.open(copy, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return copy
