"""The session of a framework's conversation in the store: found or begun when it is first used."""

from __future__ import annotations

import os
from contextlib import suppress

from rekindle.config import load_config
from rekindle.errors import NotFound
from rekindle.store import Store, open_store
from rekindle.store.async_store import AsyncStore
from rekindle.store.graphs.documents import DocumentPlace
from rekindle.types import Message, Session, Tokens


def open_default_store() -> AsyncStore:
    """Open the store of the settings, the one that the command uses."""
    config = load_config()
    config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return AsyncStore(open_store(config.store.url, durability=config.store.durability))


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
        self.store = (
            AsyncStore(store) if isinstance(store, Store) else store or open_default_store()
        )
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

    async def append(self, messages: list[Message]) -> None:
        """Store messages; they are durable when this returns."""
        if not messages:
            return
        if self._session is None:
            self._session = await self._find_or_begin()
        await self.store.append(self._session, *messages)
        pending, self._pending = self._pending, []
        for model, tokens in pending:
            await self.store.add_usage(self.id, tokens, model=model)

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
