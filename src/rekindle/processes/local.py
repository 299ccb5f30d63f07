"""Processes on this machine.

Between us and the program stands a shim: a shell in a session of its own that runs the program in
the foreground and writes its exit code into a file. Only a parent learns that code, and this parent
outlives us. It is also a subreaper, so that what forks twice stays below it, and it catches the
signals that are meant for the program.

A control group for each process can be had too (`groups`). It is not the rule: to move a process
into one makes the kernel wait for all processors, which takes longer than the whole start.

That the program really runs is told through a named pipe: the shell holds it only in a file that
the kernel closes when the program is executed, so that its end comes at that moment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import NotStarted
from . import cgroup, tree
from .child import Child, Files
from .keeping import Keeping
from .place import MARK, Ended, Lost, Ref, Running, Spec
from .program import check
from .spawning import Spawning

EXIT = "exit"
_STARTED = "started"
_PATIENCE = 30.0
_UNKNOWN = b" " * 15 + b"\n"
_PATH = "/usr/local/bin:/usr/bin:/bin"
_SHELL = "/bin/sh"
# $1 file for the exit code, $2 pipe that tells the start, $3 control group, $4 terminal, $5 how
# many files may be open. The shell's own complaints go nowhere; those about the program go where
# its output goes. Its variables have long names: one that the environment has would be changed.
_SHIM = """\
trap : HUP INT QUIT TERM USR1 USR2 ALRM TSTP
exec 2>/dev/null
rekindle_exit=$1 rekindle_told=$2
case $5 in ?*) ulimit -S -n "$5" ;; esac
case $3 in ?*) echo 0 >"$3/cgroup.procs" ;; esac
case $4 in ?*) exec 0<>"$4" 1>&0 ;; esac
shift 5
(
exec 3>"$rekindle_told"
case ${BASH_VERSION-} in ?*) shopt -s execfail ;; esac
read -r rekindle_pid rekindle_rest </proc/self/stat && echo "$rekindle_pid" >&3
trap 'echo failed >"$rekindle_told"' EXIT
{ exec "$@" 2>&1; } 3>&-
rekindle_code=$?
echo failed >&3
exit "$rekindle_code"
)
echo "$?" 1<>"$rekindle_exit"
"""


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
        self._census = tree.Census()
        self._spawning = Spawning()

    async def start(self, spec: Spec) -> Running:
        check(spec.argv, spec.cwd, spec.env)
        try:
            return await self._start(spec)
        except OSError as error:
            raise NotStarted(f"{spec.argv[0]}: {error.strerror or error}") from error

    async def _start(self, spec: Spec) -> Child:
        spec.folder.joinpath(EXIT).write_bytes(_UNKNOWN)
        pipe = spec.folder / _STARTED
        os.mkfifo(pipe, 0o600)
        told = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        ends, group, pid = None, "", 0
        try:
            ends = _terminal(spec) if spec.pty else _pipes()
            if self._keeping:
                self._keeping.keep(spec.id, *ends.ours)
            group = cgroup.make(self._groups, spec.id) if self._groups else ""
            pid, started = await self._spawn(spec, ends, group)
            root = tree.Root(spec.id, pid, started, group)
            child = Child(spec, root, ends.ours, self._census, self._keeping)
            try:
                async with asyncio.timeout(_PATIENCE):
                    child.program = await _started(told)
            except (NotStarted, TimeoutError) as error:
                why = child.complaint() or str(error) or "the shell does not answer"
                await child.discard()
                raise NotStarted(f"{spec.argv[0]}: {why}") from None
            return child
        except BaseException:
            if not pid:
                self._undo(spec.id, ends, group)
            raise
        finally:
            os.close(told)
            pipe.unlink(missing_ok=True)
            if ends:
                _close(ends.theirs)

    async def _spawn(self, spec: Spec, ends: _Ends, group: str) -> tuple[int, int]:
        env = {"PATH": _PATH, **spec.env, MARK: spec.id}
        if spec.pty:
            env.setdefault("TERM", "xterm-256color")
        paths = (str(spec.folder / EXIT), str(spec.folder / _STARTED), group, ends.terminal)
        shim = (_SHELL, "-c", _SHIM, f"rekindle-{spec.id}", *paths, self._files)
        files = () if spec.pty else ends.theirs
        return await self._spawning.spawn((*shim, *spec.argv), spec.cwd or "/", env, files)

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
        if root and tree.lives(root.pid, root.started):
            tree.send(root.pid, root.started, signal.SIGCONT)  # in case it was held by `tree.end`
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

    async def _root(self, spec: Spec, ref: Ref) -> tree.Root | None:
        if not ref:  # it died between the record and the next one: was there a process?
            for pid, one in (await self._census.take()).items():
                if one.mark == spec.id and one.session == pid and not one.dead:
                    group = f"{self._groups}/rekindle-{spec.id}" if self._groups else ""
                    return tree.Root(spec.id, pid, one.started, group)
            return None
        if ref.get("boot") != tree.boot():
            return None
        return tree.Root(spec.id, int(ref["pid"]), int(ref["started"]), str(ref["group"]))

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


async def _started(told: int) -> int | None:
    """Wait until the program is executed; its process id."""
    loop, said = asyncio.get_running_loop(), bytearray()
    over: asyncio.Future[None] = loop.create_future()

    def hear() -> None:
        piece = os.read(told, 256)
        said.extend(piece)
        if not piece and not over.done():
            over.set_result(None)

    loop.add_reader(told, hear)
    try:
        await over
    finally:
        loop.remove_reader(told)
    words = bytes(said).split()
    if b"failed" in words:
        raise NotStarted("it could not be executed")
    return int(words[0]) if words and words[0].isdigit() else None


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
    if ref.get("boot") != tree.boot():
        return "the machine was restarted, or it ran in another container"
    return "it was killed together with the shim that notes the exit code"


def _close(files: set[int] | tuple[int, ...]) -> None:
    for file in files:
        with suppress(OSError):
            os.close(file)
