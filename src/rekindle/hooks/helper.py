"""The helper of a home: a small resident process that answers hooks at once.

It is started by a client that finds none, answers that client's request first, then listens on a
socket that only this user can open. It exits when nobody has asked for some minutes, when the package
has changed, and when its home is gone. A lock ensures that there is only one.
"""

from __future__ import annotations

import fcntl
import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rekindle.errors import RekindleError

from . import client
from .answers import HookAnswerer
from .command import HOOKS_FOLDER
from .events import SETTING_PREFIXES, HookRequest, ImportJob, parse_settings
from .troubles import describe_error, record_trouble

if TYPE_CHECKING:  # loaded when they are needed: the first client waits
    import socket
    import subprocess

LOCK_FILE = "helper.lock"
IDLE_SECONDS = 600.0
MAX_ANSWER_SECONDS = 5.0  # after which it is taken to hang
CHECK_SECONDS = 1.0
MAX_CLIENTS = 32
_HEAD_FIELDS = 6
_PREFIX = 20


class InvalidRequest(Exception):
    """The request of a client that is not one of ours."""


def run_helper(home: str) -> None:
    """Answer the request on standard input, then those of other clients until there are no more."""
    folder = Path(home) / HOOKS_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(folder)  # the path of a socket must be short
    helper = HookHelper(Path(home))
    helper.answer_first(0, 1)
    gc.enable()
    _detach_standard_streams()
    lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        helper.finish()  # another one is faster
    else:
        helper.serve()
    os._exit(0)


def _detach_standard_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


