"""Programs in environments of their own: installed once per machine, in the user's cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

from tests import servers

INSTALL_SECONDS = 540


def install_packages(program: str, *packages: str) -> Path:
    """Install packages unless they are there, and return their Python; raise Missing if that fails.

    Another folder for them can be given in a variable, such as REKINDLE_TEST_SYNAPSE.
    """
    given = os.environ.get(f"REKINDLE_TEST_{program.upper()}")
    cache = Path(given or platformdirs.user_cache_dir("rekindle-tests", appauthor=False))
    name = "+".join(packages).replace("==", "-")
    folder = cache / program / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(python), "-m", "pip", "install", "-q", "uv")
            _run(str(folder / "bin" / "uv"), "pip", "install", "-q", "--compile-bytecode",
                 "--python", str(python), *packages)  # fmt: skip
            (folder / "complete").touch()
    return python


def _run(*command: str) -> None:
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=INSTALL_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise servers.Missing(f"{' '.join(command[:5])}: {done.stderr[-500:]}")
