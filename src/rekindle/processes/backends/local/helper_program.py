"""Start the helper programs of the local backend: the spawner and the fd keeper."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Mapping


def start_helper(
    file: str, connection: socket.socket, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Run a Python file with only the standard library; it gets the descriptor of `connection`."""
    # A number above the standard streams.
    fd = fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, 10)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", file, str(fd)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,
            env=dict(env),
            cwd="/",
        )
    finally:
        os.close(fd)
