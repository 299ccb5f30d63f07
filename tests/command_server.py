"""A process that has loaded the whole command and forks one child for each command that is asked for.

A real start of `rekindle` spends most of its time on imports. Started by tests/command.py, never
by hand: `python -P command_server.py LISTENER LIFE`, the numbers of two sockets it inherits.
A request is one connection: its length, a marshalled dict, and the file descriptors of stdin,
stdout and stderr. It asks for the command, or for what `python3` makes of a script, `-m MODULE` or
`-c CODE`.

The workers of a whole run are forked off such a server as well, and each has one of its own, forked
before it loads the tests: so all this is loaded once instead of twice by every worker.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.util
import io
import marshal
import os
import pkgutil
import platform
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from typing import Any

# What commands import only once they need it.
LAZY = (
    "aiodocker",
    "anyio._backends._asyncio",
    "asyncio",
    "asyncssh",
    "concurrent.futures.thread",
    "jsonschema",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.server.mcpserver",
    "openai.resources.chat.completions",
    "prompt_toolkit.shortcuts",
    "psycopg.rows",
    "rich.console",
    "rich.logging",
    "rich.markdown",
    "rich.table",
    "tomllib",
)

# Frameworks are large, and only those who use one load it; a browser's page is served by few commands.
# The server does without httptools if it is missing.
APART = ("rekindle.integrations.", "rekindle.web.", "rekindle.api.serving.httptools_protocol")
NETWORKS = (".matrix", ".telegram", ".discord", ".slack", ".whatsapp", "_server")

# A system call that no function of Python makes, and its number.
SYSTEM_CALL = ctypes.PyDLL(None, use_errno=True).syscall
CLONE = 56 if platform.machine() == "x86_64" else 220
CLONE_PARENT = 0x8000


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    life = socket.socket(fileno=int(sys.argv[2]))
    gc.disable()  # what is loaded stays, and looking for garbage in it takes a sixth of the time
    load_everything()
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:  # a fork would copy their locks, and not them
        sys.exit(f"importing the command has started threads: {len(threads) - 1}")
    gc.collect()
    gc.freeze()
    gc.enable()
    if request := serve_requests(listener, life):
        if request.get("is_worker"):
            request = fork_own_server() or request
        leave(run_program(request["is_python"]))


def run_program(is_python: bool) -> int:
    """Run the command line or another program; its exit code, as the interpreter would make it."""
    from rekindle.cli import main as run_rekindle

    try:
        if is_python:
            run_python()
        else:
            run_rekindle()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001  (the interpreter shows whatever comes up here)
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def run_python() -> None:
    """Run what the words say, as `python3` would."""
    _, first, *rest = sys.argv
    known = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    folders = {"-c": "", "-m": os.getcwd()}
    folder = folders.get(first, os.path.dirname(os.path.abspath(first)))
    sys.path[:0] = [folder, *(path for path in known if path not in sys.path)]
    if first in ("-c", "/dev/stdin"):  # a pipe can be read once, and `run_path` opens a file twice
        source, *rest = rest if first == "-c" else (sys.stdin.read(), *rest)
        sys.argv = [first, *rest]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(source, "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def leave(code: int) -> None:
    """End as the interpreter does, but for taking apart every module: that copies all of them."""
    threading._shutdown()  # type: ignore[attr-defined]  # pyright: ignore
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{error}", file=sys.stderr)
        code = 120
    sys.stderr.flush()
    os._exit(code)


def load_everything() -> None:
    import rekindle.cli.app

    # As `rekindle.cli.main` does it, before anything imports the client.
    sys.modules["openai._vendor.httpx_aiohttp"] = None  # type: ignore[assignment]
    for name in LAZY:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(rekindle.__path__, "rekindle."):
        # Only commands that speak to a chat network load its library, as in a real start.
        if not module.name.endswith(("__main__", *NETWORKS)) and not module.name.startswith(APART):
            importlib.import_module(module.name)
    # Private, but imported by the first word that is parsed.
    if importlib.util.find_spec("typer._click.decorators"):
        importlib.import_module("typer._click.decorators")
    rekindle.cli.app.build_command_tree()
    importlib.import_module("openai").AsyncOpenAI(api_key="none")  # imports how it speaks HTTP


def serve_requests(listener: socket.socket, life: socket.socket) -> dict[str, Any] | None:
    """Return the request in a child that is to fulfil it, None in the server at its end."""
    watched = WatchedChildren()
    while True:
        ready = watched.wait_for(listener, life)
        if life in ready:  # nobody writes to it: the tests have ended
            watched.kill()
            return None
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        request, files = receive_request(connection)
        pid = fork_sibling() if request["owned"] else os.fork()
        if pid == 0:
            client = os.path.join(os.path.dirname(listener.getsockname()), "bin", "python3")
            for each in (listener, life, connection):
                each.detach()
            become_command(request, files)
            fork_background_commands(client)
            return request
        for file in files:
            os.close(file)
        if request["owned"]:
            connection.send(struct.pack("!i", pid))
            connection.close()
        else:
            watched.add(pid, connection)


def fork_own_server() -> dict[str, Any] | None:
    """Give a process of tests a server of commands, before it loads more; tests/command.py finds it.

    Return None in the process itself, and the request in a command of that server.
    """
    folder = tempfile.mkdtemp(prefix="rekindle-command-")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen(64)
    ours, life = socket.socketpair()
    if pid := os.fork():
        os.environ["REKINDLE_TEST_COMMAND_SERVER"] = f"{pid}:{ours.detach()}:{folder}"
        return None
    ours.close()
    with open(os.devnull) as null:  # the other end of its streams is that of the process of tests
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)
    if request := serve_requests(listener, life):
        return request
    os._exit(0)


class WatchedChildren:
    """Children of this process: signals of their clients are passed on to them, and their end back."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}  # by their descriptor
        self._clients: dict[int, socket.socket] = {}

    def add(self, pid: int, client: socket.socket) -> None:
        child = os.pidfd_open(pid)
        self._pids[child] = pid
        self._clients[child] = client

    def wait_for(self, *others: socket.socket) -> list[socket.socket]:
        """Wait until one of the others can be read, and care for the children meanwhile."""
        waiting = [*others, *self._pids, *self._clients.values()]
        ready = {*select.select(waiting, [], [])[0]}
        for child, client in [*self._clients.items()]:
            if client in ready:
                self._pass_on(child, client)
        for child in ready & {*self._pids}:
            self._bury(child)
        return [other for other in others if other in ready]

    def _pass_on(self, child: int, client: socket.socket) -> None:
        try:
            number = client.recv(1)
        except OSError:
            number = b""
        signal.pidfd_send_signal(child, signal.Signals(number[0]) if number else signal.SIGKILL)
        if not number:
            self._clients.pop(child).close()

    def _bury(self, child: int) -> None:
        _, status = os.waitpid(self._pids.pop(child), 0)
        os.close(child)
        if client := self._clients.pop(child, None):
            with contextlib.suppress(OSError):  # it was killed in the meantime
                client.send(struct.pack("!i", os.waitstatus_to_exitcode(status)))
            client.close()

    def kill(self) -> None:
        """Leave nobody behind when the server ends."""
        for child in self._pids:
            signal.pidfd_send_signal(child, signal.SIGKILL)


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    (size,) = struct.unpack("!I", head)
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    return marshal.loads(text), files


