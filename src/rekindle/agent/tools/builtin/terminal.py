"""`terminal`: run a shell command and wait for it to finish.

Foreground only: anything a command leaves running is terminated with it. The module `process` has the
variant that runs commands in the background and on other backends (`ShellRunner`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from rekindle.agent.tools.child_process import ChildResult
from rekindle.agent.tools.confinement import (
    ACCESS_LEVELS,
    Access,
    find_confinement_reasons,
    run_confined,
)
from rekindle.agent.tools.environment import build_command_environment
from rekindle.agent.tools.sandbox_paths import is_allowed, resolve_path
from rekindle.agent.tools.tool import (
    CallAssessment,
    Tool,
    ToolContext,
    ToolResult,
    build_schema,
)
from rekindle.errors import ToolError
from rekindle.shell.risk import find_risks
from rekindle.types import JSON

DEFAULT_SECONDS = 120
MAX_SECONDS = 600
OUTPUT_CHARACTERS = 30_000

# Runs an approved command in a folder, with a timeout in seconds.
ShellRunner: TypeAlias = Callable[[ToolContext, str, str, float, Access], Awaitable[ChildResult]]
# Maps the folder that the model requested to the one to run in.
WorkdirResolver: TypeAlias = Callable[[ToolContext, str], Awaitable[str]]


async def run_locally(
    context: ToolContext, command: str, workdir: str, seconds: float, access: Access
) -> ChildResult:
    """Run a command on this machine, in the sandbox."""
    shell = shutil.which("bash") or "/bin/sh"
    return await run_confined(
        context,
        (shell, "-c", command),
        cwd=workdir,
        environment=build_command_environment(context),
        seconds=seconds,
        characters=OUTPUT_CHARACTERS,
        access=access,
    )


async def _handle_terminal(
    runner: ShellRunner,
    resolve: WorkdirResolver,
    context: ToolContext,
    arguments: Mapping[str, JSON],
) -> ToolResult:
    command: str = arguments["command"]
    seconds: float = arguments.get("timeout", DEFAULT_SECONDS)
    if "\0" in command:
        raise ToolError("command: must not contain NUL")
    workdir = await resolve(context, arguments.get("workdir", "."))
    try:
        result = await runner(context, command, workdir, seconds, get_access(arguments))
    except (OSError, ValueError) as error:
        raise ToolError(f"could not start the command: {error}") from None
    return _build_result(result, seconds)


async def resolve_workdir(context: ToolContext, asked: str) -> str:
    """Return the requested folder if commands may run there."""
    return await asyncio.to_thread(_check_workdir, context, asked)


def _check_workdir(context: ToolContext, asked: str) -> str:
    path = resolve_path(context, asked).absolute
    if not os.path.isdir(path):
        raise ToolError(f"workdir: {asked} is not a folder")
    return path


def get_access(arguments: Mapping[str, JSON]) -> Access:
    """Return what the call asks to reach."""
    asked = arguments.get("access", "sandbox")
    return asked if asked in ACCESS_LEVELS else "sandbox"


def assess_command(
    context: ToolContext, arguments: Mapping[str, JSON], *, is_local: bool = True
) -> CallAssessment:
    """Assess a command line: the effects that its words show, and what the sandbox does not prevent."""
    command: str = arguments["command"]
    asked: str = arguments.get("workdir", ".")
    workdir = _check_workdir(context, asked) if is_local else asked
    reasons = find_command_risks(command, context, workdir)
    if is_local:
        background = bool(arguments.get("background"))
        access = get_access(arguments)
        reasons += find_confinement_reasons(context, access, background=background)
    return CallAssessment(command, reasons, workdir)


def find_command_risks(command: str, context: ToolContext, workdir: str) -> tuple[str, ...]:
    """Return why the command needs approval in this context; empty if it is harmless."""
    return find_risks(
        command,
        workdir,
        home=context.environment.get("HOME", "/"),
        is_allowed=lambda path: is_allowed(context, path),
    )


def _build_result(result: ChildResult, seconds: float) -> ToolResult:
    error = None
    if result.timed_out:
        error = f"took longer than {seconds:g} s and was stopped with everything it started"
    elif result.left_running:
        error = "left background processes running; they were stopped"
    answer = {"output": result.output, "exit_code": result.exit_code, "error": error}
    meta: dict[str, JSON] = {"exit_code": result.exit_code}
    if result.timed_out:
        meta["is_error"] = True
    return ToolResult(json.dumps(answer, ensure_ascii=False), meta)


def build_terminal(
    runner: ShellRunner = run_locally,
    resolve: WorkdirResolver = resolve_workdir,
    *,
    is_local: bool = True,
) -> Tool:
    """Build the tool, with commands run by `runner` in the folder that `resolve` returns."""
    return Tool(
        name="terminal",
        toolset="terminal",
        description=(
            "Run a shell command and wait for it to finish. Returns JSON: output (stdout and stderr"
            " combined), exit_code, error. Every call starts a new shell: `cd` and variables do not"
            " persist. There is no input. Commands run in a sandbox: they see the workspace and the"
            " installed programs, but no other files, processes or network. Dangerous commands may need"
            " the user's approval."
        ),
        parameters=build_schema(
            "command",
            command={"type": "string", "minLength": 1, "description": "command line for bash"},
            workdir={"type": "string", "description": "folder to run it in"},
            access={
                "type": "string",
                "enum": list(ACCESS_LEVELS),
                "description": (
                    "what it needs to reach: sandbox (default), network, or system (outside the"
                    " sandbox); the user is asked about the last two"
                ),
            },
            timeout={
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_SECONDS,
                "description": f"time limit in seconds (default {DEFAULT_SECONDS})",
            },
        ),
        handler=partial(_handle_terminal, runner, resolve),
        emoji="💻",
        seconds=None,  # has its own limit, and approval may take longer
        characters=2 * OUTPUT_CHARACTERS + 2000,  # JSON may escape a character as two
        abilities=frozenset(("read_files", "write_files", "run_code", "reach_network")),
        assess=partial(assess_command, is_local=is_local),
    )


TERMINAL = build_terminal()
