"""Values of background processes. The operations on them are in operations.py."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

ProcessState: TypeAlias = Literal[
    "waiting", "starting", "running", "exited", "killed", "failed", "lost"
]
WatchKind: TypeAlias = Literal["interval", "pattern", "end"]
EventKind: TypeAlias = Literal["interval", "pattern", "end", "stopped"]

LIVE: frozenset[ProcessState] = frozenset(("waiting", "starting", "running"))
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
    name: str = ""  # given by the user; no other live process of the owner has it
    after: str = ""  # the process whose success it waited for, if any

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
