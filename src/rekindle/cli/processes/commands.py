"""`rekindle run`, `ps`, `logs`, `wait`, `kill`, `restart`, `send` and `attach`."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from rekindle.cli.output import (
    Column,
    JsonOption,
    build_number_columns,
    format_size,
    print_json,
    print_line,
    print_notice,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import load_settings
from rekindle.errors import InvalidInput
from rekindle.processes.lookup import describe_state, find_process, parse_signal

if TYPE_CHECKING:
    from rekindle.processes.operations import Processes
    from rekindle.processes.types import OutputChunk, Process

T = TypeVar("T")
STILL_RUNNING = 124  # the exit code of `wait`, as that of timeout(1)
ProcessIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Process id, id prefix, or name.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment variable (repeatable)."),
]
ProcessOwnerOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only processes with this owner.")
]


def start_process(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", show_default=False)],
    pty: Annotated[bool, typer.Option("--pty", help="Run in a pseudo-terminal.")] = False,
    backend: Annotated[
        str,
        typer.Option(
            metavar="BACKEND",
            help="Where to run it: local, container:NAME, ssh:HOST, apptainer:NAME, modal:ID.",
        ),
    ] = "local",
    cwd: Annotated[str | None, typer.Option(metavar="FOLDER", help="Working folder.")] = None,
    env: EnvOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name to use instead of the id.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Start when this process has exited with code 0."),
    ] = None,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Owner of the process.")] = None,
    json: JsonOption = False,
) -> None:
    """Run a command in the background. It keeps running after this program exits.

    \b
    Examples:
      rekindle run -- make test
      rekindle run --name web -- python3 -m http.server
      rekindle run --name deploy --after build -- ./deploy.sh
      rekindle run --pty -- python3 -i
      rekindle run --backend ssh:build-host --json -- ./train.sh
    """
    from rekindle.processes.backends.base import TerminalSize

    extra_env = dict(_parse_env_pair(each) for each in env or ())
    is_local = backend == "local"

    async def start_command(processes: Processes) -> Process:
        chosen = owner or _get_user_name()
        other = await find_process(processes, after, chosen) if after else None
        return await processes.start(
            command,
            owner=chosen,
            cwd=str(Path(cwd or ".").expanduser().absolute()) if is_local else cwd or "",
            env=_extend_env(extra_env) if is_local else extra_env,
            pty=TerminalSize() if pty else None,
            backend=backend,
            name=name or "",
            after=other.id if other else "",
        )

    started = _run_with_client(start_command)
    if json:
        print_json(started)
    else:
        print_line(started.id)
        said = f"Waits for {after}" if started.state == "waiting" else "Started"
        print_notice(f"{said}. Follow its output: rekindle logs -f {name or started.id}")


def ps(
    all: Annotated[bool, typer.Option("--all", "-a", help="Include ended processes.")] = False,
    owner: ProcessOwnerOption = None,
    json: JsonOption = False,
) -> None:
    """List background processes.

    \b
    Examples:
      rekindle ps
      rekindle ps --all --json
    """

    async def list_processes(processes: Processes) -> list[Process]:
        return await processes.list(owner=owner, live=not all)

    found = _run_with_client(list_processes)
    if json:
        now = time.time()
        write_json_array({**one._asdict(), "age": round(_get_age(one, now), 3)} for one in found)
    elif not found:
        print_notice(
            "No background processes."
            if all
            else "No running processes. Use --all to include ended ones."
        )
    else:
        _write_processes(found)


def logs(
    id: ProcessIdArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the process ends.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, metavar="LINES", help="Only the last lines."),
    ] = None,
    owner: ProcessOwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Show the output of a process. The last 200 KB are kept.

    \b
    Examples:
      rekindle logs p3f2a91c0
      rekindle logs -f p3f2a91c0
      rekindle logs -n 20 --json p3f2a91c0
    """
    if json and follow:
        raise typer.BadParameter("--json and --follow cannot be combined")

    async def print_output(processes: Processes) -> None:
        one = await find_process(processes, id, owner)
        if json:
            output = await processes.read_log(one.id, owner=owner, tail=tail)
            print_json(output)
        else:
            await _copy_output(processes, one, owner, follow, tail)

    _run_with_client(print_output)


