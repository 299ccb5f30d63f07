"""Supervisors forked from a program that has imported theirs already.

To start one by its command takes ten times as long, most of it for imports.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from rekindle.processes.supervisor import supervisor
from tests.waiting import PATIENCE

_SIZE = 1 << 20  # more than any environment and command line in the tests


class WarmSupervisors:
    """A program that stands ready to become a supervisor, as often as it is asked."""

    def __enter__(self) -> WarmSupervisors:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (self._ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SIZE)
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                cwd=Path(__file__).parents[1],
                start_new_session=True,
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._ours.close()
        self._program.wait(PATIENCE)

    def run(self, command: list[str], env: dict[str, str]) -> str:
        """Do as `connection._run_supervisor`: return the status word of the one that was started."""
        arguments = command[len(supervisor.COMMAND) :]
        reader, writer = os.pipe()
        request = json.dumps([arguments, env]).encode()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writer]))
        self._ours.sendmsg([request], [rights])
        os.close(writer)
        with open(reader) as status:
            return status.readline().strip()


def serve_requests(requests: socket.socket) -> None:
    """Fork a supervisor for every request, until nobody can ask any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        message, fds, *_ = socket.recv_fds(requests, _SIZE, 1)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            arguments, env = json.loads(message)
            become_supervisor(arguments, env, fds[0])
        os.close(fds[0])


def become_supervisor(arguments: list[str], env: dict[str, str], status: int) -> None:
    """Be what the command would have started, with its streams and its environment."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull, "r+b", buffering=0) as null:
        for fd, file in enumerate((null.fileno(), status, null.fileno())):
            os.dup2(file, fd)
    os.close(status)
    os.environ.clear()
    os.environ.update(env)
    code = 1
    try:
        code = supervisor.main(arguments)
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve_requests(socket.socket(fileno=int(sys.argv[1])))
