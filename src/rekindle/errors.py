"""One tree of errors.

    RekindleError
    ├── InvalidInput          what the caller gave cannot be taken; says which field and what is allowed
    │   ├── InvalidSetting    a setting: its name, its file, what is allowed
    │   └── TitleTaken        the title belongs to another session of this owner
    ├── NotFound              no session (message, rewind) by that name
    │   └── Ambiguous         more than one: the candidates are in the message
    └── StoreError            the outside world of the store
        ├── StoreBusy         another writer held on for longer than `store.busy_seconds`
        ├── StoreFull         no space left; nothing was written
        ├── StoreReadOnly     the file, the folder or the server only lets us read
        ├── StoreDamaged      the file is not what was written; says how to bring it back
        ├── StoreTooNew       written by a newer Rekindle
        ├── StoreUnavailable  the server cannot be reached
        └── StoreClosed       used after `close()`

A door prints `InvalidInput` and `NotFound` without a traceback and exits with 2, `StoreError` with 1.
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
