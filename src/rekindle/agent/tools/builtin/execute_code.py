"""`execute_code`: run Python in a separate process with limits on time, memory and output.

The process runs in the sandbox with an empty folder of its own and an environment without our secrets.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rekindle.agent.tools.child_process import ChildResult
from rekindle.agent.tools.confinement import (
    ACCESS_LEVELS,
    Access,
    find_confinement_reasons,
    get_sandbox,
    run_confined,
)
from rekindle.agent.tools.environment import build_code_environment
from rekindle.agent.tools.tool import (
    CallAssessment,
    Tool,
    ToolContext,
    ToolResult,
    build_schema,
)
from rekindle.errors import ToolError
from rekindle.sandbox.bubblewrap import SCRATCH
from rekindle.types import JSON

DEFAULT_SECONDS = 60
MAX_SECONDS = 300
MEMORY_MEGABYTES = 1024
FILE_MEGABYTES = 256
OUTPUT_CHARACTERS = 30_000
MAX_CODE_CHARACTERS = 200_000
# The shell lowers its limits and execs the program: no code of ours runs between fork and exec.
_LIMIT_SCRIPT = (
    'ulimit -c 0; ulimit -v "$1" || exit 126; ulimit -f "$2"; ulimit -t "$3"; shift 3; exec "$@"'
)


async def _execute_code(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
    seconds: float = arguments.get("timeout", DEFAULT_SECONDS)
    try:
        code = str(arguments["code"]).encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"code: character {error.start} cannot be encoded as UTF-8") from None
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="rekindle-code-")
    try:
        script = Path(folder, "main.py")
        await asyncio.to_thread(script.write_bytes, code)
        access: Access = arguments.get("access", "sandbox")
        result = await _run_script(context, folder, script, seconds, access)
    except OSError as error:
        raise ToolError(f"could not start the code: {error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _build_result(result, seconds)


async def _run_script(
    context: ToolContext, folder: str, script: Path, seconds: float, access: Access
) -> ChildResult:
    limits = (MEMORY_MEGABYTES * 1024, FILE_MEGABYTES * 2048, int(seconds) + 1)
    limited = ("/bin/sh", "-c", _LIMIT_SCRIPT, "sh", *map(str, limits))
    sandbox = get_sandbox(context)
    is_moved = sandbox.mode == "bubblewrap" and access != "system"
    home = SCRATCH if is_moved else folder
    return await run_confined(
        context,
        (*limited, sys.executable, "-I", "-B", "-X", "utf8", script.name),
        cwd=folder,
        environment=build_code_environment(context, home),
        seconds=seconds,
        characters=OUTPUT_CHARACTERS,
        access=access,
        scratch=folder,
    )


def _assess_code(context: ToolContext, arguments: Mapping[str, JSON]) -> CallAssessment:
    access: Access = arguments.get("access", "sandbox")
    reasons = find_confinement_reasons(context, access)
    if get_sandbox(context).mode == "off":
        reasons = ("runs code without a sandbox",)
    return CallAssessment(str(arguments["code"]), reasons)


def _build_result(result: ChildResult, seconds: float) -> ToolResult:
    error = None
    if result.timed_out:
        error = f"took longer than {seconds:g} s and was stopped"
    elif "MemoryError" in result.output[-2000:] and result.exit_code:
        error = f"exceeded {MEMORY_MEGABYTES} MB of memory"
    elif result.left_running:
        error = "left background processes running; they were stopped"
    answer = {"output": result.output, "exit_code": result.exit_code, "error": error}
    failed = result.timed_out or result.exit_code != 0
    meta: dict[str, JSON] = {
        "exit_code": result.exit_code,
        **({"is_error": True} if failed else {}),
    }
    return ToolResult(json.dumps(answer, ensure_ascii=False), meta)


EXECUTE_CODE = Tool(
    name="execute_code",
    toolset="code",
    description=(
        "Run a Python script in a new process and an empty folder. Returns JSON: output (stdout and"
        " stderr), exit_code, error. Nothing persists between calls. It runs in a sandbox: it sees the"
        " workspace by its absolute path, but no other files, processes or network. Limits:"
        f" {MEMORY_MEGABYTES} MB of memory, {DEFAULT_SECONDS} s unless timeout is set."
    ),
    parameters=build_schema(
        "code",
        code={
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_CODE_CHARACTERS,
            "description": "the script",
        },
        access={
            "type": "string",
            "enum": list(ACCESS_LEVELS),
            "description": (
                "what it needs to reach: sandbox (default), network, or system (outside the sandbox);"
                " the user is asked about the last two"
            ),
        },
        timeout={
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_SECONDS,
            "description": f"time limit in seconds (default {DEFAULT_SECONDS})",
        },
    ),
    handler=_execute_code,
    emoji="🐍",
    seconds=MAX_SECONDS + 30,
    characters=2 * OUTPUT_CHARACTERS + 2000,
    abilities=frozenset(("read_files", "write_files", "run_code", "reach_network")),
    assess=_assess_code,
)
