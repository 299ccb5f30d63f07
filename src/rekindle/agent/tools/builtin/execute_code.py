"""`execute_code`: Python in a process of its own, with limits on time, memory and output.

The process gets an empty folder, and an environment without anything of ours. It runs as the same
user: the limits keep a mistake small, they are no sandbox.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rekindle.agent.tools.child_process import Ended, run
from rekindle.agent.tools.environment import for_code
from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult, schema
from rekindle.errors import ToolError
from rekindle.types import JSON

DEFAULT_SECONDS = 60
MAX_SECONDS = 300
MEMORY_MEGABYTES = 1024
FILE_MEGABYTES = 256
OUTPUT_CHARACTERS = 30_000
MAX_CODE = 200_000
# The shell lowers its own limits and becomes the program: nothing of ours runs between fork and exec.
_LIMITED = (
    'ulimit -c 0; ulimit -v "$1" || exit 126; ulimit -f "$2"; ulimit -t "$3"; shift 3; exec "$@"'
)


async def _execute(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
    seconds: float = arguments.get("timeout", DEFAULT_SECONDS)
    try:
        code = str(arguments["code"]).encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"code: character {error.start} cannot be written as UTF-8") from None
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="rekindle-code-")
    try:
        script = Path(folder, "main.py")
        await asyncio.to_thread(script.write_bytes, code)
        ended = await _run(context, folder, script, seconds)
    except OSError as error:
        raise ToolError(f"the code could not be started: {error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _told(ended, seconds)


async def _run(context: ToolContext, folder: str, script: Path, seconds: float) -> Ended:
    limits = (MEMORY_MEGABYTES * 1024, FILE_MEGABYTES * 2048, int(seconds) + 1)
    limited = ("/bin/sh", "-c", _LIMITED, "sh", *map(str, limits))
    return await run(
        (*limited, sys.executable, "-I", "-B", "-X", "utf8", script.name),
        cwd=folder,
        environment=for_code(context, folder),
        seconds=seconds,
        characters=OUTPUT_CHARACTERS,
    )


def _told(ended: Ended, seconds: float) -> ToolResult:
    error = None
    if ended.timed_out:
        error = f"took longer than {seconds:g} s and was ended"
    elif "MemoryError" in ended.output[-2000:] and ended.exit_code:
        error = f"more than {MEMORY_MEGABYTES} MB of memory"
    elif ended.left_running:
        error = "left something running in the background, which was ended with the code"
    said = {"output": ended.output, "exit_code": ended.exit_code, "error": error}
    failed = ended.timed_out or ended.exit_code != 0
    meta: dict[str, JSON] = {"exit_code": ended.exit_code, **({"is_error": True} if failed else {})}
    return ToolResult(json.dumps(said, ensure_ascii=False), meta)


EXECUTE_CODE = Tool(
    name="execute_code",
    toolset="code",
    description=(
        "Run a Python script in a new process and an empty folder. Answers with JSON: output (what it"
        " printed), exit_code, error. Nothing lasts from one call to the next. Limits:"
        f" {MEMORY_MEGABYTES} MB of memory, {DEFAULT_SECONDS} s unless timeout says otherwise."
    ),
    parameters=schema(
        "code",
        code={"type": "string", "minLength": 1, "maxLength": MAX_CODE, "description": "the script"},
        timeout={
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_SECONDS,
            "description": f"seconds until it is ended (default {DEFAULT_SECONDS})",
        },
    ),
    handler=_execute,
    emoji="🐍",
    seconds=MAX_SECONDS + 30,
    characters=2 * OUTPUT_CHARACTERS + 2000,
)
