"""The supervisor: a program that owns the background processes of one home.

    python -m rekindle.processes.supervisor.supervisor FOLDER [LIMITS as JSON]

It is started by the first client that needs it (client.py), or by the fd keeper after it was
killed. It prints `ready` when it accepts requests, otherwise the reason why not, and exits some
time after its last process. A lock per folder ensures that there is only one; the socket is private
to this user.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import sys
import time
from contextlib import aclosing, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.errors import InvalidInput, ProcessError, RekindleError, SupervisorUnavailable
from rekindle.processes import protocol
from rekindle.processes.backends.base import PROCESS_ID_VARIABLE, Backend
from rekindle.processes.backends.local import cgroup
from rekindle.processes.backends.local.fd_keeper_client import FdKeeperClient
from rekindle.processes.backends.local.local import LocalBackend
from rekindle.processes.backends.registry import open_backend
from rekindle.processes.operations import OPERATIONS, AttachOutput, Operation
from rekindle.processes.state.lock import FolderLock
from rekindle.processes.types import ProcessLimits

from .registry import ProcessRegistry

log = logging.getLogger(__name__)

MIN_OPEN_FILES = 64  # the least with which it can run a few processes
LINGER_SECONDS = 300.0  # seconds that it stays without processes and requests
SOCKET = "supervisor.sock"
KEEPER_SOCKET = "keeper.sock"
LOG_FILE = "supervisor.log"
ALREADY_RUNNING = "taken"
READY = "ready"
# -P: do not import from the current folder, which may contain files named like our modules.
COMMAND = (sys.executable, "-P", "-m", "rekindle.processes.supervisor.supervisor")

_IDLE_METHODS = frozenset(("fetch_events",))  # requests that do not keep it alive


class Supervisor:
    """Serves one registry to clients."""

    def __init__(self, registry: ProcessRegistry, linger: float) -> None:
        self._registry = registry
        self._linger = linger
        self._active_requests = 0
        self._last_active = time.monotonic()
        self.stopping = asyncio.Event()

    async def serve(self, path: Path) -> asyncio.Server:
        with suppress(FileNotFoundError):
            path.unlink()
        old_umask = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(self._serve_client, path)
        finally:
            os.umask(old_umask)

    async def wait_until_idle(self) -> None:
        """Return when the supervisor is no longer needed or was asked to stop."""
        while not self.stopping.is_set():
            if self._registry.is_needed or self._active_requests:
                self._last_active = time.monotonic()
            rest = self._last_active + self._linger - time.monotonic()
            if rest <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, min(rest, self._linger / 4))):
                    await self.stopping.wait()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        handler = _ClientHandler(self._registry, writer, self)
        try:
            if protocol.get_peer_credentials(connection)[1] == os.getuid():
                writer.write(
                    protocol.encode_frame(
                        protocol.Hello(protocol.PROTOCOL, __version__, os.getpid())
                    )
                )
                await handler.read_requests(reader)
        except (ConnectionError, msgspec.MsgspecError, asyncio.CancelledError):
            pass  # cancelled only at shutdown
        finally:
            handler.cancel_requests()
            writer.close()

    def check_open_files(self, error: BaseException) -> None:
        """Stop if `error` is that no more files can be opened, unless processes still run.

        The next client then starts a supervisor with the limit of its own shell.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
                if not self._registry.is_needed:
                    log.error("stopping: %s", cause)
                    self.stopping.set()
                return
            cause = cause.__cause__ or cause.__context__

    def count_request(self, count: int) -> None:
        self._active_requests += count
        self._last_active = time.monotonic()


