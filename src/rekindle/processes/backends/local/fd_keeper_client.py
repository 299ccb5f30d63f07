"""The supervisor's connection to its fd keeper (keeper.py)."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from . import fd_keeper as program

_MAX_FDS = 4


class FdKeeperClient:
    """A connection to the fd keeper of a home; the keeper is started if there is none."""

    def __init__(
        self, connection: socket.socket, path: Path, restart_command: Sequence[str], pid: int | None
    ) -> None:
        self.pid = pid or get_peer_pid(connection)  # spared when a process tree is killed
        self._connection = connection
        self._path = path
        self._restart_command = restart_command
        self._held_fds: dict[str, tuple[int, ...]] = {}
        self._send(b"revive " + b"\0".join(os.fsencode(word) for word in restart_command))

    @classmethod
    def open(
        cls, path: Path, restart_command: Sequence[str], env: Mapping[str, str]
    ) -> FdKeeperClient:
        """Connect to the fd keeper at `path`. `restart_command` starts a new supervisor."""
        connection, pid = _connect_keeper(path), None
        if connection is None:
            pid = _start_keeper(path, env)
            connection = _connect_keeper(path)
        if connection is None:
            raise ConnectionError(f"{path}: the fd keeper does not respond")
        return cls(connection, path, restart_command, pid)

    def keep(self, id: str, *files: int) -> None:
        """Hold copies of these descriptors, which survive this program from now on."""
        self._held_fds[id] = files
        rights = array.array("i", files)
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        try:
            self._connection.sendmsg([f"keep {id}".encode()], extra)
        except OSError:
            self.restart_keeper()

    def drop_stdin(self, id: str) -> None:
        """Drop the input of a process: its last descriptor."""
        if id in self._held_fds:
            self._held_fds[id] = self._held_fds[id][:1]
            self._send(f"shut {id}".encode())

    def drop(self, id: str) -> None:
        """Drop all descriptors of a process."""
        if self._held_fds.pop(id, None) is not None:
            self._send(f"drop {id}".encode())

    def take_over(self) -> dict[str, tuple[int, ...]]:
        """Return the descriptors that the keeper holds for an earlier supervisor."""
        taken_fds: dict[str, tuple[int, ...]] = {}
        self._connection.settimeout(10.0)
        try:
            self._connection.send(b"hand")
            while True:
                id, extra, _, _ = self._connection.recvmsg(4096, socket.CMSG_SPACE(_MAX_FDS * 4))
                if id in (b".", b""):
                    break
                fds = array.array("i")
                for _, _, data in extra:
                    fds.frombytes(data[: len(data) - len(data) % 4])
                for fd in fds:
                    os.set_inheritable(fd, False)
                taken_fds[id.decode()] = tuple(fds)
        except OSError:
            pass
        self._connection.settimeout(None)
        self._held_fds.update(taken_fds)
        return taken_fds

    def say_goodbye(self) -> None:
        """Disconnect in an orderly shutdown: no new supervisor is needed."""
        self._send(b"bye")
        self._connection.close()

    def close(self) -> None:
        """Disconnect without a goodbye, as if killed."""
        self._connection.close()

    def fileno(self) -> int:
        return self._connection.fileno()

    def _send(self, message: bytes) -> None:
        try:
            self._connection.send(message)
        except OSError:
            self.restart_keeper()

    def restart_keeper(self) -> None:
        """Start a new keeper after the old one died, and hand it all descriptors."""
        with suppress(OSError):
            self._connection.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        self.pid = _start_keeper(self._path, os.environ)
        connection = _connect_keeper(self._path)
        if connection is None:
            return
        self._connection = connection
        message = b"revive " + b"\0".join(os.fsencode(word) for word in self._restart_command)
        with suppress(OSError):
            self._connection.send(message)
            for id, fds in self._held_fds.items():
                extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                self._connection.sendmsg([f"keep {id}".encode()], extra)


def get_peer_pid(connection: socket.socket) -> int:
    """Return the process id of the peer, as reported by the kernel."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def _connect_keeper(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _start_keeper(path: Path, env: Mapping[str, str]) -> int:
    """Start a keeper that listens at `path` and return its pid; the caller holds the folder lock."""
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        old_umask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old_umask)
        listener.listen(8)
        # A number above the standard streams.
        fd = fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, 10)
        try:
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", program.__file__, str(fd)],
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
        started.returncode = 0  # it outlives this program; suppress the ResourceWarning
        return started.pid
    finally:
        listener.close()
