from __future__ import annotations

import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from rekindle.errors import InvalidInput, ServiceError
from rekindle.services.definition import (
    SERVICE_NAMES,
    ServiceDefinition,
    build_service,
    quote_systemd_word,
    render_launchd_plist,
    render_systemd_unit,
)
from rekindle.services.manager import LaunchdManager, SystemdManager, choose_manager

HOSTILE = 'a b"c\\d%h$HOME${X};é'


def make_service(**environment: str) -> ServiceDefinition:
    program = ("/opt/my python/bin/python", "-m", "rekindle.cli")
    return build_service("watch", program, environment, Path("/home/ada/rekindle"))


def test_a_unit_starts_the_command_and_restarts_it_when_it_fails() -> None:
    unit = render_systemd_unit(make_service(CODEX_HOME="/codex", B="2")).splitlines()
    assert 'ExecStart="/opt/my python/bin/python" "-m" "rekindle.cli" "watch"' in unit
    assert unit.index('Environment="B=2"') < unit.index('Environment="CODEX_HOME=/codex"')
    assert "Restart=on-failure" in unit
    assert unit[-1] == "WantedBy=default.target"


def test_systemd_replaces_nothing_in_a_quoted_word() -> None:
    assert quote_systemd_word(HOSTILE) == '"a b\\"c\\\\d%%h$$HOME$${X};é"'


def test_the_gateway_has_time_to_stop_and_leaves_its_background_processes() -> None:
    service = build_service("gateway", ("rekindle",), {}, Path("/home/ada/r"), stop_seconds=35.0)
    unit = render_systemd_unit(service).splitlines()
    assert 'ExecStart="rekindle" "gateway" "run"' in unit
    assert {"TimeoutStopSec=35", "KillMode=process", "RestartPreventExitStatus=2"} <= {*unit}
    assert not {"Nice=10", "NoNewPrivileges=yes"} & {*unit}
    assert service.unit_name == "rekindle-gateway.service"
    properties = plistlib.loads(render_launchd_plist(service).encode())
    assert properties["ProgramArguments"] == ["rekindle", "gateway", "run"]
    assert (properties["ExitTimeOut"], properties["AbandonProcessGroup"]) == (35, True)
    assert properties["ProcessType"] == "Standard"
    watcher = render_systemd_unit(make_service())
    assert "NoNewPrivileges=yes" in watcher
    assert "KillMode" not in watcher


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVICE_NAMES)
def test_systemd_accepts_the_unit(tmp_path: Path, name: str) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "odd %h $X name"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    service = build_service(name, (str(program), HOSTILE), {"X": HOSTILE}, tmp_path)
    unit = tmp_path / service.unit_name
    unit.write_text(render_systemd_unit(service))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert not [line for line in done.stderr.splitlines() if service.unit_name in line]
    assert done.returncode == 0, done.stderr


def test_a_plist_is_read_back_as_it_was_meant() -> None:
    properties = plistlib.loads(render_launchd_plist(make_service(X="<&>")).encode())
    assert properties["Label"] == "dev.rekindle.watch"
    assert properties["ProgramArguments"][0] == "/opt/my python/bin/python"
    assert properties["ProgramArguments"][-1] == "watch"
    assert properties["EnvironmentVariables"] == {"X": "<&>"}
    assert properties["KeepAlive"] == {"SuccessfulExit": False}
    assert properties["StandardErrorPath"] == "/home/ada/rekindle/logs/watch.log"


@pytest.mark.parametrize("value", ["a\nExecStart=/bin/evil", "a\rb", "a\0b"])
def test_a_line_break_cannot_add_a_line_to_the_unit(value: str) -> None:
    with pytest.raises(InvalidInput, match="line break"):
        make_service(X=value)


def test_each_system_has_its_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    agent = choose_manager(service, tmp_path, {}, "darwin")
    assert isinstance(agent, LaunchdManager)
    assert agent.file == tmp_path / "Library" / "LaunchAgents" / "dev.rekindle.watch.plist"
    assert agent.list_start_commands()[1][:2] == ["launchctl", "bootstrap"]
    assert agent.build_log_command(5, follow=True)[:3] == ["tail", "-n5", "-F"]
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    unit = choose_manager(service, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "c")}, "linux")
    assert isinstance(unit, SystemdManager)
    assert unit.file == tmp_path / "c" / "systemd" / "user" / "rekindle-watch.service"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ServiceError, match="neither systemd nor launchd"):
        choose_manager(service, tmp_path, {}, "linux")
