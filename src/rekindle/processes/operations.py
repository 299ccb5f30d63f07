"""The operations on background processes, each defined once as a request with its response type.

`Processes` derives a method from each request; the supervisor decodes the same requests from its
socket. Two classes implement them: the embedded `ProcessRegistry`, and the `ProcessClient` of the
supervisor. `owner` restricts an operation to that owner's processes; None stands for the user whose
home folder it is. An operation on one process raises NotFound if the owner has no such process.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, cast, get_args

import msgspec

from rekindle.processes.backends.base import TerminalSize

from .types import (
    LogResult,
    OutputChunk,
    PollResult,
    Process,
    ProcessEvent,
    WaitResult,
    Watch,
    WriteResult,
)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Operation(msgspec.Struct, Generic[R_co], frozen=True, forbid_unknown_fields=True):
    """A request whose response is an R. Its fields are the parameters of its method."""

    __orig_bases__: ClassVar[tuple[Any, ...]]  # set by Python


class OwnedOperation(Operation[R_co], Generic[R_co], frozen=True, kw_only=True):
    """A request about the processes of one owner, or of all."""

    owner: str | None = None

    def may_see(self, owner: str) -> bool:
        """Return whether the processes of this owner are visible to the request."""
        return self.owner in (None, owner)


class ProcessOperation(OwnedOperation[R_co], Generic[R_co], frozen=True):
    """A request about one process."""

    id: str


class ReadingOperation(ProcessOperation[R_co], Generic[R_co], frozen=True, kw_only=True):
    """A request for the output since the last request of the same reader.

    `plain` strips terminal control sequences. Repeat `request_id` to get the same output again if
    the response was lost.
    """

    reader: str = ""
    plain: bool = True
    request_id: int = 0


class _CommandOperation(Operation[Process], frozen=True):
    argv: Sequence[str]


class StartProcess(_CommandOperation, frozen=True, kw_only=True):
    """Start a program and return once it is running; its `id` is permanent.

    With `after`, the id of another process, return at once: it starts when that one has exited with
    0, and fails if that one ends in another way. `env` None means the caller's environment locally,
    and no additional variables elsewhere. Raise ProcessStartFailed with the reason,
    TooManyProcesses, or InvalidInput.
    """

    owner: str
    cwd: str = ""
    env: Mapping[str, str] | None = None
    pty: TerminalSize | None = None
    backend: str = "local"
    watches: Sequence[Watch] = ()
    session: str = ""
    id: str = ""  # generated if empty
    name: str = ""
    after: str = ""
    # Local: a program and its options that run `argv`, such as a sandbox.
    wrapper: Sequence[str] = ()

    def resolve_env(self) -> Mapping[str, str]:
        """Return the environment to pass to the backend."""
        if self.env is None and self.backend == "local":
            return os.environ
        return self.env or {}


class ListProcesses(OwnedOperation[list[Process]], frozen=True, kw_only=True):
    """List processes, oldest first; with `live`, without exited ones."""

    live: bool = False


class PollOutput(ReadingOperation[PollResult], frozen=True):
    """Return the state and the output since this reader's last poll."""


class ReadLog(ProcessOperation[LogResult], frozen=True, kw_only=True):
    """Return retained output.

    Select the last `tail` lines; `limit` lines from line `offset` (0 is the first retained one);
    everything after byte `since`; or all of it.
    """

    tail: int | None = None
    offset: int | None = None
    limit: int | None = None
    since: int | None = None
    plain: bool = True


class WaitForExit(ReadingOperation[WaitResult], frozen=True):
    """Wait for the exit for at most `seconds`. Cancelling affects nothing but the wait."""

    seconds: float


class KillProcess(ProcessOperation[Process], frozen=True):
    """Kill the whole process tree and return when nothing of it is left."""


class SignalProcess(ProcessOperation[None], frozen=True):
    """Send a signal to the program itself. Raise InputClosed if it has ended."""

    number: int


class RestartProcess(ProcessOperation[Process], frozen=True, kw_only=True):
    """Kill a process if it is live, and start its command again as a new process of the same name.

    `env` is the environment of a local process (None: the caller's): none is ever stored.
    """

    env: Mapping[str, str] | None = None


class WriteInput(ProcessOperation[WriteResult], frozen=True):
    """Write to its stdin. Raise InputClosed if stdin is closed."""

    data: bytes


class SubmitLine(ProcessOperation[WriteResult], frozen=True):
    """Write a line to its stdin, followed by Enter."""

    line: str


