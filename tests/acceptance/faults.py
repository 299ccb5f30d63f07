"""Ways to break the world around a store: other processes, small disks, a line that is cut."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import rekindle
from tests import command
from tests.waiting import PATIENCE

_ROOTS = (Path(__file__).parents[2], Path(rekindle.__file__).parents[1])
_NO_OVERRIDE = "-dac_override,-dac_read_search"


def environment() -> dict[str, str]:
    """Where a child finds the package and the soak, whatever its folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("REKINDLE_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, _ROOTS))}


def start(code: str, *arguments: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A Python process of its own that runs `code`; `before` is what it runs under."""
    words = ["-c", code, *map(str, arguments)]
    options: dict[str, Any] = {"env": environment(), "text": True}
    options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    if not before:
        return command.start_python(words, **options)
    return subprocess.Popen([*before, sys.executable, *words], **options)


def run(code: str, *arguments: object, before: Sequence[str] = ()) -> str:
    """What `code` printed; it must end well."""
    process = start(code, *arguments, before=before)
    said, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complained[-3000:]
    return said


def run_command(
    store: object, *words: object, before: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command on a store."""
    given = ["--store", str(store), *map(str, words)]
    env = {**environment(), **env}
    options: dict[str, Any] = {"env": env, "capture_output": True, "text": True}
    if not before:
        return command.run(given, timeout=PATIENCE, **options)
    return subprocess.run([*before, command.COMMAND, *given], timeout=PATIENCE, **options)


def as_mortal() -> list[str]:
    """What to run a child under, so that file modes count for it even where we are root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        _give_up("file modes mean nothing to root, and there is no setpriv to drop that")
    return ["setpriv", f"--bounding-set={_NO_OVERRIDE}", f"--inh-caps={_NO_OVERRIDE}"]


def strace(*options: str) -> list[str]:
    """What to run a child under, so that its system calls fail as asked."""
    if shutil.which("strace") is None:
        _give_up("no strace here")
    return ["strace", "-f", "-qq", "-o", "/dev/null", *options]


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of its own with little room."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        _give_up(f"no small disk can be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def read_only_view(folder: Path, place: Path) -> Iterator[Path]:
    """The same folder at another place, where nothing can be written."""
    place.mkdir()
    mounted = subprocess.run(["mount", "--bind", str(folder), str(place)], capture_output=True)
    if mounted.returncode:
        _give_up(f"no folder can be mounted: {mounted.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _give_up(reason: str) -> None:
    warnings.warn(f"A FAULT IS NOT TESTED: {reason}", stacklevel=2)
    pytest.skip(reason)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


class Line:
    """A line to a PostgreSQL server that can be cut when a transaction is to be committed.

    `at_commit` is called instead of passing on a COMMIT, or a statement that is a transaction of its own
    and records it; it gets a function that does pass it on.
    Afterwards the line is dead. It is called once.
    """

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._muted = set[socket.socket]()  # clients that hear no answer any more
        self.at_commit: Callable[[Callable[[], None]], None] | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        both = (client, server)
        threading.Thread(target=self._pass, args=(server, client, both), daemon=True).start()
        self._pass(client, server, both, watch=True)

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        both: tuple[socket.socket, socket.socket],
        watch: bool = False,
    ) -> None:
        try:
            while data := source.recv(65536):
                is_commit = b"COMMIT" in data or b"recorded AS" in data
                if watch and self.at_commit and is_commit:
                    act, self.at_commit = self.at_commit, None
                    self._muted.add(source)
                    act(lambda data=data: sink.sendall(data))
                    break
                if sink not in self._muted:
                    sink.sendall(data)
        except OSError:
            pass
        finally:
            if sink not in self._muted:  # else it is hung up on when `at_commit` is through
                for end in both:
                    with suppress(OSError):  # the other side was first
                        end.shutdown(socket.SHUT_RDWR)
                    end.close()

    def close(self) -> None:
        self._listener.close()


@contextmanager
def line(port: int) -> Iterator[Line]:
    opened = Line(port)
    try:
        yield opened
    finally:
        opened.close()
