"""The tree of errors.

    RekindleError
    ├── InvalidInput                the input is invalid; names the field and what is allowed
    │   ├── InvalidSetting          a setting: its name, its file, what is allowed
    │   └── TitleTaken              another session of this owner has the title
    ├── NotFound                    no session (message, rewind) with that name
    │   └── AmbiguousName           more than one match: the message lists the candidates
    ├── TurnTakenOver               another process has taken over the turn; nothing was written
    ├── StoreError                  the store failed
    │   ├── StoreBusy               no lock or no free connection within `store.busy_seconds`
    │   ├── StoreFull               no space left; nothing was written
    │   ├── StoreReadOnly           the file, the folder or the server is read-only
    │   ├── StoreDamaged            the file is corrupt; says how to recover it
    │   ├── StoreTooNew             written by a newer Rekindle
    │   ├── StoreUnavailable        the server cannot be reached
    │   └── StoreClosed             used after `close()`
    ├── AccessDenied                the API key or the member may not do this
    │   └── InvalidApiKey           no such API key, or it was revoked or has expired
    ├── QuotaExceeded               the tenant has used up what it may store; says until when
    ├── InboxFull                   too many messages wait for an answer; a new one was not stored
    ├── WrongOffset                 a part of a pushed transcript does not follow what the server has
    ├── ServerRefused               a Rekindle server rejects a request; says why
    ├── ServerUnreachable           a Rekindle server does not answer
    ├── SessionHeld                 another program writes to the session; says which
    ├── ToolError                   a tool failed; a result for the model
    │   └── McpServerUnreachable    an MCP server failed to start, or does not answer
    ├── PlatformError               a chat network rejected a request, or cannot be reached
    ├── CollectorError              an OpenTelemetry collector refused spans, or cannot be reached
    ├── ConfigChanged               another program changed a file of an agent meanwhile; try again
    ├── WatchUnavailable            the session folders cannot be watched; says what to do
    ├── WorkFailed                  a part of the work on sessions failed; names it and says why
    │   └── SchedulerUnreachable    the Dask scheduler does not answer, or has no workers
    ├── ServiceError                the service manager is missing or refused a command
    ├── HomeServerError             the Matrix server cannot be installed, started or reached
    ├── ProcessError                background processes
    │   ├── ProcessStartFailed      the program could not be started; nothing of it is left
    │   ├── TooManyProcesses        the owner has reached the limit
    │   ├── InputClosed             the process has ended, or its input is closed
    │   ├── BackendUnreachable      the container, host or sandbox does not answer
    │   ├── JournalUnwritable       the process folder is not writable; says why
    │   └── SupervisorUnavailable   the supervisor cannot be started or does not answer
    └── ModelError                  the model failed; each message says what to do
        ├── ModelRequestRejected    the endpoint rejects the request: key, model name or content
        ├── ContextTooLong          the conversation does not fit; compress it
        ├── CompressionFailed       it cannot be made to fit; says which message is too large, or why
        ├── ModelOverloaded         rate limited or overloaded; `retry_after` says for how long
        ├── ModelUnreachable        no answer: the network, a timeout, a failing server
        └── StreamBroken            the response stopped in the middle, or cannot be parsed

The command line prints `InvalidInput` and `NotFound` without a traceback and exits with 2,
`StoreError` and `ModelError` with 1.
"""


class RekindleError(Exception):
    """Base class of all errors that Rekindle raises on purpose."""


class InvalidInput(RekindleError, ValueError):
    """The input is invalid."""


class InvalidSetting(InvalidInput):
    """A setting has an invalid value."""


class TitleTaken(InvalidInput):
    """Another session of this owner has the title."""


class NotFound(RekindleError, LookupError):
    """The requested object does not exist."""


class AmbiguousName(NotFound):
    """More than one object has that name."""


class StoreError(RekindleError):
    """The store failed."""


class TurnTakenOver(RekindleError):
    """Another process has taken over the turn."""


class StoreBusy(StoreError):
    """Another writer held the lock, or the server had no free connection, for too long."""


class StoreFull(StoreError):
    """No space left; nothing was written."""


