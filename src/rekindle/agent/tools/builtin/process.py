"""`process`: manage background processes; and a `terminal` that can start them.

Both use a process supervisor or registry (`Processes`). A process belongs to the session's owner, or
to the session itself if the owner is unknown; nobody else can see it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rekindle.agent.tools.child_process import ChildResult
from rekindle.agent.tools.confinement import Access, confine_command
from rekindle.agent.tools.environment import build_command_environment
from rekindle.agent.tools.tool import (
    CallAssessment,
    Tool,
    ToolContext,
    ToolResult,
    build_schema,
)
from rekindle.agent.tools.truncate import truncate_middle
from rekindle.errors import InvalidInput, NotFound, ProcessError, ToolError
from rekindle.processes.backends.base import TerminalSize
from rekindle.processes.operations import Processes
from rekindle.processes.types import Process, Watch
from rekindle.types import JSON

from .terminal import (
    OUTPUT_CHARACTERS,
    build_terminal,
    find_command_risks,
    get_access,
    resolve_workdir,
    run_locally,
)

ACTIONS = ("list", "poll", "log", "wait", "kill", "write", "submit", "close")
WAIT_SECONDS = 60.0
LOG_LINES = 200
MIN_INTERVAL = 10
_READER_NAME = "agent"
_MAX_LISTED = 50  # processes in one result
_MAX_COMMAND_CHARACTERS = 300  # characters of a command line


class ProcessStarter(NamedTuple):
    """A starter of processes on one backend: `local`, `container:box`, …"""

    processes: Processes
    backend: str = "local"

    @property
    def is_local(self) -> bool:
        return self.backend == "local"

    async def start(
        self,
        context: ToolContext,
        command: str,
        workdir: str,
        *,
        pty: bool = False,
        watches: tuple[Watch, ...] = (),
        access: Access = "sandbox",
    ) -> Process:
        """Start an approved command in its own shell; on this machine, in the sandbox."""
        shell = (shutil.which("bash") or "/bin/sh") if self.is_local else "sh"
        environment = build_command_environment(context) if self.is_local else {}
        wrapper: tuple[str, ...] = ()
        if self.is_local:
            confined = await confine_command(context, workdir, environment, access, background=True)
            if confined is not None:
                wrapper, environment = confined.wrapper, dict(confined.environment)
        try:
            return await self.processes.start(
                (shell, "-c", command),
                owner=get_owner(context),
                cwd=workdir,
                env=environment,
                pty=TerminalSize() if pty else None,
                backend=self.backend,
                watches=watches,
                session=context.session,
                wrapper=wrapper,
            )
        except (ProcessError, InvalidInput) as error:
            raise ToolError(f"could not start the command: {error}") from None

    async def resolve_folder(self, context: ToolContext, asked: str) -> str:
        """Return the folder to run in; a remote backend validates it itself."""
        if self.is_local:
            return await resolve_workdir(context, asked)
        return "" if asked == "." else asked


def get_owner(context: ToolContext) -> str:
    """Return the owner whose processes a session starts and sees."""
    return context.owner or context.session


# -- terminal


async def _handle_terminal(
    starter: ProcessStarter, foreground: Tool, context: ToolContext, arguments: Mapping[str, JSON]
) -> ToolResult:
    if not arguments.get("background"):
        for name in _BACKGROUND_PARAMETERS:
            if arguments.get(name):
                raise ToolError(f"{name}: only allowed with background=true")
        remaining = {
            name: arguments[name] for name in arguments if name not in _BACKGROUND_PARAMETERS
        }
        remaining.pop("background", None)
        answer: Any = foreground.handler(context, remaining)
        return await answer
    command: str = arguments["command"]
    if "\0" in command:
        raise ToolError("command: must not contain NUL")
    if "timeout" in arguments:
        raise ToolError("timeout: not allowed with background=true; end it with `process`")
    workdir = await starter.resolve_folder(context, arguments.get("workdir", "."))
    process = await starter.start(
        context,
        command,
        workdir,
        pty=bool(arguments.get("pty")),
        watches=_build_watches(context, arguments),
        access=get_access(arguments),
    )
    fields = {"process_id": process.id, "state": process.state, "pid": process.pid}
    hint = "Running in the background; manage it with `process`."
    return ToolResult(json.dumps({**fields, "hint": hint}, ensure_ascii=False))


def _build_watches(context: ToolContext, arguments: Mapping[str, JSON]) -> tuple[Watch, ...]:
    """Build the watches; their reports go to the conversation that started the command."""
    note = context.address or context.session
    watches = [Watch("end", note=note)]
    if seconds := arguments.get("check_interval"):
        watches.append(Watch("interval", seconds=seconds, note=note))
    if pattern := arguments.get("watch_for"):
        watches.append(Watch("pattern", pattern=pattern, note=note))
    return tuple(watches)


async def _run_on_backend(
    starter: ProcessStarter,
    context: ToolContext,
    command: str,
    workdir: str,
    seconds: float,
    access: Access,
) -> ChildResult:
    """Run a command on another backend and wait for its end; leave nothing running there."""
    processes, owner = starter.processes, get_owner(context)
    process = await starter.start(context, command, workdir, access=access)
    id, end = process.id, time.monotonic() + seconds
    try:
        await processes.close_stdin(id, owner=owner)
        while process.live and (left := end - time.monotonic()) > 0:
            process = (await processes.wait(id, left, owner=owner, reader=_READER_NAME)).process
        log = await processes.read_log(id, owner=owner)
    except (ProcessError, NotFound) as error:
        raise ToolError(f"{starter.backend}: {error}") from None
    finally:
        if process.live:  # timed out, or the turn was stopped
            await asyncio.shield(processes.kill(id, owner=owner))
    if process.state == "lost":
        raise ToolError(f"{starter.backend}: lost the command: {process.reason}")
    code = 137 if process.exit_code is None else process.exit_code
    return ChildResult(truncate_middle(log.output, OUTPUT_CHARACTERS), code, timed_out=process.live)


# -- process


async def _handle_process(
    processes: Processes, context: ToolContext, arguments: Mapping[str, JSON]
) -> ToolResult:
    action: str = arguments["action"]
    owner = get_owner(context)
    try:
        if action == "list":
            return _list_processes(await processes.list(owner=owner))
        id: str | None = arguments.get("process_id")
        if not id:
            raise ToolError(f"process_id: required for {action}; get one from `list`")
        return await _ACTION_HANDLERS[action](processes, id, owner, arguments)
    except NotFound as error:
        raise ToolError(f"{error}; see `list`") from None
    except (ProcessError, InvalidInput) as error:
        raise ToolError(f"{action}: {error}") from None


def _assess_action(context: ToolContext, arguments: Mapping[str, JSON]) -> CallAssessment:
    """Assess an action: input may be a command, and is read by the same rules."""
    action: str = arguments["action"]
    command = f"{action} {arguments.get('process_id', '')} {arguments.get('data', '')}".strip()
    if action not in ("write", "submit"):
        return CallAssessment(command, acts=action == "kill")
    risks = find_command_risks(str(arguments.get("data", "")), context, str(context.cwd))
    return CallAssessment(command, risks)


def _list_processes(found: list[Process]) -> ToolResult:
    fields: dict[str, JSON] = {
        "processes": [_describe_process(one) for one in found[-_MAX_LISTED:]]
    }
    if len(found) > _MAX_LISTED:
        fields["older"] = len(found) - _MAX_LISTED
    return _build_result(**fields)


async def _poll_process(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    found = await processes.poll(id, owner=owner, reader=_READER_NAME)
    return _build_result(found.process, found.output, **_build_dropped_field(found.dropped))


async def _read_log(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    offset, limit = arguments.get("offset"), arguments.get("limit", LOG_LINES)
    if offset is None:
        found = await processes.read_log(id, owner=owner, tail=limit)
    else:
        found = await processes.read_log(id, owner=owner, offset=offset, limit=limit)
    gap = _build_dropped_field(found.process.dropped)
    return _build_result(found.process, found.output, lines_kept=found.lines, **gap)


async def _wait_for_process(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    seconds: float = arguments.get("timeout", WAIT_SECONDS)
    found = await processes.wait(id, seconds, owner=owner, reader=_READER_NAME)
    fields: dict[str, JSON] = {"timed_out": found.timed_out, **_build_dropped_field(found.dropped)}
    if found.clamped is not None:
        fields["note"] = f"{seconds:g} s exceeds the limit; waited at most {found.clamped:g} s"
    return _build_result(found.process, found.output, **fields)


async def _kill_process(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    return _build_result(await processes.kill(id, owner=owner))


async def _write_input(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    data: str | None = arguments.get("data")
    if data is None:
        raise ToolError("data: required; the text to write")
    send = processes.submit if arguments["action"] == "submit" else processes.write
    accepted, total = await send(id, data, owner=owner)
    if accepted < total:
        raise ToolError(
            f"the program is not reading its input: it accepted {accepted} of {total} bytes"
        )
    return _build_result(written=accepted)


async def _close_input(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    await processes.close_stdin(id, owner=owner)
    return _build_result(closed=True)


_ActionHandler: TypeAlias = Callable[
    [Processes, str, str, Mapping[str, JSON]], Awaitable[ToolResult]
]
_ACTION_HANDLERS: Mapping[str, _ActionHandler] = {
    "poll": _poll_process,
    "log": _read_log,
    "wait": _wait_for_process,
    "kill": _kill_process,
    "write": _write_input,
    "submit": _write_input,
    "close": _close_input,
}


def _build_dropped_field(dropped: int) -> dict[str, JSON]:
    """Return the field for output that was dropped before this, if any."""
    return {"dropped_bytes": dropped} if dropped else {}


def _build_result(
    process: Process | None = None, output: str | None = None, **told: JSON
) -> ToolResult:
    answer: dict[str, JSON] = {} if process is None else _describe_process(process)
    if output is not None:
        answer["output"] = truncate_middle(output, OUTPUT_CHARACTERS)
    meta: dict[str, JSON] = {}
    if process is not None and process.exit_code is not None and process.state == "exited":
        meta["exit_code"] = process.exit_code
    return ToolResult(json.dumps({**answer, **told}, ensure_ascii=False), meta)


def _describe_process(process: Process) -> dict[str, JSON]:
    fields: dict[str, JSON] = {
        "process_id": process.id,
        "state": process.state,
        "exit_code": process.exit_code,
        "command": truncate_middle(process.command, _MAX_COMMAND_CHARACTERS),
        "seconds": round((process.ended or time.time()) - process.started, 1),
        "bytes": process.bytes,
    }
    return {**fields, "reason": process.reason} if process.reason else fields


# -- the tools

_BACKGROUND_PARAMETERS: Mapping[str, Mapping[str, JSON]] = {
    "pty": {
        "type": "boolean",
        "description": "run it in a terminal, for interactive programs (background only)",
    },
    "check_interval": {
        "type": "number",
        "minimum": MIN_INTERVAL,
        "description": "seconds between status reports to this conversation (background only)",
    },
    "watch_for": {
        "type": "string",
        "minLength": 1,
        "maxLength": 500,
        "description": "report output lines that match this regular expression (background only)",
    },
}


def build_background_tools(processes: Processes, backend: str = "local") -> tuple[Tool, Tool]:
    """Build a `terminal` that can run commands in the background, and the `process` tool."""
    starter = ProcessStarter(processes, backend)
    runner = run_locally if starter.is_local else partial(_run_on_backend, starter)
    foreground = build_terminal(runner, starter.resolve_folder, is_local=starter.is_local)
    parameters = dict(foreground.parameters)
    parameters["properties"] = {
        **foreground.parameters["properties"],
        "background": {
            "type": "boolean",
            "description": "run it in the background and return its process_id immediately",
        },
        **_BACKGROUND_PARAMETERS,
    }
    extended = foreground._replace(
        description=(
            f"{foreground.description} With background=true it keeps running after this call, even if"
            " this program exits (for servers, watchers, long builds); its end is reported to this"
            " conversation."
        ),
        parameters=parameters,
        handler=partial(_handle_terminal, starter, foreground),
    )
    return extended, _build_process_tool(processes)


def _build_process_tool(processes: Processes) -> Tool:
    return Tool(
        name="process",
        toolset="terminal",
        description=(
            "Manage background processes started by `terminal`. Actions: list; poll (state and new"
            " output since the last poll); log (the last lines, or `limit` lines from line"
            " `offset`); wait (until it exits, or `timeout` seconds); kill (with all its children);"
            " write (raw input); submit (a line with Enter); close (close its input)."
        ),
        parameters=build_schema(
            "action",
            action={"type": "string", "enum": list(ACTIONS)},
            process_id={"type": "string", "description": "the process; not for list"},
            data={"type": "string", "description": "the input for write and submit"},
            offset={"type": "integer", "minimum": 0, "description": "first line for log"},
            limit={"type": "integer", "minimum": 1, "description": "lines for log (default 200)"},
            timeout={
                "type": "number",
                "minimum": 0,
                "description": "seconds for wait (default 60)",
            },
        ),
        handler=partial(_handle_process, processes),
        emoji="⚙️",
        seconds=None,  # wait has its own limit
        characters=2 * OUTPUT_CHARACTERS + 2000,  # JSON may escape a character as two
        abilities=frozenset(("run_code",)),
        assess=_assess_action,
    )
