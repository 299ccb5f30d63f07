"""`rekindle run`, `ps`, `logs`, `wait`, `kill`, `send` and `attach`: processes in the background."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from rekindle.cli.output import AsJson, Column, encode, note, say, size_of, write_array, write_table
from rekindle.cli.store_access import settings
from rekindle.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from rekindle.processes.types import Process, Processes

T = TypeVar("T")
Id = Annotated[str, typer.Argument(metavar="ID", help="The process, or the beginning of its id.")]
Owner = Annotated[str | None, typer.Option(metavar="NAME", help="Only processes of this owner.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("run", context_settings={"allow_interspersed_args": False})(run)
    for command in (ps, logs, wait, kill, send, attach):
        app.command(command.__name__)(command)


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", show_default=False)],
    pty: Annotated[bool, typer.Option("--pty", help="Give it a terminal.")] = False,
    place: Annotated[
        str,
        typer.Option(
            metavar="PLACE", help="local, container:NAME, ssh:HOST, apptainer:NAME, modal:ID."
        ),
    ] = "local",
    cwd: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where it runs.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set or add.")
    ] = None,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Whose it is.")] = None,
    json: AsJson = False,
) -> None:
    """Start a command in the background; it goes on when this program, or any other, has ended.

    \b
    Examples:
      rekindle run -- make test
      rekindle run --pty -- python3 -i
      rekindle run --place ssh:build-host --json -- ./train.sh
    """
    from rekindle.processes.backends.base import Size

    given = dict(_pair(each) for each in env or ())
    here = place == "local"

    async def work(processes: Processes) -> Process:
        from rekindle.config import surroundings

        return await processes.start(
            command,
            owner=owner or _me(),
            cwd=str(Path(cwd or ".").expanduser().absolute()) if here else cwd or "",
            env={**surroundings()[1], **given} if here else given,
            pty=Size() if pty else None,
            place=place,
        )

    started = _with(work)
    if json:
        say(encode(started).decode())
    else:
        say(started.id)
        note(f"It runs. See it:  rekindle logs -f {started.id}")


def ps(
    all: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended, too.")] = False,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Show background processes.

    \b
    Examples:
      rekindle ps
      rekindle ps --all --json
    """

    async def work(processes: Processes) -> list[Process]:
        return await processes.list(owner=owner, live=not all)

    found = _with(work)
    if json:
        now = time.time()
        write_array({**one._asdict(), "age": round(_age(one, now), 3)} for one in found)
    elif not found:
        note("No background processes." if all else "None is running; --all shows ended ones.")
    else:
        _write(found)


