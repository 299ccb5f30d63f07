"""Replay a project's history in a separate process, since it takes minutes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from typing import IO, NamedTuple

from rekindle.config import Config
from rekindle.errors import InvalidInput

MAX_RUNS = 2  # at once
MAX_ERROR_CHARS = 300
_COMMAND = ("-m", "rekindle.cli", "warm", "replay", "--json")


class ReplayState(NamedTuple):
    """Whether a replay is running, or why the last one failed."""

    is_running: bool = False
    problem: str = ""


class _Run(NamedTuple):
    process: subprocess.Popen[bytes]
    errors: IO[bytes]


class ReplayRuns:
    """The replays that this server started, one at a time for each project."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(self, project: str) -> bool:
        """Start a replay unless one is running; return False if too many others are."""
        if "\0" in project:
            raise InvalidInput("The name of this project cannot be given to a command.")
        with self._lock:
            running = [one for one, run in self._runs.items() if run.process.poll() is None]
            if project in running:
                return True
            if len(running) >= MAX_RUNS:
                return False
            errors = tempfile.TemporaryFile()  # noqa: SIM115  # read when the process has ended
            # The store's address may have a password: in the environment nobody else sees it.
            env = {
                **os.environ,
                "REKINDLE_HOME": str(self._config.home),
                "REKINDLE_STORE_URL": self._config.store.url,
            }
            process = subprocess.Popen(
                [sys.executable, *_COMMAND, f"--project={project}"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            self._runs[project] = _Run(process, errors)
            return True

    def get_state(self, project: str) -> ReplayState:
        """Return whether a project is being replayed, or why that failed."""
        with self._lock:
            run = self._runs.get(project)
            if run is None:
                return ReplayState()
            code = run.process.poll()
            if code is None:
                return ReplayState(is_running=True)
            if code == 0:
                return ReplayState()
            run.errors.seek(0)
            lines = run.errors.read(100_000).decode("utf-8", "replace").strip().splitlines()
            return ReplayState(
                problem=(lines[-1] if lines else f"exit code {code}")[:MAX_ERROR_CHARS]
            )
