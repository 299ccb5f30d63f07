"""Processes on this machine.

Between us and the program stands a shim (spawner.py) in a session of its own, which starts the
program and writes its exit code into a file.

A control group for each process can be had too (`groups`). It is not the rule: to move a process
into one makes the kernel wait for all processors, which takes longer than the whole start.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import NotStarted
from rekindle.processes.backends.base import MARK, Ended, Lost, Ref, Running, Spec

from . import cgroup, process_tree
from .child import Child, Files
from .executable import check
from .fd_keeper_client import Keeping
from .spawner_client import Command, Spawning

EXIT = "exit"
_PATIENCE = 30.0
_UNKNOWN = b" " * 15 + b"\n"
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Local:
    """This machine. With a keeper, pipes and terminals survive the death of this program."""

    name = "local"

    def __init__(
        self, keeping: Keeping | None = None, *, groups: bool = False, files: int | None = None
    ) -> None:
        """`files`: how many may be open in a process, where this program allows itself more."""
        self._files = "" if files is None else str(files)
        self._keeping = keeping
        self._kept = keeping.take() if keeping else {}
        self._groups = cgroup.parent() if groups else None
        self._census = process_tree.Census()
        self._spawning = Spawning()

    async def start(self, spec: Spec) -> Running:
        path = check(spec.argv, spec.cwd, spec.env)
        try:
            return await self._start(spec, path)
        except OSError as error:
            why = error.strerror or error
            # Of the kernel, about no file of ours: the program itself was seen.
            if error.errno == errno.ENOENT and error.filename is None:
                why = "the loader that it names was not found"
            raise NotStarted(f"{spec.argv[0]}: {why}") from error

    async def _start(self, spec: Spec, path: str) -> Child:
        spec.folder.joinpath(EXIT).write_bytes(_UNKNOWN)
        ends, group = _terminal(spec) if spec.pty else _pipes(), ""
        try:
            if self._keeping:
                self._keeping.keep(spec.id, *ends.ours)
            group = cgroup.make(self._groups, spec.id) if self._groups else ""
            command = self._command(spec, path, ends, group)
            async with asyncio.timeout(_PATIENCE):
                shim, program = await self._spawning.spawn(command)
        except BaseException as error:
            self._undo(spec.id, ends, group)
            if isinstance(error, TimeoutError):
                why = f"the system has made no process for it in {_PATIENCE:g} s"
                raise NotStarted(f"{spec.argv[0]}: {why}") from None
            raise
        finally:
            _close(ends.theirs)
        seen = process_tree.look(shim)  # unless it has ended already
        root = process_tree.Root(spec.id, shim, seen.started if seen else 0, group)
        child = Child(spec, root, ends.ours, self._census, self._keeping)
        child.program = program
        return child

    def _command(self, spec: Spec, path: str, ends: _Ends, group: str) -> Command:
        env = {"PATH": _PATH, **spec.env, MARK: spec.id}
        if spec.pty:
            env.setdefault("TERM", "xterm-256color")
        return Command(
            path,
            spec.argv,
            spec.cwd or "/",
            env,
            exit=os.path.abspath(spec.folder / EXIT),  # the shim stands elsewhere
            files=() if spec.pty else ends.theirs,
            terminal=ends.terminal,
            group=group,
            limit=self._files,
        )

    def _undo(self, id: str, ends: _Ends | None, group: str) -> None:
        if ends:
            _close(set(ends.ours))
        if self._keeping:
            self._keeping.drop(id)
        if group:
            cgroup.remove(group)

    async def find(self, spec: Spec, ref: Ref, seen: int) -> Running | Ended | Lost:
        files = self._kept.pop(spec.id, ())
        root = await self._root(spec, ref)
        ours = Files(files[0], files[-1]) if files else None
        if root and process_tree.lives(root.pid, root.started):
            process_tree.send(
                root.pid, root.started, signal.SIGCONT
            )  # in case it was held by `tree.end`
            child = Child(spec, root, ours, self._census, self._keeping)
            program = ref.get("program")
            child.program = program if isinstance(program, int) else None
            return child
        output = _rest(ours) if ours else b""
        if self._keeping:
            self._keeping.drop(spec.id)
        _close(set(files))
        if root and root.group:
            cgroup.remove(root.group)
        code = exit_code(spec.folder / EXIT)
        if code is not None:
            return Ended(code, output)
        return Lost(_why(ref))

    def let_go_of_the_rest(self) -> None:
        """Files of an earlier program's processes that nobody has asked for: they have ended."""
        for id, files in self._kept.items():
            _close(set(files))
            if self._keeping:
                self._keeping.drop(id)
        self._kept = {}

    async def _root(self, spec: Spec, ref: Ref) -> process_tree.Root | None:
        if not ref:  # it died between the record and the next one: was there a process?
            seen = await self._census.take()
            for one in seen.values():
                shim = seen.get(one.session)
                if one.mark == spec.id and one.ppid == one.session and shim and not shim.dead:
                    group = f"{self._groups}/rekindle-{spec.id}" if self._groups else ""
                    return process_tree.Root(spec.id, one.session, shim.started, group)
            return None
        if ref.get("boot") != process_tree.boot():
            return None
        return process_tree.Root(spec.id, int(ref["pid"]), int(ref["started"]), str(ref["group"]))

    async def close(self) -> None:
        self._spawning.close()


class _Ends(NamedTuple):
    ours: Files
    theirs: tuple[int, ...]
    terminal: str = ""


def _pipes() -> _Ends:
    stdin, write = os.pipe()
    read, stdout = os.pipe()
    return _Ends(_ready(Files(read, write)), (stdin, stdout))


def _terminal(spec: Spec) -> _Ends:
    master, slave = os.openpty()
    assert spec.pty is not None
    termios.tcsetwinsize(slave, spec.pty)
    return _Ends(_ready(Files(master, master)), (slave,), os.ttyname(slave))


def _ready(files: Files) -> Files:
    os.set_blocking(files.output, False)
    os.set_blocking(files.input, False)
    return files


def exit_code(path: Path) -> int | None:
    """What the shim wrote; None if it did not come to that."""
    try:
        said = path.read_bytes().split()
    except OSError:
        return None
    return int(said[0]) if said and said[0].isdigit() else None


def _rest(files: Files) -> bytes:
    """What was written before the end and not read yet."""
    data = bytearray()
    os.set_blocking(files.output, False)
    with suppress(OSError):
        while piece := os.read(files.output, 65536):
            data += piece
            if len(data) > 1 << 20:
                break
    return bytes(data)


def _why(ref: Mapping[str, object]) -> str:
    if not ref:
        return "the supervisor was killed before it could be started; it never ran"
    if ref.get("boot") != process_tree.boot():
        return "the machine was restarted, or it ran in another container"
    return "it was killed together with the shim that notes the exit code"


def _close(files: set[int] | tuple[int, ...]) -> None:
    for file in files:
        with suppress(OSError):
            os.close(file)
