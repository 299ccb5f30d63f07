"""Values and the interface of background processes.

`Processes` is one protocol with two implementations: the embedded `ProcessRegistry`, and the
`ProcessClient` of the supervisor. `owner` restricts every operation to that owner's processes; None
stands for the user whose home folder it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from rekindle.processes.backends.base import TerminalSize

ProcessState: TypeAlias = Literal["starting", "running", "exited", "killed", "failed", "lost"]
WatchKind: TypeAlias = Literal["interval", "pattern", "end"]
EventKind: TypeAlias = Literal["interval", "pattern", "end", "stopped"]

LIVE: frozenset[ProcessState] = frozenset(("starting", "running"))
RING_SIZE = 200 * 1024  # bytes of output kept per process


class ProcessLimits(NamedTuple):
    """What a registry allows and keeps. Times are in seconds."""

    per_owner: int = 64  # live processes per owner
    in_all: int = 1024  # live processes in total
    finished: float = 1800.0  # how long an exited process is kept
    finished_per_owner: int = 256  # exited processes kept per owner; the oldest are removed first
    wait: float = 600.0  # the longest `wait`
    ring: int = RING_SIZE
    watches: int = 16  # per process
    gap: float = 5.0  # minimum time between two reports of a watch
    pending: int = 200  # unacknowledged events per owner; the oldest are dropped first


class Process(NamedTuple):
    """The state of a background process. Times are UTC seconds."""

    id: str
    state: ProcessState
    exit_code: int | None  # 128 + n if terminated by signal n; None: running or unknown
    command: str  # the command line, redacted
    owner: str
    backend: str
    pid: int | None
    started: float
    ended: float | None = None
    bytes: int = 0  # total bytes written
    dropped: int = 0  # of these, no longer retained
    cwd: str = ""
    pty: bool = False
    reason: str = ""  # explanation of the state for the user
    session: str = ""  # the session that started it, if any

    @property
    def live(self) -> bool:
        return self.state in LIVE


class PollResult(NamedTuple):
    """A process and its output since the same reader's last poll."""

    process: Process
    output: str
    dropped: int = 0  # bytes lost since the last poll


class LogResult(NamedTuple):
    """A part of the output.

    `start` and `end` count bytes since the start of the process; pass `end` as `since` of the next
    call to continue without a gap. `dropped` bytes before `start` were requested but are no longer
    kept.
    """

    process: Process
    output: str
    start: int
    end: int
    dropped: int = 0
    lines: int = 0  # lines retained in total


class WaitResult(NamedTuple):
    """The result of a wait. `clamped` is the limit that replaced a longer timeout."""

    process: Process
    output: str
    dropped: int = 0
    timed_out: bool = False
    clamped: float | None = None


class WriteResult(NamedTuple):
    """The number of bytes accepted of a `total`; the program did not read the rest in time."""

    accepted: int
    total: int


class OutputChunk(NamedTuple):
    """Live output: raw bytes up to byte `end`; `dropped` bytes before them were missed."""

    data: bytes
    end: int
    dropped: int = 0


class Watch(NamedTuple):
    """What to report: every `seconds`, when `pattern` (a regular expression) matches, or the exit."""

    kind: WatchKind
    seconds: float = 0.0
    pattern: str = ""
    once: bool = False  # report the first match only
    note: str = ""  # copied to each event, such as its delivery target
    number: int = 0  # assigned by the registry


class ProcessEvent(NamedTuple):
    """A report of a watch. It is delivered repeatedly until it is acknowledged by its number."""

    number: int
    process: Process
    kind: EventKind
    watch: int
    text: str  # output since the last report, the matching line, or the last lines
    at: float
    suppressed: int = 0  # reports suppressed since the last one
    note: str = ""


class Processes(Protocol):
    """Operations on background processes."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        owner: str,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        pty: TerminalSize | None = None,
        backend: str = "local",
        watches: Sequence[Watch] = (),
        session: str = "",
    ) -> Process:
        """Start a program and return once it is running; its `id` is permanent.

        `env` None means the caller's environment locally, and no additional variables elsewhere.
        Raise ProcessStartFailed with the reason, TooManyProcesses, or InvalidInput.
        """
        ...

    async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
        """List processes, oldest first; with `live`, without exited ones."""
        ...

    async def poll(
        self, id: str, *, owner: str | None = None, reader: str = "", plain: bool = True
    ) -> PollResult:
        """Return the state and the output since this reader's last poll.

        `plain` strips terminal control sequences. Like every other operation, raise NotFound if the
        owner has no such process.
        """
        ...

    async def read_log(
        self,
        id: str,
        *,
        owner: str | None = None,
        tail: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
        since: int | None = None,
        plain: bool = True,
    ) -> LogResult:
        """Return retained output.

        Select the last `tail` lines; `limit` lines from line `offset` (0 is the first retained
        one); everything after byte `since`; or all of it.
        """
        ...

    async def wait(
        self,
        id: str,
        seconds: float,
        *,
        owner: str | None = None,
        reader: str = "",
        plain: bool = True,
    ) -> WaitResult:
        """Wait for the exit for at most `seconds`. Cancelling affects nothing but the wait."""
        ...

    async def kill(self, id: str, *, owner: str | None = None) -> Process:
        """Kill the whole process tree and return when nothing of it is left."""
        ...

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> WriteResult:
        """Write to its stdin. Raise InputClosed if stdin is closed."""
        ...

    async def submit(self, id: str, line: str, *, owner: str | None = None) -> WriteResult:
        """Write a line to its stdin, followed by Enter."""
        ...

    async def close_stdin(self, id: str, *, owner: str | None = None) -> None:
        """Close its stdin."""
        ...

    async def resize(self, id: str, size: TerminalSize, *, owner: str | None = None) -> None:
        """Resize its terminal. Raise InvalidInput if it has none."""
        ...

    def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[OutputChunk, None]:
        """Yield the retained output after byte `since`, then live output until the exit."""
        ...

    async def watch(self, id: str, watch: Watch, *, owner: str | None = None) -> Watch:
        """Add a watch and return it with its number."""
        ...

    async def unwatch(self, id: str, number: int, *, owner: str | None = None) -> None:
        """Remove a watch."""
        ...

    async def fetch_events(
        self,
        *,
        owner: str | None = None,
        wait: float = 0.0,
        limit: int = 100,
        notes: Sequence[str] = (),
    ) -> list[ProcessEvent]:
        """Return unacknowledged events, oldest first, waiting up to `wait` seconds for the first one.

        `notes` selects events whose note starts with one of these prefixes.
        """
        ...

    async def ack_events(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        """Acknowledge delivered events, so that they are not returned again."""
        ...

    async def count_live(self, owner: str) -> int:
        """Return the number of the owner's live processes."""
        ...

    async def kill_all(self, owner: str) -> int:
        """Kill all processes of the owner, with leftovers of exited ones; return how many were live."""
        ...

    async def aclose(self) -> None:
        """Disconnect. Processes keep running."""
        ...
