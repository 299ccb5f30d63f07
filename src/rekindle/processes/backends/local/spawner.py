"""The spawner: a small program that starts processes for a large one.

Run by its path, with nothing but the standard library. It keeps two forks of itself ready. One is a
shim: it leads a session of its own, is a subreaper, so that what forks twice stays below it, catches
the signals that are meant for the program, waits for its end, and writes the exit code into a file.
Only a parent learns that code, and this parent outlives everyone who asks. The other, the shim's
child, waits for a question and turns into the program; then the next two are made ready.

So nothing has to be forked when somebody waits; all that has to be worked out for a start is
forgotten with it; and a shim, which does next to nothing, shares nearly all its memory. The spawner
ends with the program that started it; what it started goes on.

A question is a length, then words apart by NUL: how many of them belong to the command, folder, path
of the program, terminal, control group, file for the exit code, how many files may be open, the
command, and the environment. With it come a pipe for the answer and, unless there is a terminal, the
files for input and output. The answer is two process ids, of the shim and of the program, and, if it
could not be executed, an error of the system. Its end comes when the program is executed.
"""

import array
import ctypes
import errno
import gc
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from types import FrameType

_LENGTH = struct.Struct(">I")
IDS = struct.Struct(">II")
ERROR = struct.Struct(">i")
_SUBREAPER, _NAME = 36, 15  # PR_SET_CHILD_SUBREAPER, PR_SET_NAME
_CHILD = int(signal.SIGCHLD)
_SHELL = b"/bin/sh"
_PAUSE = 0.2  # when forks die, or cannot be made
_TAKEN, _OVER = b"t", b"o"  # a question was taken; there will be none any more
_CAUGHT = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP),
)


def serve(line: socket.socket) -> None:
    libc = ctypes.CDLL(None)
    # Looked up now: whatever a shim does not touch, it shares.
    prctl, set_signal = getattr(libc, "prctl", _without), libc.signal
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        taken, tell = os.pipe()
        if os.fork() == 0:
            os.close(taken)
            _shim(line, tell, prctl, set_signal)
        os.close(tell)
        said = os.read(taken, 1)  # nothing, if they died before a question came
        os.close(taken)
        if said == _OVER:
            return
        if not said:
            time.sleep(_PAUSE)


def _shim(
    line: socket.socket,
    tell: int,
    prctl: Callable[..., object],
    set_signal: Callable[..., object],
) -> None:
    """In the first fork: wait for the program that the second turns into. Never returns."""
    try:
        os.setsid()
        prctl(_SUBREAPER, 1, 0, 0, 0)
        prctl(_NAME, b"rekindle-shim", 0, 0, 0)
        set_signal(_CHILD, 0)  # as it was: else no exit code is kept for us
        ours, theirs = socket.socketpair()
        program = os.fork()
        if program == 0:
            ours.close()
            _program(line, tell, theirs)
        theirs.close()
        line.close()
        os.close(tell)
        _accompany(ours, program)
    finally:
        os._exit(0)


def _accompany(line: socket.socket, program: int) -> None:
    """Do what only the leader of the session can, wait, and note the exit code."""
    words = line.recv(65536)
    if not words:
        return  # there was no question
    path, terminal, group = words.split(b"\0")
    if group:
        _write(group + b"/cgroup.procs", b"0")
    if terminal:
        os.open(terminal, os.O_RDWR)  # the first one that a session opens is its own
    if group or terminal:
        line.send(_TAKEN)
    line.close()
    while True:
        pid, status = os.waitpid(-1, 0)  # what the program left behind is reaped too
        if pid == program:
            break
    code = os.waitstatus_to_exitcode(status)
    _write(path, b"%d\n" % (code if code >= 0 else 128 - code))


def _program(line: socket.socket, tell: int, shim: socket.socket) -> None:
    """In the second fork: wait for a question, and turn into the program. Never returns."""
    try:
        head, files = _receive(line)
        if len(head) < _LENGTH.size:
            os.write(tell, _OVER)
            return
        (length,) = _LENGTH.unpack(head)
        words = _exactly(line, length).split(b"\0")
        os.write(tell, _TAKEN)
        answer, *files = files
        # If nobody hears this any more, nobody knows of the process either: it must not run.
        os.write(answer, IDS.pack(os.getppid(), os.getpid()))
        try:
            _become(words, files, shim)
        except OSError as error:
            os.write(answer, ERROR.pack(error.errno or errno.EIO))
    except OSError:
        pass
    finally:
        os._exit(127)


def _become(words: list[bytes], files: list[int], shim: socket.socket) -> None:
    count, folder, path, terminal, group, exit, most = words[:7]
    last = 7 + int(count)
    argv = words[7:last]
    env = {name: value for name, _, value in (word.partition(b"=") for word in words[last:])}
    shim.send(b"\0".join((exit, terminal, group)))
    if (group or terminal) and not shim.recv(1):
        raise OSError(errno.EIO, "the shim ended")
    if group:
        _write(group + b"/cgroup.procs", b"0")
    if terminal:
        files = [os.open(terminal, os.O_RDWR)] * 2
    if most:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(most), hard))
    os.chdir(folder)
    # What is caught here is not caught there; what is ignored would be ignored there too.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    inputs, outputs = files
    os.dup2(inputs, 0)
    os.dup2(outputs, 1)
    os.dup2(outputs, 2)
    try:
        os.execve(path, argv, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script that does not name its interpreter is one for the shell.
    os.execve(_SHELL, [_SHELL, path, *argv[1:]], env)


def _write(path: bytes, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    os.write(file, data)
    os.close(file)


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    head, extra, _, _ = line.recvmsg(_LENGTH.size, socket.CMSG_SPACE(12))
    files = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % 4])
    for file in files:
        os.set_inheritable(file, False)
    if head and len(head) < _LENGTH.size:
        head += _exactly(line, _LENGTH.size - len(head))
    return head, list(files)


def _exactly(line: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = line.recv(min(1 << 20, length - len(data)))
        if not piece:
            raise SystemExit
        data += piece
    return bytes(data)


def _without(*_: object) -> None:
    """A system that has no prctl."""


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the exit code stands in a file
    for number in _CAUGHT:
        if (
            signal.getsignal(number) != signal.SIG_IGN
        ):  # what everyone here ignores, programs do too
            signal.signal(number, _nothing)  # caught, not ignored: that would be passed on
    serve(line)


if __name__ == "__main__":
    main()
