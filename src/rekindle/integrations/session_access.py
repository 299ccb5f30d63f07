"""The session of a framework's conversation in the store: found or begun when it is first used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from rekindle.config import load_config
from rekindle.errors import NotFound
from rekindle.store import Store, open_store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.documents import DocumentPlace
from rekindle.types import Message, Session, Tokens

_ASYNC_STORE = "_async_store"  # kept in the store itself, so that both go together


def open_default_store() -> AsyncStore:
    """Open the store of the settings, the one that the command uses."""
    config = load_config()
    config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return AsyncStore(open_store(config.store.url, durability=config.store.durability))


def get_async_store(store: AsyncStore | Store | None) -> AsyncStore:
    """Return a store for asyncio: the given one, one for the given store, or that of the settings.

    All sessions of a store share its threads: a program may make a session for every request.
    """
    if store is None or isinstance(store, AsyncStore):
        return store or open_default_store()
    found: AsyncStore | None = vars(store).get(_ASYNC_STORE)
    return found or vars(store).setdefault(_ASYNC_STORE, AsyncStore(store))


class SessionAccess:
    """One session of the store, by an id that the framework chose."""

    def __init__(
        self,
        session_id: str,
        store: AsyncStore | Store | None,
        *,
        source: str,
        owner: str | None = None,
        title: str | None = None,
    ) -> None:
        self.id = session_id
        self.store = get_async_store(store)
        self._source = source
        self._owner = owner
        self._title = title
        self._session: Session | None = None
        self._pending: list[tuple[str, Tokens]] = []  # used before the first message was stored

    async def load(self, last: int | None = None) -> list[Message]:
        """Return the messages, or the last ones; none if the session has not begun."""
        try:
            return await self.store.messages(self.id, last=last, owner=self._owner)
        except NotFound:
            return []

    async def append(
        self, messages: list[Message], used: Sequence[tuple[str, Tokens]] = ()
    ) -> None:
        """Store messages and what models used for them; both are durable when this returns."""
        if not messages:
            return
        if self._session is None:
            self._session = await self._find_or_begin()
        pending, self._pending = self._pending, []
        sums: dict[str, Tokens] = {}
        for model, tokens in (*pending, *used):
            sums[model] = sums.get(model, Tokens()).add(tokens)
        try:
            await self.store.append(self._session, *messages, used=sums)
        except Exception:
            self._pending = pending + self._pending
            raise

    async def add_usage(self, model: str, tokens: Tokens) -> None:
        """Add tokens to the session; a session that has not begun gets them with its first message."""
        if self._session is None:
            self._pending.append((model, tokens))
        else:
            await self.store.add_usage(self.id, tokens, model=model)

    async def remove_last(self) -> Message | None:
        """Remove the last message and return it, None if there is none."""
        try:
            await self.store.session(self.id, owner=self._owner)
            return await self.store.remove_last(self.id)
        except NotFound:
            return None

    async def clear(self) -> None:
        """Remove all messages; `rekindle sessions redo` brings them back."""
        with suppress(NotFound):
            await self.store.session(self.id, owner=self._owner)
            await self.store.rewrite(self.id)

    async def _find_or_begin(self) -> Session:
        try:
            return await self.store.session(self.id, owner=self._owner)
        except NotFound:
            return await self.store.begin(
                id=self.id,
                source=self._source,
                owner=self._owner,
                title=self._title,
                cwd=os.getcwd(),
            )


def claim_session_id(store: Store, collection: str, wanted: str) -> str:
    """Return the id for a new session: the wanted one, or one like it if that is taken.

    Two users of a framework may give their sessions the same id. Call it in a transaction.
    """
    id = wanted or "session"
    is_taken = bool(store.find_sessions([id]))
    while is_taken or not store.documents.add(collection, DocumentPlace(("ids",), id), {}):
        id, is_taken = f"{wanted}~{os.urandom(4).hex()}", False
    return id


def delete_session(store: Store, id: str) -> None:
    """Delete a session that may be active or not stored at all; it can be restored for some days."""
    with suppress(NotFound):
        store.end(id, "deleted")
        store.prune_session(id)