class HookHelper:
    """Answers the clients of one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / HOOKS_FOLDER
        self._writes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run_writes, daemon=True)
        self._answerer = HookAnswerer(
            home, write_later=self._write_later, start_import=self._start_import
        )
        self._sources = read_sources([*sys.modules.values()])
        self._checked = self._last_active = time.monotonic()
        self._running: dict[int, float] = {}  # when the answers began that are not finished
        self._clean_env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(SETTING_PREFIXES)
        }
        self._children: list[subprocess.Popen[bytes]] = []  # kept until they have ended

    def answer_first(self, source: int, target: int) -> None:
        """Answer the request of the client that started this process."""
        data = b""
        while part := os.read(source, 1_000_000):
            data += part
        with suppress(InvalidRequest, OSError):
            answer = self._answerer.answer(parse_request(data))
            os.write(target, b"%010d%s" % (len(answer), answer))

    def serve(self) -> None:
        """Serve clients until the helper is no longer needed."""
        import socket

        with suppress(FileNotFoundError):
            os.unlink(client.SOCKET)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old_umask = os.umask(0o177)
        try:
            listener.bind(client.SOCKET)
        finally:
            os.umask(old_umask)
        identity = _read_identity(client.SOCKET)
        listener.listen(64)
        listener.settimeout(CHECK_SECONDS)
        self._load_rest()
        self._answerer.delete_old_states()
        while self._is_needed() and _read_identity(self._folder / client.SOCKET) == identity:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                if len(self._running) >= MAX_CLIENTS:
                    connection.close()
                    continue
                threading.Thread(target=self._serve_client, args=(connection,), daemon=True).start()
        if _read_identity(client.SOCKET) == identity:
            self._retire()
        listener.close()
        self.finish()

    def _load_rest(self) -> None:
        """Import what only later answers need, before an agent waits for one of them."""
        for name in ("rekindle.judging.judge", "rekindle.knowledge.notes.failures"):
            import_module(name)
        # A file that has changed since it was read must still be noticed.
        self._sources = {**read_sources([*sys.modules.values()]), **self._sources}

    def finish(self) -> None:
        """Finish the work that was deferred until after the answer."""
        if self._writer.is_alive():
            self._writes.put(None)
            self._writer.join(10.0)

    def _is_needed(self) -> bool:
        now = time.monotonic()
        if any(now - began > MAX_ANSWER_SECONDS for began in list(self._running.values())):
            record_trouble(self._home, "helper", "an answer took too long; the helper was stopped")
            return False
        self._children = [one for one in self._children if one.poll() is None]
        return now - self._last_active < IDLE_SECONDS

    def _is_outdated(self) -> bool:
        """Return whether the package has changed since the helper was started."""
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return False
        self._checked = now
        return any(_read_source(file) != stamp for file, stamp in self._sources.items())

    def _serve_client(self, connection: socket.socket) -> None:
        number = threading.get_ident()
        self._running[number] = self._last_active = time.monotonic()
        try:
            with connection:
                connection.settimeout(client.SECONDS)
                if _get_peer_user(connection) != os.getuid():
                    return
                request = parse_request(_receive_request(connection))
                if request.client != client.__file__ or self._is_outdated():
                    self._retire()
                    connection.sendall(client.RETRY)
                    return
                answer = self._answerer.answer(request)
                connection.sendall(b"%010d%s" % (len(answer), answer))
        except (InvalidRequest, OSError):
            pass  # the client is gone, or not one of ours
        finally:
            del self._running[number]

    def _retire(self) -> None:
        """Leave the socket to another helper, and exit."""
        with suppress(OSError):
            os.unlink(client.SOCKET)

    # ── work that no agent waits for

    def _write_later(self, write: Callable[[], None]) -> None:
        if not self._writer.is_alive():
            self._writer.start()
        self._writes.put(write)

    def _run_writes(self) -> None:
        while write := self._writes.get():
            try:
                write()
            except (RekindleError, OSError) as error:
                record_trouble(self._home, "helper", describe_error(error))

    def _start_import(self, job: ImportJob) -> None:
        import subprocess

        command = [sys.executable, "-I", str(Path(client.__file__).with_name("entry.py"))]
        self._children.append(
            subprocess.Popen(
                [*command, str(self._home), "import", *job[:-1]],
                env={**self._clean_env, **dict(job.settings)},  # secrets do not belong on the line
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


def parse_request(data: bytes) -> HookRequest:
    """Parse the request of a client (see client.py)."""
    sizes = _parse_prefix(data)
    if len(data) != _PREFIX + sum(sizes):
        raise InvalidRequest
    fields = data[_PREFIX : _PREFIX + sizes[0]].decode("utf-8", "surrogateescape").split("\0")
    if len(fields) < _HEAD_FIELDS or fields[0].encode() != client.PROTOCOL:
        raise InvalidRequest
    _, file, agent, event, cwd, size, *settings = fields
    return HookRequest(
        agent=agent,
        event=event,
        cwd=cwd,
        data=data[_PREFIX + sizes[0] :],
        size=int(size) if size.isdigit() else 0,
        settings=parse_settings(sorted(settings)),
        client=file,
    )


def _parse_prefix(data: bytes) -> tuple[int, int]:
    first, second = data[:10], data[10:_PREFIX]
    if not (len(second) == 10 and first.isdigit() and second.isdigit()):
        raise InvalidRequest
    sizes = int(first), int(second)
    if sum(sizes) > 2 * client.MAX_INPUT:
        raise InvalidRequest
    return sizes


def _receive_request(connection: socket.socket) -> bytes:
    data = bytearray()
    while len(data) < _PREFIX or len(data) < _PREFIX + sum(_parse_prefix(bytes(data[:_PREFIX]))):
        part = connection.recv(1_000_000)
        if not part:
            raise InvalidRequest
        data += part
    return bytes(data)


def _get_peer_user(connection: socket.socket) -> int:
    """Return the user at the other end; where the system does not say, the folder is private."""
    import socket

    if not hasattr(socket, "SO_PEERCRED"):
        return os.getuid()
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def read_sources(modules: Iterable[ModuleType]) -> dict[str, tuple[int, int] | None]:
    """Return the stamps of the files of our own modules."""
    files = (getattr(one, "__file__", None) for one in modules if is_ours(one))
    return {file: _read_source(file) for file in files if file}


def is_ours(module: ModuleType) -> bool:
    """Return whether a module belongs to this package."""
    return getattr(module, "__name__", "").partition(".")[0] == "rekindle"


def _read_source(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _read_identity(path: str | Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
