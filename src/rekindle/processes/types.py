"""What is said about background processes, and what can be asked of whoever keeps them.

`Processes` is one protocol with two sides: the embedded `Registry`, and the `Client` of the
supervisor. `owner` limits every action to that owner's processes; None stands for the person whose
home folder it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from rekindle.processes.backends.base import Size

State: TypeAlias = Literal["starting", "running", "exited", "killed", "failed", "lost"]
WatchKind: TypeAlias = Literal["interval", "pattern", "end"]
EventKind: TypeAlias = Literal["interval", "pattern", "end", "stopped"]

LIVE: frozenset[State] = frozenset(("starting", "running"))
RING = 200 * 1024  # bytes of output that are kept of each process


class Limits(NamedTuple):
    """What a registry allows and keeps. Times are in seconds."""

    per_owner: int = 64  # live processes of one owner
    in_all: int = 1024  # live processes
    finished: float = 1800.0  # that a process is remembered after its end
    finished_per_owner: int = 256  # of them; the oldest go first
    wait: float = 600.0  # the longest `wait`
    ring: int = RING
    watches: int = 16  # of one process
    gap: float = 5.0  # between two reports of one watch
    pending: int = 200  # events of one owner that nobody has taken; the oldest reports go first


class Process(NamedTuple):
    """A background process as it stands. Times are UTC seconds."""

    id: str
    state: State
    exit_code: int | None  # 128 + n when signal n ended it; None: runs still, or not known
    command: str  # as one would type it, without secrets
    owner: str
    place: str
    pid: int | None
    started: float
    ended: float | None = None
    bytes: int = 0  # written in all
    dropped: int = 0  # of these, no longer kept
    cwd: str = ""
    pty: bool = False
    why: str = ""  # what a person should know about the state
    session: str = ""  # that started it, if one did

    @property
    def live(self) -> bool:
        return self.state in LIVE


class Polled(NamedTuple):
    """A process and its output since the same reader's last look."""

    process: Process
    output: str
    dropped: int = 0  # bytes between the last look and this that are gone


class Log(NamedTuple):
    """A part of the output.

    `start` and `end` count bytes since the process started; `end` as `since` of the next call
    continues without a gap. `dropped` bytes before `start` were asked for and are gone.
    """

    process: Process
    output: str
    start: int
    end: int
    dropped: int = 0
    lines: int = 0  # in all that is kept


class Waited(NamedTuple):
    """What a wait came to. `clamped` is the limit that was used instead of a longer one."""

    process: Process
    output: str
    dropped: int = 0
    timed_out: bool = False
    clamped: float | None = None


class Written(NamedTuple):
    """How much of the input was taken; the rest was refused because the program does not read."""

    taken: int
    of: int


class Chunk(NamedTuple):
    """Live output: bytes as they were written, up to byte `end`; `dropped` were missed before."""

    data: bytes
    end: int
    dropped: int = 0


class Watch(NamedTuple):
    """What to report: every `seconds`, when `pattern` (a regular expression) appears, at the end."""

    kind: WatchKind
    seconds: float = 0.0
    pattern: str = ""
    once: bool = False  # the first match only
    note: str = ""  # goes with each event: where it should be delivered, for example
    number: int = 0  # given by the registry


class Event(NamedTuple):
    """A report of a watch. It is given out until it is acknowledged by its number."""

    number: int
    process: Process
    kind: EventKind
    watch: int
    text: str  # output since the last report, the line that matched, or the last lines
    at: float
    suppressed: int = 0  # reports since the last one that came too fast
    note: str = ""


class Processes(Protocol):
    """Everything one can do with background processes."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        owner: str,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        pty: Size | None = None,
        place: str = "local",
        watches: Sequence[Watch] = (),
        session: str = "",
    ) -> Process:
        """Start a program; it runs when this returns, and `id` is good for ever.

        `env` None: on this machine the environment of the caller, elsewhere nothing is added.
        NotStarted says why there is no process; TooManyProcesses, InvalidInput.
        """
        ...

    async def list(self, *, owner: str | None = None, live: bool = False) -> list[Process]:
        """Processes, oldest first; `live`: without those that have ended."""
        ...

    async def poll(
        self, id: str, *, owner: str | None = None, reader: str = "", plain: bool = True
    ) -> Polled:
        """State, and the output since this reader looked last.

        `plain` takes the control sequences of terminals out. NotFound if the owner has no such
        process, here and in every other action.
        """
        ...

    async def log(
        self,
        id: str,
        *,
        owner: str | None = None,
        tail: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
        since: int | None = None,
        plain: bool = True,
    ) -> Log:
        """Output that is kept: the last `tail` lines; `limit` lines from line `offset` (0 is the
        first that is kept); all behind byte `since`; or everything.
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
    ) -> Waited:
        """Wait for the end, or for so many seconds. Cancelling takes back nothing but the wait."""
        ...

    async def kill(self, id: str, *, owner: str | None = None) -> Process:
        """End the whole tree; nothing of it is left when this returns."""
        ...

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> Written:
        """Give it input. InputClosed if it takes none any more."""
        ...

    async def submit(self, id: str, line: str, *, owner: str | None = None) -> Written:
        """Give it a line of input, with Enter."""
        ...

    async def close(self, id: str, *, owner: str | None = None) -> None:
        """End its input."""
        ...

    async def resize(self, id: str, size: Size, *, owner: str | None = None) -> None:
        """Its terminal has another size. InvalidInput if it has none."""
        ...

    def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[Chunk, None]:
        """What is kept behind byte `since`, then everything as it is written, until its end."""
        ...

    async def watch(self, id: str, watch: Watch, *, owner: str | None = None) -> Watch:
        """Report what it does; the answer carries the number of the watch."""
        ...

    async def unwatch(self, id: str, number: int, *, owner: str | None = None) -> None:
        """Report no longer."""
        ...

    async def events(
        self,
        *,
        owner: str | None = None,
        wait: float = 0.0,
        limit: int = 100,
        notes: Sequence[str] = (),
    ) -> list[Event]:
        """Reports that nobody has acknowledged, oldest first; waits so long for a first one.

        `notes`: only those whose note begins with one of these.
        """
        ...

    async def ack(self, numbers: Sequence[int], *, owner: str | None = None) -> None:
        """These events have been delivered: they are not given out again."""
        ...

    async def busy(self, owner: str) -> int:
        """How many live processes the owner has."""
        ...

    async def close_owner(self, owner: str) -> int:
        """End every process of the owner, with what ended ones left behind; how many there were."""
        ...

    async def aclose(self) -> None:
        """Let go. Processes go on."""
        ...
