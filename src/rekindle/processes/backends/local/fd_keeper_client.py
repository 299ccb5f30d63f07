"""The supervisor's line to its keeper (keeper.py)."""

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

_MOST = 4


class Keeping:
    """A connection to the keeper of a home; it is started if there is none."""

    def __init__(
        self, line: socket.socket, path: Path, revive: Sequence[str], pid: int | None
    ) -> None:
        self.pid = pid or peer(line)  # nothing of a tree that is ended
        self._line = line
        self._path = path
        self._revive = revive
        self._kept: dict[str, tuple[int, ...]] = {}
        self._tell(b"revive " + b"\0".join(os.fsencode(word) for word in revive))

    @classmethod
    def open(cls, path: Path, revive: Sequence[str], env: Mapping[str, str]) -> Keeping:
        """Connect to the keeper that listens at `path`. `revive` starts a new supervisor."""
        line, pid = _connect(path), None
        if line is None:
            pid = _start(path, env)
            line = _connect(path)
        if line is None:
            raise ConnectionError(f"{path}: the keeper does not answer")
        return cls(line, path, revive, pid)

    def keep(self, id: str, *files: int) -> None:
        """Hold copies of these files; as soon as this returns, even if this program dies."""
        self._kept[id] = files
        rights = array.array("i", files)
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        try:
            self._line.sendmsg([f"keep {id}".encode()], extra)
        except OSError:
            self.renew()

    def shut(self, id: str) -> None:
        """Let go of the input of a process: its last file."""
        if id in self._kept:
            self._kept[id] = self._kept[id][:1]
            self._tell(f"shut {id}".encode())

    def drop(self, id: str) -> None:
        """Let go of a process."""
        if self._kept.pop(id, None) is not None:
            self._tell(f"drop {id}".encode())

    def take(self) -> dict[str, tuple[int, ...]]:
        """What the keeper holds of an earlier supervisor, as files of this program."""
        found: dict[str, tuple[int, ...]] = {}
        self._line.settimeout(10.0)
        try:
            self._line.send(b"hand")
            while True:
                id, extra, _, _ = self._line.recvmsg(4096, socket.CMSG_SPACE(_MOST * 4))
                if id in (b".", b""):
                    break
                files = array.array("i")
                for _, _, data in extra:
                    files.frombytes(data[: len(data) - len(data) % 4])
                for file in files:
                    os.set_inheritable(file, False)
                found[id.decode()] = tuple(files)
        except OSError:
            pass
        self._line.settimeout(None)
        self._kept.update(found)
        return found

    def bye(self) -> None:
        """This supervisor goes of its own will: no other one is needed."""
        self._tell(b"bye")
        self._line.close()

    def close(self) -> None:
        """Let go without a word, as if killed."""
        self._line.close()

    def fileno(self) -> int:
        return self._line.fileno()

    def _tell(self, words: bytes) -> None:
        try:
            self._line.send(words)
        except OSError:
            self.renew()

    def renew(self) -> None:
        """The keeper is gone: start another one, and give it everything."""
        with suppress(OSError):
            self._line.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        self.pid = _start(self._path, os.environ)
        line = _connect(self._path)
        if line is None:
            return
        self._line = line
        words = b"revive " + b"\0".join(os.fsencode(word) for word in self._revive)
        with suppress(OSError):
            self._line.send(words)
            for id, files in self._kept.items():
                extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
                self._line.sendmsg([f"keep {id}".encode()], extra)


def peer(line: socket.socket) -> int:
    """The process id at the other end, as the kernel knows it."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def _connect(path: Path) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.connect(str(path))
    except OSError:
        line.close()
        return None
    return line


def _start(path: Path, env: Mapping[str, str]) -> int:
    """Start a keeper that listens at `path`, and return its id; the caller holds the home's lock."""
    with suppress(FileNotFoundError):
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        old = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(old)
        listening.listen(8)
        # A number that the standard streams do not take.
        file = fcntl.fcntl(listening, fcntl.F_DUPFD_CLOEXEC, 10)
        try:
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", program.__file__, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(file,),
                start_new_session=True,
                env=dict(env),
                cwd="/",
            )
        finally:
            os.close(file)
        started.returncode = 0  # it outlives us; nobody waits for it
        return started.pid
    finally:
        listening.close()
