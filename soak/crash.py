"""Kill writers with `kill -9` at random moments, again and again, then hold the store to its word."""

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

from .ledger import Report, audit

PAUSE = 0.3  # seconds between two kills, on average
STOPPING = 60.0
STARTING = 60.0
PROMISES = 20  # lines in the journal of a writer that is at work
_ROOTS = (Path(__file__).parents[1], Path(rekindle.__file__).parents[1])

Progress = Callable[[int, Path], None]
Start = Callable[..., subprocess.Popen[bytes]]


def start_python(words: list[str], *, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start an interpreter of its own."""
    return subprocess.Popen([sys.executable, *words], env=env)


class Slot:
    """A writer's place: when its process is killed, the next life goes on."""

    def __init__(self, target: str, folder: Path, number: int, seed: int, start: Start) -> None:
        self._arguments = [target, str(folder), str(number)]
        self._seed = seed
        self._start = start
        self._folder, self._number = folder, number
        self._life = 0
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        words = ["-m", "soak.writer", *self._arguments, str(self._life), str(self._seed)]
        path = os.pathsep.join(map(str, _ROOTS))
        return self._start(words, env={**os.environ, "PYTHONPATH": path})

    def is_at_work(self) -> bool:
        """Whether this life was promised enough to be held against the store, or has ended."""
        journal = self._folder / f"{self._number}-{self._life}.journal"
        written = journal.read_bytes().count(b"\n") if journal.exists() else 0
        return written >= PROMISES or self.process.poll() is not None

    def kill(self) -> None:
        """`kill -9`, unless the writer has ended by itself, which is an error it has noted."""
        self.process.kill()
        self.process.wait()

    def revive(self) -> None:
        self._life += 1
        self.process = self._begin()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def crash(
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
) -> Report:
    """Run writers on `target` and kill them `kills` times; `folder` keeps what they were promised.

    `restart` is called after every so many kills, while the others write. In the end all of them write
    for `at_peace` seconds and stop by themselves. `pause` is the time between two kills, on average.
    """
    rng = random.Random(seed)
    begun = time.monotonic()
    restarts = 0
    slots = [Slot(target, folder, number, seed, start) for number in range(writers)]
    try:
        for kill in range(1, kills + 1):
            time.sleep(min(rng.expovariate(1 / pause), 3.0))
            slot = rng.choice(slots)
            slot.kill()
            if restart and kill % restart_every == 0:
                restart()
                restarts += 1
            slot.revive()
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
        report = audit(store, folder)
    report.kills, report.restarts, report.seconds = kills, restarts, seconds
    return report


def _wait_for(slots: list[Slot]) -> None:
    """Wait until all writers are at work, for a while."""
    end = time.monotonic() + STARTING
    while not all(slot.is_at_work() for slot in slots) and time.monotonic() < end:
        time.sleep(0.02)


@contextmanager
def place(target: str | None) -> Iterator[tuple[str, Path, Callable[[], None] | None]]:
    """Where to write, where to keep the journals, and how to restart the server if it is ours."""
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
