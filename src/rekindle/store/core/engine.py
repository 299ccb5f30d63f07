"""The interface that the store needs from a database.

Statements are written once, with `?` for parameters, in the SQL that both engines understand. An
engine adds what they do not share: opening, transactions, the search index and maintenance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from rekindle.types import Finding, Message

from .search_query import Query

if TYPE_CHECKING:
    from pathlib import Path

Row: TypeAlias = tuple[Any, ...]
Progress: TypeAlias = Callable[[int, int], None]


class SearchedSession(NamedTuple):
    """One of the few sessions that a search is limited to."""

    num: int
    message_count: int
    last_active: float


class Clause(NamedTuple):
    """A condition on m (messages) and s (sessions)."""

    condition: str
    params: Sequence[Any]
    find_sessions: Callable[[], Sequence[SearchedSession] | None]  # is called once at most
    projects: Sequence[str] | None = None  # keys: a session has one of them
    is_whole_project: bool = False  # no other condition is on s, except that it is not archived
    needs_messages: bool = True  # False if the condition is on s alone

    @property
    def sessions(self) -> Sequence[SearchedSession] | None:
        """The few sessions that meet it, the most recent first."""
        return self.find_sessions()

    @property
    def is_empty(self) -> bool:
        """Whether no session meets it."""
        return self.sessions is not None and not self.sessions

    @property
    def message_count(self) -> int:
        """The messages in the few sessions."""
        return sum(session.message_count for session in self.sessions or ())


class Transaction(Protocol):
    """Statements that take effect together, or a consistent snapshot to read from."""

    @property
    def is_exclusive(self) -> bool:
        """Whether no other transaction can write before this one ends."""
        ...

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]: ...

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]: ...

    def defer_insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        """Insert rows at the end of the transaction, in parallel with the commit task if the engine can.

        Until then, or until `flush_deferred`, this transaction may or may not see them.
        """
        ...

    def flush_deferred(self) -> None:
        """Run the deferred inserts now."""
        ...

    def run_during_commit(self, task: Callable[[], None]) -> None:
        """Set a task of the caller to run while the transaction is made durable.

        The task must not write to the store. An engine that cannot run both at once skips it.
        """
        ...


Operation: TypeAlias = Callable[[Transaction], Any]
TitleQuery: TypeAlias = tuple[str, Sequence[Any]]  # and its parameters


class FollowedOperation:
    """An operation that another write follows at once, so that both may share a commit."""

    __slots__ = ("_run",)

    def __init__(self, run: Operation) -> None:
        self._run = run

    def __call__(self, tx: Transaction) -> Any:
        return self._run(tx)


class Engine(Protocol):
    """A database that holds the store's tables."""

    name: str
    location: str
    target: str  # as it was opened, with a password if there is one
    tenant: str  # whose rows it shows, if others have rows in the same tables
    version: int
    max_batch: int  # operations that it should run in one transaction at most
    max_recent_rows: int  # of a recent read, since writers wait; 0 if such a read gains nothing

    def transact(self, operations: Sequence[Operation]) -> list[Any]:
        """Run all operations in one durable transaction and return their results, or change nothing."""
        ...

    def begin_read(self) -> AbstractContextManager[Transaction]:
        """Open a consistent snapshot; concurrent writes are not visible in it."""
        ...

    def begin_recent_read(self) -> AbstractContextManager[Transaction]:
        """Open a snapshot for a short read of what was probably just written.

        Writers may have to wait for it.
        """
        ...

    def select_titles(self, tx: Transaction, parts: Sequence[str]) -> TitleQuery | None:
        """Build the query for sessions whose titles have all parts, if an index serves it."""
        ...

    def index(
        self,
        tx: Transaction,
        num: int,
        position: int,
        count: int,
        size: int,
        texts: Sequence[Message | str] = (),
    ) -> None:
        """Index `count` messages starting at `position` as part of this transaction.

        An engine that is given the messages, or their words, need not read them back.
        """
        ...

    def extract_words(self, messages: Sequence[Message]) -> Sequence[str]:
        """Return the searchable words of messages for `index`, or nothing if it needs none."""
        ...

    def unindex(self, tx: Transaction, num: int) -> None:
        """Remove a session that is about to be deleted from the search index."""
        ...

    def reindex(self, tx: Transaction, progress: Progress | None = None) -> int:
        """Rebuild the whole search index and return the number of messages it covers."""
        ...

    def find(
        self, tx: Transaction, query: Query, clause: Clause | None, newest: bool, expected: int
    ) -> Iterator[int]:
        """Yield ids of messages that match `query`, best first or newest first.

        The caller will probably read no more than `expected` of them.
        """
        ...

    def check(self, tx: Transaction) -> Iterator[Finding]:
        """Yield damage found in the engine's own structures and in the search index."""
        ...

    def check_index(self) -> list[Finding]:
        """Run the search index's own integrity check where it needs more than reading."""
        ...

    def measure_sizes(self, tx: Transaction) -> tuple[int, int]:
        """Return the bytes on disk in total, and those of the search index."""
        ...

    def compact(self) -> None:
        """Return unused space to the disk."""
        ...

    def backup(self, path: Path, progress: Progress | None) -> bool:
        """Copy the live database to a file; return False if the engine has no file to copy."""
        ...

    def close(self) -> None: ...


class StorePart:
    """A part of the store with methods of its own, such as `store.inbox`."""

    def __init__(
        self, engine: Engine, write: Callable[[Operation], Any], clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._write = write
        self._clock = clock

    def _select(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        with self._engine.begin_read() as tx:
            return tx.run(sql, params)