class _ClientHandler:
    """One connected client; its requests are handled concurrently."""

    def __init__(
        self, registry: ProcessRegistry, writer: asyncio.StreamWriter, supervisor: Supervisor
    ) -> None:
        self._registry = registry
        self._writer = writer
        self._supervisor = supervisor
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def read_requests(self, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.msgpack.Decoder(protocol.RpcRequest)
        while True:
            request = decoder.decode(await protocol.read_frame(reader))
            if request.method == "cancel":
                if task := self._tasks.get(request.number):
                    task.cancel()
            elif request.method == "step_down":
                self._supervisor.stopping.set()
            else:
                task = asyncio.create_task(self._handle_request(request))
                self._tasks[request.number] = task
                task.add_done_callback(
                    lambda _, number=request.number: self._tasks.pop(number, None)
                )

    async def _handle_request(self, request: protocol.RpcRequest) -> None:
        count = 0 if request.method in _IDLE_METHODS else 1
        self._supervisor.count_request(count)
        try:
            operation, value = decode_operation(request), None
            if isinstance(operation, AttachOutput):
                await self._stream_output(request.number, operation)
            else:
                value = await self._registry.execute(operation)
            response = protocol.RpcResponse(request.number, "result", value)
        except RekindleError as error:
            self._supervisor.check_open_files(error)
            response = protocol.RpcResponse(request.number, "error", protocol.encode_error(error))
        except Exception as error:  # one failing request must not stop the others
            log.exception("%s failed", request.method)
            self._supervisor.check_open_files(error)
            message = f"internal error in the supervisor: {error!r}"
            response = protocol.RpcResponse(request.number, "error", ("ProcessError", message))
        finally:
            self._supervisor.count_request(-count)
        await self._send(response)

    async def _stream_output(self, number: int, operation: AttachOutput) -> None:
        async with aclosing(self._registry.stream(operation)) as chunks:
            async for chunk in chunks:
                await self._send(protocol.RpcResponse(number, "part", chunk))

    async def _send(self, response: protocol.RpcResponse) -> None:
        self._writer.write(protocol.encode_frame(response))
        with suppress(ConnectionError):
            await self._writer.drain()

    def cancel_requests(self) -> None:
        for task in self._tasks.values():
            task.cancel()


def decode_operation(request: protocol.RpcRequest) -> Operation[Any]:
    """Decode and validate the operation of a request; raise InvalidInput if it is invalid."""
    try:
        return msgspec.convert(request.arguments, OPERATIONS[request.method])
    except KeyError:
        raise InvalidInput(f"{request.method!r:.40} is not a supervisor method") from None
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{request.method}: {error}") from None


async def run_supervisor(
    folder: Path, limits: ProcessLimits, linger: float, restart_command: list[str]
) -> None:
    """Manage the processes of a folder until they are no longer needed."""
    open_file_limit = _raise_open_file_limit()
    socket_folder = protocol.get_socket_folder(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    protocol.prepare_socket_folder(socket_folder)
    lock = FolderLock.acquire(folder)
    fd_keeper = FdKeeperClient.open(socket_folder / KEEPER_SOCKET, restart_command, os.environ)
    local = LocalBackend(fd_keeper, open_file_limit=open_file_limit)

    def get_backend(name: str) -> Backend:
        return local if name == "local" else open_backend(name)

    registry = await ProcessRegistry.open(
        folder, limits=limits, backend_factory=get_backend, lock=lock
    )
    local.close_unclaimed_fds()
    supervisor = Supervisor(registry, linger)
    server = await supervisor.serve(socket_folder / SOCKET)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stopping.set)
    _watch_fd_keeper(fd_keeper)
    _report_status(READY)
    try:
        await supervisor.wait_until_idle()
    finally:
        with suppress(OSError):
            (socket_folder / SOCKET).unlink()
        server.close()
        loop.remove_reader(fd_keeper.fileno())
        fd_keeper.disconnect_cleanly()
        await asyncio.sleep(0)
        if not registry.live_count:  # the fd keeper is empty and exits too
            with suppress(OSError):
                (socket_folder / KEEPER_SOCKET).unlink()
                if socket_folder != folder:
                    socket_folder.rmdir()
        await registry.aclose()


def _watch_fd_keeper(fd_keeper: FdKeeperClient) -> None:
    """Start a new fd keeper whenever the current one dies."""
    loop = asyncio.get_running_loop()

    def on_closed() -> None:
        loop.remove_reader(fd_keeper.fileno())
        fd_keeper.restart_keeper()
        loop.add_reader(fd_keeper.fileno(), on_closed)

    loop.add_reader(fd_keeper.fileno(), on_closed)


def _report_status(status: str) -> None:
    """Report the status to the starting program, and close the standard streams."""
    with suppress(OSError):
        os.write(1, status.encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _become_daemon() -> None:
    """Detach from the parent process, its OS session, and any control group that may be killed.

    Processes inherit this state: signals are therefore caught, not ignored.
    """
    if os.fork():
        os._exit(0)
    if "PYTHONPATH" in os.environ:
        paths = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
    os.chdir("/")
    os.environ.pop(PROCESS_ID_VARIABLE, None)
    cgroup.leave_group()
    signal.signal(signal.SIGHUP, _ignore_signal)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    pass


def _raise_open_file_limit() -> int:
    """Raise the open file limit to the maximum and return the previous limit.

    Every later shell would have to live with a supervisor that can open too few: it refuses.
    """
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < MIN_OPEN_FILES:
        raise ProcessError(
            f"it may open only {hard_limit} files and needs {MIN_OPEN_FILES};"
            " raise the limit (`ulimit -n`) or use another shell"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    return soft_limit


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]).absolute()
    limits = (
        msgspec.json.decode(arguments[1], type=ProcessLimits)
        if len(arguments) > 1
        else ProcessLimits()
    )
    linger = float(arguments[2]) if len(arguments) > 2 else LINGER_SECONDS
    restart_command = [
        sys.executable,
        "-m",
        __spec__.name if __spec__ else __name__,
        str(folder),
        *arguments[1:],
    ]
    _become_daemon()
    try:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            logging.basicConfig(
                filename=folder / LOG_FILE, format="%(asctime)s %(levelname)s %(message)s"
            )
        asyncio.run(run_supervisor(folder, limits, linger, restart_command))
    except SupervisorUnavailable:
        _report_status(ALREADY_RUNNING)
        return 0
    except (RekindleError, OSError) as error:
        log.error("cannot run the supervisor: %s", error)
        _report_status(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
