"""Run servers with systemd or launchd, or else as background processes of our own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from rekindle.errors import HomeServerError, ServiceError
from rekindle.processes.backends.local.process_tree import get_boot_id, is_alive
from rekindle.services.definition import ServiceDefinition
from rekindle.services.manager import (
    ServiceManager,
    choose_manager,
    install_service,
    remove_service,
    run_command,
)

RESTART_ARGUMENTS = "matrix restart"  # what starts the servers by hand
_STOP_SECONDS = 60.0
_REAP_SECONDS = 5.0
_POLL_SECONDS = 0.05
# The process itself writes down who it is, so that no kill of ours can leave it unknown. The pid and
# the start time do not change when it becomes the server.
_LAUNCH = """
cat /proc/sys/kernel/random/boot_id "/proc/$$/stat" >"$0.part" && mv "$0.part" "$0" && exec "$@"
"""


class ServerProgram(NamedTuple):
    """A server to keep running."""

    name: str
    description: str
    command: tuple[str, ...]
    output_file: Path  # for what it writes to its standard output
    stop_signal: int = signal.SIGTERM
    after: tuple[str, ...] = ()  # names of programs that start before

    def build_definition(self) -> ServiceDefinition:
        """Define the service for systemd or launchd."""
        return ServiceDefinition(
            name=self.name,
            description=self.description,
            command=self.command,
            environment={},
            log_file=self.output_file,
            arguments=RESTART_ARGUMENTS,
            after=self.after,
            stop_signal=signal.Signals(self.stop_signal).name,
        )


class ServerRunner(Protocol):
    """What starts and stops servers."""

    kind: str

    def start(self, program: ServerProgram) -> bool:
        """Start the server, unless it runs as described; return whether it was started."""
        ...

    def stop(self, program: ServerProgram) -> None:
        """Stop the server and wait until it has ended."""
        ...

    def get_pid(self, program: ServerProgram) -> int | None:
        """Return the process of the server, or None if it does not run."""
        ...

    def forget(self, program: ServerProgram) -> None:
        """Stop the server for good and remove all that starts it."""
        ...


def choose_runner(folder: Path, home: Path, env: Mapping[str, str]) -> ServerRunner:
    """Return what runs servers here; `home` is the user's, for the files of a service manager."""
    if sys.platform == "darwin":
        return ServiceRunner(home, env)
    if shutil.which("systemctl"):
        try:
            run_command(["systemctl", "--user", "show", "--property=Version"])
            return ServiceRunner(home, env)
        except ServiceError:
            pass  # a container, or no login session
    return BackgroundRunner(folder)


class BackgroundRunner:
    """Processes of our own: they outlive the terminal, but not a restart of the machine."""

    kind = "background"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, program: ServerProgram) -> bool:
        if self.get_pid(program) is not None:
            return False
        mark = self._get_mark(program)
        if (earlier := self._read_mark(program)) is not None:
            _wait_until_reaped(earlier[0])
        mark.unlink(missing_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        output = os.open(program.output_file, flags, 0o600)
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _LAUNCH, str(mark), *program.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                umask=0o077,
                env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PG"))},
            )
        finally:
            os.close(output)
        self._children[program.name] = child
        # It takes a moment until the process has a name.
        deadline = time.monotonic() + _STOP_SECONDS
        while not mark.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, program: ServerProgram) -> None:
        found = self._read_mark(program)
        if found is None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        number = program.stop_signal
        while is_alive(*found):
            try:
                os.kill(found[0], number)
            except ProcessLookupError:
                break
            if not self._wait_for_end(program.name, found, deadline):
                number, deadline = signal.SIGKILL, time.monotonic() + _STOP_SECONDS
        if child := self._children.get(program.name):
            child.poll()
        _wait_until_reaped(found[0])
        self._get_mark(program).unlink(missing_ok=True)

    def get_pid(self, program: ServerProgram) -> int | None:
        found = self._read_mark(program)
        return found[0] if found and is_alive(*found) else None

    def forget(self, program: ServerProgram) -> None:
        self.stop(program)

    def _wait_for_end(self, name: str, found: tuple[int, int], deadline: float) -> bool:
        while is_alive(*found):
            if child := self._children.get(name):
                child.poll()
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _get_mark(self, program: ServerProgram) -> Path:
        return self._folder / f"{program.name}.pid"

    def _read_mark(self, program: ServerProgram) -> tuple[int, int] | None:
        """Return the pid and the start time, if they are of this boot."""
        try:
            boot, stat = self._get_mark(program).read_text("utf-8").splitlines()
            if not get_boot_id().startswith(f"{boot} "):
                return None
            fields = stat[stat.rindex(")") + 2 :].split()
            return int(stat.split(" ", 1)[0]), int(fields[19])
        except (OSError, ValueError, IndexError):
            return None


def _wait_until_reaped(pid: int) -> None:
    """Wait until the entry of a process that has ended is gone; PostgreSQL takes it for a live one."""
    deadline = time.monotonic() + _REAP_SECONDS
    while _is_unreaped(pid) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _is_unreaped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return False
    return stat[stat.rindex(")") + 2 :].startswith("Z")


class ServiceRunner:
    """Services of the user's service manager."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self._home, self._env = home, env
        self.kind = "launchd" if sys.platform == "darwin" else "systemd"

    def start(self, program: ServerProgram) -> bool:
        manager = self._choose_manager(program)
        is_written = manager.file.exists() and (
            manager.file.read_text("utf-8") == manager.render_file()
        )
        if is_written and manager.query_status().running:
            return False
        install_service(manager)
        return True

    def stop(self, program: ServerProgram) -> None:
        manager = self._choose_manager(program)
        if manager.file.exists():
            for words in manager.list_stop_commands():
                run_command(words, may_fail=True)

    def get_pid(self, program: ServerProgram) -> int | None:
        status = self._choose_manager(program).query_status()
        return status.pid if status.running else None

    def forget(self, program: ServerProgram) -> None:
        remove_service(self._choose_manager(program))

    def _choose_manager(self, program: ServerProgram) -> ServiceManager:
        return choose_manager(program.build_definition(), self._home, self._env)


def require_alive(runner: ServerRunner, program: ServerProgram) -> None:
    """Raise HomeServerError with the last words of a server that has ended."""
    if runner.get_pid(program) is None:
        raise HomeServerError(
            f"{program.name} ended right after its start: {read_last_words(program.output_file)}"
        )


def read_last_words(path: Path) -> str:
    """Return the end of a log in one line."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()[-5:]
    except OSError:
        lines = []
    return " ".join(" ".join(lines).split())[-600:] or "it wrote nothing."
