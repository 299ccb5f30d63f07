from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from rekindle.errors import InvalidInput
from rekindle.hooks.command import (
    AGENT_EVENTS,
    CALL_EVENT,
    build_hook_command,
    get_launcher,
    is_launcher_current,
    list_events,
    write_launcher,
)


def test_the_command_names_the_home_and_nothing_that_changes_with_the_installation() -> None:
    command = build_hook_command("claude-code", "start", Path("/data/rekindle"))
    assert command == "/data/rekindle/hooks/run claude-code start 2>/dev/null || true"


def test_the_home_is_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKINDLE_HOME", str(tmp_path))
    assert build_hook_command("codex", "end") == build_hook_command("codex", "end", tmp_path)


def test_a_home_with_spaces_and_quotes_is_one_word(tmp_path: Path) -> None:
    home = tmp_path / "it's; rm -rf $HOME"
    assert shlex.split(build_hook_command("pi", "prompt", home))[0] == str(home / "hooks/run")


@pytest.mark.parametrize(
    ("agent", "event"), [("vim", "start"), ("codex", "SessionStart"), ("gemini", "compact")]
)
def test_an_unknown_agent_or_event_has_no_command(agent: str, event: str) -> None:
    with pytest.raises(InvalidInput, match=f"{agent} {event}"):
        build_hook_command(agent, event, Path("/data"))


@pytest.mark.parametrize("agent", AGENT_EVENTS)
def test_a_hook_before_calls_is_for_those_who_ask_for_it(agent: str) -> None:
    usual, all_events = (list_events(agent, before_call=one) for one in (False, True))
    assert all_events == AGENT_EVENTS[agent]
    assert all_events.keys() - usual.keys() == {CALL_EVENT}


@pytest.mark.slow
def test_the_command_succeeds_silently_without_a_launcher(tmp_path: Path) -> None:
    for agent, events in AGENT_EVENTS.items():
        for event in events:
            command = build_hook_command(agent, event, tmp_path)
            done = subprocess.run(["sh", "-c", command], capture_output=True, input=b"{}")
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_launcher_is_private_and_written_only_if_it_changes(tmp_path: Path) -> None:
    assert not is_launcher_current(tmp_path)
    launcher = write_launcher(tmp_path)
    assert launcher == get_launcher(tmp_path)
    assert launcher.stat().st_mode & 0o777 == 0o700
    written = launcher.stat().st_ino
    assert write_launcher(tmp_path).stat().st_ino == written
    launcher.write_text("#!/bin/sh\nexec /usr/bin/python3 /gone/client.py\n")
    assert not is_launcher_current(tmp_path)
    write_launcher(tmp_path)
    assert is_launcher_current(tmp_path)
    assert os.listdir(launcher.parent) == ["run"]