async def _copy_output(
    processes: Processes, one: Process, owner: str | None, follow: bool, tail: int | None
) -> None:
    """Copy the output to stdout: the current output, or everything until the end."""
    since = 0
    if tail is not None:
        since = (await processes.read_log(one.id, owner=owner, tail=tail, plain=False)).start
    out = sys.stdout.buffer
    if not follow and one.bytes <= since:
        return
    async for chunk in processes.attach(one.id, owner=owner, since=since):
        if chunk.dropped:
            chunk = _trim_partial_character(chunk)
            print_notice(f"({format_size(chunk.dropped)} of earlier output dropped)")
        surplus = chunk.end - one.bytes
        data = chunk.data if follow or surplus <= 0 else chunk.data[: len(chunk.data) - surplus]
        out.write(data)
        out.flush()
        if not follow and chunk.end >= one.bytes:
            return


def _trim_partial_character(chunk: OutputChunk) -> OutputChunk:
    """Drop the rest of a character whose beginning was dropped."""
    from rekindle.processes.state.output_text import trim_partial
    from rekindle.processes.state.ring_buffer import ByteRange

    piece = ByteRange(chunk.data, chunk.end - len(chunk.data), chunk.end, chunk.dropped)
    whole = trim_partial(piece, ended=True)
    return chunk._replace(data=whole.data, dropped=whole.dropped)


def wait(
    id: ProcessIdArgument,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Maximum time to wait.")
    ] = None,
    owner: ProcessOwnerOption = None,
    json: JsonOption = False,
) -> int:
    """Wait for a process to end, show how it ended, and exit with its exit code.

    Exit with code 124 if it is still running after the timeout, and with 1 if its code is unknown.

    \b
    Examples:
      rekindle wait p3f2a91c0
      rekindle wait build && rekindle run -- ./deploy.sh
      rekindle wait --timeout 60 --json p3f2a91c0
    """

    async def wait_for_end(processes: Processes) -> Process:
        one = await find_process(processes, id, owner)
        end = None if timeout is None else time.monotonic() + timeout
        while one.live:
            left = 60.0 if end is None else end - time.monotonic()
            if left <= 0 and timeout:
                break
            waited = await processes.wait(one.id, max(0.0, left), owner=owner, reader="cli-wait")
            one = waited.process
            if timeout == 0:
                break
        return one

    one = _run_with_client(wait_for_end)
    if json:
        print_json({**one._asdict(), "timed_out": one.live})
    else:
        print_line(_describe_end(one))
    if one.live:
        return STILL_RUNNING
    return 1 if one.exit_code is None else one.exit_code


