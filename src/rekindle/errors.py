"""One tree of errors.

    RekindleError
    ├── InvalidInput          what the caller gave cannot be taken; says which field and what is allowed
    │   ├── InvalidSetting    a setting: its name, its file, what is allowed
    │   └── TitleTaken        the title belongs to another session of this owner
    ├── NotFound              no session (message, rewind) by that name
    │   └── Ambiguous         more than one: the candidates are in the message
    ├── StoreError            the outside world of the store
    │   ├── StoreBusy         another writer held on for longer than `store.busy_seconds`
    │   ├── StoreFull         no space left; nothing was written
    │   ├── StoreReadOnly     the file, the folder or the server only lets us read
    │   ├── StoreDamaged      the file is not what was written; says how to bring it back
    │   ├── StoreTooNew       written by a newer Rekindle
    │   ├── StoreUnavailable  the server cannot be reached
    │   └── StoreClosed       used after `close()`
    ├── ToolError             a tool could not do what it was asked; a result for the model
    │   └── ServerUnreachable an MCP server could not be started, or does not answer
    ├── PlatformError         a chat network did not take what was sent, or cannot be reached
    ├── ProcessError          background processes
    │   ├── NotStarted        the program could not be started; nothing of it is left
    │   ├── TooManyProcesses  the owner has as many as are allowed
    │   ├── InputClosed       the process has ended, or its input was closed
    │   ├── PlaceUnreachable  the container, the host or the sandbox does not answer
    │   ├── JournalUnwritable the folder of processes cannot be written; says why
    │   └── SupervisorGone    the supervisor cannot be started or does not answer
    └── ModelError            the outside world of the model; each says what to do
        ├── ModelRefused      the endpoint does not take the request: the key, the name, what was sent
        ├── ContextTooLong    the conversation does not fit; compress it
        ├── ModelOverloaded   over a limit or overloaded; `retry_after` says for how long
        ├── ModelUnreachable  no answer: the network, a time-out, a failing server
        └── StreamBroken      the answer stopped in the middle, or cannot be read

A door prints `InvalidInput` and `NotFound` without a traceback and exits with 2, `StoreError` and
`ModelError` with 1.
"""


class RekindleError(Exception):
    """Anything Rekindle raises on purpose."""


class InvalidInput(RekindleError, ValueError):
    """What the caller gave cannot be taken."""


class InvalidSetting(InvalidInput):
    """A setting has a value that is not allowed."""


class TitleTaken(InvalidInput):
    """The title belongs to another session of this owner."""


class NotFound(RekindleError, LookupError):
    """There is no such thing."""


class Ambiguous(NotFound):
    """More than one thing goes by that name."""


class StoreError(RekindleError):
    """The outside world of the store is broken."""


class StoreBusy(StoreError):
    """Another writer held the database for too long."""


class StoreFull(StoreError):
    """No space left; nothing was written."""


class StoreReadOnly(StoreError):
    """The database can only be read."""


class StoreDamaged(StoreError):
    """The database is not what was written."""


class StoreTooNew(StoreError):
    """The database was written by a newer Rekindle."""


class StoreUnavailable(StoreError):
    """The server cannot be reached."""


class StoreClosed(StoreError):
    """The store was used after it was closed."""


class ToolError(RekindleError):
    """A tool could not do what it was asked; the message is for the model."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class ServerUnreachable(ToolError):
    """An MCP server could not be started, or does not answer."""


class PlatformError(RekindleError):
    """A platform did not do what it was asked.

    `lasting`: to ask again does not help (the chat is gone, the bot was blocked). `retry_after` is
    in seconds, where the platform says.
    """

    def __init__(
        self, message: str, *, lasting: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.lasting = lasting
        self.retry_after = retry_after


class ProcessError(RekindleError):
    """Something about a background process did not work."""


class NotStarted(ProcessError):
    """The program could not be started; nothing of it is left."""


class TooManyProcesses(ProcessError):
    """The owner has as many processes as are allowed."""


class InputClosed(ProcessError):
    """The process has ended, or its input was closed."""


class PlaceUnreachable(ProcessError):
    """The place where the process runs does not answer."""


class JournalUnwritable(ProcessError):
    """The folder of processes cannot be written."""


class SupervisorGone(ProcessError):
    """The supervisor cannot be started or does not answer."""


class ModelError(RekindleError):
    """The outside world of the model is broken."""


class ModelRefused(ModelError):
    """The endpoint does not take the request; asking again does not help."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ContextTooLong(ModelError):
    """The conversation is longer than the model can read."""


class ModelOverloaded(ModelError):
    """The endpoint is overloaded, or a limit is reached; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelUnreachable(ModelError):
    """There was no answer: the network, a time-out, or a server that fails."""


class StreamBroken(ModelError):
    """The answer stopped in the middle or cannot be read; `so_far` is the text that had come."""

    def __init__(self, message: str, so_far: str = "") -> None:
        super().__init__(message)
        self.so_far = so_far