def logs(
    id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="LINES", help="The last lines.")
    ] = None,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Show what a process has written, as it was. The last 200 KB are kept.

    \b
    Examples:
      rekindle logs p3f2a91c0
      rekindle logs -f p3f2a91c0
      rekindle logs -n 20 --json p3f2a91c0
    """
    if json and follow:
        raise typer.BadParameter("--json shows what is there now; it does not follow")

    async def work(processes: Processes) -> None:
        one = await _found(processes, id, owner)
        if json:
            said = await processes.log(one.id, owner=owner, tail=tail)
            say(encode(said).decode())
        else:
            await _copy(processes, one, owner, follow, tail)

    _with(work)


async def _copy(
    processes: Processes, one: Process, owner: str | None, follow: bool, tail: int | None
) -> None:
    """Write the bytes of the output; those of now, or all until the end."""
    since = 0
    if tail is not None:
        since = (await processes.log(one.id, owner=owner, tail=tail, plain=False)).start
    out = sys.stdout.buffer
    if not follow and one.bytes <= since:
        return
    async for chunk in processes.attach(one.id, owner=owner, since=since):
        if chunk.dropped:
            note(f"({size_of(chunk.dropped)} before this are no longer kept)")
        surplus = chunk.end - one.bytes
        data = chunk.data if follow or surplus <= 0 else chunk.data[: len(chunk.data) - surplus]
        out.write(data)
        out.flush()
        if not follow and chunk.end >= one.bytes:
            return


def wait(
    id: Id,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer.")
    ] = None,
    owner: Owner = None,
    json: AsJson = False,
) -> int:
    """Wait until a process has ended, and say how. Exits with 1 if it runs still.

    \b
    Examples:
      rekindle wait p3f2a91c0
      rekindle wait --timeout 60 --json p3f2a91c0
    """

    async def work(processes: Processes) -> Process:
        one = await _found(processes, id, owner)
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

    one = _with(work)
    if json:
        say(encode({**one._asdict(), "timed_out": one.live}).decode())
    else:
        say(_ending(one))
    return 1 if one.live else 0


def kill(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Processes to end.")],
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """End processes with all that they have started: politely, then by force.

    \b
    Examples:
      rekindle kill p3f2a91c0
    """

    async def work(processes: Processes) -> list[Process]:
        chosen = [await _found(processes, id, owner) for id in ids]
        return [await processes.kill(one.id, owner=owner) for one in chosen]

    ended = _with(work)
    if json:
        write_array(ended)
    else:
        for one in ended:
            say(f"{one.id}: {_ending(one)}")


def send(
    id: Id,
    text: Annotated[str | None, typer.Argument(help="What to type.", show_default="")] = None,
    no_enter: Annotated[bool, typer.Option("--no-enter", help="Without Enter behind it.")] = False,
    eof: Annotated[bool, typer.Option("--eof", help="Then end its input.")] = False,
    owner: Owner = None,
    json: AsJson = False,
) -> None:
    """Type something for a process: a line, or raw text.

    \b
    Examples:
      rekindle send p3f2a91c0 'print(6 * 7)'
      rekindle send p3f2a91c0 --eof
    """
    if text is None and not eof:
        raise typer.BadParameter("give a text to send, or --eof to end its input")

    async def work(processes: Processes) -> tuple[int, int]:
        one = await _found(processes, id, owner)
        taken = of = 0
        if text is not None:
            give = processes.write if no_enter else processes.submit
            taken, of = await give(one.id, text, owner=owner)
        if eof:
            await processes.close(one.id, owner=owner)
        return taken, of

    taken, of = _with(work)
    if json:
        say(encode({"taken": taken, "of": of, "closed": eof}).decode())
    if taken < of:
        raise InvalidInput(f"{id} does not read: it took {taken} of {of} bytes")


def attach(id: Id, owner: Owner = None) -> None:
    """Sit down at a process: see what it writes, type for it. Ctrl-] leaves; it goes on.

    \b
    Examples:
      rekindle attach p3f2a91c0
    """
    from .attach import sit_down

    async def work(processes: Processes) -> Process:
        one = await _found(processes, id, owner)
        return await sit_down(processes, one, owner)

    one = _with(work)
    note(f"\n{one.id}: {_ending(one)}")


# ── from the supervisor


@asynccontextmanager
async def _opened() -> AsyncGenerator[Processes]:
    from rekindle.processes.from_config import processes_of

    client = processes_of(settings())
    try:
        yield client
    finally:
        await client.aclose()


def _with(work: Callable[[Processes], Awaitable[T]]) -> T:
    import asyncio  # slow to load, and every command loads this file

    async def go() -> T:
        async with _opened() as processes:
            return await work(processes)

    return asyncio.run(go())


async def _found(processes: Processes, id: str, owner: str | None) -> Process:
    """The process of that id, or the only one whose id begins so."""
    known = await processes.list(owner=owner)
    chosen = [one for one in known if one.id == id] or [
        one for one in known if id and one.id.startswith(id)
    ]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise NotFound(f"{id!r}: more than one: {', '.join(one.id for one in chosen[:10])}")
    raise NotFound(f"no process {id!r}; `rekindle ps --all` shows those that are known")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or "\0" in text:
        raise typer.BadParameter(f"{text!r:.60}: expected NAME=VALUE", param_hint="--env")
    return name, value


def _me() -> str:
    import getpass

    return getpass.getuser()


# ── for people


def _write(found: list[Process]) -> None:
    now = time.time()
    columns = (
        Column("id", style="cyan"),
        Column("state"),
        Column("command", flexible=True),
        Column("owner"),
        Column("age", right=True),
        Column("output", right=True),
    )
    write_table(
        columns,
        (
            (one.id, _state(one), one.command, one.owner, _span(_age(one, now)), size_of(one.bytes))
            for one in found
        ),
    )


def _state(one: Process) -> str:
    if one.state == "exited":
        return "exited ?" if one.exit_code is None else f"exited {one.exit_code}"
    return one.state


def _ending(one: Process) -> str:
    if one.live:
        return "runs still"
    took = _span((one.ended or one.started) - one.started)
    if one.state == "exited" and one.exit_code is not None:
        return f"exited with {one.exit_code} after {took}"
    return f"{one.state} after {took}" + (f": {one.why}" if one.why else "")


def _age(one: Process, now: float) -> float:
    return max(0.0, now - one.started)


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s" if seconds >= 10 else f"{max(0.0, seconds):.1f} s"