class CloseStdin(ProcessOperation[None], frozen=True):
    """Close its stdin."""


class ResizeTerminal(ProcessOperation[None], frozen=True):
    """Resize its terminal. Raise InvalidInput if it has none."""

    size: TerminalSize


class AttachOutput(ProcessOperation[OutputChunk], frozen=True, kw_only=True):
    """Yield the retained output after byte `since`, then live output until the exit."""

    since: int = 0


class AddWatch(ProcessOperation[Watch], frozen=True):
    """Add a watch and return it with its number."""

    watch: Watch


class RemoveWatch(ProcessOperation[None], frozen=True):
    """Remove a watch."""

    number: int


class FetchEvents(OwnedOperation[list[ProcessEvent]], frozen=True, kw_only=True):
    """Return unacknowledged events, oldest first, waiting up to `wait` seconds for the first one.

    `notes` selects events whose note starts with one of these prefixes.
    """

    wait: float = 0.0
    limit: int = 100
    notes: Sequence[str] = ()


class AckEvents(OwnedOperation[None], frozen=True):
    """Acknowledge delivered events, so that they are not returned again."""

    numbers: Sequence[int]


class CountLive(Operation[int], frozen=True):
    """Return the number of the owner's live processes."""

    owner: str


class KillAll(Operation[int], frozen=True):
    """Kill all processes of the owner, with leftovers of exited ones; return how many were live."""

    owner: str


class OperationMethod(Generic[P, R]):
    """A method that executes one kind of request and takes its fields as parameters."""

    def __init__(self, request: Callable[P, Operation[R]]) -> None:
        self.request = request
        self.__doc__ = request.__doc__

    def __get__(
        self, instance: Processes, owner: type | None = None
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return await instance.execute(self.request(*args, **kwargs))

        return call


class Processes(ABC):
    """Operations on background processes. The name of a method is the name of its request."""

    start = OperationMethod(StartProcess)
    list = OperationMethod(ListProcesses)
    poll = OperationMethod(PollOutput)
    read_log = OperationMethod(ReadLog)
    wait = OperationMethod(WaitForExit)
    kill = OperationMethod(KillProcess)
    signal = OperationMethod(SignalProcess)
    restart = OperationMethod(RestartProcess)
    submit = OperationMethod(SubmitLine)
    close_stdin = OperationMethod(CloseStdin)
    resize = OperationMethod(ResizeTerminal)
    watch = OperationMethod(AddWatch)
    unwatch = OperationMethod(RemoveWatch)
    fetch_events = OperationMethod(FetchEvents)
    ack_events = OperationMethod(AckEvents)
    count_live = OperationMethod(CountLive)
    kill_all = OperationMethod(KillAll)

    async def write(self, id: str, data: str | bytes, *, owner: str | None = None) -> WriteResult:
        """Write to its stdin. Raise InputClosed if stdin is closed."""
        encoded = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return await self.execute(WriteInput(id, encoded, owner=owner))

    def attach(
        self, id: str, *, owner: str | None = None, since: int = 0
    ) -> AsyncGenerator[OutputChunk, None]:
        """Yield the retained output after byte `since`, then live output until the exit."""
        return self.stream(AttachOutput(id, owner=owner, since=since))

    async def execute(self, request: Operation[R]) -> R:
        """Execute a request with the handler of the implementation, and return its response."""
        return await find_handler(self, request)(request)

    @abstractmethod
    def stream(self, request: AttachOutput) -> AsyncGenerator[OutputChunk, None]:
        """Yield the parts of a response."""

    @abstractmethod
    async def aclose(self) -> None:
        """Disconnect. Processes keep running."""


OPERATIONS: Mapping[str, type[Operation[Any]]] = {
    "write": WriteInput,
    "attach": AttachOutput,
    **{
        name: cast("type[Operation[Any]]", member.request)
        for name, member in vars(Processes).items()
        if isinstance(member, OperationMethod)
    },
}
_NAMES = {kind: name for name, kind in OPERATIONS.items()}


def get_operation_name(request: Operation[Any]) -> str:
    """Return the name of a request on the wire."""
    return _NAMES[type(request)]


@cache
def get_response_type(kind: type[Operation[Any]]) -> Any:
    """Return the type of the response to a kind of request."""
    return get_args(kind.__orig_bases__[0])[0]


def find_handler(target: object, request: Operation[Any]) -> Callable[[Operation[Any]], Any]:
    """Return the method of an implementation that handles a request: `handle_` and its name."""
    return getattr(target, f"handle_{_NAMES[type(request)]}")
