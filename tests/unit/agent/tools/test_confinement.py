"""Commands and code in the sandbox: what they see, and what they cannot do."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.agent.tools.builtin.execute_code import EXECUTE_CODE
from rekindle.agent.tools.builtin.terminal import TERMINAL
from rekindle.agent.tools.tool import ToolContext
from rekindle.sandbox.detection import open_sandbox
from tests.unit.agent.tools.calling import text

pytestmark = pytest.mark.slow
Run = Callable[[str], str]


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandboxed(request: pytest.FixtureRequest, context: ToolContext) -> ToolContext:
    sandbox = open_sandbox(request.param)
    if not sandbox.is_active:
        pytest.skip(sandbox.problem)
    return context._replace(sandbox=sandbox, approval="never")


@pytest.fixture(params=["terminal", "execute_code"])
def run(request: pytest.FixtureRequest, sandboxed: ToolContext, work: Path) -> Run:
    def run_command(command: str) -> str:
        if request.param == "terminal":
            return json.loads(text(TERMINAL, sandboxed, command=command))["output"]
        code = f"import subprocess; subprocess.run(['bash', '-c', {command!r}], cwd={str(work)!r})"
        return json.loads(text(EXECUTE_CODE, sandboxed, code=code))["output"]

    return run_command


def test_the_workspace_can_be_read_and_written(run: Run, work: Path) -> None:
    assert run("mkdir d; echo x > d/f; cat d/f; mv d e; ls") == "x\ne\n"
    assert (work / "e/f").read_text() == "x\n"


def test_nothing_outside_can_be_written_or_read(run: Run, work: Path) -> None:
    secret = work.parent / "secret"
    secret.write_text("hidden-value\n")
    output = run(
        f"cat {secret}; echo x > {secret}; echo x > {secret}2; rm {secret}; ls {work.parent}"
    )
    assert "hidden-value" not in output
    assert secret.read_text() == "hidden-value\n"
    assert {path.name for path in work.parent.iterdir()} <= {"work", "secret"}


def test_files_that_run_code_later_stay_as_they_were(run: Run, work: Path) -> None:
    (work / ".git/hooks").mkdir(parents=True)
    (work / ".git/config").write_text("[core]\n")
    output = run(
        "echo x > .git/hooks/pre-commit; echo x >> .git/config; echo x > .envrc; mv .git g"
    )
    assert (work / ".git/config").read_text() == "[core]\n"
    assert list((work / ".git/hooks").iterdir()) == []
    assert not (work / ".envrc").exists()
    assert ".envrc" in output or "undone" in output or output == ""


def test_no_connection_leaves(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        run(f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected")
        with pytest.raises(TimeoutError):
            listener.accept()


def test_other_processes_are_out_of_reach(run: Run) -> None:
    output = run(
        f"kill -0 {os.getpid()} && echo reached; cat /proc/{os.getpid()}/environ; ls /proc"
    )
    assert "reached" not in output
    assert str(os.getpid()) not in [line for line in output.splitlines() if line.isdigit()]


def test_the_network_can_be_allowed(sandboxed: ToolContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        answer = json.loads(text(TERMINAL, sandboxed, command=command, access="network"))
    assert answer["output"] == "connected\n"
