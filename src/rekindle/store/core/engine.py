"""What the store asks of a database, whichever it is.

Statements are written once, with `?` for parameters, in the SQL that both engines understand. An
engine adds what they do not share: opening, transactions, the search index, and looking after itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rekindle.types import Finding, Message

from .search_query import Query

if TYPE_CHECKING:
    from pathlib import Path

Row: TypeAlias = tuple[Any, ...]
Progress: TypeAlias = Callable[[int, int], None]
Clause: TypeAlias = tuple[str, Sequence[Any]]  # a condition on m (messages) and s (sessions)


class Transaction(Protocol):
    """Statements that take effect together, or a consistent view to read from."""

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[Row]: ...

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]: ...

    def insert_last(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        """Insert rows when all else is done, beside what is done meanwhile, if the engine can.

        Until then, or until `write_last`, this transaction may or may not find them.
        """
        ...

    def run_last(self, sql: str) -> None:
        """Run a statement behind what is inserted last."""
        ...

    def write_last(self) -> None:
        """Do now what was left for the end."""
        ...

    def meanwhile(self, do: Callable[[], None]) -> None:
        """What the caller has to do while the transaction is made durable.

        It must not write to the store. An engine that cannot do two things at once leaves it undone.
        """
        ...


Work: TypeAlias = Callable[[Transaction], Any]


class Engine(Protocol):
    """A database with the store's tables in it."""

    name: str
    location: str
    version: int

    def transact(self, works: Sequence[Work]) -> list[Any]:
        """Run all works in one durable transaction and return their results, or change nothing."""
        ...

    def reading(self) -> AbstractContextManager[Transaction]:
        """A consistent view: nothing that happens meanwhile is seen."""
        ...

    def index(
        self,
        tx: Transaction,
        num: int,
        position: int,
        count: int,
        size: int,
        said: Sequence[Message | str] = (),
    ) -> None:
        """Make `count` messages from `position` on findable, as of this transaction.

        An engine that is given the messages, or their words, need not read them back.
        """
        ...

    def words(self, messages: Sequence[Message]) -> Sequence[str]:
        """The words of messages, for `index`; none where it has no use for them."""
        ...

    def unindex(self, tx: Transaction, num: int) -> None:
        """Forget the words of a session that is about to be deleted."""
        ...

    def reindex(self, tx: Transaction, progress: Progress | None = None) -> int:
        """Build the whole search index anew and return how many messages it covers."""
        ...

    def find(
        self, tx: Transaction, query: Query, clause: Clause | None, newest: bool, likely: int
    ) -> Iterator[int]:
        """Yield ids of messages that have the words of `query`, best first or newest first.

        The caller will probably look at no more than `likely` of them.
        """
        ...

    def check(self, tx: Transaction) -> Iterator[Finding]:
        """Look for damage in the engine's own structures and in the search index."""
        ...

    def check_index(self) -> list[Finding]:
        """Let the search index check itself, where that takes more than reading."""
        ...

    def sizes(self, tx: Transaction) -> tuple[int, int]:
        """Bytes on disk in all, and of these the search index."""
        ...

    def compact(self) -> None:
        """Give space that is no longer used back to the disk."""
        ...

    def backup(self, path: Path, progress: Progress | None) -> bool:
        """Copy the live database to a file; False where the engine has no file to copy."""
        ...

    def close(self) -> None: ...
