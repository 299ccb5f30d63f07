"""Run processes on this machine.

Each program runs below a shim (spawner.py) in an OS session of its own. The shim starts the program
and writes its exit code to a file.

A control group per process is optional (`use_cgroups`) and off by default: moving a process into a
group makes the kernel synchronize all CPUs, which takes longer than the whole start.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import termios
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from rekindle.errors import ProcessStartFailed
from rekindle.processes.backends.base import (
    PROCESS_ID_VARIABLE,
    Exited,
    ProcessRef,
    ProcessSpec,
    RunningProcess,
    Vanished,
)

from . import cgroup, process_tree
from .child import EXIT_FILE, LocalProcess, StdioFds, read_exit_code
from .executable import resolve_executable
from .fd_keeper_client import FdKeeperClient
from .spawner_client import SpawnerClient, SpawnRequest

_START_TIMEOUT = 30.0
_NO_EXIT_CODE = b" " * 15 + b"\n"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class LocalBackend:
    """The local backend. With an fd keeper, pipes and terminals survive the death of this program."""

    name = "local"

    def __init__(
        self,
        fd_keeper: FdKeeperClient | None = None,
        *,
        use_cgroups: bool = False,
        open_file_limit: int | None = None,
    ) -> None:
        """Create the backend.

        `open_file_limit` restores the limit for processes where this program has raised its own.
        """
        self._open_file_limit = "" if open_file_limit is None else str(open_file_limit)
        self._fd_keeper = fd_keeper
        self._inherited_fds = fd_keeper.take_over() if fd_keeper else {}
        self._cgroup_parent = cgroup.find_parent_group() if use_cgroups else None
        self._process_table = process_tree.ProcessTable()
        self._spawner = SpawnerClient()

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        path = resolve_executable(spec.argv, spec.cwd, spec.env)
        if spec.wrapper:
            path = resolve_executable(spec.wrapper, spec.cwd, spec.env)
        try:
            return await self._start(spec, path)
        except OSError as error:
            reason = error.strerror or error
            # Raised by execve: the program exists, so its loader is missing.
            if error.errno == errno.ENOENT and error.filename is None:
                reason = "its loader was not found"
            raise ProcessStartFailed(f"{spec.argv[0]}: {reason}") from error

    async def _start(self, spec: ProcessSpec, path: str) -> LocalProcess:
        spec.folder.joinpath(EXIT_FILE).write_bytes(_NO_EXIT_CODE)
        ends, group = _open_terminal(spec) if spec.pty else _open_pipes(), ""
        try:
            if self._fd_keeper:
                self._fd_keeper.keep(spec.id, *ends.ours)
            group = cgroup.create_group(self._cgroup_parent, spec.id) if self._cgroup_parent else ""
            request = self._build_request(spec, path, ends, group)
            async with asyncio.timeout(_START_TIMEOUT):
                shim, program = await self._spawner.spawn(request)
        except BaseException as error:
            self._undo_start(spec.id, ends, group)
            if isinstance(error, TimeoutError):
                reason = f"not started within {_START_TIMEOUT:g} s"
                raise ProcessStartFailed(f"{spec.argv[0]}: {reason}") from None
            raise
        finally:
            _close_fds(ends.theirs)
        info = process_tree.read_process(shim)  # None if it has already exited
        root = process_tree.TreeRoot(spec.id, shim, info.started if info else 0, group)
        child = LocalProcess(spec, root, ends.ours, self._process_table, self._fd_keeper)
        child.program_pid = program
        return child

    def _build_request(
        self, spec: ProcessSpec, path: str, ends: _StdioEnds, group: str
    ) -> SpawnRequest:
        env = {"PATH": _DEFAULT_PATH, **spec.env, PROCESS_ID_VARIABLE: spec.id}
        if spec.pty:
            env.setdefault("TERM", "xterm-256color")
        return SpawnRequest(
            path,
            (*spec.wrapper, *spec.argv),
            spec.cwd or "/",
            env,
            exit=os.path.abspath(spec.folder / EXIT_FILE),  # the shim has another working directory
            files=() if spec.pty else ends.theirs,
            terminal=ends.terminal,
            group=group,
            limit=self._open_file_limit,
        )

    def _undo_start(self, id: str, ends: _StdioEnds | None, group: str) -> None:
        if ends:
            _close_fds(set(ends.ours))
        if self._fd_keeper:
            self._fd_keeper.drop(id)
        if group:
            cgroup.remove_group(group)

    async def find(
        self, spec: ProcessSpec, ref: ProcessRef, seen: int
    ) -> RunningProcess | Exited | Vanished:
        fds = self._inherited_fds.pop(spec.id, ())
        root = await self._find_root(spec, ref)
        ours = StdioFds(fds[0], fds[-1]) if fds else None
        if root and process_tree.is_alive(root.pid, root.started):
            process_tree.send_signals(
                root.pid, root.started, signal.SIGCONT
            )  # after an interrupted kill
            child = LocalProcess(spec, root, ours, self._process_table, self._fd_keeper)
            program = ref.get("program")
            child.program_pid = program if isinstance(program, int) else None
            return child
        output = _drain_output(ours) if ours else b""
        if self._fd_keeper:
            self._fd_keeper.drop(spec.id)
        _close_fds(set(fds))
        if root and root.group:
            cgroup.remove_group(root.group)
        code = read_exit_code(spec.folder / EXIT_FILE)
        if code is not None:
            return Exited(code, output)
        return Vanished(_explain_loss(ref))

    def close_unclaimed_fds(self) -> None:
        """Close the inherited descriptors that no process claimed: their processes have exited."""
        for id, fds in self._inherited_fds.items():
            _close_fds(set(fds))
            if self._fd_keeper:
                self._fd_keeper.drop(id)
        self._inherited_fds = {}

    async def _find_root(self, spec: ProcessSpec, ref: ProcessRef) -> process_tree.TreeRoot | None:
        if not ref:  # died while starting: look for a process with this id
            table = await self._process_table.scan()
            for info in table.values():
                shim = table.get(info.session)
                if info.mark == spec.id and info.ppid == info.session and shim and not shim.dead:
                    group = (
                        f"{self._cgroup_parent}/rekindle-{spec.id}" if self._cgroup_parent else ""
                    )
                    return process_tree.TreeRoot(spec.id, info.session, shim.started, group)
            return None
        if ref.get("boot") != process_tree.get_boot_id():
            return None
        return process_tree.TreeRoot(
            spec.id, int(ref["pid"]), int(ref["started"]), str(ref["group"])
        )

    async def close(self) -> None:
        self._spawner.close()


class _StdioEnds(NamedTuple):
    ours: StdioFds
    theirs: tuple[int, ...]
    terminal: str = ""


def _open_pipes() -> _StdioEnds:
    stdin, write = os.pipe()
    read, stdout = os.pipe()
    return _StdioEnds(_set_nonblocking(StdioFds(read, write)), (stdin, stdout))


def _open_terminal(spec: ProcessSpec) -> _StdioEnds:
    master, slave = os.openpty()
    assert spec.pty is not None
    termios.tcsetwinsize(slave, spec.pty)
    return _StdioEnds(_set_nonblocking(StdioFds(master, master)), (slave,), os.ttyname(slave))


def _set_nonblocking(fds: StdioFds) -> StdioFds:
    os.set_blocking(fds.output, False)
    os.set_blocking(fds.input, False)
    return fds


def _drain_output(fds: StdioFds) -> bytes:
    """Read the output that was written before the exit and not yet read."""
    data = bytearray()
    os.set_blocking(fds.output, False)
    with suppress(OSError):
        while piece := os.read(fds.output, 65536):
            data += piece
            if len(data) > 1 << 20:
                break
    return bytes(data)


def _explain_loss(ref: Mapping[str, object]) -> str:
    if not ref:
        return "the supervisor was killed before it started the process; it never ran"
    if ref.get("boot") != process_tree.get_boot_id():
        return "the machine was rebooted, or the process ran in another container"
    return "it was killed together with the shim that records the exit code"


def _close_fds(fds: set[int] | tuple[int, ...]) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
