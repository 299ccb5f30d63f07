"""The spawner: a small program that forks for a large one.

Run by its path, with nothing but the standard library. To make a process a subreaper, one has to
fork and act before its program is executed; a fork takes the longer the more memory a program has.
This one has next to none. It ends with the program that started it; what it started goes on.

A question is a length, then words apart by NUL: how many belong to the command, the folder, the
command, and the environment; with it the two files for input and output. The answer is a process
id and when it started, or 0: soon after, nobody else could tell.
"""

import array
import ctypes
import gc
import os
import signal
import socket
import struct
import sys
from types import FrameType

_LENGTH = struct.Struct(">I")
_ANSWER = struct.Struct(">IQ")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def serve(line: socket.socket) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    gc.freeze()
    while True:
        head, files = _receive(line)
        if len(head) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(head)
        # All that can be worked out is, before the fork: what a child touches has to be copied for it.
        count, folder, *words = _exactly(line, length).split(b"\0")
        argv, pairs = words[: int(count)], words[int(count) :]
        env = {name: value for name, _, value in (pair.partition(b"=") for pair in pairs)}
        try:
            pid = os.fork()
        except OSError:
            pid = 0
        else:
            if pid == 0:
                _become(argv, folder or b"/", env, files, prctl)
        for file in files:
            os.close(file)
        line.sendall(_ANSWER.pack(pid, _started(pid)))


def _become(
    argv: list[bytes], folder: bytes, env: dict[bytes, bytes], files: list[int], prctl: object
) -> None:
    """In the child: turn into the command, or end."""
    try:
        os.setsid()
        if callable(prctl):
            prctl(_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for target, file in enumerate((*(files or (null, null)), null)):
            os.dup2(file, target)
        os.chdir(folder)
        os.execve(argv[0], argv, env)
    finally:
        os._exit(127)


def _started(pid: int) -> int:
    """When it started, in clock ticks since boot."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    head, extra, _, _ = line.recvmsg(_LENGTH.size, socket.CMSG_SPACE(8))
    files = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % 4])
    while head and len(head) < _LENGTH.size:
        more = line.recv(_LENGTH.size - len(head))
        if not more:
            return b"", []
        head += more
    for file in files:
        os.set_inheritable(file, False)
    return head, list(files)


def _exactly(line: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = line.recv(min(1 << 20, length - len(data)))
        if not piece:
            raise SystemExit
        data += piece
    return bytes(data)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the exit code stands in a file
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _nothing)  # caught, not ignored: that would be passed on
    try:
        serve(line)
    except OSError:
        return


if __name__ == "__main__":
    main()