class StoreReadOnly(StoreError):
    """The database is read-only."""


class StoreDamaged(StoreError):
    """The database is corrupt."""


class StoreTooNew(StoreError):
    """The database was written by a newer Rekindle."""


class StoreUnavailable(StoreError):
    """The server cannot be reached."""


class StoreClosed(StoreError):
    """The store was used after it was closed."""


class AccessDenied(RekindleError):
    """The API key or the member may not do this."""


class InvalidApiKey(AccessDenied):
    """No such API key, or it was revoked or has expired."""


class QuotaExceeded(RekindleError):
    """The tenant has used up a quota; `retry_after` is in seconds, if waiting helps."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InboxFull(RekindleError):
    """Too many messages are waiting for an answer: a new one was not stored."""


class WrongOffset(RekindleError):
    """A part of a pushed transcript does not follow the parts on the server."""


class ServerRefused(RekindleError):
    """A Rekindle server rejects a request; retrying does not help unless `retry_after` is set."""

    def __init__(
        self, message: str, status: int = 0, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class ServerUnreachable(RekindleError):
    """A Rekindle server does not answer, or the connection broke."""


class SessionHeld(RekindleError):
    """Another program writes to the session."""


class ToolError(RekindleError):
    """A tool failed; the message is for the model."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class McpServerUnreachable(ToolError):
    """An MCP server failed to start, or does not answer."""


class PlatformError(RekindleError):
    """A chat platform failed to handle a request.

    `permanent`: retrying does not help (the chat is gone, the bot was blocked). `retry_after` is in
    seconds, if the platform specifies it.
    """

    def __init__(
        self, message: str, *, permanent: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after = retry_after


class CollectorError(RekindleError):
    """An OpenTelemetry collector refused spans, or cannot be reached."""


class ConfigChanged(RekindleError):
    """A file of another agent was changed by someone else since it was read."""


class WatchUnavailable(RekindleError):
    """The session folders cannot be watched, or another watcher does so."""


class WorkFailed(RekindleError):
    """A part of the work on sessions failed."""


class SchedulerUnreachable(WorkFailed):
    """The Dask scheduler does not answer, or has no workers."""


class ServiceError(RekindleError):
    """The service manager is missing or refused a command."""


class HomeServerError(RekindleError):
    """The Matrix server cannot be installed, started or reached."""


class ProcessError(RekindleError):
    """An operation on a background process failed."""


class ProcessStartFailed(ProcessError):
    """The program could not be started; nothing of it is left."""


class TooManyProcesses(ProcessError):
    """The owner has reached the limit of processes."""


class InputClosed(ProcessError):
    """The process has ended, or its input is closed."""


class BackendUnreachable(ProcessError):
    """The backend that runs the process does not answer."""


class JournalUnwritable(ProcessError):
    """The process folder is not writable."""


class SupervisorUnavailable(ProcessError):
    """The supervisor cannot be started or does not answer."""


class ModelError(RekindleError):
    """The model failed."""


class ModelRequestRejected(ModelError):
    """The endpoint rejects the request; retrying does not help."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ContextTooLong(ModelError):
    """The conversation is longer than the model's context.

    `limit` and `used` are the numbers of tokens that the provider names, if it does.
    """

    def __init__(self, message: str, limit: int | None = None, used: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.used = used


class CompressionFailed(ModelError):
    """A conversation cannot be compressed. `tokens` is the usage of the attempt, as in `Tokens`.

    `can_retry`: the model failed to summarize it, and may not fail the next time.
    """

    def __init__(
        self, message: str, tokens: tuple[int, ...] = (), *, can_retry: bool = False
    ) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.can_retry = can_retry


class ModelOverloaded(ModelError):
    """The endpoint is overloaded or rate limited; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelUnreachable(ModelError):
    """No answer: the network, a timeout, or a failing server."""


class StreamBroken(ModelError):
    """The response stopped in the middle or cannot be parsed; `partial_text` is the text received."""

    def __init__(self, message: str, partial_text: str = "") -> None:
        super().__init__(message)
        self.partial_text = partial_text
