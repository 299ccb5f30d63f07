"""What is asked of a place where processes run: this machine, a container, a host behind SSH.

The registry gives each process its id before the place hears of it, keeps what the place wants to
remember (`ref`) in the journal, and asks for the process again after a restart (`find`). A place
keeps nothing in this program's memory that it would need for that.

    place.start(spec)            → Running     it runs; else NotStarted, and nothing is left
    place.find(spec, ref, seen)  → Running     it runs still: continue its output after `seen` bytes
                                 → Ended       it ended meanwhile, with this exit code
                                 → Lost        nobody can know any more; says why

Exit codes are those of a shell: 128 + n when signal n ended the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from rekindle.types import JSON

GRACE = 2.0  # seconds between the polite signal and the one that cannot be refused
MARK = "REKINDLE_PROCESS"  # set to the id in the environment of every process and its children
CHUNK = 64 * 1024  # the most that is read at once, so that one process cannot starve the others

Ref: TypeAlias = Mapping[str, JSON]  # goes into the journal: JSON, and no secrets


class Size(NamedTuple):
    """The size of a terminal in characters."""

    rows: int = 24
    columns: int = 80


class Spec(NamedTuple):
    """What to run. After a restart `env` is empty: its values are not kept."""

    id: str
    argv: tuple[str, ...]
    cwd: str  # "" is the place's own choice
    env: Mapping[str, str]  # on this machine all of it, elsewhere what is added
    pty: Size | None  # None: pipes
    folder: Path  # the process's own folder on this machine; what lies there goes with its record


class Output(Protocol):
    """Where a place puts what the process writes: the ring."""

    @property
    def total(self) -> int:
        """Bytes that were ever put there; a place that can read again continues behind them."""
        ...

    def append(self, data: bytes | bytearray | memoryview) -> None: ...


class Running(Protocol):
    """A process that was started or found again."""

    @property
    def ref(self) -> Ref:
        """What `find` needs. It does not change after `start` returned."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process id in the place, where one is known."""
        ...

    async def copy(self, output: Output) -> None:
        """Put all that it writes into `output`; return at the end of it. May be cancelled."""
        ...

    async def wait(self) -> int | None:
        """Its exit code when it ends; None if that cannot be known. May be cancelled."""
        ...

    async def write(self, data: bytes) -> int:
        """Give it input; the number of bytes it took.

        InputClosed after `close_stdin` or its end. Fewer bytes than given if it does not read for
        some seconds.
        """
        ...

    async def close_stdin(self) -> None:
        """No more input. At a terminal this types the end-of-file key. Twice is once."""
        ...

    async def resize(self, size: Size) -> None:
        """The terminal has another size. Only called for a process with one."""
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to the program itself, if it still runs."""
        ...

    async def kill(self, grace: float = GRACE) -> None:
        """End the whole tree: politely, and after the grace by force.

        Returns when nothing of it is left, also if the program itself had ended before and only
        children are there. Then `wait` returns soon.
        """
        ...

    async def forget(self) -> None:
        """It has ended and its record goes: remove what the place itself keeps of it."""
        ...

    def release(self) -> None:
        """Let go of it without ending it: this program stops, another one may find it."""
        ...


class Ended(NamedTuple):
    """It ended while nobody looked; `output` is what could still be read behind `seen`."""

    code: int | None
    output: bytes = b""


class Lost(NamedTuple):
    """What became of it cannot be known."""

    why: str


class Place(Protocol):
    """Where processes run."""

    @property
    def name(self) -> str:
        """`local`, or the kind and what it was opened with: `ssh:host`, `container:name`."""
        ...

    async def start(self, spec: Spec) -> Running:
        """Start it and return when the program itself runs; NotStarted, and nothing is left."""
        ...

    async def find(self, spec: Spec, ref: Ref, seen: int) -> Running | Ended | Lost:
        """Find a process of an earlier program again. `ref` is empty if it died while starting.

        PlaceUnreachable if the place cannot be asked now; the registry asks again later.
        """
        ...

    async def close(self) -> None:
        """Let go of connections. Processes go on."""
        ...