def kill(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Processes to kill.")],
    signal: Annotated[
        str | None,
        typer.Option(
            "--signal", "-s", metavar="NAME", help="Only send this signal to the program itself."
        ),
    ] = None,
    owner: ProcessOwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Kill processes and everything they started: gracefully first, then by force.

    \b
    Examples:
      rekindle kill p3f2a91c0
      rekindle kill --signal INT build
    """
    number = None if signal is None else parse_signal(signal)

    async def kill_all(processes: Processes) -> list[Process]:
        chosen = [await find_process(processes, id, owner) for id in ids]
        if number is None:
            return [await processes.kill(one.id, owner=owner) for one in chosen]
        for one in chosen:
            await processes.signal(one.id, number, owner=owner)
        return chosen

    ended = _run_with_client(kill_all)
    if json:
        write_json_array(ended)
    else:
        for one in ended:
            done = _describe_end(one) if number is None else f"sent {signal}"
            print_line(f"{one.id}: {done}")


def restart(
    id: ProcessIdArgument,
    env: EnvOption = None,
    owner: ProcessOwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Start the command of a process again, as a new process with the same name and folder.

    If it is still running, it is killed first. The environment is that of this shell.

    \b
    Examples:
      rekindle restart web
      rekindle restart p3f2a91c0 -e DEBUG=1
    """
    extra_env = dict(_parse_env_pair(each) for each in env or ())

    async def restart_command(processes: Processes) -> Process:
        one = await find_process(processes, id, owner)
        return await processes.restart(one.id, owner=owner, env=_extend_env(extra_env))

    started = _run_with_client(restart_command)
    if json:
        print_json(started)
    else:
        print_line(started.id)
        print_notice(f"Started again. Follow its output: rekindle logs -f {id}")


def send(
    id: ProcessIdArgument,
    text: Annotated[str | None, typer.Argument(help="Text to send.", show_default="")] = None,
    no_enter: Annotated[bool, typer.Option("--no-enter", help="Do not append Enter.")] = False,
    eof: Annotated[bool, typer.Option("--eof", help="Close the input afterwards.")] = False,
    owner: ProcessOwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Send input to a process: a line, or text without Enter.

    \b
    Examples:
      rekindle send p3f2a91c0 'print(6 * 7)'
      rekindle send p3f2a91c0 --eof
    """
    if text is None and not eof:
        raise typer.BadParameter("pass a text to send, or --eof to close the input")

    async def send_input(processes: Processes) -> tuple[int, int]:
        one = await find_process(processes, id, owner)
        written = total = 0
        if text is not None:
            write_text = processes.write if no_enter else processes.submit
            written, total = await write_text(one.id, text, owner=owner)
        if eof:
            await processes.close_stdin(one.id, owner=owner)
        return written, total

    written, total = _run_with_client(send_input)
    if json:
        print_json({"written": written, "total": total, "closed": eof})
    if written < total:
        raise InvalidInput(f"{id} is not reading its input: accepted {written} of {total} bytes")


def attach(id: ProcessIdArgument, owner: ProcessOwnerOption = None) -> None:
    """Attach to a process: see its output and type input. Ctrl-] detaches; it keeps running.

    \b
    Examples:
      rekindle attach p3f2a91c0
    """
    from .attach import attach_terminal

    async def attach_to_process(processes: Processes) -> Process:
        one = await find_process(processes, id, owner)
        return await attach_terminal(processes, one, owner)

    one = _run_with_client(attach_to_process)
    print_notice(f"\n{one.id}: {_describe_end(one)}")


# ── access to the supervisor


@asynccontextmanager
async def _open_client() -> AsyncGenerator[Processes]:
    from rekindle.processes.from_config import create_client

    client = create_client(load_settings())
    try:
        yield client
    finally:
        await client.aclose()


def _run_with_client(operation: Callable[[Processes], Awaitable[T]]) -> T:
    import asyncio  # slow to load, and every command loads this file

    async def run_operation() -> T:
        async with _open_client() as processes:
            return await operation(processes)

    return asyncio.run(run_operation())


def _parse_env_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or "\0" in text:
        raise typer.BadParameter(f"{text!r:.60}: expected NAME=VALUE", param_hint="--env")
    return name, value


def _extend_env(extra: Mapping[str, str]) -> dict[str, str]:
    from rekindle.config import get_home_and_env

    return {**get_home_and_env()[1], **extra}


def _get_user_name() -> str:
    import getpass

    return getpass.getuser()


# ── text output


def _write_processes(found: list[Process]) -> None:
    now = time.time()
    has_names = any(one.name for one in found)
    columns = (
        Column("id", style="cyan"),
        *([Column("name")] if has_names else []),
        Column("state"),
        Column("command", flexible=True),
        Column("owner", optional=True),
        *build_number_columns("age"),
        Column("output", right=True, optional=True),
    )
    write_table(
        columns,
        (
            (
                one.id,
                *([one.name] if has_names else []),
                describe_state(one),
                one.command,
                one.owner,
                _format_duration(_get_age(one, now)),
                format_size(one.bytes),
            )
            for one in found
        ),
    )


def _describe_end(one: Process) -> str:
    if one.live:
        return "not started yet" if one.state == "waiting" else "still running"
    took = _format_duration((one.ended or one.started) - one.started)
    if one.state == "exited" and one.exit_code is not None:
        return f"exited with {one.exit_code} after {took}"
    return f"{one.state} after {took}" + (f": {one.reason}" if one.reason else "")


def _get_age(one: Process, now: float) -> float:
    return max(0.0, now - one.started)


def _format_duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s" if seconds >= 10 else f"{max(0.0, seconds):.1f} s"
