"""A command that is forked off is like one that an interpreter was started for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import command
from tests.acceptance.terminals import CTRL_C, Terminal
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("REKINDLE_")}
    return {**kept, "HOME": str(tmp_path), "REKINDLE_HOME": str(tmp_path / "rekindle")}


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["sessions", "list", "--json"],
        ["sessions", "show", "nobody"],
        ["no-such-verb"],
        ["config"],
    ],
    ids=" ".join,
)
def test_it_says_the_same_and_ends_with_the_same_code(
    words: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"env": env, "cwd": tmp_path, "capture_output": True}
    forked = command.run(words, timeout=PATIENCE, **options)
    real = command.run(words, timeout=PATIENCE, real=True, **options)
    assert vars(forked) == vars(real)


SHOW = """
import sys
print(__name__, sys.argv[1:], sys.path[0], sys.stdin.read())
sys.exit(len(sys.argv))
"""


@pytest.mark.parametrize(
    "words",
    [["-c", SHOW, "a", "b"], ["-m", "shown", "a"], ["shown.py", "a"], ["-c", "1 / 0"]],
    ids=["code", "module", "script", "error"],
)
@pytest.mark.parametrize("is_found_on_path", [False, True])
def test_so_does_a_program_in_python(
    words: list[str], is_found_on_path: bool, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "shown.py").write_text(SHOW)
    real, forked = [sys.executable, *words], [command.get_script_runner(), *words]
    options: dict[str, Any] = {"env": env, "cwd": tmp_path, "text": True}
    options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    ours = (
        subprocess.Popen(forked, **options)
        if is_found_on_path
        else command.start_python(words, **options)
    )
    said, complained = ours.communicate("hello", PATIENCE)
    done = subprocess.run(
        real, input="hello", capture_output=True, env=env, cwd=tmp_path, text=True
    )
    assert (ours.returncode, said) == (done.returncode, done.stdout)
    assert complained.splitlines()[-1:] == done.stderr.splitlines()[-1:]


def test_it_is_our_child_with_only_the_files_it_was_given(
    env: dict[str, str], tmp_path: Path
) -> None:
    child = command.start(["sessions", "import", "-"], env=env, cwd=tmp_path, stdin=subprocess.PIPE)
    status = Path(f"/proc/{child.pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" in status
    wait_until((tmp_path / "rekindle" / "sessions.db").exists)
    files = [os.readlink(file) for file in Path(f"/proc/{child.pid}/fd").iterdir()]
    sockets = [file for file in files if file.startswith("socket:")]
    assert sockets == []
    child.send_signal(signal.SIGKILL)
    assert child.wait(PATIENCE) == -signal.SIGKILL


def test_ctrl_c_at_its_terminal_reaches_it(env: dict[str, str], tmp_path: Path) -> None:
    terminal = Terminal(["sessions", "import", "-"], env, tmp_path)
    wait_until((tmp_path / "rekindle" / "sessions.db").exists)
    terminal.type(CTRL_C)
    assert terminal.left() == 130


def test_a_script_finds_it_on_its_path_and_gets_its_end(
    env: dict[str, str], tmp_path: Path
) -> None:
    path = os.pathsep.join([command.get_scripts_folder(), os.environ["PATH"]])
    script = "rekindle sessions show nobody; echo $?; rekindle --version | cat"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**env, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.splitlines()[0] == "2"
    assert done.stdout.splitlines()[1].startswith("rekindle ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_script_can_end_it(number: signal.Signals, env: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "rekindle" / "sessions.db"
    client = Path(command.get_scripts_folder()) / "rekindle"
    child = subprocess.Popen(
        [client, "sessions", "import", "-"], env=env, cwd=tmp_path, stdin=subprocess.PIPE
    )
    wait_until(store.exists)
    child.send_signal(number)
    assert child.wait(PATIENCE) == -number
    wait_until(lambda: not _is_open(store))


def _is_open(file: Path) -> bool:
    """Whether any process has the file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == str(file):
                return True
        except OSError:  # it has ended meanwhile
            continue
    return False
