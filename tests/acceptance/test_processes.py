"""Background processes through the command: they outlive it, and what is said of them is true."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import command, remote_hosts
from tests.acceptance.terminals import Terminal
from tests.servers import Missing
from tests.waiting import PATIENCE, wait_until


class Home:
    """An empty home, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if "REKINDLE" not in name}
        self.env = {**kept, "HOME": str(folder), "REKINDLE_HOME": str(folder / "rk")}

    def run(self, *words: str, code: int = 0, input: str | None = None) -> str:
        done = command.run(
            words,
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            input=input,
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def start(self, *words: str) -> str:
        return self.run("run", *words).strip()

    def json(self, *words: str, code: int = 0) -> Any:
        done = command.run(
            [*words, "--json"],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, (words, done.stderr)
        return json.loads(done.stdout)

    def record(self, id: str) -> dict[str, Any]:
        return next(one for one in self.json("ps", "--all") if one["id"] == id)

    def until(self, id: str, text: str) -> str:
        end = time.monotonic() + PATIENCE
        while text not in (said := self.run("logs", id)):
            assert time.monotonic() < end, said
            time.sleep(0.1)
        return said

    def supervisors(self) -> list[int]:
        """The supervisors of this home, by what they were started with."""
        return [
            int(one.name)
            for one in Path("/proc").iterdir()
            if one.name.isdigit() and f"supervisor {self.folder}" in _words(one)
        ]


def _words(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    one = Home(tmp_path)
    yield one
    for process in one.json("ps"):
        one.run("kill", process["id"])
    for pid in one.supervisors():
        os.kill(pid, signal.SIGTERM)


def test_it_runs_when_the_id_is_there_and_ends_with_its_code(home: Home) -> None:
    id = home.start("--", "sh", "-c", "echo out; echo err >&2; read x; exit 7")
    assert home.record(id)["state"] == "running"
    home.run("send", id, "go")
    assert home.run("logs", "-f", id) == "out\nerr\n"
    waited = home.json("wait", id, code=7)
    assert waited | {"age": 0} == home.record(id) | {"age": 0, "timed_out": False}
    record = home.record(id)
    assert (record["state"], record["exit_code"], record["bytes"]) == ("exited", 7, 8)
    assert home.json("ps") == []


def test_what_cannot_be_started_is_an_error_and_no_process(home: Home) -> None:
    assert "no-such-program" in home.run("run", "--", "no-such-program", code=1)
    assert "nowhere" in home.run("run", "--cwd", "nowhere", "--", "true", code=1)
    assert "NAME=VALUE" in home.run("run", "-e", "x", "--", "true", code=2)
    assert "expected local" in home.run("run", "--backend", "moon", "--", "true", code=2)
    assert [one for one in home.json("ps", "--all") if one["state"] != "failed"] == []


def test_a_shell_that_may_open_few_files_does_not_spoil_it_for_the_next(home: Home) -> None:
    few = 'ulimit -n 24; exec "$0" -m rekindle.cli run -- true'
    done = subprocess.run(
        ["sh", "-c", few, sys.executable],
        env=home.env,
        cwd=home.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "may open only 24 files and needs 64" in done.stderr
    assert "ulimit -n" in done.stderr
    wait_until(lambda: home.supervisors() == [])
    id = home.start("--", "echo", "hi")
    home.run("wait", id)
    assert home.run("logs", id) == "hi\n"


def test_a_folder_that_is_not_utf8_is_told_plainly_and_nothing_is_left_running(
    home: Home,
) -> None:
    odd = os.fsencode(home.folder) + b"/\xff"
    os.mkdir(odd)
    for env in (home.env, {**home.env, "REKINDLE_HOME": os.fsdecode(odd)}):
        done = subprocess.run(
            [sys.executable, "-m", "rekindle.cli", "run", "--", "true"],
            env=env,
            cwd=odd,
            capture_output=True,
        )
        assert done.returncode == 2
        assert done.stderr.startswith(b"rekindle: ")
        assert b"UTF-8" in done.stderr
        assert done.stderr.count(b"\n") == 1
    wait_until(lambda: home.supervisors() == [])


def test_output_comes_back_byte_for_byte(home: Home) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40)"
    id = home.start("--", sys.executable, "-c", script)
    home.run("wait", id)
    done = command.run(["logs", id], env=home.env, capture_output=True, check=True)
    assert done.stdout == bytes(range(256)) * 40


def test_only_the_last_part_of_much_output_is_kept_and_the_rest_is_counted(home: Home) -> None:
    id = home.start("--", "sh", "-c", "seq 100000; echo ünd ende")
    home.run("wait", id)
    record = home.record(id)
    said = home.run("logs", id)
    assert said.endswith("100000\nünd ende\n")
    assert len(said.encode()) == 200 * 1024
    assert record["bytes"] - record["dropped"] == 200 * 1024
    assert home.run("logs", "-n", "2", id) == "100000\nünd ende\n"


def test_what_is_kept_does_not_begin_inside_a_character(home: Home) -> None:
    id = home.start("--", sys.executable, "-X", "utf8", "-c", "print('ü' * 150_000, end='x')")
    home.run("wait", id)
    assert home.record(id)["dropped"] % 2 == 1
    done = command.run(["logs", id], env=home.env, cwd=home.folder, capture_output=True)
    assert done.stdout.decode().strip("ü") == "x"


def test_a_prompt_at_a_terminal_answers_what_is_sent(home: Home) -> None:
    id = home.start("--pty", "--", sys.executable, "-q")
    home.run("send", id, "print(6 * 7, __import__('sys').stdin.isatty())")
    home.until(id, "42 True")
    home.run("send", id, "--eof")
    assert "exited with 0" in home.run("wait", id, "--timeout", "120")


def test_input_without_a_terminal_reaches_it_until_it_is_closed(home: Home) -> None:
    id = home.start("--", "cat")
    home.run("send", id, "line")
    home.run("send", id, "no newline", "--no-enter")
    home.run("send", id, "--eof")
    assert home.json("wait", id)["exit_code"] == 0
    assert home.run("logs", id) == "line\nno newline"
    assert "has ended" in home.run("send", id, "more", code=1)


def test_waiting_has_an_end_that_is_said(home: Home) -> None:
    id = home.start("--", "sleep", "60")
    begun = time.monotonic()
    assert home.json("wait", id, "--timeout", "0.5", code=124)["timed_out"] is True
    assert time.monotonic() - begun < 10


def test_a_name_stands_for_the_process_that_runs_or_ran_last(home: Home) -> None:
    first = home.start("--name", "web", "--", "sh", "-c", "echo one; sleep 60")
    assert f"rekindle restart {'web'}" in home.run("run", "--name", "web", "--", "true", code=2)
    home.until("web", "one")
    assert "web" in home.run("ps")
    home.run("kill", "web")
    second = home.start("--name", "web", "--", "sh", "-c", "echo two")
    home.run("wait", "web")
    assert home.run("logs", "web") == "two\n"
    assert {home.record(id)["name"] for id in (first, second)} == {"web"}
    assert "is not a name" in home.run("run", "--name", "a b", "--", "true", code=2)


def test_a_process_starts_after_the_success_of_another_and_not_after_its_failure(
    home: Home,
) -> None:
    home.start("--name", "build", "--", "sh", "-c", "read x; echo built > built; exit $x")
    home.start("--name", "deploy", "--after", "build", "--", "cat", "built")
    home.start("--name", "tell", "--after", "deploy", "--", "echo", "told")
    assert home.record(home.json("ps")[1]["id"])["state"] == "waiting"
    assert "waiting for" in home.run("ps")
    assert "it waits for" in home.run("send", "deploy", "x", code=1)
    home.run("send", "build", "0")
    assert home.json("wait", "tell")["exit_code"] == 0
    assert (home.run("logs", "deploy"), home.run("logs", "tell")) == ("built\n", "told\n")

    home.start("--name", "test", "--", "sh", "-c", "read x; exit 3")
    home.start("--name", "release", "--after", "test", "--", "touch", "released")
    home.run("send", "test", "go")
    ended = home.json("wait", "release", code=1)
    assert (ended["state"], ended["reason"]) == ("failed", "not started: test exited with 3")
    assert not (home.folder / "released").exists()
    assert "test exited with 3" in home.run("run", "--after", "test", "--", "true", code=1)
    assert "not found" in home.run("run", "--after", "nobody", "--", "true", code=2)


def test_a_process_that_waits_can_be_killed_and_is_lost_with_its_supervisor(home: Home) -> None:
    home.start("--name", "base", "--", "sleep", "60")
    killed = home.start("--after", "base", "--", "touch", "ran")
    home.run("kill", killed)
    assert home.record(killed)["state"] == "killed"
    lost = home.start("--after", "base", "--", "touch", "ran")
    (supervisor,) = home.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    assert home.record(lost)["state"] == "lost"
    assert "start it again" in home.record(lost)["reason"]
    assert home.record(home.json("ps")[0]["id"])["name"] == "base"
    assert not (home.folder / "ran").exists()


def test_restart_runs_the_same_command_anew_under_the_same_name(home: Home) -> None:
    first = home.start("--name", "web", "--", "sh", "-c", "echo $MARK $PWD; sleep 60")
    home.until("web", str(home.folder))
    second = home.run("restart", "web", "-e", "MARK=again").strip()
    assert second != first
    assert home.record(first)["state"] == "killed"
    assert home.until("web", "again") == f"again {home.folder}\n"
    home.run("kill", "web")
    third = home.json("restart", "web")
    assert (third["name"], third["state"]) == ("web", "running")
    assert "not found" in home.run("restart", "nobody", code=2)


def test_a_signal_is_sent_to_the_program_alone(home: Home) -> None:
    id = home.start("--", "sh", "-c", "trap 'echo again' HUP; echo up; while :; do sleep 0.1; done")
    home.until(id, "up")
    assert "sent hup" in home.run("kill", "-s", "hup", id)
    home.until(id, "again")
    assert home.record(id)["state"] == "running"
    assert "unknown signal" in home.run("kill", "-s", "nothing", id, code=2)


def test_kill_leaves_nothing_of_the_tree(home: Home) -> None:
    stubborn = "trap '' TERM HUP INT; while :; do sleep 1; done"
    line = f'setsid sh -c "{stubborn}" & (sh -c "{stubborn}" &); echo ready; {stubborn}'
    id = home.start("--", "sh", "-c", line)
    home.until(id, "ready")
    assert "killed" in home.run("kill", id)
    marked = f"REKINDLE_PROCESS={id}".encode()
    left = [one for one in Path("/proc").iterdir() if one.name.isdigit() and _holds(one, marked)]
    assert left == []
    assert home.record(id)["state"] == "killed"


def _holds(process: Path, text: bytes) -> bool:
    try:
        return text in (process / "environ").read_bytes()
    except OSError:
        return False


def test_the_program_that_started_it_may_be_killed_and_so_may_the_supervisor(home: Home) -> None:
    id = home.start("--", "sh", "-c", "echo before; read x; echo after $x; exit 9")
    home.until(id, "before")
    (pid,) = home.supervisors()
    os.kill(pid, signal.SIGKILL)
    assert home.record(id)["state"] == "running"
    home.run("send", id, "all")
    assert home.json("wait", id, code=9)["exit_code"] == 9
    assert home.run("logs", id) == "before\nafter all\n"


def test_secrets_in_a_command_line_are_not_listed(home: Home) -> None:
    key = "sk-proj-" + "a1B2" * 12
    id = home.start("--", "sh", "-c", "sleep 60", "--api-key", key)
    assert key not in home.run("ps")
    assert key not in json.dumps(home.record(id))


def test_one_owner_does_not_see_the_processes_of_another(home: Home) -> None:
    id = home.start("--owner", "ada", "--", "sleep", "60")
    assert [one["id"] for one in home.json("ps", "--owner", "ada")] == [id]
    assert home.json("ps", "--owner", "bob") == []
    assert "Process not found" in home.run("kill", "--owner", "bob", id, code=2)
    assert home.record(id)["state"] == "running"


def test_attach_is_a_live_terminal_that_one_can_leave(home: Home) -> None:
    id = home.start("--pty", "--", sys.executable, "-q")
    terminal = Terminal(["attach", id], home.env, home.folder, columns=100, rows=30)
    terminal.wait_for(">>>")
    terminal.type("import os; print(os.get_terminal_size().columns + 1000)\r")
    terminal.wait_for("1100")
    terminal.type("\x1d")
    assert terminal.child.wait(PATIENCE) == 0
    assert home.record(id)["state"] == "running"
    assert "needs a terminal" in home.run("attach", id, code=2)


def test_a_host_behind_ssh_is_a_place(home: Home) -> None:
    try:
        sshd = remote_hosts.Sshd()
    except Missing as reason:
        pytest.skip(str(reason))
    try:
        home.env["HOME"] = str(sshd.home)
        id = home.start(
            "--backend", f"ssh:{sshd.target}", "--", "sh", "-c", "echo $SSH_CLIENT; exit 4"
        )
        assert home.json("wait", id, code=4)["exit_code"] == 4
        assert home.run("logs", id).startswith("127.0.0.1 ")
    finally:
        sshd.remove()
