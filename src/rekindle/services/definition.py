"""What a service runs, and its text for systemd and launchd. No I/O."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from rekindle.errors import InvalidInput

DEFAULT_STOP_SECONDS = 30.0
_USER_ERROR = 2  # the exit code of a mistake in the settings, which a restart does not repair


class _ServiceKind(NamedTuple):
    """How a kind of service is run."""

    description: str
    arguments: tuple[str, ...]
    is_background: bool = False
    keeps_children: bool = False


_KINDS: Mapping[str, _ServiceKind] = {
    "watch": _ServiceKind(
        "Rekindle: import the sessions of agents as they grow", ("watch",), is_background=True
    ),
    "gateway": _ServiceKind(
        "Rekindle: answer messages from chat platforms", ("gateway", "run"), keeps_children=True
    ),
}
SERVICE_NAMES = tuple(_KINDS)


class ServiceDefinition(NamedTuple):
    """A command to keep running. `environment` holds what it needs of the user's.

    `arguments` is what is typed after `rekindle` to run it by hand.
    """

    name: str
    description: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log_file: PurePath  # for managers that keep no log
    arguments: str
    stop_seconds: float = DEFAULT_STOP_SECONDS  # it is killed if it does not stop within this time
    after: tuple[str, ...] = ()  # names of services that start before and are needed
    stop_signal: str = ""
    is_background: bool = False  # it may wait for what the user does
    keeps_children: bool = False  # processes that it started go on when it is stopped

    @property
    def unit_name(self) -> str:
        """The name of the systemd unit."""
        return get_unit_name(self.name)

    @property
    def label(self) -> str:
        """The label of the launchd agent."""
        return f"dev.rekindle.{self.name}"


def get_unit_name(name: str) -> str:
    """Return the name of a service's systemd unit."""
    return f"rekindle-{name}.service"


def build_service(
    name: str,
    program: Sequence[str],
    environment: Mapping[str, str],
    home: PurePath,
    stop_seconds: float = DEFAULT_STOP_SECONDS,
) -> ServiceDefinition:
    """Define the service of this name; `program` is how Rekindle is started."""
    for text in (*program, *environment.values(), str(home)):
        if any(character in text for character in "\n\r\0"):
            raise InvalidInput(f"A service cannot have a line break in {text!r:.80}.")
    kind = _KINDS[name]
    return ServiceDefinition(
        name=name,
        description=kind.description,
        command=(*program, *kind.arguments),
        environment=dict(sorted(environment.items())),
        log_file=home / "logs" / f"{name}.log",
        arguments=" ".join(kind.arguments),
        stop_seconds=stop_seconds,
        is_background=kind.is_background,
        keeps_children=kind.keeps_children,
    )


# -- systemd --------------------------------------------------------------------------------------


def render_systemd_unit(service: ServiceDefinition) -> str:
    """Return the text of the systemd user unit."""
    # A gateway runs commands in a sandbox, which needs the privilege to set one up on some systems.
    options = ["Nice=10", "NoNewPrivileges=yes"] if service.is_background else []
    if service.keeps_children:
        options.append("KillMode=process")
    lines = [
        "[Unit]",
        f"Description={service.description}",
        *(f"Wants={get_unit_name(name)}" for name in service.after),
        *(f"After={get_unit_name(name)}" for name in service.after),
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={_quote_command(service.command)}",
        *(
            f"Environment={_quote_assignment(f'{name}={value}')}"
            for name, value in service.environment.items()
        ),
        *([f"KillSignal={service.stop_signal}"] if service.stop_signal else []),
        "Restart=on-failure",
        "RestartSec=10",
        f"RestartPreventExitStatus={_USER_ERROR}",
        f"TimeoutStopSec={service.stop_seconds:g}",
        "UMask=0077",
        *options,
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def _quote_command(words: Sequence[str]) -> str:
    # In the path of the program, systemd replaces no variables.
    return " ".join([_quote_assignment(words[0]), *map(quote_systemd_word, words[1:])])


def quote_systemd_word(word: str) -> str:
    """Quote an argument of a command so that systemd replaces nothing in it."""
    return _quote_assignment(word).replace("$", "$$")


def _quote_assignment(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


# -- launchd --------------------------------------------------------------------------------------


def render_launchd_plist(service: ServiceDefinition) -> str:
    """Return the text of the launchd agent."""
    properties: dict[str, object] = {
        "Label": service.label,
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": round(service.stop_seconds),
        "ProcessType": "Background" if service.is_background else "Standard",
        "AbandonProcessGroup": service.keeps_children,
        "Umask": 0o077,
        "StandardOutPath": str(service.log_file),
        "StandardErrorPath": str(service.log_file),
    }
    return plistlib.dumps(properties).decode()