def fork_sibling() -> int:
    """Do as `os.fork`, but for our parent: a child's child would cost the copy of memory twice."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = SYSTEM_CALL(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return pid


def become_command(request: dict[str, Any], files: list[int]) -> None:
    """Make this process what a new interpreter would be."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["terminal"]:
        os.login_tty(0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[:0] = [request["plugins"]] if request.get("plugins") else []
    sys.argv = request["argv"]
    sys.stdin = sys.__stdin__ = open_stream(0, "r", "strict")
    sys.stdout = sys.__stdout__ = open_stream(1, "w", "strict")
    sys.stderr = sys.__stderr__ = open_stream(2, "w", "backslashreplace")


def fork_background_commands(client: str) -> None:
    """Have the commands that this one starts forked off as well: mostly learners."""
    start = subprocess.Popen.__init__

    def start_with_client(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        if isinstance(args, list | tuple) and [*args[:3]] == [sys.executable, "-m", "rekindle.cli"]:
            args = [client, *args[1:]]
        start(self, args, *rest, **options)

    subprocess.Popen.__init__ = start_with_client  # pyright: ignore[reportAttributeAccessIssue]


def open_stream(number: int, mode: str, errors: str) -> Any:
    """Open a standard stream as the interpreter does when it starts."""
    unbuffered = mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
    binary = open(number, f"{mode}b", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    encoding = sys.__stdin__.encoding if sys.__stdin__ else "utf-8"
    lines = number == 2 or binary.isatty()
    return io.TextIOWrapper(binary, encoding, errors, "\n", lines, unbuffered)


if __name__ == "__main__":
    main()
