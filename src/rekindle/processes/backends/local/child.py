"""A running local process: its descriptors, input, output, and exit."""

from __future__ import annotations

import asyncio
import os
import termios
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import InputClosed
from rekindle.processes.backends.base import (
    CHUNK_SIZE,
    GRACE_SECONDS,
    OutputSink,
    ProcessRef,
    ProcessSpec,
    TerminalSize,
)
from rekindle.processes.state.ring_buffer import RingBuffer

from . import cgroup, process_tree
from .fd_keeper_client import FdKeeperClient

_WRITE_TIMEOUT = 5.0  # seconds after which unread input is rejected
_MAX_DRAIN_CHUNKS = 64  # chunks read after the exit, in case a child still writes
_EOF_KEY = b"\x04"
EXIT_FILE = "exit"  # in the folder of a process


class StdioFds(NamedTuple):
    """The descriptors of its output and input; for a terminal both are the same."""

    output: int
    input: int


class LocalProcess:
    """A process that was started or found again. Its shim is never a child of this program."""

    def __init__(
        self,
        spec: ProcessSpec,
        root: process_tree.TreeRoot,
        fds: StdioFds | None,
        process_table: process_tree.ProcessTable,
        fd_keeper: FdKeeperClient | None,
    ) -> None:
        self.program_pid: int | None = None
        self._spec = spec
        self._root = root
        self._fds = fds
        self._process_table = process_table
        self._fd_keeper = fd_keeper
        self._output: OutputSink | None = None
        self._output_ended: asyncio.Future[None] | None = None  # resolved at the end of the output
        self._stdin_closed = fds is None
        self._exited = False
        self._write_lock = asyncio.Lock()

    @property
    def ref(self) -> ProcessRef:
        return {
            "pid": self._root.pid,
            "started": self._root.started,
            "boot": process_tree.get_boot_id(),
            "group": self._root.group,
            "program": self.program_pid,
        }

    @property
    def pid(self) -> int | None:
        return self.program_pid or self._root.pid

    # -- output

    async def copy_output(self, output: OutputSink) -> None:
        if self._fds is None:
            return
        loop = asyncio.get_running_loop()
        self._output, self._output_ended = output, loop.create_future()
        loop.add_reader(self._fds.output, self._pump)
        try:
            await self._output_ended
        finally:
            self._stop_reading()
        self._detach_if_finished()

    def _stop_reading(self) -> None:
        if self._fds is not None:
            asyncio.get_running_loop().remove_reader(self._fds.output)

    def _detach_if_finished(self) -> None:
        """Detach once both the program and its output have ended."""
        if self._exited and self._output_ended and self._output_ended.done():
            self.detach()

    def _pump(self) -> bool:
        """Read one chunk; return False if nothing more is available."""
        if (
            self._fds is None
            or self._output is None
            or self._output_ended is None
            or self._output_ended.done()
        ):
            return False
        try:
            if isinstance(self._output, RingBuffer):
                got = self._output.read_from(self._fds.output)
            else:
                piece = os.read(self._fds.output, CHUNK_SIZE)
                self._output.append(piece)
                got = len(piece)
        except BlockingIOError:
            return False
        except OSError:
            got = 0
        if not got:
            asyncio.get_running_loop().remove_reader(self._fds.output)
            self._output_ended.set_result(None)
        return bool(got)

    # -- exit

    async def wait(self) -> int | None:
        await self._wait_for_exit(self._root.pid)
        code = read_exit_code(self._spec.folder / EXIT_FILE)
        if code is None and self.program_pid and self.program_pid in await self._list_alive():
            # The shim was killed, but the program lives: wait for it.
            await self._wait_for_exit(self.program_pid)
        # All of its output is in the pipe now; children may still write more.
        for _ in range(_MAX_DRAIN_CHUNKS):
            if not self._pump():
                break
        self._close_stdin_fd()
        self._exited = True
        self._detach_if_finished()
        if self._root.group:
            cgroup.remove_group(self._root.group)
        return code

    async def _list_alive(self) -> dict[int, int]:
        return process_tree.find_members(self._root, await self._process_table.scan(), {}).alive

    async def _wait_for_exit(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        loop = asyncio.get_running_loop()
        exited: asyncio.Future[None] = loop.create_future()
        loop.add_reader(pidfd, _resolve_future, exited)
        try:
            if pid != self._root.pid or process_tree.is_alive(pid, self._root.started):
                await exited
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    async def kill(self, grace: float = GRACE_SECONDS) -> None:
        await process_tree.kill_tree(
            self._root,
            self._process_table,
            grace,
            hangup=self._spec.pty is not None,
            spared=self._get_spared_pids(),
        )

    def _get_spared_pids(self) -> frozenset[int]:
        keeper = (self._fd_keeper.pid,) if self._fd_keeper else ()
        return frozenset((os.getpid(), *keeper))

    async def signal(self, number: int) -> None:
        pid = self.program_pid
        info = process_tree.read_process(pid) if pid else None
        if pid and info and info.session == self._root.pid:
            process_tree.send_signals(pid, info.started, number)

    async def clean_up(self) -> None:
        self.detach()
        if self._fd_keeper:
            self._fd_keeper.drop(self._spec.id)
        if self._root.group:
            await asyncio.to_thread(cgroup.remove_group, self._root.group)

    def detach(self) -> None:
        self._stdin_closed = True
        fds, self._fds = self._fds, None
        if fds:
            with suppress(RuntimeError):  # a closed event loop has no readers
                asyncio.get_running_loop().remove_reader(fds.output)
            for fd in set(fds):
                with suppress(OSError):
                    os.close(fd)
        if self._output_ended and not self._output_ended.done():
            self._output_ended.set_result(None)
        if self._exited and self._fd_keeper:  # its descriptors are no longer needed
            self._fd_keeper.drop(self._spec.id)

    # -- input

    async def write(self, data: bytes) -> int:
        async with self._write_lock:
            accepted = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_TIMEOUT):
                    while accepted < len(data):
                        accepted += await self._write_piece(data[accepted : accepted + CHUNK_SIZE])
            return accepted

    async def _write_piece(self, piece: bytes) -> int:
        if self._stdin_closed or self._fds is None:
            raise InputClosed(f"stdin of process {self._spec.id} is closed")
        try:
            return os.write(self._fds.input, piece)
        except BlockingIOError:
            await self._wait_writable(self._fds.input)
            return 0
        except OSError as error:
            raise InputClosed(f"process {self._spec.id} has closed its stdin") from error

    async def _wait_writable(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(fd, _resolve_future, ready)
        try:
            await ready
        finally:
            loop.remove_writer(fd)

    async def close_stdin(self) -> None:
        if self._stdin_closed or self._fds is None:
            return
        if self._spec.pty:
            with suppress(InputClosed):
                await self.write(_EOF_KEY)
            self._stdin_closed = True
            return
        async with self._write_lock:
            self._close_stdin_fd()

    def _close_stdin_fd(self) -> None:
        """Close the input. A terminal stays open, because it is the output too."""
        if self._stdin_closed or self._fds is None:
            return
        self._stdin_closed = True
        if self._fds.input != self._fds.output:
            os.close(self._fds.input)
            self._fds = StdioFds(self._fds.output, self._fds.output)
            if self._fd_keeper:
                self._fd_keeper.drop_stdin(self._spec.id)

    async def resize(self, size: TerminalSize) -> None:
        if self._fds is not None:
            with suppress(OSError):
                termios.tcsetwinsize(self._fds.input, size)


def _resolve_future(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def read_exit_code(path: Path) -> int | None:
    """Return the exit code written by the shim, or None if there is none."""
    try:
        words = path.read_bytes().split()
    except OSError:
        return None
    return int(words[0]) if words and words[0].isdigit() else None
