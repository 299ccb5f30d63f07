"""Read sessions for work on them, in this process or in a worker.

A chunk of work holds a `StoreReader`. It reads the store that is open here; in a worker that can reach
the same store it opens it again, read-only. For workers that cannot, `load_sessions` puts what they need
into the chunk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

from rekindle.errors import NotFound
from rekindle.parallel import ChunkMapper
from rekindle.store import Store, open_store
from rekindle.store.address import StoreAddress
from rekindle.types import JudgedSession, Message

PAGE_SIZE = 500  # messages per page, which bounds the memory used
BUSY_SECONDS = 30.0


class WorkReader(Protocol):
    """Reads sessions, as far as they are needed."""

    def iter_messages(self, session: str, since: int = 0) -> Iterator[Message]:
        """Yield the messages of a session from a position on; raise `NotFound` if it is gone."""
        ...

    def load_judged(self, session: str) -> JudgedSession:
        """Return a session with the stored verdicts on its calls; raise `NotFound` if it is gone."""
        ...

    def load_observations(self, sessions: Sequence[str], version: str) -> dict[str, bytes]:
        """Return the stored observations of sessions, by session."""
        ...

    def load_newest(self, project: str, version: str, limit: int) -> list[bytes]:
        """Return the observations of a project's newest sessions, newest first."""
        ...

    def load_text(self, session: str, position: int) -> str:
        """Return the text of a message, empty if it is gone."""
        ...


class StoreReader:
    """Reads from a store; what is sent to a worker is its address alone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __reduce__(self) -> tuple[Any, ...]:
        return open_reader, (self._store.address,)

    def iter_messages(self, session: str, since: int = 0) -> Iterator[Message]:
        """Yield the messages of a session from a position on."""
        after, page = since - 1, self._store.messages(session, after=since - 1, limit=PAGE_SIZE)
        while page:
            yield from page
            after = page[-1].position or after
            is_last = len(page) < PAGE_SIZE
            page = [] if is_last else self._store.messages(session, after=after, limit=PAGE_SIZE)

    def load_judged(self, session: str) -> JudgedSession:
        """Return a session with the stored verdicts on its calls."""
        for found in self._store.iter_judged_sessions(session=session):
            return found
        raise NotFound(f"Session not found: {session!r}")

    def load_observations(self, sessions: Sequence[str], version: str) -> dict[str, bytes]:
        """Return the stored observations of sessions, by session."""
        found = self._store.observations.load_sessions(sessions, version)
        return {id: one.data for id, one in found.items()}

    def load_newest(self, project: str, version: str, limit: int) -> list[bytes]:
        """Return the observations of a project's newest sessions, newest first."""
        return self._store.observations.load_newest(project, version, limit)

    def load_text(self, session: str, position: int) -> str:
        """Return the text of a message, empty if it is gone."""
        found = self._store.messages(session, after=position - 1, limit=1)
        return found[0].text if found else ""


_open_readers: dict[tuple[StoreAddress, tuple[int, int] | None], StoreReader] = {}
_lock = Lock()  # a worker of Dask may have several threads


def open_reader(address: StoreAddress) -> StoreReader:
    """Return the reader of a store, opened once in each worker, and again if the file was replaced."""
    key = address, _identify_file(address)
    with _lock:
        if key not in _open_readers:
            _open_readers.clear()  # a worker that serves many stores keeps one open
            _open_readers[key] = StoreReader(_open_store(address))
        return _open_readers[key]


def _open_store(address: StoreAddress) -> Store:
    if not address.tenant:
        return open_store(address.target, readonly=True)
    from rekindle.store.tenants.tenant_engine import TenantEngine

    engine = TenantEngine(
        address.target, address.tenant, durability="full", readonly=True, busy_seconds=BUSY_SECONDS
    )
    return Store(engine)


def _identify_file(address: StoreAddress) -> tuple[int, int] | None:
    if address.file is None:
        return None
    try:
        found = os.stat(address.file)
    except OSError:
        return None  # opening it says why
    return found.st_dev, found.st_ino


class LoadedSessions(NamedTuple):
    """Sessions that travel with the work on them."""

    messages: Mapping[str, Sequence[tuple[Any, ...]]] = {}
    judged: Mapping[str, JudgedSession] = {}
    observations: Mapping[str, bytes] = {}
    newest: Mapping[str, Sequence[bytes]] = {}  # observations, by project
    texts: Mapping[tuple[str, int], str] = {}

    def iter_messages(self, session: str, since: int = 0) -> Iterator[Message]:
        """Yield the messages of a session; those before `since` were not loaded."""
        if session not in self.messages:
            raise NotFound(f"Session not found: {session!r}")
        return map(Message._make, self.messages[session])

    def load_judged(self, session: str) -> JudgedSession:
        """Return a session with the verdicts on its calls."""
        if session not in self.judged:
            raise NotFound(f"Session not found: {session!r}")
        return self.judged[session]

    def load_observations(self, sessions: Sequence[str], version: str) -> dict[str, bytes]:
        """Return the observations of sessions, by session."""
        return {id: self.observations[id] for id in sessions if id in self.observations}

    def load_newest(self, project: str, version: str, limit: int) -> list[bytes]:
        """Return the observations of a project's newest sessions, newest first."""
        return [*self.newest[project]]

    def load_text(self, session: str, position: int) -> str:
        """Return the text of a message."""
        return self.texts[session, position]


def load_sessions(
    reader: WorkReader, sessions: Iterable[tuple[str, int]], *, with_verdicts: bool
) -> LoadedSessions:
    """Load sessions, each from a position on, so that a worker needs no store."""
    messages: dict[str, list[tuple[Any, ...]]] = {}
    judged: dict[str, JudgedSession] = {}
    for id, since in sessions:
        try:
            messages[id] = [one[:] for one in reader.iter_messages(id, since)]
            if with_verdicts:
                judged[id] = reader.load_judged(id)
        except NotFound:
            continue  # deleted meanwhile
    return LoadedSessions(messages, judged)


def can_reach_store(mapper: ChunkMapper, store: Store) -> bool:
    """Return whether the workers can open the store themselves."""
    file = store.address.file
    return file is None or mapper.can_open(file)
