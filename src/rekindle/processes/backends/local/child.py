"""A running process of this machine: its files, its input and output, its end."""

from __future__ import annotations

import asyncio
import os
import termios
from contextlib import suppress
from typing import NamedTuple

from rekindle.errors import InputClosed
from rekindle.processes.backends.base import CHUNK, GRACE, Output, Ref, Size, Spec
from rekindle.processes.state.ring_buffer import Ring

from . import cgroup, process_tree
from .fd_keeper_client import Keeping

_UNREAD = 5.0  # seconds after which input that nobody reads is given back
_REST = 64  # chunks that are read after the end, should something else still write
_END_KEY = b"\x04"


class Files(NamedTuple):
    """Where its output comes from and where its input goes; a terminal is both."""

    output: int
    input: int


class Child:
    """A process that we started, or found again. Its shim is never a child of ours."""

    def __init__(
        self,
        spec: Spec,
        root: process_tree.Root,
        files: Files | None,
        census: process_tree.Census,
        keeping: Keeping | None,
    ) -> None:
        self.program: int | None = None
        self._spec = spec
        self._root = root
        self._files = files
        self._census = census
        self._keeping = keeping
        self._output: Output | None = None
        self._done: asyncio.Future[None] | None = None  # the end of the output
        self._closed = files is None
        self._ended = False
        self._writing = asyncio.Lock()

    @property
    def ref(self) -> Ref:
        return {
            "pid": self._root.pid,
            "started": self._root.started,
            "boot": process_tree.boot(),
            "group": self._root.group,
            "program": self.program,
        }

    @property
    def pid(self) -> int | None:
        return self.program or self._root.pid

    # -- output

    async def copy(self, output: Output) -> None:
        if self._files is None:
            return
        loop = asyncio.get_running_loop()
        self._output, self._done = output, loop.create_future()
        loop.add_reader(self._files.output, self._pump)
        try:
            await self._done
        finally:
            self._deaf()
        self._finished()

    def _deaf(self) -> None:
        if self._files is not None:
            asyncio.get_running_loop().remove_reader(self._files.output)

    def _finished(self) -> None:
        """After the end of the program and of its output its files are of no use."""
        if self._ended and self._done and self._done.done():
            self.release()

    def _pump(self) -> bool:
        """Read one chunk; False if there is nothing more now."""
        if self._files is None or self._output is None or self._done is None or self._done.done():
            return False
        try:
            if isinstance(self._output, Ring):
                got = self._output.fill(self._files.output)
            else:
                piece = os.read(self._files.output, CHUNK)
                self._output.append(piece)
                got = len(piece)
        except BlockingIOError:
            return False
        except OSError:
            got = 0
        if not got:
            asyncio.get_running_loop().remove_reader(self._files.output)
            self._done.set_result(None)
        return bool(got)

    # -- the end

    async def wait(self) -> int | None:
        from .local import EXIT, exit_code

        await self._gone(self._root.pid)
        code = exit_code(self._spec.folder / EXIT)
        if code is None and self.program and self.program in await self._alive():
            # The shim was killed, the program lives: it is no less a process for that.
            await self._gone(self.program)
        # All that it wrote is in the pipe now; something else may still write into it.
        for _ in range(_REST):
            if not self._pump():
                break
        self._shut()
        self._ended = True
        self._finished()
        if self._root.group:
            cgroup.remove(self._root.group)
        return code

    async def _alive(self) -> dict[int, int]:
        return process_tree.members(self._root, await self._census.take(), {}).alive

    async def _gone(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, _settle, ended)
        try:
            if pid != self._root.pid or process_tree.lives(pid, self._root.started):
                await ended
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    async def kill(self, grace: float = GRACE) -> None:
        await process_tree.end(
            self._root,
            self._census,
            grace,
            hangup=self._spec.pty is not None,
            spared=self._spared(),
        )

    def _spared(self) -> frozenset[int]:
        keeper = (self._keeping.pid,) if self._keeping else ()
        return frozenset((os.getpid(), *keeper))

    async def signal(self, number: int) -> None:
        pid = self.program
        seen = process_tree.look(pid) if pid else None
        if pid and seen and seen.session == self._root.pid:
            process_tree.send(pid, seen.started, number)

    async def forget(self) -> None:
        self.release()
        if self._keeping:
            self._keeping.drop(self._spec.id)
        if self._root.group:
            await asyncio.to_thread(cgroup.remove, self._root.group)

    def release(self) -> None:
        self._closed = True
        files, self._files = self._files, None
        if files:
            with suppress(RuntimeError):  # after the loop has ended there are no readers
                asyncio.get_running_loop().remove_reader(files.output)
            for file in set(files):
                with suppress(OSError):
                    os.close(file)
        if self._done and not self._done.done():
            self._done.set_result(None)
        if self._ended and self._keeping:  # nobody will ask for its files again
            self._keeping.drop(self._spec.id)

    # -- input

    async def write(self, data: bytes) -> int:
        async with self._writing:
            taken = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(_UNREAD):
                    while taken < len(data):
                        taken += await self._push(data[taken : taken + CHUNK])
            return taken

    async def _push(self, piece: bytes) -> int:
        if self._closed or self._files is None:
            raise InputClosed(f"process {self._spec.id} takes no input any more")
        try:
            return os.write(self._files.input, piece)
        except BlockingIOError:
            await self._writable(self._files.input)
            return 0
        except OSError as error:
            raise InputClosed(f"process {self._spec.id} does not read its input") from error

    async def _writable(self, file: int) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(file, _settle, ready)
        try:
            await ready
        finally:
            loop.remove_writer(file)

    async def close_stdin(self) -> None:
        if self._closed or self._files is None:
            return
        if self._spec.pty:
            with suppress(InputClosed):
                await self.write(_END_KEY)
            self._closed = True
            return
        async with self._writing:
            self._shut()

    def _shut(self) -> None:
        """Close the input; of a terminal it is the output too, and stays."""
        if self._closed or self._files is None:
            return
        self._closed = True
        if self._files.input != self._files.output:
            os.close(self._files.input)
            self._files = Files(self._files.output, self._files.output)
            if self._keeping:
                self._keeping.shut(self._spec.id)

    async def resize(self, size: Size) -> None:
        if self._files is not None:
            with suppress(OSError):
                termios.tcsetwinsize(self._files.input, size)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
