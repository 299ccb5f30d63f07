"""Ways to keep background processes in a test, and programs to run there."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias, cast

from rekindle.processes import protocol
from rekindle.processes.backends.base import Backend
from rekindle.processes.backends.local.local import LocalBackend
from rekindle.processes.backends.registry import open_backend
from rekindle.processes.client import ProcessClient
from rekindle.processes.operations import Processes
from rekindle.processes.supervisor.registry import ProcessRegistry
from rekindle.processes.supervisor.supervisor import SOCKET
from rekindle.processes.types import Process, ProcessLimits
from tests.waiting import PATIENCE, until

Test: TypeAlias = Callable[..., Coroutine[Any, Any, None]]

OWNER = "ada"
QUICK = ProcessLimits(gap=0.3)
# Ignores the polite signal, and leaves children that fork twice, in sessions of their own, with
# and without the environment; each writes its process id down.
NASTY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def note(): open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
for clean in (False, True):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            note()
            if clean:
                os.execve("/bin/sleep", ["sleep", "300"], {})
            time.sleep(300)
        os._exit(0)
note()
time.sleep(300)
"""


def runs(test: Test) -> Callable[..., None]:
    """A test that is a coroutine, that ends."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE))

    return run


class Kept:
    """A way to keep processes: call it for a keeper. What was started there ends with it."""

    def __init__(
        self,
        keeper: str,
        folder: Path,
        place: str = "local",
        proc: Path = Path("/proc"),
        groups: bool = False,
    ) -> None:
        self.here = place == "local"
        self._keeper, self._folder, self._place = keeper, folder, place
        self._proc, self._groups = proc, groups

    @asynccontextmanager
    async def __call__(
        self, limits: ProcessLimits = QUICK, leave: bool = False
    ) -> AsyncGenerator[Processes]:
        """`leave`: the keeper goes, its processes stay for the next one."""
        if self._keeper == "supervisor":
            opened = supervised(self._folder, limits, leave=leave)
        else:
            opened = embedded(self._folder, limits, groups=self._groups, leave=leave)
        async with opened as keeper:
            yield cast("Processes", _At(keeper, self._place))

    def alive(self, pid: int) -> bool:
        """Whether a process runs in its place."""
        return alive(pid, self._proc)


class _At:
    """A keeper whose processes run in one place, if not told otherwise."""

    def __init__(self, keeper: Processes, place: str) -> None:
        self._keeper, self._place = keeper, place

    async def start(self, argv: Sequence[str], **more: Any) -> Process:
        more.setdefault("backend", self._place)
        return await self._keeper.start(argv, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)


@asynccontextmanager
async def embedded(
    folder: Path, limits: ProcessLimits = QUICK, groups: bool = False, leave: bool = False
) -> AsyncGenerator[ProcessRegistry]:
    """A registry in this program; what it started is ended with the test."""
    local = LocalBackend(use_cgroups=groups)

    def places(name: str) -> Backend:
        return local if name == "local" else open_backend(name)

    registry = await ProcessRegistry.open(folder, limits=limits, backend_factory=places)
    try:
        yield registry
    finally:
        if not leave:
            await _end_all(registry)
        await registry.aclose()


@asynccontextmanager
async def supervised(
    folder: Path, limits: ProcessLimits = QUICK, linger: float = 60.0, leave: bool = False
) -> AsyncGenerator[ProcessClient]:
    """A supervisor of its own; it and what it started are ended with the test."""
    client = ProcessClient(folder, limits=limits, linger=linger)
    try:
        yield client
    finally:
        if not leave:
            await asyncio.wait_for(_end_all(client), PATIENCE)
        await client.aclose()
        stop(folder)


async def _end_all(processes: Processes) -> None:
    for owner in {one.owner for one in await processes.list()}:
        await processes.kill_all(owner)


def supervisor_of(folder: Path) -> int | None:
    """The process id of the supervisor that answers for a folder."""
    import socket

    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(str(protocol.get_socket_folder(folder) / SOCKET))
        return protocol.get_peer_credentials(line)[0]
    except OSError:
        return None
    finally:
        line.close()


def stop(folder: Path) -> None:
    """Let the supervisor go, and wait until it has."""
    if pid := supervisor_of(folder):
        os.kill(pid, 15)
        end = time.monotonic() + PATIENCE
        while alive(pid) and time.monotonic() < end:
            time.sleep(0.01)


def alive(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        with open(proc / str(pid) / "stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def sh(processes: Processes, script: str, **more: object) -> Process:
    return await processes.start(["sh", "-c", script], **{"owner": OWNER, **more})  # type: ignore


async def output_of(processes: Processes, id: str, text: str) -> str:
    """All its output, as soon as that has the text in it."""
    said = ""

    async def there() -> bool:
        nonlocal said
        said = (await processes.read_log(id)).output
        return text in said

    await until(there)
    return said


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-u", "-c", code, *arguments]
