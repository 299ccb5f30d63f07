"""Reading commands import what agents have written since the last time, the real commands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import time
from pathlib import Path

import apsw
import pytest

from tests import command
from tests.acceptance.faults import as_mortal, read_only_view, small_disk
from tests.acceptance.test_cli import Rekindle, claude_code_session
from tests.acceptance.test_watch import append_line, watching
from tests.servers import Postgres
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    (tmp_path / "rekindle").mkdir()
    return Rekindle(tmp_path)


def list_ids(rekindle: Rekindle, *words: str, **env: str) -> set[str]:
    return {one["id"] for one in rekindle.json("sessions", "list", *words, **env)}


def read_notices(rekindle: Rekindle, *words: str, **env: str) -> list[str]:
    """What a command that reads says beside its result."""
    return rekindle.run(*words, **env).stderr.decode().splitlines()


def age_file(path: Path) -> None:
    """Let the file be written an hour ago."""
    then = time.time() - 3600
    os.utime(path, (then, then))


def test_a_new_session_is_found_without_an_import(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Mend the wobbly parser.")
    assert list_ids(rekindle, "--no-refresh") == set()
    assert list_ids(rekindle, REKINDLE_STORE_REFRESH="never") == set()
    found = rekindle.run("sessions", "search", "wobbly")
    assert b"first" in found.stdout
    assert found.stderr == b"1 new session from Claude Code.\n"
    again = rekindle.run("sessions", "list")
    assert b"first" in again.stdout
    assert again.stderr == b""


def test_what_a_known_session_says_since_then_is_found_too(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("sessions", "list")
    append_line(path, 1, "And the gearbox.")
    with path.open("a") as file:
        file.write('{"type": "user", "mess')  # the agent is writing at this moment
    assert read_notices(rekindle, "sessions", "list") == ["1 session updated from Claude Code."]
    assert "gearbox" in rekindle("sessions", "show", "first")


READERS = (
    "sessions list", "sessions search it", "sessions show first", "sessions stats",
    "sessions export first", "insights", "calls --all", "usage", "profile first",
    "compare first source=claude-code", "compress-check first", "warm list", "warm recall it",
    "warm pick it", "warm notes list --project app", "lessons --project app",
    "warm experiment list", "sessions restore-to codex first --dry-run",
)  # fmt: skip


def test_every_reading_command_looks_for_new_sessions_first(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("import")
    for number, verb in enumerate(READERS):
        claude_code_session(rekindle.home, f"new-{number}", "Fix it.")
        said = read_notices(rekindle, *verb.split())
        assert said[:1] == ["1 new session from Claude Code."], verb


def test_commands_that_maintain_or_change_the_store_do_not_import(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("import")
    claude_code_session(rekindle.home, "second", "Fix it.")
    rekindle("sessions", "verify")
    rekindle("sessions", "backup", "copy.db")
    rekindle("gateway", "routes")
    rekindle("sessions", "rename", "first", "A name")
    assert list_ids(rekindle, "--no-refresh") == {"first"}


def test_a_damaged_file_costs_one_line_once(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    path.write_text(path.read_text() + '{"type": "user", "mess\n')
    age_file(path)
    claude_code_session(rekindle.home, "second", "Fix it.")
    new, problem = read_notices(rekindle, "sessions", "list")
    assert new == "2 new sessions from Claude Code."
    assert problem.startswith(f"Skipped a damaged part of {path}, line 3: ")
    assert read_notices(rekindle, "sessions", "list") == []
    assert list_ids(rekindle) == {"first", "second"}


def test_a_file_that_cannot_be_read_costs_one_line_until_it_changes(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    claude_code_session(rekindle.home, "second", "Fix it.")
    path.chmod(0)

    def list_as_mortal() -> tuple[bool, list[str]]:
        words = [*as_mortal(), command.COMMAND, "sessions", "list"]
        done = subprocess.run(words, env=rekindle.env, capture_output=True, text=True, check=True)
        return "second" in done.stdout, done.stderr.splitlines()

    problem = f"Cannot import {path}: Permission denied."
    assert list_as_mortal() == (True, ["1 new session from Claude Code.", problem])
    assert list_as_mortal() == (True, [])
    os.utime(path)
    assert list_as_mortal() == (True, [problem])


def test_a_session_whose_file_is_deleted_stays(rekindle: Rekindle) -> None:
    path = claude_code_session(rekindle.home, "first", "Fix it.")
    assert list_ids(rekindle) == {"first"}
    path.unlink()
    path.parent.rmdir()
    path.parent.parent.rmdir()
    assert list_ids(rekindle) == {"first"}


def test_another_store_is_read_as_it_is(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("import")
    rekindle("sessions", "backup", "copy.db")
    claude_code_session(rekindle.home, "second", "Fix it.")
    assert list_ids(rekindle, "--store", "copy.db") == {"first"}
    assert list_ids(rekindle, "--store", str(rekindle.store)) == {"first", "second"}


def test_a_server_is_filled_only_if_that_is_wanted(rekindle: Rekindle, postgres: Postgres) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    server = {"REKINDLE_STORE": postgres.database()}
    assert list_ids(rekindle, **server) == set()
    assert list_ids(rekindle, REKINDLE_STORE_REFRESH="always", **server) == {"first"}


def test_a_locked_store_is_read_without_what_is_new(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("import")
    claude_code_session(rekindle.home, "second", "Fix it.")
    other = apsw.Connection(str(rekindle.store))
    other.execute("BEGIN IMMEDIATE")
    done = rekindle.run("sessions", "list")
    assert b"first" in done.stdout
    assert done.stderr.startswith(b"New sessions were not imported: ")
    assert done.stderr.count(b"\n") == 1
    other.execute("COMMIT")
    other.close()
    assert list_ids(rekindle) == {"first", "second"}


def test_a_full_disk_is_read_without_what_is_new(rekindle: Rekindle, tmp_path: Path) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    with small_disk(tmp_path / "disk", "6m") as disk:
        env = {"REKINDLE_HOME": str(disk)}
        assert list_ids(rekindle, **env) == {"first"}
        with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        os.truncate(disk / "ballast", (disk / "ballast").stat().st_size - 100_000)
        claude_code_session(rekindle.home, "second", "Fix it." + os.urandom(200_000).hex())
        done = rekindle.run("sessions", "list", "--json", **env)
        assert [one["id"] for one in json.loads(done.stdout)] == ["first"]
        assert b"New sessions were not imported: " in done.stderr


def test_a_store_that_cannot_be_written_is_read(rekindle: Rekindle, tmp_path: Path) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("import")
    claude_code_session(rekindle.home, "second", "Fix it.")
    with read_only_view(tmp_path / "rekindle", tmp_path / "view") as view:
        done = rekindle.run("sessions", "list", REKINDLE_HOME=str(view))
        assert (b"first" in done.stdout, b"second" in done.stdout) == (True, False)
        assert done.stderr == b""


def test_what_another_command_is_importing_is_left_to_it(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    with (rekindle.home / "rekindle" / "refresh.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = rekindle.run("sessions", "list", "--json")
        assert done.stdout == b"[]\n"
        assert done.stderr == b"Another command is importing new sessions at this moment.\n"
    assert list_ids(rekindle) == {"first"}


def test_many_commands_at_once_import_a_session_once(rekindle: Rekindle) -> None:
    for number in range(30):
        claude_code_session(rekindle.home, f"s{number}", "Fix it.")
    running = [
        command.start(["sessions", "stats"], env=rekindle.env, cwd=rekindle.home) for _ in range(5)
    ]
    assert [one.wait(PATIENCE) for one in running] == [0] * 5
    listed = rekindle.json("sessions", "list", "--limit", 100)
    assert [one["message_count"] for one in listed] == [2] * 30


def test_a_running_watcher_is_left_to_its_work(rekindle: Rekindle) -> None:
    with watching(rekindle) as running:
        path = claude_code_session(rekindle.home, "first", "Fix it.")
        said = read_notices(rekindle, "sessions", "list")
        assert "1 new session from Claude Code." not in said
        wait_until(lambda: running.list_events("import"))
        append_line(path, 1)
        wait_until(lambda: len(running.list_events("import")) == 2)
    assert list_ids(rekindle, "--no-refresh") == {"first"}


def test_new_sessions_are_learned_from_while_nobody_waits(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    rekindle("sessions", "list")
    mark = rekindle.home / "rekindle" / "learn.pending"
    wait_until(lambda: not mark.exists())

    def find_project() -> str | None:
        return rekindle.json("sessions", "list", "--no-refresh")[0]["project"]

    wait_until(lambda: find_project() == "folder:/home/ada/app")


def test_what_reads_notes_has_learned_from_new_sessions(rekindle: Rekindle) -> None:
    claude_code_session(rekindle.home, "first", "Fix it.")
    assert "What sessions learned in" in rekindle("lessons", "--project", "app")


def test_a_new_home_is_read_without_a_word_about_it(rekindle: Rekindle) -> None:
    shown = rekindle.run("sessions", "stats")
    assert shown.stdout.startswith(b"store ")
    assert shown.stderr == b""
