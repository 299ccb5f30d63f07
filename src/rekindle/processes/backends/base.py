"""The interface of a process backend: this machine, a container, an SSH host.

The registry assigns each process its id before the backend sees it, stores the backend's reference
(`ref`) in the journal, and asks for the process again after a restart (`find`). A backend keeps no
in-memory state that `find` would need.

    backend.start(spec)            → RunningProcess  it is running; otherwise raises ProcessStartFailed
    backend.find(spec, ref, seen)  → RunningProcess  still running: continue its output after `seen`
                                   → Exited          it exited in the meantime, with this exit code
                                   → Vanished        its fate is unknown; gives the reason

Exit codes follow the shell: 128 + n if the program was terminated by signal n.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from rekindle.types import JSON

GRACE_SECONDS = 2.0  # seconds between SIGTERM and SIGKILL
PROCESS_ID_VARIABLE = (
    "REKINDLE_PROCESS"  # environment variable with the process id, inherited by children
)
CHUNK_SIZE = 64 * 1024  # bytes per read, so that one process cannot starve the others

ProcessRef: TypeAlias = Mapping[str, JSON]  # stored in the journal: JSON without secrets


class TerminalSize(NamedTuple):
    """The size of a terminal in characters."""

    rows: int = 24
    columns: int = 80


class ProcessSpec(NamedTuple):
    """A program to run. After a restart `env` is empty: its values are not stored."""

    id: str
    argv: tuple[str, ...]
    cwd: str  # "": the backend's default
    env: Mapping[str, str]  # local: the complete environment; remote: additional variables
    pty: TerminalSize | None  # None: pipes
    folder: Path  # the process's local folder; deleted with its record
    wrapper: tuple[str, ...] = ()  # local: a program and its options that run `argv`; not stored


class OutputSink(Protocol):
    """The sink for a process's output: the ring buffer."""

    @property
    def total(self) -> int:
        """Total bytes ever appended; a backend that can re-read output continues after them."""
        ...

    def append(self, data: bytes | bytearray | memoryview) -> None: ...


class RunningProcess(Protocol):
    """A process that was started or found again."""

    @property
    def ref(self) -> ProcessRef:
        """The reference that `find` needs. It does not change after `start` returns."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id within the backend, if known."""
        ...

    async def copy_output(self, output: OutputSink) -> None:
        """Append all output to `output` and return at its end. Can be cancelled."""
        ...

    async def wait(self) -> int | None:
        """Wait for the exit and return the exit code, or None if it is unknown. Can be cancelled."""
        ...

    async def write(self, data: bytes) -> int:
        """Write to stdin and return the number of bytes accepted.

        Accept fewer bytes if the process does not read for some seconds. Raise InputClosed after
        `close_stdin` or after the process has exited.
        """
        ...

    async def close_stdin(self) -> None:
        """Close stdin. On a terminal, send the end-of-file key. Idempotent."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Resize the terminal. Only called for a process that has one."""
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to the program itself, if it is still running."""
        ...

    async def kill(self, grace: float = GRACE_SECONDS) -> None:
        """Kill the whole process tree: with SIGTERM first, with SIGKILL after `grace` seconds.

        Return when nothing is left, also if the program itself has already exited and only children
        remain. `wait` returns shortly afterwards.
        """
        ...

    async def clean_up(self) -> None:
        """Remove the state that the backend itself keeps of an exited process."""
        ...

    def detach(self) -> None:
        """Detach without killing the process, so that another program can find it."""
        ...


class Exited(NamedTuple):
    """A process that exited unobserved; `output` is the remaining output after `seen`."""

    code: int | None
    output: bytes = b""


class Vanished(NamedTuple):
    """A process whose fate is unknown."""

    reason: str


class Backend(Protocol):
    """An environment in which processes run."""

    @property
    def name(self) -> str:
        """`local`, or the kind and its target: `ssh:host`, `container:name`."""
        ...

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start the program and return once it is running; raise ProcessStartFailed otherwise."""
        ...

    async def find(
        self, spec: ProcessSpec, ref: ProcessRef, seen: int
    ) -> RunningProcess | Exited | Vanished:
        """Find a process started by an earlier program.

        `ref` is empty if that program died during the start. Raise BackendUnreachable if the
        backend cannot be reached now; the registry retries later.
        """
        ...

    async def close(self) -> None:
        """Close connections. Processes keep running."""
        ...
