"""`process`: look after what runs in the background; and `terminal`, which can start it there.

Both stand on whoever keeps the processes (`processes.values.Processes`). A process belongs to the
owner of the session, or to the session itself where nobody is known, and no one else sees it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rekindle.agent.tools.child_process import Ended
from rekindle.agent.tools.environment import for_commands
from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult, schema
from rekindle.agent.tools.truncate import cut
from rekindle.errors import InvalidInput, NotFound, ProcessError, ToolError
from rekindle.processes.backends.base import Size
from rekindle.processes.types import Process, Processes, Watch
from rekindle.types import JSON

from .terminal import OUTPUT_CHARACTERS, approved, run_here, terminal, workdir_of

ACTIONS = ("list", "poll", "log", "wait", "kill", "write", "submit", "close")
WAIT_SECONDS = 60.0
LOG_LINES = 200
SHORTEST_INTERVAL = 10
_READER = "agent"
_LISTED = 50  # processes in one answer
_COMMAND = 300  # characters of a command line


class Keeping(NamedTuple):
    """Who keeps the processes, and where commands run: `local`, `container:box`, …"""

    processes: Processes
    place: str = "local"

    @property
    def is_here(self) -> bool:
        return self.place == "local"

    async def start(
        self,
        context: ToolContext,
        command: str,
        workdir: str,
        *,
        pty: bool = False,
        watches: tuple[Watch, ...] = (),
    ) -> Process:
        """Start an approved command in its own shell."""
        shell = (shutil.which("bash") or "/bin/sh") if self.is_here else "sh"
        try:
            return await self.processes.start(
                (shell, "-c", command),
                owner=owner_of(context),
                cwd=workdir,
                env=for_commands(context) if self.is_here else {},
                pty=Size() if pty else None,
                place=self.place,
                watches=watches,
                session=context.session,
            )
        except (ProcessError, InvalidInput) as error:
            raise ToolError(f"the command could not be started: {error}") from None

    async def folder(self, context: ToolContext, asked: str) -> str:
        """The folder to run in; elsewhere its own place knows whether it is one."""
        if self.is_here:
            return await workdir_of(context, asked)
        return "" if asked == "." else asked


def owner_of(context: ToolContext) -> str:
    """Whose processes a session starts and sees."""
    return context.owner or context.session


# -- terminal


async def _terminal(
    keeping: Keeping, in_front: Tool, context: ToolContext, arguments: Mapping[str, JSON]
) -> ToolResult:
    if not arguments.get("background"):
        for name in _BACKGROUND:
            if arguments.get(name):
                raise ToolError(f"{name}: only for commands in the background")
        kept = {name: arguments[name] for name in arguments if name not in _BACKGROUND}
        kept.pop("background", None)
        answer: Any = in_front.handler(context, kept)
        return await answer
    command: str = arguments["command"]
    if "\0" in command:
        raise ToolError("command: a NUL cannot be part of a command")
    if "timeout" in arguments:
        raise ToolError("timeout: a command in the background has none; end it with `process`")
    workdir = await keeping.folder(context, arguments.get("workdir", "."))
    await approved(context, command, workdir)
    process = await keeping.start(
        context,
        command,
        workdir,
        pty=bool(arguments.get("pty")),
        watches=_watches(context, arguments),
    )
    said = {"process_id": process.id, "state": process.state, "pid": process.pid}
    hint = "It runs in the background; look after it with `process`."
    return ToolResult(json.dumps({**said, "hint": hint}, ensure_ascii=False))


def _watches(context: ToolContext, arguments: Mapping[str, JSON]) -> tuple[Watch, ...]:
    """Reports go to the conversation that the command came from."""
    note = context.address or context.session
    watches = [Watch("end", note=note)]
    if seconds := arguments.get("check_interval"):
        watches.append(Watch("interval", seconds=seconds, note=note))
    if pattern := arguments.get("watch_for"):
        watches.append(Watch("pattern", pattern=pattern, note=note))
    return tuple(watches)


async def _run_there(
    keeping: Keeping, context: ToolContext, command: str, workdir: str, seconds: float
) -> Ended:
    """Run a command in another place, and wait for its end. Nothing of it is left there."""
    processes, owner = keeping.processes, owner_of(context)
    process = await keeping.start(context, command, workdir)
    id, end = process.id, time.monotonic() + seconds
    try:
        await processes.close(id, owner=owner)
        while process.live and (left := end - time.monotonic()) > 0:
            process = (await processes.wait(id, left, owner=owner, reader=_READER)).process
        said = await processes.log(id, owner=owner)
    except (ProcessError, NotFound) as error:
        raise ToolError(f"{keeping.place}: {error}") from None
    finally:
        if process.live:  # out of time, or the turn was stopped
            await asyncio.shield(processes.kill(id, owner=owner))
    if process.state == "lost":
        raise ToolError(f"{keeping.place}: the command was lost: {process.why}")
    code = 137 if process.exit_code is None else process.exit_code
    return Ended(cut(said.output, OUTPUT_CHARACTERS), code, timed_out=process.live)


# -- process


async def _process(
    processes: Processes, context: ToolContext, arguments: Mapping[str, JSON]
) -> ToolResult:
    action: str = arguments["action"]
    owner = owner_of(context)
    try:
        if action == "list":
            return _list(await processes.list(owner=owner))
        id: str | None = arguments.get("process_id")
        if not id:
            raise ToolError(f"process_id: {action} needs one; `list` shows them")
        return await _ACTIONS[action](processes, id, owner, arguments)
    except NotFound as error:
        raise ToolError(f"{error}; `list` shows those that are known") from None
    except (ProcessError, InvalidInput) as error:
        raise ToolError(f"{action}: {error}") from None


def _list(found: list[Process]) -> ToolResult:
    told: dict[str, JSON] = {"processes": [_shown(one) for one in found[-_LISTED:]]}
    if len(found) > _LISTED:
        told["older"] = len(found) - _LISTED
    return _answer(**told)


async def _poll(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    found = await processes.poll(id, owner=owner, reader=_READER)
    return _answer(found.process, found.output, **_gap(found.dropped))


async def _log(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    offset, limit = arguments.get("offset"), arguments.get("limit", LOG_LINES)
    if offset is None:
        found = await processes.log(id, owner=owner, tail=limit)
    else:
        found = await processes.log(id, owner=owner, offset=offset, limit=limit)
    gap = _gap(found.process.dropped)
    return _answer(found.process, found.output, lines_kept=found.lines, **gap)


async def _wait(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    seconds: float = arguments.get("timeout", WAIT_SECONDS)
    found = await processes.wait(id, seconds, owner=owner, reader=_READER)
    told: dict[str, JSON] = {"timed_out": found.timed_out, **_gap(found.dropped)}
    if found.clamped is not None:
        told["note"] = f"{seconds:g} s is more than is allowed: waited at most {found.clamped:g} s"
    return _answer(found.process, found.output, **told)


async def _kill(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    return _answer(await processes.kill(id, owner=owner))


async def _write(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    data: str | None = arguments.get("data")
    if data is None:
        raise ToolError("data: nothing to write; give the text")
    give = processes.submit if arguments["action"] == "submit" else processes.write
    taken, of = await give(id, data, owner=owner)
    if taken < of:
        raise ToolError(f"the program does not read: it took {taken} of {of} bytes")
    return _answer(written=taken)


async def _close(
    processes: Processes, id: str, owner: str, arguments: Mapping[str, JSON]
) -> ToolResult:
    await processes.close(id, owner=owner)
    return _answer(closed=True)


_Act: TypeAlias = Callable[[Processes, str, str, Mapping[str, JSON]], Awaitable[ToolResult]]
_ACTIONS: Mapping[str, _Act] = {
    "poll": _poll,
    "log": _log,
    "wait": _wait,
    "kill": _kill,
    "write": _write,
    "submit": _write,
    "close": _close,
}


def _gap(dropped: int) -> dict[str, JSON]:
    """How much came before the output and is no longer kept, if anything."""
    return {"dropped_bytes": dropped} if dropped else {}


def _answer(process: Process | None = None, output: str | None = None, **told: JSON) -> ToolResult:
    said: dict[str, JSON] = {} if process is None else _shown(process)
    if output is not None:
        said["output"] = cut(output, OUTPUT_CHARACTERS)
    meta: dict[str, JSON] = {}
    if process is not None and process.exit_code is not None and process.state == "exited":
        meta["exit_code"] = process.exit_code
    return ToolResult(json.dumps({**said, **told}, ensure_ascii=False), meta)


def _shown(process: Process) -> dict[str, JSON]:
    told: dict[str, JSON] = {
        "process_id": process.id,
        "state": process.state,
        "exit_code": process.exit_code,
        "command": cut(process.command, _COMMAND),
        "seconds": round((process.ended or time.time()) - process.started, 1),
        "bytes": process.bytes,
    }
    return {**told, "why": process.why} if process.why else told


# -- the tools

_BACKGROUND: Mapping[str, Mapping[str, JSON]] = {
    "pty": {
        "type": "boolean",
        "description": "give it a terminal (background only), for interactive programs",
    },
    "check_interval": {
        "type": "number",
        "minimum": SHORTEST_INTERVAL,
        "description": "seconds between reports on it to this conversation (background only)",
    },
    "watch_for": {
        "type": "string",
        "minLength": 1,
        "maxLength": 500,
        "description": "report lines with this regular expression in them (background only)",
    },
}


def background_tools(processes: Processes, place: str = "local") -> tuple[Tool, Tool]:
    """`terminal` that can leave a command running, and `process` that looks after it."""
    keeping = Keeping(processes, place)
    runner = run_here if keeping.is_here else partial(_run_there, keeping)
    in_front = terminal(runner, keeping.folder)
    parameters = dict(in_front.parameters)
    parameters["properties"] = {
        **in_front.parameters["properties"],
        "background": {
            "type": "boolean",
            "description": "leave it running and answer at once with its process_id",
        },
        **_BACKGROUND,
    }
    able = in_front._replace(
        description=(
            f"{in_front.description} With background=true it goes on after this call, and after"
            " this program (servers, watchers, long builds), and this conversation is told when it"
            " ends."
        ),
        parameters=parameters,
        handler=partial(_terminal, keeping, in_front),
    )
    return able, _process_tool(processes)


def _process_tool(processes: Processes) -> Tool:
    return Tool(
        name="process",
        toolset="terminal",
        description=(
            "Look after background processes that `terminal` started. Actions: list; poll (state and"
            " output since the last look); log (the last lines, or `limit` lines from line"
            " `offset`); wait (until it ends, or `timeout` seconds); kill (with all its children);"
            " write (raw input); submit (a line with Enter); close (end its input)."
        ),
        parameters=schema(
            "action",
            action={"type": "string", "enum": list(ACTIONS)},
            process_id={"type": "string", "description": "which one; not for list"},
            data={"type": "string", "description": "the input for write and submit"},
            offset={"type": "integer", "minimum": 0, "description": "first line for log"},
            limit={"type": "integer", "minimum": 1, "description": "lines for log (default 200)"},
            timeout={
                "type": "number",
                "minimum": 0,
                "description": "seconds for wait (default 60)",
            },
        ),
        handler=partial(_process, processes),
        emoji="⚙️",
        seconds=None,  # a wait has its own limit
        characters=2 * OUTPUT_CHARACTERS + 2000,  # as JSON a character may take two
    )
