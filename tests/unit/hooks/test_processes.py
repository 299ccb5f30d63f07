"""The launcher, the client and the helper as processes, in good and in bad times."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rekindle.hooks import client
from rekindle.hooks.command import build_hook_command, write_launcher
from rekindle.hooks.troubles import read_troubles
from tests.hook_launcher import write_patient_launcher
from tests.waiting import wait_until

from .conftest import HookHome

pytestmark = pytest.mark.slow


class RunningHome(HookHome):
    """A home whose hooks are run as agents run them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = self.path / "hooks"
        self.socket = self.folder / client.SOCKET
        write_patient_launcher(self.path)

    def run(
        self, event: str, data: bytes | None = None, agent: str = "claude-code", **options: Any
    ) -> bytes:
        """Run a hook as an agent does: it must succeed, and print JSON or nothing."""
        if data is None:
            given = {"session_id": options.pop("session", "s1"), "cwd": str(self.project)}
            data = json.dumps(given).encode()
        command = ["sh", "-c", build_hook_command(agent, event, self.path)]
        done = subprocess.run(command, input=data, capture_output=True, **options)
        assert (done.returncode, done.stderr) == (0, b"")
        if done.stdout:
            assert json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
        return done.stdout

    def ask_until_told(self) -> None:
        """Ask until the helper runs and answers, each time as a new session."""
        numbers = iter(range(10_000))
        wait_until(lambda: self.run("start", session=f"new-{os.urandom(4).hex()}-{next(numbers)}"))
        wait_until(self.socket.exists)

    def find_helper(self) -> int:
        """Return the process id of the helper, once those that came too late have exited."""
        wait_until(lambda: len(self.find_helpers()) == 1)
        return self.find_helpers()[0]

    def find_helpers(self) -> list[int]:
        """Return the process ids of all helpers of this home."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                words = (
                    (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                )
            except OSError:
                continue  # it has just ended
            if words[3:] == [os.fsencode(self.path), b""] and words[2].endswith(b"/entry.py"):
                found.append(int(entry.name))
        return found

    def read_reasons(self) -> list[str]:
        return [one.reason for one in read_troubles(self.path)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHome]:
    home = RunningHome(tmp_path)
    home.teach()
    yield home
    home.socket.unlink(missing_ok=True)  # which ends the helper


def test_the_first_hook_starts_a_helper_that_the_others_use(running: RunningHome) -> None:
    running.ask_until_told()
    first = running.find_helper()
    assert running.socket.stat().st_mode & 0o777 == 0o600
    assert running.folder.stat().st_mode & 0o777 == 0o700
    for number in range(5):
        assert running.run("start", session=f"other-{number}")
    assert running.find_helper() == first
    assert running.read_reasons() == []


def test_a_killed_helper_is_replaced(running: RunningHome) -> None:
    running.ask_until_told()
    first = running.find_helper()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{first}").exists() or _is_zombie(first))
    running.ask_until_told()
    assert running.find_helper() != first


def _is_zombie(pid: int) -> bool:
    return ") Z" in Path(f"/proc/{pid}/stat").read_text()


def test_a_helper_of_another_version_is_replaced(running: RunningHome) -> None:
    running.ask_until_told()
    first = running.find_helper()
    source = Path(client.__file__).with_name("answers.py")
    before = source.stat()
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    try:
        wait_until(lambda: running.run("start", session=os.urandom(4).hex()) and _is_gone(first))
        running.ask_until_told()
    finally:
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert running.find_helper() != first


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or _is_zombie(pid)


def test_a_helper_whose_home_is_gone_exits(running: RunningHome) -> None:
    running.ask_until_told()
    pid = running.find_helper()
    running.path.rename(running.path.with_name("moved"))
    wait_until(lambda: _is_gone(pid))


def test_many_first_hooks_at_once_leave_one_helper(running: RunningHome) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: running.run("start", session=f"s-{n}"), range(6)))
    running.ask_until_told()
    wait_until(lambda: len(running.find_helpers()) == 1)


def test_the_end_of_a_session_imports_it_without_being_waited_for(
    running: RunningHome, tmp_path: Path
) -> None:
    from tests.acceptance.test_notes import write_session

    agent = tmp_path / "agent"
    agent.mkdir()
    write_session(agent, "new-session", ("make test", "ok", True), where=str(running.project))
    given = {
        "session_id": "new-session",
        "cwd": str(running.project),
        "transcript_path": str(agent / "new-session.jsonl"),
    }
    data = json.dumps(given).encode()
    running.ask_until_told()
    assert running.run("start", data)
    assert running.run("end", data) == b""

    def is_stored() -> bool:
        with running.open() as store:
            sessions = [one for one in store.recent(20) if one.id == "new-session"]
        return bool(sessions) and sessions[0].arm == "warm" and sessions[0].project is not None

    wait_until(is_stored)
    with running.open() as store:
        told = store.preludes.load("new-session").messages
    assert "make check-all" in told[0].text
    assert running.read_reasons() == []


def test_a_transcript_that_does_not_exist_is_recorded(running: RunningHome) -> None:
    given = {"session_id": "x", "cwd": "/", "transcript_path": "/no/such/file.jsonl"}
    running.run("end", json.dumps(given).encode())
    wait_until(lambda: any("/no/such/file.jsonl" in one for one in running.read_reasons()))


# ── bad times

INPUTS = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b"{}",
    b'{"session_id": 5}',
    b'{"session_id": "s"}',
    b'{"session_id": "s", "cwd": ""}',
    b'{"session_id": "s", "cwd": "/nowhere"}',
    b'{"session_id": "s", "cwd": ["/"], "prompt": {}}',
    b'{"session_id": "\\u0000", "cwd": "/\\u0000"}',
    b'{"session_id": "s", "cwd": "/", "tool_name": "Bash", "tool_input": 7, "error": []}',
    b'{"session_id": "s", "cwd": "/", "transcript_path": "/etc/passwd"}',
    b'{"session_id": "s", "cwd": "/", "transcript_path": "/dev/zero"}',
    b"[" * 20_000,
    b'{"a":' * 20_000,
    json.dumps({"session_id": "s" * 100_000, "cwd": "/" * 100_000}).encode(),
    json.dumps({"session_id": "s", "cwd": "/tmp", "prompt": "x" * 500_000}).encode(),
)
AGENTS = ("claude-code", "codex", "gemini", "opencode", "pi")
EVENTS = ("start", "prompt", "failure")


def run_many(home: RunningHome, count: int, **options: Any) -> None:
    """Run hooks with all kinds of inputs, four at a time.

    20 have every input, 60 have each of them with every event; the first few have every agent, every
    event and the largest input.
    """

    def run_one(number: int) -> bytes:
        agent, event = AGENTS[number % len(AGENTS)], EVENTS[number % len(EVENTS)]
        return home.run(event, INPUTS[-1 - number * 3 % len(INPUTS)], agent, **options)

    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(run_one, range(count))} == {b""}


def leave_alone(home: RunningHome) -> Callable[[], None]:
    home.ask_until_told()
    return lambda: None


def lock_store(home: RunningHome) -> Callable[[], None]:
    """Hold the lock that keeps all others from reading and writing."""
    connection = sqlite3.connect(home.path / "sessions.db", isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    return connection.close


def damage_store(home: RunningHome) -> Callable[[], None]:
    file = home.path / "sessions.db"
    for sidecar in home.path.glob("sessions.db-*"):
        sidecar.unlink()
    file.write_bytes(b"SQLite format 3\0" + os.urandom(file.stat().st_size))
    return lambda: None


def put_file_in_place_of_socket(home: RunningHome) -> Callable[[], None]:
    home.socket.write_bytes(b"not a socket")
    return lambda: None


def hang_helper(home: RunningHome) -> Callable[[], None]:
    """Listen as a helper that never answers."""
    lock = os.open(home.folder / "helper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    listener = socket.socket(socket.AF_UNIX)
    home.socket.unlink(missing_ok=True)
    listener.bind(str(home.socket))
    listener.listen(0)

    def close() -> None:
        listener.close()
        os.close(lock)

    return close


def answer_halves(home: RunningHome) -> Callable[[], None]:
    """Answer as a helper that dies in the middle of its answer."""
    listener = socket.socket(socket.AF_UNIX)
    home.socket.unlink(missing_ok=True)
    listener.bind(str(home.socket))
    listener.listen(64)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.sendall(b'0000000100{"hookSpecificOutput":{"hookEv')
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    lock = os.open(home.folder / "helper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)

    def close() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        os.close(lock)

    return close


@pytest.mark.parametrize(
    ("disturb", "count"),
    [(leave_alone, 60), (lock_store, 20), (damage_store, 20), (put_file_in_place_of_socket, 20),
     (hang_helper, 8), (answer_halves, 8)],  # the last two start a helper for each hook
)  # fmt: skip
def test_hooks_print_nothing_and_succeed_whatever_they_are_given_and_whatever_is_broken(
    running: RunningHome, disturb: Callable[[RunningHome], Callable[[], None]], count: int
) -> None:
    write_launcher(running.path)
    restore = disturb(running)
    try:
        run_many(running, count)
    finally:
        restore()


def test_hooks_succeed_while_their_helper_is_killed_again_and_again(running: RunningHome) -> None:
    stop = threading.Event()

    def kill_helpers() -> None:
        while not stop.wait(0.2):
            try:
                for pid in running.find_helpers():
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    killer = threading.Thread(target=kill_helpers)
    killer.start()
    try:
        run_many(running, 20)
    finally:
        stop.set()
        killer.join()


def test_hooks_succeed_on_a_full_disk(running: RunningHome) -> None:
    def allow_no_writes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    run_many(running, 20, preexec_fn=allow_no_writes)


def test_a_hook_that_gets_a_hundred_megabytes_reads_them_and_says_nothing(
    running: RunningHome,
) -> None:
    running.ask_until_told()
    data = b'{"session_id": "s", "cwd": "/", "prompt": "' + b"x" * 100_000_000 + b'"}'
    assert running.run("prompt", data) == b""
    reasons = running.read_reasons()
    assert any("too large" in one or "in time" in one for one in reasons), reasons


def test_an_agent_that_never_closes_the_input_is_not_waited_for_long(running: RunningHome) -> None:
    assert client.SECONDS < 1
    write_launcher(running.path)
    command = build_hook_command("codex", "start", running.path)
    process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdin.write(b"{")
    process.stdin.flush()
    assert process.stdout.read() == b""
    assert process.wait() == 0
    process.stdin.close()
    assert any("in time" in one for one in running.read_reasons())


def test_the_client_imports_nothing_slow(running: RunningHome) -> None:
    code = (
        f"import sys; sys.argv = ['']; exec(open({client.__file__!r}).read().split('if __name')[0])"
    )
    listed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"os", "re", "json", "socket", "subprocess", "enum"} & {*listed}


def test_a_folder_and_an_environment_of_somebody_else_decide_nothing(
    running: RunningHome, tmp_path: Path
) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    ran = tmp_path / "ran"
    for name in ("posix", "time", "rekindle", "msgspec", "apsw", "sitecustomize", "usercustomize"):
        (evil / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit(3)\n")
    env = {**os.environ, "PYTHONPATH": str(evil), "PYTHONSTARTUP": str(evil / "time.py")}
    env |= {"PYTHONHOME": str(evil), "PYTHONINSPECT": "1"}
    wait_until(lambda: running.run("start", session=os.urandom(4).hex(), cwd=evil, env=env))
    assert not ran.exists()


def test_the_store_of_the_environment_is_used_and_secrets_are_left_there(
    running: RunningHome, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    for file in running.path.glob("sessions.db*"):
        file.rename(tmp_path / file.name.replace("sessions", "other"))
    env = {**os.environ, "REKINDLE_STORE": str(other), "REKINDLE_MODEL_API_KEY": "sk-secret-1"}
    assert running.run("start", session="without") == b""
    wait_until(lambda: running.run("start", session=os.urandom(4).hex(), env=env))
    transcript = running.transcripts / "known-0.jsonl"
    given = {"session_id": "known-0", "cwd": "/", "transcript_path": str(transcript)}
    running.run("end", json.dumps(given).encode(), env=env)
    found = [file.read_bytes() for file in running.path.rglob("*") if file.is_file()]
    assert not any(b"sk-secret-1" in data for data in found)
    wait_until(lambda: not any(str(running.path) in line for line in _list_imports()))
    assert not (running.path / "sessions.db").exists()
    assert running.read_reasons() == []


def _list_imports() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args", "ww"], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "entry.py" in line and " import " in line]


def test_the_verb_of_the_command_line_does_the_same(running: RunningHome) -> None:
    from tests import command

    env = {**os.environ, "REKINDLE_HOME": str(running.path)}
    running.ask_until_told()
    given = json.dumps({"session_id": "by hand", "cwd": str(running.project)})
    done = command.run(
        ["hook", "claude-code", "start"], input=given.encode(), env=env, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"make check-all" in done.stdout
    for words in (["hook", "vim", "start"], ["hook", "codex", "nothing"]):
        done = command.run(words, input=b"{}", env=env, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert any("no such hook" in one for one in running.read_reasons())
    assert time.time() - read_troubles(running.path)[-1].time < 3_600
