"""Every command of docs/matrix.md that needs a real server, in order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests import command
from tests.docs.test_docs import blocks

from .lab import MatrixLab

VERBS = (
    *("setup", "status", "create-user", "logs", "restart", "backup", "restore", "update"),
    "teardown",
)
PAGE = Path(__file__).parents[3] / "docs" / "matrix.md"


def list_commands() -> list[str]:
    return [
        line[2:]
        for block in blocks(PAGE)
        if block.language == "console" and "test_guide.py" in (block.skip or "")
        for line in block.body.splitlines()
        if line.startswith("$ ")
    ]


def run_line(lab: MatrixLab, line: str) -> str:
    if re.search(r"matrix (setup example.org|restore)", line):
        line = f"{line} {' '.join(lab.port_options)}"  # the usual ones may be taken
    env = {**lab.env, "PATH": f"{command.get_scripts_folder()}:{lab.env['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=lab.folder,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def test_the_guide_can_be_followed(lab: MatrixLab, other_lab: MatrixLab) -> None:
    said = {}
    lines = list_commands()
    for verb in VERBS:
        assert any(f"rekindle matrix {verb}" in line for line in lines), verb
    # The last thing is to remove it; the page goes on with what comes before.
    lines.sort(key=lambda line: "teardown" in line)
    for line in lines:
        if "restore" not in line:
            said[line] = run_line(lab, line)
        else:
            (other_lab.folder / "matrix.tar.gz").write_bytes(
                (lab.folder / "matrix.tar.gz").read_bytes()
            )
            said[line] = run_line(other_lab, line)
            assert other_lab.status()["healthy"] is True
            password = (lab.home / "matrix" / "passwords" / "ada.txt").read_text().strip()
            found = other_lab.log_in("ada", password).whoami()
            assert found["user_id"] == "@ada:example.org"
    assert "running" in said["rekindle matrix status"]
    assert "Nothing to do" in said["rekindle matrix update"]
    assert not (lab.home / "matrix").exists()
