"""Kills writers with `kill -9` at random moments, then checks the promises of the store."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rekindle
from rekindle import open_store
from soak.crash.store_audit import CrashReport, audit_store

PAUSE = 0.3  # seconds between two kills, on average
STOPPING = 60.0
STARTING = 60.0
PROMISES = 20  # lines in the journal of a writer that is at work
_ROOTS = (Path(__file__).parents[2], Path(rekindle.__file__).parents[1])

Progress = Callable[[int, Path], None]
Start = Callable[..., subprocess.Popen[bytes]]


def start_python(words: list[str], *, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a new interpreter."""
    return subprocess.Popen([sys.executable, *words], env=env)


class WriterSlot:
    """A writer that is restarted after each kill."""

    def __init__(self, target: str, folder: Path, number: int, seed: int, start: Start) -> None:
        self._arguments = [target, str(folder), str(number)]
        self._seed = seed
        self._start = start
        self._folder, self._number = folder, number
        self._life = 0
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        words = ["-m", "soak.crash.writer", *self._arguments, str(self._life), str(self._seed)]
        path = os.pathsep.join(map(str, _ROOTS))
        return self._start(words, env={**os.environ, "PYTHONPATH": path})

    def is_at_work(self) -> bool:
        """Whether this process has recorded enough promises to be worth killing, or has ended."""
        journal = self._folder / f"{self._number}-{self._life}.journal"
        written = journal.read_bytes().count(b"\n") if journal.exists() else 0
        return written >= PROMISES or self.process.poll() is not None

    def kill(self) -> None:
        """Kill the writer with `kill -9`; one that has already ended has recorded an error."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self._life += 1
        self.process = self._begin()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def kill_writers(
    target: str,
    folder: Path,
    *,
    kills: int = 200,
    writers: int = 4,
    seed: int = 0,
    restart: Callable[[], None] | None = None,
    restart_every: int = 20,
    at_peace: float = PAUSE,
    pause: float = PAUSE,
    progress: Progress | None = None,
    start: Start = start_python,
) -> CrashReport:
    """Run writers on `target` and kill them `kills` times; `folder` keeps their journals.

    `restart` is called after every `restart_every` kills, while the other writers continue. In the end
    all of them write undisturbed for `at_peace` seconds and stop. `pause` is the average time between
    kills.
    """
    rng = random.Random(seed)
    begun = time.monotonic()
    restarts = 0
    slots = [WriterSlot(target, folder, number, seed, start) for number in range(writers)]
    try:
        for kill in range(1, kills + 1):
            time.sleep(min(rng.expovariate(1 / pause), 3.0))
            slot = rng.choice(slots)
            slot.kill()
            if restart and kill % restart_every == 0:
                restart()
                restarts += 1
            slot.restart()
            if progress:
                progress(kill, folder)
        _wait_for(slots)
        time.sleep(at_peace)
        for slot in slots:
            slot.stop()
    finally:
        for slot in slots:
            slot.kill()
    seconds = time.monotonic() - begun
    with open_store(target) as store:
        report = audit_store(store, folder)
    report.kills, report.restarts, report.seconds = kills, restarts, seconds
    return report


def _wait_for(slots: list[WriterSlot]) -> None:
    """Wait until all writers are at work, up to a time limit."""
    end = time.monotonic() + STARTING
    while not all(slot.is_at_work() for slot in slots) and time.monotonic() < end:
        time.sleep(0.02)


@contextmanager
def open_target(target: str | None) -> Iterator[tuple[str, Path, Callable[[], None] | None]]:
    """Yield the store, the folder of the journals, and how to restart the server if we own it."""
    with tempfile.TemporaryDirectory(prefix="rekindle-soak-") as name:
        folder = Path(name)
        journals = folder / "journals"
        journals.mkdir()
        if target == "postgresql":
            from tests import servers

            with servers.postgres() as server:

                def restart() -> None:
                    server.stop("immediate")
                    server.start()

                yield server.database(), journals, restart
        else:
            yield target or str(folder / "sessions.db"), journals, None
