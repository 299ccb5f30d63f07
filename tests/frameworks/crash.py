"""A process that is killed after a turn: what it stored must be there for the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_until_killed(program: str, folder: Path) -> None:
    """Run a program that ends itself with `die()`, without closing anything."""
    head = "import os, signal\ndie = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
