"""`terminal`: run a command in a shell and wait for its end.

Only in the foreground: what a command leaves running is ended with it. `process` has the one that
can leave commands running, and that runs them in another place (`Runner`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from rekindle.agent.tools.child_process import Ended, run
from rekindle.agent.tools.environment import for_commands
from rekindle.agent.tools.sandbox_paths import locate
from rekindle.agent.tools.tool import Question, Tool, ToolContext, ToolResult, schema
from rekindle.errors import ToolError
from rekindle.shell.risk import reasons
from rekindle.types import JSON

DEFAULT_SECONDS = 120
MAX_SECONDS = 600
OUTPUT_CHARACTERS = 30_000
_APPROVAL_TEXT = {
    "always": "every command needs approval",
    "dangerous": "dangerous commands need approval",
    "refuse": "dangerous commands are not allowed",
}

# Runs an approved command in a folder for at most so many seconds.
Runner: TypeAlias = Callable[[ToolContext, str, str, float], Awaitable[Ended]]
# The folder to run it in, from what the model asked for.
Folder: TypeAlias = Callable[[ToolContext, str], Awaitable[str]]


async def run_here(context: ToolContext, command: str, workdir: str, seconds: float) -> Ended:
    """Run a command on this machine."""
    shell = shutil.which("bash") or "/bin/sh"
    return await run(
        (shell, "-c", command),
        cwd=workdir,
        environment=for_commands(context),
        seconds=seconds,
        characters=OUTPUT_CHARACTERS,
    )


async def _terminal(
    runner: Runner, folder: Folder, context: ToolContext, arguments: Mapping[str, JSON]
) -> ToolResult:
    command: str = arguments["command"]
    seconds: float = arguments.get("timeout", DEFAULT_SECONDS)
    if "\0" in command:
        raise ToolError("command: a NUL cannot be part of a command")
    workdir = await folder(context, arguments.get("workdir", "."))
    await approved(context, command, workdir)
    try:
        ended = await runner(context, command, workdir, seconds)
    except (OSError, ValueError) as error:
        raise ToolError(f"the command could not be started: {error}") from None
    return _told(ended, seconds)


async def workdir_of(context: ToolContext, asked: str) -> str:
    """The folder that the model asked for, if commands may run there."""
    return await asyncio.to_thread(_workdir, context, asked)


def _workdir(context: ToolContext, asked: str) -> str:
    path = locate(context, asked).path
    if not os.path.isdir(path):
        raise ToolError(f"workdir: {asked} is not a folder")
    return path


async def approved(context: ToolContext, command: str, workdir: str) -> None:
    """Return if the command may run; else a ToolError that says what the model can do."""
    if context.approval == "never":
        return
    # In a thread: links are followed on the disk, which may be slow.
    why = await asyncio.to_thread(reasons, command, context, workdir)
    if not why and context.approval != "always":
        return
    rule = _APPROVAL_TEXT[context.approval]
    said = f"{rule}; this one: {'; '.join(why)}" if why else rule
    if context.approval == "refuse":
        raise ToolError(f"refused: {said}. Find another way.", refused=True)
    if context.approve is None:
        hint = "Find another way, or tell the user what to run."
        raise ToolError(f"refused: {said}, and nobody can be asked here. {hint}", refused=True)
    if not await context.approve(Question("terminal", command, workdir, why)):
        hint = "Do not try again; ask what to do instead."
        raise ToolError(f"refused by the user: {said}. {hint}", refused=True)


def _told(ended: Ended, seconds: float) -> ToolResult:
    error = None
    if ended.timed_out:
        error = f"took longer than {seconds:g} s; it was ended with all that it had started"
    elif ended.left_running:
        error = "left something running in the background, which was ended with the command"
    said = {"output": ended.output, "exit_code": ended.exit_code, "error": error}
    meta: dict[str, JSON] = {"exit_code": ended.exit_code}
    if ended.timed_out:
        meta["is_error"] = True
    return ToolResult(json.dumps(said, ensure_ascii=False), meta)


def terminal(runner: Runner = run_here, folder: Folder = workdir_of) -> Tool:
    """The tool, running its commands in the place that `runner` and `folder` stand for."""
    return Tool(
        name="terminal",
        toolset="terminal",
        description=(
            "Run a shell command and wait for its end. Answers with JSON: output (stdout and stderr"
            " together), exit_code, error. Every call starts a new shell: `cd` and variables do not"
            " last. There is no input. Dangerous commands may need the user's approval."
        ),
        parameters=schema(
            "command",
            command={"type": "string", "minLength": 1, "description": "the command line, for bash"},
            workdir={"type": "string", "description": "folder to run it in"},
            timeout={
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_SECONDS,
                "description": f"seconds until it is ended (default {DEFAULT_SECONDS})",
            },
        ),
        handler=partial(_terminal, runner, folder),
        emoji="💻",
        seconds=None,  # its own limit; and a person may take longer to answer
        characters=2 * OUTPUT_CHARACTERS + 2000,  # as JSON a character may take two
    )


TERMINAL = terminal()
