"""Install, remove and inspect a service with systemd or launchd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rekindle.errors import ServiceError
from rekindle.files import write_new_file

from .definition import ServiceDefinition, render_launchd_plist, render_systemd_unit

_COMMAND_SECONDS = 60
_NOT_FOUND = (
    "This system has neither systemd nor launchd. Start `rekindle {command}` from your own service"
    " manager, or in a terminal."
)


class ServiceStatus(NamedTuple):
    """Whether a service is installed and running."""

    name: str
    installed: bool
    running: bool
    state: str
    pid: int | None
    file: str


class ServiceManager(Protocol):
    """A service manager of the user."""

    service: ServiceDefinition
    file: Path

    def render_file(self) -> str:
        """Return the text of the service's file."""
        ...

    def list_start_commands(self) -> list[list[str]]:
        """Return the commands that start the service and keep it running."""
        ...

    def list_stop_commands(self) -> list[list[str]]:
        """Return the commands that stop the service for good, before its file is removed."""
        ...

    def require_manager(self) -> None:
        """Raise ServiceError if the manager cannot be reached."""
        ...

    def query_status(self) -> ServiceStatus:
        """Return the status of the service."""
        ...

    def build_log_command(self, lines: int, *, follow: bool) -> list[str]:
        """Return the command that shows the service's log."""
        ...


def choose_manager(
    service: ServiceDefinition, home: Path, env: Mapping[str, str], platform: str = sys.platform
) -> ServiceManager:
    """Return the service manager of this system; raise ServiceError if there is none."""
    if platform == "darwin":
        return LaunchdManager(service, home)
    if shutil.which("systemctl"):
        return SystemdManager(service, home, env)
    raise ServiceError(_NOT_FOUND.format(command=service.arguments))


def install_service(manager: ServiceManager) -> bool:
    """Write the service's file and start the service; return whether the file was changed."""
    manager.require_manager()
    text, file = manager.render_file(), manager.file
    is_changed = not file.exists() or file.read_text("utf-8") != text
    if is_changed:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_new_file(file, text)
    Path(manager.service.log_file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for words in manager.list_start_commands():
        run_command(words)
    return is_changed


def remove_service(manager: ServiceManager) -> bool:
    """Stop the service and remove its file; return whether it was installed."""
    if not manager.file.exists():
        return False
    manager.require_manager()
    for words in manager.list_stop_commands():
        run_command(words, may_fail=True)
    manager.file.unlink(missing_ok=True)
    return True


def run_command(words: Sequence[str], *, may_fail: bool = False) -> str:
    """Run a command of the service manager and return its output."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_SECONDS,
        )
    except FileNotFoundError:
        raise ServiceError(f"{words[0]} is not installed.") from None
    except subprocess.TimeoutExpired:
        raise ServiceError(f"`{' '.join(words)}` did not answer.") from None
    if done.returncode and not may_fail:
        reason = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise ServiceError(f"`{' '.join(words)}` failed: {reason}")
    return done.stdout


class SystemdManager:
    """The user's instance of systemd."""

    def __init__(self, service: ServiceDefinition, home: Path, env: Mapping[str, str]) -> None:
        self.service = service
        config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
        self.file = config / "systemd" / "user" / service.unit_name

    def render_file(self) -> str:
        return render_systemd_unit(self.service)

    def list_start_commands(self) -> list[list[str]]:
        unit = self.service.unit_name
        return [
            ["systemctl", "--user", "daemon-reload"],
            ["systemctl", "--user", "enable", unit],
            ["systemctl", "--user", "restart", unit],
        ]

    def list_stop_commands(self) -> list[list[str]]:
        return [["systemctl", "--user", "disable", "--now", self.service.unit_name]]

    def require_manager(self) -> None:
        try:
            run_command(["systemctl", "--user", "show", "--property=Version"])
        except ServiceError as error:
            raise ServiceError(
                f"systemd does not run services of this user here ({error})."
                f" Start `rekindle {self.service.arguments}` in another way."
            ) from None

    def query_status(self) -> ServiceStatus:
        names = ("ActiveState", "SubState", "MainPID")
        words = ["systemctl", "--user", "show", self.service.unit_name]
        output = run_command([*words, *(f"--property={name}" for name in names)], may_fail=True)
        found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        state = found.get("ActiveState", "unknown")
        pid = found.get("MainPID", "0")
        return ServiceStatus(
            name=self.service.name,
            installed=self.file.exists(),
            running=state == "active",
            state=f"{state} ({found['SubState']})" if found.get("SubState") else state,
            pid=int(pid) if pid.isdigit() and pid != "0" else None,
            file=str(self.file),
        )

    def build_log_command(self, lines: int, *, follow: bool) -> list[str]:
        words = ["journalctl", "--user", f"--unit={self.service.unit_name}", f"--lines={lines}"]
        return [*words, "--output=short-iso", "--no-pager", *(["--follow"] if follow else [])]


class LaunchdManager:
    """launchd of macOS."""

    def __init__(self, service: ServiceDefinition, home: Path) -> None:
        self.service = service
        self.file = home / "Library" / "LaunchAgents" / f"{service.label}.plist"
        self._domain = f"gui/{os.getuid()}"

    def render_file(self) -> str:
        return render_launchd_plist(self.service)

    def list_start_commands(self) -> list[list[str]]:
        target = f"{self._domain}/{self.service.label}"
        return [
            ["launchctl", "enable", target],
            ["launchctl", "bootstrap", self._domain, str(self.file)],
            ["launchctl", "kickstart", "-k", target],
        ]

    def list_stop_commands(self) -> list[list[str]]:
        return [["launchctl", "bootout", f"{self._domain}/{self.service.label}"]]

    def require_manager(self) -> None:
        # An agent that is loaded cannot be loaded again.
        for words in self.list_stop_commands():
            run_command(words, may_fail=True)

    def query_status(self) -> ServiceStatus:
        words = ["launchctl", "print", f"{self._domain}/{self.service.label}"]
        output = run_command(words, may_fail=True)
        found = dict(line.strip().split(" = ", 1) for line in output.splitlines() if " = " in line)
        pid = found.get("pid", "")
        return ServiceStatus(
            name=self.service.name,
            installed=self.file.exists(),
            running=found.get("state") == "running",
            state=found.get("state", "not loaded"),
            pid=int(pid) if pid.isdigit() else None,
            file=str(self.file),
        )

    def build_log_command(self, lines: int, *, follow: bool) -> list[str]:
        words = ["tail", f"-n{lines}", *(["-F"] if follow else [])]
        return [*words, str(self.service.log_file)]
