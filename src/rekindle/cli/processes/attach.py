"""Attach a terminal to a background process."""

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

from rekindle.cli.output import print_notice
from rekindle.errors import InputClosed, InvalidInput, NotFound
from rekindle.processes.backends.base import TerminalSize

if TYPE_CHECKING:
    from rekindle.processes.operations import Processes
    from rekindle.processes.types import Process

DETACH_KEY = 0x1D  # Ctrl-]
REPLAYED_BYTES = 16 * 1024  # of earlier output shown on attach


async def attach_terminal(processes: Processes, one: Process, owner: str | None) -> Process:
    """Connect the terminal until the process ends or the user detaches; return its latest state."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise InvalidInput("`attach` needs a terminal. In a pipe, use `logs -f` and `send`.")
    print_notice(f"Attached to {one.id}. Ctrl-] detaches; the process keeps running.")
    typed: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    with (
        _set_raw_mode(),
        _queue_keystrokes(loop, typed),
        _forward_resizes(loop, processes, one, owner),
    ):
        if one.pty:
            await processes.resize(one.id, _get_terminal_size(), owner=owner)
        output_task = asyncio.create_task(_print_output(processes, one, owner))
        input_task = asyncio.create_task(_forward_input(processes, one, owner, typed))
        try:
            await asyncio.wait((output_task, input_task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (output_task, input_task):
                task.cancel()
            results = await asyncio.gather(output_task, input_task, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, InputClosed):
            raise result
    known = await processes.list(owner=owner)
    return next((each for each in known if each.id == one.id), one)


async def _print_output(processes: Processes, one: Process, owner: str | None) -> None:
    async for chunk in processes.attach(
        one.id, owner=owner, since=max(0, one.bytes - REPLAYED_BYTES)
    ):
        data = chunk.data if one.pty else chunk.data.replace(b"\n", b"\r\n")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


async def _forward_input(
    processes: Processes, one: Process, owner: str | None, typed: asyncio.Queue[bytes]
) -> None:
    """Forward keystrokes. A process without its own terminal gets whole lines."""
    while True:
        data = await typed.get()
        before, detach, _ = data.partition(bytes([DETACH_KEY]))
        if not one.pty:
            before = _echo_input(before)
        if before == b"\x04" and not one.pty:
            await processes.close_stdin(one.id, owner=owner)
        elif before:
            await processes.write(one.id, before, owner=owner)
        if detach:
            return


def _echo_input(data: bytes) -> bytes:
    data = data.replace(b"\r", b"\n")
    sys.stdout.buffer.write(data.replace(b"\n", b"\r\n"))
    sys.stdout.buffer.flush()
    return data


@contextmanager
def _set_raw_mode() -> Generator[None]:
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def _queue_keystrokes(
    loop: asyncio.AbstractEventLoop, typed: asyncio.Queue[bytes]
) -> Generator[None]:
    def on_readable() -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        typed.put_nowait(data or bytes([DETACH_KEY]))

    loop.add_reader(sys.stdin.fileno(), on_readable)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin.fileno())


@contextmanager
def _forward_resizes(
    loop: asyncio.AbstractEventLoop, processes: Processes, one: Process, owner: str | None
) -> Generator[None]:
    """Resize the process's terminal whenever the window is resized."""
    tasks: set[asyncio.Task[None]] = set()

    async def send_size() -> None:
        with suppress(NotFound, InvalidInput):
            await processes.resize(one.id, _get_terminal_size(), owner=owner)

    def on_resize() -> None:
        task = asyncio.ensure_future(send_size())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if one.pty:
        loop.add_signal_handler(signal.SIGWINCH, on_resize)
    try:
        yield
    finally:
        if one.pty:
            loop.remove_signal_handler(signal.SIGWINCH)


def _get_terminal_size() -> TerminalSize:
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return TerminalSize(rows or 24, columns or 80)
