"""The supervisor's connection to its fd keeper (fd_keeper.py)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rekindle.processes.protocol import get_peer_credentials

from . import fd_keeper as program
from .helper_program import start_helper


class FdKeeperClient:
    """A connection to the fd keeper of a home; the keeper is started if there is none."""

    def __init__(
        self, connection: socket.socket, path: Path, restart_command: Sequence[str], pid: int | None
    ) -> None:
        self.pid = (
            pid or get_peer_credentials(connection)[0]
        )  # spared when a process tree is killed
        self._connection = connection
        self._path = path
        self._restart_command = restart_command
        self._held_fds: dict[str, tuple[int, ...]] = {}
        self._send(self._build_revive_message())

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
        try:
            socket.send_fds(self._connection, [f"keep {id}".encode()], files)
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
                id, fds = program.receive_message(self._connection)
                if id in (b".", b""):
                    break
                taken_fds[id.decode()] = tuple(fds)
        except OSError:
            pass
        self._connection.settimeout(None)
        self._held_fds.update(taken_fds)
        return taken_fds

    def disconnect_cleanly(self) -> None:
        """Disconnect in an orderly shutdown: no new supervisor is needed."""
        self._send(b"bye")
        self._connection.close()

    def close(self) -> None:
        """Disconnect abruptly, as if killed."""
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
        with suppress(OSError):
            connection.send(self._build_revive_message())
            for id, fds in self._held_fds.items():
                socket.send_fds(connection, [f"keep {id}".encode()], fds)

    def _build_revive_message(self) -> bytes:
        return b"revive " + b"\0".join(os.fsencode(word) for word in self._restart_command)


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
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        old_umask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old_umask)
        listener.listen(8)
        started = start_helper(program.__file__, listener, env)
        started.returncode = 0  # it outlives this program; suppress the ResourceWarning
        return started.pid
