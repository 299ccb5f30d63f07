"""`rekindle watch` and `rekindle service`, the real commands."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests import command
from tests.acceptance.faults import small_disk
from tests.acceptance.terminals import CTRL_C, Terminal
from tests.acceptance.test_cli import Rekindle, claude_code_session
from tests.unit.transcripts.readers.test_opencode import database, fill
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


class RunningWatch:
    """A watcher and what it has written."""

    def __init__(self, process: subprocess.Popen[Any], output: Path) -> None:
        self.process = process
        self.output = output

    def list_events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.output.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == kind]


@contextmanager
def watching(rekindle: Rekindle, *words: str, **env: str) -> Iterator[RunningWatch]:
    output = rekindle.home / "watch.jsonl"
    with output.open("wb") as file:
        process = command.start(
            ["watch", "--json", *words], env={**rekindle.env, **env}, cwd=rekindle.home, stdout=file
        )
    running = RunningWatch(process, output)
    try:
        wait_until(lambda: running.list_events("start") or process.poll() is not None)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def append_line(path: Path, number: int, text: str = "More.") -> None:
    first = json.loads(path.read_text().splitlines()[0])
    line = {**first, "uuid": f"more-{number}", "message": {"role": "user", "content": text}}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def count_messages(rekindle: Rekindle, session: str) -> int:
    listed = rekindle.json("sessions", "list", "--no-refresh")
    return next((one["message_count"] for one in listed if one["id"] == session), 0)


def test_a_session_is_imported_while_it_grows(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    with watching(rekindle) as running:
        wait_until(lambda: count_messages(rekindle, "first") == 2)
        append_line(path, 1)
        wait_until(lambda: count_messages(rekindle, "first") == 3)
        wait_until(lambda: len(running.list_events("import")) == 2)  # written after the store
        imports = running.list_events("import")
        assert [one["messages"] for one in imports] == [2, 1]
        assert imports[1]["paths"] == [str(path)]
        assert imports[1]["formats"] == {"claude-code": 1}


def test_agents_that_are_installed_later_are_found(rekindle: Rekindle) -> None:
    with watching(rekindle) as running:
        assert running.list_events("start")[0]["paths"] == []
        claude_code_session(rekindle.home, "first", "Fix it.")
        wait_until(lambda: count_messages(rekindle, "first") == 2)


def test_a_database_whose_news_are_only_in_its_log_is_imported(rekindle: Rekindle) -> None:
    folder = rekindle.home / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    made = database(folder / "opencode.db")
    made.execute("PRAGMA journal_mode = WAL")
    with watching(rekindle):
        # At once: of an answer that is being written, each import keeps the part that is new. It stays
        # open, so that nothing is moved out of the log.
        with made:
            fill(made)
        wait_until(lambda: count_messages(rekindle, "ses_1") == 4)
        size = (folder / "opencode.db").stat().st_size
        row = '{"role": "user", "time": {"created": 1772359300000}}'
        part = '{"type": "text", "text": "one more"}'
        with made:
            made.execute("INSERT INTO message VALUES ('msg_9', 'ses_1', 1772359300000, ?)", (row,))
            made.execute("INSERT INTO part VALUES ('prt_9', 'msg_9', 'ses_1', ?)", (part,))
        wait_until(lambda: count_messages(rekindle, "ses_1") == 5)
        assert (folder / "opencode.db").stat().st_size == size
    made.close()


def test_a_locked_store_is_waited_for(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    with watching(rekindle, REKINDLE_STORE_BUSY_SECONDS="0.2") as running:
        wait_until(lambda: count_messages(rekindle, "first") == 2)
        other = apsw.Connection(str(rekindle.store))
        other.execute("BEGIN IMMEDIATE")
        append_line(path, 1)
        wait_until(lambda: running.list_events("notice"))
        other.execute("COMMIT")
        other.close()
        wait_until(lambda: count_messages(rekindle, "first") == 3)
        wait_until(lambda: len(running.list_events("notice")) == 2)
        assert running.list_events("notice")[1]["text"] == "Importing works again."


def test_a_full_disk_is_waited_for(rekindle: Rekindle, tmp_path: Path) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    with small_disk(tmp_path / "disk", "6m") as disk:
        store = ("--store", str(disk / "sessions.db"))
        with watching(rekindle, *store) as running:
            wait_until(lambda: running.list_events("import"))
            ballast = disk / "ballast"
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            noise = random.Random(1).randbytes(200_000).hex(" ", 4)  # nothing to compress
            append_line(path, 1, noise)
            wait_until(lambda: running.list_events("notice"))
            assert "Trying again" in running.list_events("notice")[0]["text"]
            ballast.unlink()
            wait_until(lambda: len(running.list_events("import")) == 2)
        assert rekindle.json("sessions", "list", *store)[0]["message_count"] == 3


def test_the_second_watcher_of_a_home_says_so_and_exits(rekindle: Rekindle) -> None:
    with watching(rekindle) as running:
        refused = rekindle.refusal("watch", code=1)
        assert f"already running for {rekindle.home / 'rekindle'}" in refused
        assert f"(process {running.process.pid})" in refused
        assert rekindle("watch", "--once") == "Nothing new.\n"
    assert running.process.returncode == 0


def test_one_pass_imports_and_learns_and_a_pipe_gets_a_line_for_each(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    shown = rekindle("watch", "--once")
    assert shown == "Imported 2 messages of 1 session (claude-code).\nLearned from 1 session.\n"
    assert rekindle.json("sessions", "list", "--no-refresh")[0]["project"] == "folder:/home/ada/app"


def test_a_terminal_shows_one_line_that_changes(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    terminal = Terminal(["watch"], rekindle.env, rekindle.home)
    try:
        terminal.wait_for("2 messages imported")
        append_line(path, 1)
        terminal.wait_for("3 messages imported")
        assert "2 messages imported" not in terminal.text
        terminal.type(CTRL_C)
        assert terminal.left() == 0
    finally:
        terminal.kill()


def test_without_watchfiles_it_says_how_to_install_it(rekindle: Rekindle) -> None:
    stub = rekindle.home / "stub"
    stub.mkdir()
    (stub / "watchfiles.py").write_text("raise ImportError('not here')\n")
    paths = os.pathsep.join([str(stub), os.environ.get("PYTHONPATH", "")])
    with watching(rekindle, PYTHONPATH=paths) as running:
        assert running.list_events("start")[0]["polling"] is True
        assert "pip install 'rekindle[watch]'" in running.list_events("notice")[0]["text"]


def test_a_reached_limit_of_watches_is_named_and_folders_are_searched(rekindle: Rekindle) -> None:
    for number in range(5):
        claude_code_session(rekindle.home, f"s{number}", "Fix it.")
        (rekindle.home / ".claude" / "projects" / f"f{number}").mkdir()
    limit = "echo 3 > /proc/sys/user/max_inotify_watches || exit 77"
    run = f"{limit}; timeout -s TERM 5 {command.COMMAND} watch --json; exit 0"
    try:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "sh", "-c", run],
            env=rekindle.env, capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no unshare, so no limit of our own can be set")
    if done.returncode or b"event" not in done.stdout:
        pytest.skip("this machine lets us set no limit of our own")
    assert b"sysctl fs.inotify.max_user_watches" in done.stdout
    assert b'"polling":true' in done.stdout


# ── services


def test_a_dry_run_shows_the_unit_that_would_be_installed(
    rekindle: Rekindle, tmp_path: Path
) -> None:
    if sys.platform == "darwin":
        pytest.skip("systemd is not for this system")
    shown = rekindle("service", "install", "--dry-run", CODEX_HOME='/odd "path" 100%$HOME')
    unit = tmp_path / ".config" / "systemd" / "user" / "rekindle-watch.service"
    assert f"Would write {unit}:" in shown
    assert 'Environment="CODEX_HOME=/odd \\"path\\" 100%%$HOME"' in shown
    assert f'Environment="REKINDLE_HOME={tmp_path / "rekindle"}"' in shown
    assert not unit.exists()
    with_store = rekindle("--store", "other.db", "service", "install", "--dry-run")
    assert f'"--store" "{tmp_path / "other.db"}" "watch"' in with_store


def make_tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


@pytest.mark.parametrize("name", ["watch", "gateway"])
def test_a_service_is_installed_inspected_and_removed(
    rekindle: Rekindle, tmp_path: Path, name: str
) -> None:
    tools = tmp_path / "tools"
    show = "echo ActiveState=active; echo SubState=running; echo MainPID=42"
    make_tool(tools, "systemctl", f'echo "$@" >> {tmp_path}/asked\n{show}')
    make_tool(tools, "journalctl", 'echo "log: $@"')
    env = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    unit = tmp_path / ".config" / "systemd" / "user" / f"rekindle-{name}.service"
    assert f"Wrote {unit}" in rekindle("service", "install", name, **env)
    assert f'"-m" "rekindle.cli" "{name}"' in unit.read_text()
    assert unit.stat().st_mode & 0o777 == 0o600
    assert "Already there" in rekindle("service", "install", name, **env)
    status = rekindle.json("service", "status", name, **env)
    assert (status["installed"], status["running"], status["pid"]) == (True, True, 42)
    assert f"--unit=rekindle-{name}.service --lines=7" in rekindle(
        "service", "logs", name, "-n", 7, **env
    )
    assert "Stopped and removed" in rekindle("service", "uninstall", name, **env)
    assert not unit.exists()
    assert "Not installed" in rekindle("service", "uninstall", name, **env)
    asked = (tmp_path / "asked").read_text()
    assert f"--user enable rekindle-{name}.service" in asked
    assert f"--user disable --now rekindle-{name}.service" in asked


def test_a_manager_that_cannot_be_reached_leaves_nothing_behind(
    rekindle: Rekindle, tmp_path: Path
) -> None:
    make_tool(tmp_path / "tools", "systemctl", "echo Failed to connect to bus >&2; exit 1")
    env = {"PATH": f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}"}
    refused = rekindle.refusal("service", "install", code=1, **env)
    assert "systemd does not run services of this user here" in refused
    assert "Failed to connect to bus" in refused
    assert not (tmp_path / ".config").exists()
    assert rekindle.json("service", "status", code=1, **env)["running"] is False


def test_without_any_manager_the_error_says_what_to_do(rekindle: Rekindle, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused = rekindle.refusal("service", "install", code=1, PATH=str(tmp_path / "empty"))
    assert "neither systemd nor launchd" in refused
