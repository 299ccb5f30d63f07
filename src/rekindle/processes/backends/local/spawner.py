"""The spawner: a small program that starts processes on behalf of a large one.

It runs by its path with only the standard library, and keeps two forks of itself ready. One is a
shim: it leads an OS session of its own, is a subreaper, so that double forks stay below it, catches
the signals meant for the program, waits for its exit, and writes the exit code to a file. Only a
parent gets that code, and this parent outlives everyone who asks. The other, the shim's child,
waits for a request and executes the program; then the next two forks are made.

So nothing has to be forked while somebody waits, all state of a start is discarded with its fork,
and a shim, which does almost nothing, shares nearly all its memory. The spawner exits with the
program that started it; the processes it started keep running.

A request is a length, then words separated by NUL: the number of words in the command, working
folder, path of the program, terminal, control group, exit code file, open file limit, the command,
and the environment. It carries a pipe for the response and, without a terminal, descriptors for
input and output. The response is two process ids, of the shim and of the program, followed by an
errno if the program could not be executed. The pipe closes when the program is executed.
"""

# Before the forks, which receive descriptors with it.
import array  # noqa: F401  # pyright: ignore[reportUnusedImport]
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
_SIGCHLD = int(signal.SIGCHLD)
_SHELL = b"/bin/sh"
_RETRY_DELAY = 0.2  # seconds, after a failed fork
_REQUEST_TAKEN, _NO_MORE_REQUESTS = b"t", b"o"  # status bytes to the spawner
_CAUGHT_SIGNALS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP),
)


def serve_requests(connection: socket.socket) -> None:
    libc = ctypes.CDLL(None)
    # Look these up before the fork: memory that a shim does not touch stays shared.
    prctl, set_signal = getattr(libc, "prctl", _skip_prctl), libc.signal
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        taken, notify = os.pipe()
        if os.fork() == 0:
            os.close(taken)
            _run_shim(connection, notify, prctl, set_signal)
        os.close(notify)
        status = os.read(taken, 1)  # empty if the forks died before a request came
        os.close(taken)
        if status == _NO_MORE_REQUESTS:
            return
        if not status:
            time.sleep(_RETRY_DELAY)


def _run_shim(
    connection: socket.socket,
    notify: int,
    prctl: Callable[..., object],
    set_signal: Callable[..., object],
) -> None:
    """Run in the first fork: wait for the program that the second fork executes. Never return."""
    try:
        os.setsid()
        prctl(_SUBREAPER, 1, 0, 0, 0)
        prctl(_NAME, b"rekindle-shim", 0, 0, 0)
        set_signal(_SIGCHLD, 0)  # default action: otherwise the kernel discards the exit code
        ours, theirs = socket.socketpair()
        program_pid = os.fork()
        if program_pid == 0:
            ours.close()
            _run_program(connection, notify, theirs)
        theirs.close()
        connection.close()
        os.close(notify)
        _wait_for_program(ours, program_pid)
    finally:
        os._exit(0)


def _wait_for_program(connection: socket.socket, program_pid: int) -> None:
    """Do what only the session leader can do, wait for the program, and record the exit code."""
    message = connection.recv(65536)
    if not message:
        return  # there was no request
    path, terminal, group = message.split(b"\0")
    if group:
        _write_file(group + b"/cgroup.procs", b"0")
    if terminal:
        os.open(terminal, os.O_RDWR)  # the first terminal a session opens controls it
    if group or terminal:
        connection.send(_REQUEST_TAKEN)
    connection.close()
    while True:
        pid, status = os.waitpid(-1, 0)  # also reap orphans of the program
        if pid == program_pid:
            break
    code = os.waitstatus_to_exitcode(status)
    _write_file(path, b"%d\n" % (code if code >= 0 else 128 - code))


def _run_program(connection: socket.socket, notify: int, shim: socket.socket) -> None:
    """Run in the second fork: wait for a request and execute the program. Never return."""
    try:
        head, fds = _receive_head(connection)
        if len(head) < _LENGTH.size:
            os.write(notify, _NO_MORE_REQUESTS)
            return
        (length,) = _LENGTH.unpack(head)
        words = _read_exactly(connection, length).split(b"\0")
        os.write(notify, _REQUEST_TAKEN)
        response, *fds = fds
        # This fails if the requester is gone: an unknown process must not run.
        os.write(response, IDS.pack(os.getppid(), os.getpid()))
        try:
            _execute_program(words, fds, shim)
        except OSError as error:
            os.write(response, ERROR.pack(error.errno or errno.EIO))
    except OSError:
        pass
    finally:
        os._exit(127)


def _execute_program(words: list[bytes], fds: list[int], shim: socket.socket) -> None:
    count, folder, path, terminal, group, exit_file, open_file_limit = words[:7]
    last = 7 + int(count)
    argv = words[7:last]
    env = {name: value for name, _, value in (word.partition(b"=") for word in words[last:])}
    shim.send(b"\0".join((exit_file, terminal, group)))
    if (group or terminal) and not shim.recv(1):
        raise OSError(errno.EIO, "the shim exited")
    if group:
        _write_file(group + b"/cgroup.procs", b"0")
    if terminal:
        fds = [os.open(terminal, os.O_RDWR)] * 2
    if open_file_limit:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(open_file_limit), hard))
    os.chdir(folder)
    # Caught signals are reset by exec; ignored ones are inherited, so reset them here.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    inputs, outputs = fds
    os.dup2(inputs, 0)
    os.dup2(outputs, 1)
    os.dup2(outputs, 2)
    try:
        os.execve(path, argv, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # Run a script without a shebang with the shell.
    os.execve(_SHELL, [_SHELL, path, *argv[1:]], env)


def _write_file(path: bytes, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, data)
    os.close(fd)


def _receive_head(connection: socket.socket) -> tuple[bytes, list[int]]:
    head, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    for fd in fds:
        os.set_inheritable(fd, False)
    if head and len(head) < _LENGTH.size:
        head += _read_exactly(connection, _LENGTH.size - len(head))
    return head, fds


def _read_exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(min(1 << 20, length - len(data)))
        if not piece:
            raise SystemExit
        data += piece
    return bytes(data)


def _skip_prctl(*_: object) -> None:
    """Stand in for prctl on systems without it."""


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    pass


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the exit code is in a file
    for number in _CAUGHT_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # leave inherited ignored signals ignored
            signal.signal(number, _ignore_signal)  # caught, not ignored: ignoring is inherited
    serve_requests(connection)


if __name__ == "__main__":
    main()
