"""Learn from pushed sessions, store by store, in a separate process, so that no request waits.

A store with new sessions has a mark in the home, which is removed once they were learned from. So a
server goes on where one was killed, and knows without opening them which stores have nothing new.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rekindle.config import Config

from .keys import LOCAL_TENANT

MARKS_FOLDER = Path("serve", "learning")  # in the home
LOCAL_NAME = "server"  # the mark of the server's own store; those of tenants have their ids
DONE, MORE, FAILED = "done", "more", "failed"
SETTLE_SECONDS = 1.0  # more transcripts of the same push may follow
APPEND_SECONDS = 600.0  # sessions that are appended to message by message change all the time
RETRY_SECONDS = 60.0
MIN_PAUSE_SECONDS = 5.0
PAUSE_RATIO = 5.0  # of the time that learning took, so that it takes a sixth of a core at most
MAX_STORES = 500  # in one run
_RUNNING = ".running"
_COMMAND = ("-m", "rekindle.cli", "serve", "learn")
_log = logging.getLogger("rekindle.api")


class LearningMarks:
    """The stores that have something new, in memory and in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = (file.name.removesuffix(_RUNNING) for file in folder.iterdir())
        self._names = dict.fromkeys(sorted(names))

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str) -> None:
        """Mark a store."""
        if name not in self._names:
            (self._folder / name).touch(mode=0o600)
            self._names[name] = None

    def take(self, limit: int) -> list[str]:
        """Return the stores marked longest ago; later changes mark them again."""
        taken = [*self._names][:limit]
        for name in taken:
            with suppress(FileNotFoundError):  # left by a run that failed
                os.replace(self._folder / name, self._folder / f"{name}{_RUNNING}")
            del self._names[name]
        return taken

    def remove(self, name: str) -> None:
        """Remove the mark of a store that was taken and learned from."""
        (self._folder / f"{name}{_RUNNING}").unlink(missing_ok=True)

    def restore(self, name: str) -> None:
        """Mark a store again that was taken and not learned from."""
        self._names.setdefault(name)


class BackgroundLearner:
    """Starts processes that learn from marked stores, one at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._marks = LearningMarks(config.home / MARKS_FOLDER)
        self._due = asyncio.Event()

    def mark(self, tenant: str, *, is_import: bool = False) -> None:
        """Learn from the store of the tenant with this id: soon after an import, else some time."""
        try:
            self._marks.add(LOCAL_NAME if tenant == LOCAL_TENANT else tenant)
        except OSError as error:
            _log.warning("cannot mark a store for learning: %s", error.strerror)
        if is_import:
            self._due.set()

    async def run(self) -> None:
        """Learn whenever something is due, until this is cancelled."""
        if len(self._marks):  # of a server that was ended
            self._due.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(APPEND_SECONDS):
                    await self._due.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._due.clear()
            if len(self._marks):
                began = asyncio.get_running_loop().time()
                await self._learn()
                took = asyncio.get_running_loop().time() - began
                await asyncio.sleep(max(MIN_PAUSE_SECONDS, PAUSE_RATIO * took))

    async def _learn(self) -> None:
        names = self._marks.take(MAX_STORES)
        states: dict[str, str] = {}
        try:
            states = await self._run_process(names)
        except OSError as error:
            _log.warning("learning was not started: %s", error.strerror)
        for name in names:
            if states.get(name) == DONE:
                self._marks.remove(name)
            else:
                self._marks.restore(name)
        if MORE in states.values():
            self._due.set()
        elif len(states) < len(names) or FAILED in states.values():
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._due.set)

    async def _run_process(self, names: Sequence[str]) -> dict[str, str]:
        """Return what became of each store, as far as the process came."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *_COMMAND,
            *names,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # The address of the store may contain a password, which arguments would show to others.
            env={**os.environ, "REKINDLE_STORE": self._config.store.url},
        )
        try:
            said, _ = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        if process.returncode:
            _log.warning("learning ended with exit code %d", process.returncode)
        lines = [line.split() for line in said.decode("ascii", "replace").splitlines()]
        return {line[0]: line[1] for line in lines if len(line) == 2}
