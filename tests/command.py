"""The one way in which tests run the `rekindle` command.

Most of a start is spent on imports, and the suite starts thousands of commands. So a command is a
child that is forked off a process which has imported everything (tests/command_server.py): with
its own process id, folder, environment, streams, terminal and signals, but a start of
milliseconds. It is a child of the tests, to be waited for and killed like any other.

REKINDLE_TEST_REAL_START=1 starts a new interpreter for each command instead, and so does
`real=True` in a test that is about starting itself.
"""

from __future__ import annotations

import atexit
import inspect
import marshal
import os
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rekindle

COMMAND = str(Path(sysconfig.get_path("scripts")) / "rekindle")
_SERVER = Path(__file__).with_name("command_server.py")
_CLIENT = Path(__file__).with_name("command_client.py")
_REAL = "REKINDLE_TEST_REAL_START"
_FORKED = os.environ.pop(
    "REKINDLE_TEST_COMMAND_SERVER", ""
)  # of a process that got one when it was
_SOURCES = {str(Path(rekindle.__file__).parents[1]), str(Path(__file__).parents[1])}


def start(
    words: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    terminal: int | None = None,
    real: bool = False,
    plugins: Path | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start the command with these words; `options` are those of Popen.

    `terminal` is the descriptor of a terminal that becomes its controlling one, `plugins` a folder
    with further packages, to be searched for modules first.
    """
    if plugins is not None:
        env = dict(os.environ if env is None else env)
        if real or not _is_like_ours(env):
            env["PYTHONPATH"] = f"{plugins}{os.pathsep}{env.get('PYTHONPATH', '')}"
        else:
            options["plugins"] = str(plugins)
    return _start([COMMAND], words, env, terminal, real, options)


def start_python(
    words: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    real: bool = False,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start what `python3` makes of a script, `-m MODULE` or `-c CODE`, likewise."""
    return _start([sys.executable], words, env, None, real, options)


def _start(
    program: list[str],
    words: Sequence[object],
    env: Mapping[str, str] | None,
    terminal: int | None,
    real: bool,
    options: dict[str, Any],
) -> subprocess.Popen[Any]:
    command = [*program, *map(str, words)]
    env = dict(os.environ if env is None else env)
    if real or "preexec_fn" in options or not _is_like_ours(env):
        if terminal is not None:
            options["preexec_fn"] = lambda: os.login_tty(terminal)
        return subprocess.Popen(command, env=env, **options)
    if terminal is not None:
        options.update(stdin=terminal, stdout=terminal, stderr=terminal)
    return _ForkedCommand(command, env=env, has_terminal=terminal is not None, **options)


def run(
    words: Sequence[object],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run the command to its end, as `subprocess.run` does."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with start(words, **options) as process:
        try:
            said, complained = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, said, complained)
    if check:
        done.check_returncode()
    return done


def get_scripts_folder() -> str:
    """Return a folder for PATH with a `rekindle` and a `python3` that are forked off as well."""
    if os.environ.get(_REAL):
        return sysconfig.get_path("scripts")
    return str(_CommandServer.get().scripts)


def get_script_runner() -> str:
    """Return a `python3` that has already imported what commands need."""
    if os.environ.get(_REAL):
        return sys.executable
    return str(_CommandServer.get().scripts / "python3")


def get_worker_program() -> str | None:
    """Return what starts a worker of xdist, with all loaded that commands need, None for Python."""
    if os.environ.get(_REAL) or sys.platform != "linux":
        return None
    return str(_CommandServer.get().scripts / "worker")


def _is_like_ours(env: Mapping[str, str]) -> bool:
    """Whether an interpreter started with `env` would be like the one that was started with ours."""
    if os.environ.get(_REAL):
        return False

    def relevant(names: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in names.items()
            if name.startswith(("PYTHON", "LC_", "LANG", "LD_")) and name != "PYTHONPATH"
        }

    paths = {path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path}
    ours = {path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}
    return relevant(env) == relevant(os.environ) and paths <= ours | _SOURCES


class _ForkedCommand(subprocess.Popen[Any]):
    """A Popen whose process is forked off the server instead of started anew."""

    def __init__(
        self,
        command: list[str],
        *,
        has_terminal: bool,
        plugins: str | None = None,
        **options: Any,
    ) -> None:
        self._has_terminal = has_terminal
        self._plugins = plugins
        super().__init__(command, **options)

    def _execute_child(self, *given: Any) -> None:
        signature = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        asked = signature.bind(self, *given).arguments
        unsupported = [
            name
            for name in ("preexec_fn", "pass_fds", "start_new_session", "uid", "gid", "executable")
            if asked.get(name)
        ]
        assert not unsupported, f"start it with real=True: {unsupported}"
        files = [
            number if file == -1 else file
            for number, file in enumerate((asked["p2cread"], asked["c2pwrite"], asked["errwrite"]))
        ]
        request = {
            "argv": asked["args"],
            "is_python": asked["args"][0] == sys.executable,
            "env": asked["env"],
            "cwd": os.fspath(asked["cwd"] or os.getcwd()),
            "terminal": self._has_terminal,
            "plugins": self._plugins,
            "owned": True,
        }
        self.pid = _CommandServer.get().fork(request, files)
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in (
            "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"
        )))  # fmt: skip


class _CommandServer:
    """The process that commands are forked off, one for each process of tests."""

    _one: _CommandServer | None = None
    _lock = threading.RLock()

    @classmethod
    def get(cls) -> _CommandServer:
        with cls._lock:
            if cls._one is None or cls._one._owner != os.getpid():
                cls._one = cls()
            return cls._one

    def __init__(self) -> None:
        global _FORKED
        self._owner = os.getpid()
        if _FORKED:
            pid, life, folder = _FORKED.split(":", 2)
            self._pid, self._life = int(pid), socket.socket(fileno=int(life))
            _FORKED = ""  # a process that is forked off this one needs another
        else:
            folder = tempfile.mkdtemp(prefix="rekindle-command-")
            self._pid, self._life = _start_server(f"{folder}/socket")
        self._address = f"{folder}/socket"
        self._folder = Path(folder)
        self._write_client()
        atexit.register(self._close)

    def _write_client(self) -> None:
        self.scripts = self._folder / "bin"
        self.scripts.mkdir()
        code = _CLIENT.read_text().replace("ADDRESS", repr(self._address))
        for name in ("rekindle", "python3", "worker"):
            client = self.scripts / name
            client.write_text(f"#!{sys.executable} -SI\n{code}")
            client.chmod(0o755)

    def fork(self, request: dict[str, Any], files: Sequence[int]) -> int:
        """Have a child of this process forked; its process id."""
        text = marshal.dumps(request)
        with self._lock, socket.socket(socket.AF_UNIX) as line:
            line.connect(self._address)
            socket.send_fds(line, [struct.pack("!I", len(text))], list(files))
            line.sendall(text)
            answer = line.recv(4, socket.MSG_WAITALL)
        if len(answer) != 4:
            raise RuntimeError("the server of commands has ended")
        return struct.unpack("!i", answer)[0]

    def _close(self) -> None:
        if self._owner == os.getpid():
            self._life.close()
            os.waitpid(self._pid, 0)
            shutil.rmtree(self._folder, ignore_errors=True)


def _start_server(address: str) -> tuple[int, socket.socket]:
    """Start a server at an address; its process id, and a socket that it lives as long as."""
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        numbers = (listener.fileno(), theirs.fileno())
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), *map(str, numbers)], pass_fds=numbers
        )
    process.returncode = 0  # it is waited for by its process id
    return process.pid, ours
