"""A process that has loaded the whole command and forks one child for each command that is asked for.

A real start of `rekindle` spends most of its time on imports. Started by tests/command.py, never
by hand: `python -P command_server.py LISTENER LIFE`, the numbers of two sockets it inherits.
A request is one connection: its length, a marshalled dict, and the file descriptors of stdin,
stdout and stderr. It asks for the command, or for what `python3` makes of a script, `-m MODULE` or
`-c CODE`.
"""

from __future__ import annotations

import atexit
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
import sys
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
    load_everything()
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:  # a fork would copy their locks, and not them
        sys.exit(f"importing the command has started threads: {len(threads) - 1}")
    gc.collect()
    gc.freeze()
    if request := serve_requests(listener, life):
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
    while True:
        ready, _, _ = select.select([listener, life], [], [])
        if life in ready:  # nobody writes to it: the tests have ended
            return None
        reap_children()
        connection, _ = listener.accept()
        request, files = receive_request(connection)
        child = fork_owned(connection) if request["owned"] else fork_watched(connection)
        if child:
            for each in (listener, life, connection):
                each.detach()
            become_command(request, files)
            return request
        for file in files:
            os.close(file)
        connection.close()


def reap_children() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    (size,) = struct.unpack("!I", head)
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    return marshal.loads(text), files


def fork_owned(connection: socket.socket) -> bool:
    """Fork a child of the tests."""
    pid = fork_sibling()
    if pid == 0:
        return True
    connection.send(struct.pack("!i", pid))
    return False


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


def fork_watched(connection: socket.socket) -> bool:
    """Fork a watcher and its child: it passes signals on to the child and its end to the client."""
    if os.fork():
        return False
    pid = os.fork()
    if pid == 0:
        return True
    for file in range(3):  # another reads the other end of a pipe
        os.close(file)
    watch_child(pid, connection)
    os._exit(0)


def watch_child(pid: int, connection: socket.socket) -> None:
    child = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([child, connection], [], [])
        if child in ready:
            _, status = os.waitpid(pid, 0)
            connection.send(struct.pack("!i", os.waitstatus_to_exitcode(status)))
            return
        number = connection.recv(1)
        signal.pidfd_send_signal(child, signal.Signals(number[0]) if number else signal.SIGKILL)
        if not number:
            return


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


def open_stream(number: int, mode: str, errors: str) -> Any:
    """Open a standard stream as the interpreter does when it starts."""
    unbuffered = mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
    binary = open(number, f"{mode}b", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    encoding = sys.__stdin__.encoding if sys.__stdin__ else "utf-8"
    lines = number == 2 or binary.isatty()
    return io.TextIOWrapper(binary, encoding, errors, "\n", lines, unbuffered)


if __name__ == "__main__":
    main()
