"""A live terminal on a background process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rekindle.cli.output import note
from rekindle.errors import InputClosed, InvalidInput, NotFound
from rekindle.processes.backends.base import Size

if TYPE_CHECKING:
    from rekindle.processes.types import Process, Processes

LEAVE = 0x1D  # Ctrl-]
SHOWN = 16 * 1024  # of what was written before


async def sit_down(processes: Processes, one: Process, owner: str | None) -> Process:
    """Show and type until the process ends, or the key to leave is pressed; how it stands then."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise InvalidInput("attach needs a terminal; in a pipe use `logs -f` and `send`")
    note(f"{one.id}: Ctrl-] leaves, the process goes on.")
    typed: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    with _raw(), _typing(loop, typed), _sizes(loop, processes, one, owner):
        if one.pty:
            await processes.resize(one.id, _size(), owner=owner)
        showing = asyncio.create_task(_show(processes, one, owner))
        giving = asyncio.create_task(_give(processes, one, owner, typed))
        try:
            await asyncio.wait((showing, giving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (showing, giving):
                task.cancel()
            results = await asyncio.gather(showing, giving, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, InputClosed):
            raise result
    known = await processes.list(owner=owner)
    return next((each for each in known if each.id == one.id), one)


async def _show(processes: Processes, one: Process, owner: str | None) -> None:
    async for chunk in processes.attach(one.id, owner=owner, since=max(0, one.bytes - SHOWN)):
        data = chunk.data if one.pty else chunk.data.replace(b"\n", b"\r\n")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


async def _give(
    processes: Processes, one: Process, owner: str | None, typed: asyncio.Queue[bytes]
) -> None:
    """Pass on what is typed. Without a terminal of its own the process gets whole lines."""
    while True:
        data = await typed.get()
        before, left, _ = data.partition(bytes([LEAVE]))
        if not one.pty:
            before = _echo(before)
        if before == b"\x04" and not one.pty:
            await processes.close(one.id, owner=owner)
        elif before:
            await processes.write(one.id, before, owner=owner)
        if left:
            return


def _echo(data: bytes) -> bytes:
    data = data.replace(b"\r", b"\n")
    sys.stdout.buffer.write(data.replace(b"\n", b"\r\n"))
    sys.stdout.buffer.flush()
    return data


@contextmanager
def _raw() -> Generator[None]:
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def _typing(loop: asyncio.AbstractEventLoop, typed: asyncio.Queue[bytes]) -> Generator[None]:
    def read() -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        typed.put_nowait(data or bytes([LEAVE]))

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin.fileno())


@contextmanager
def _sizes(
    loop: asyncio.AbstractEventLoop, processes: Processes, one: Process, owner: str | None
) -> Generator[None]:
    """Let the process know when the window is pulled."""
    tasks: set[asyncio.Task[None]] = set()

    async def tell() -> None:
        with suppress(NotFound, InvalidInput):
            await processes.resize(one.id, _size(), owner=owner)

    def pulled() -> None:
        task = asyncio.ensure_future(tell())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if one.pty:
        loop.add_signal_handler(signal.SIGWINCH, pulled)
    try:
        yield
    finally:
        if one.pty:
            loop.remove_signal_handler(signal.SIGWINCH)


def _size() -> Size:
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return Size(rows or 24, columns or 80)
