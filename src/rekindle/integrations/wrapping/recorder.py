"""Write exchanges with models to sessions, and never disturb the caller."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from rekindle.errors import NotFound
from rekindle.redaction.environment import find_secret_values
from rekindle.redaction.redactor import Redactor
from rekindle.store import Store
from rekindle.transcripts.export.redact import SessionRedactor
from rekindle.types import Message, Session

from .exchange import ModelExchange, make_key

logger = logging.getLogger(__name__)

SOURCE = "wrapped-client"
PAUSE_SECONDS = 60.0  # after a failure, so that a store that hangs does not delay every call
_MAX_CONVERSATIONS = 10_000


class ExchangeRecorder:
    """Finds the session that an exchange continues, and appends what is new.

    A caller sends the whole conversation with each request. It continues the session that ended with
    the beginning of that conversation; another one begins a session. With `session` all exchanges go
    to that session.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        session: str | None = None,
        owner: str | None = None,
        title: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._session = session
        self._owner = owner
        self._title = title
        known = {**find_secret_values(os.environ), **(secrets or {})}
        self._redactor = SessionRedactor(Redactor(known), keeps_images=True)
        self._ends: OrderedDict[str, str] = OrderedDict()  # sessions by how they end
        self._lock = Lock()
        self._paused_until = 0.0
        self._has_failed = False

    def record(self, make_exchange: Callable[[], ModelExchange | None]) -> None:
        """Store an exchange; a failure is logged, once, and recording goes on after a while."""
        if time.monotonic() < self._paused_until:
            return
        try:
            exchange = make_exchange()
            if exchange is not None:
                with self._lock:
                    self._write(exchange)
            self._has_failed = False
        except Exception as error:  # noqa: BLE001 - the caller's call succeeded; it must not fail here
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            if not self._has_failed:
                logger.warning("Calls of the model client are not recorded: %s", error)
            self._has_failed = True

    def _write(self, exchange: ModelExchange) -> None:
        if self._store is None:
            self._store = self._open_store()
        chain = _hash_chain(exchange.request)
        session, known = self._find_session(self._store, exchange, chain)
        new = [*exchange.request[known:], *exchange.answer]
        if new:
            self._store.append(session, *self._redactor.redact_messages(new))
        if exchange.tokens.total:
            self._store.add_usage(session, exchange.tokens, model=exchange.model)
        self._remember(_hash_chain([*exchange.request, *exchange.answer])[-1], session.id)
        if exchange.id is not None:
            self._remember(f"id:{exchange.id}", session.id)

    def _find_session(
        self, store: Store, exchange: ModelExchange, chain: Sequence[str]
    ) -> tuple[Session, int]:
        """Return the session to write to, and how many messages of the request it has."""
        known, id = 0, self._session
        if exchange.previous is not None:
            id = id or self._ends.get(f"id:{exchange.previous}")
        else:
            known = next((n for n in range(len(chain), 0, -1) if chain[n - 1] in self._ends), 0)
            id = self._ends.pop(chain[known - 1]) if known else id
        try:
            if id is not None:
                session = store.session(id, owner=self._owner)
                if not known and exchange.previous is None:
                    known = self._count_stored(store, id, exchange.request)
                return session, known
        except NotFound:  # not yet there, or deleted meanwhile
            pass
        return self._begin(store, self._session), 0

    def _count_stored(self, store: Store, id: str, request: Sequence[Message]) -> int:
        """Return how many messages of a request an earlier process has stored."""
        stored = store.messages(id)
        redacted = self._redactor.redact_messages(request[: len(stored)])
        pairs = zip(stored, redacted, strict=False)
        same = [make_key(one) == make_key(other) for one, other in pairs]
        return same.index(False) if False in same else len(same)

    def _begin(self, store: Store, id: str | None) -> Session:
        title, self._title = self._title, None
        return store.begin(id=id, source=SOURCE, owner=self._owner, title=title, cwd=os.getcwd())

    def _remember(self, end: str, id: str) -> None:
        self._ends[end] = id
        while len(self._ends) > _MAX_CONVERSATIONS:
            self._ends.popitem(last=False)


def _hash_chain(messages: Sequence[Message]) -> list[str]:
    """Return a hash of each beginning of a conversation."""
    digest, chain = hashlib.sha256(), list[str]()
    for message in messages:
        digest.update(make_key(message).encode("utf-8", "surrogatepass"))
        chain.append(digest.hexdigest())
    return chain
