"""The stores that keys reach: that of the server, and one for each tenant, opened when first used."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from rekindle.config import Config, is_url
from rekindle.errors import InvalidApiKey, NotFound
from rekindle.store.async_store import AsyncStore
from rekindle.store.sessions.sessions import get_session_id
from rekindle.store.tenants.tenant_store import TENANTS_FOLDER
from rekindle.tenants import Access, Tenants, open_tenants
from rekindle.types import Message, Session

from .keys import KEY_PREFIX, LOCAL_TENANT, KeyFile

MAX_OPEN_STORES = 50
MAX_KNOWN_SESSIONS = 100_000
_DIRECTORY_FILE = "directory.db"


class HeldStore:
    """An open store, and how many requests use it. `id` never belongs to another tenant again."""

    def __init__(self, store: AsyncStore, id: str, *, has_quota: bool = False) -> None:
        self.store = store
        self.id = id
        self.users = 0
        self._has_quota = has_quota
        self._known: set[str] = set()

    async def append(self, session: Session | str, *messages: Message) -> list[int]:
        """Append messages; durable on return."""
        if isinstance(session, str) and session not in self._known:
            # An append that fails splits the commit that it shares with others: look before.
            await self.store.session(session)
        try:
            if self._has_quota:  # counting them takes a query, which must not hold up the others
                run, append = self.store.writers.run, self.store.store.append
                positions = await run(append, session, *messages)
            else:
                positions = await self.store.append(session, *messages)
        except NotFound:
            self._known.discard(get_session_id(session))
            raise
        if len(self._known) >= MAX_KNOWN_SESSIONS:
            self._known.clear()
        self._known.add(get_session_id(session))
        return positions


class ServerStores:
    """Knows all keys and stores of a server."""

    def __init__(self, config: Config, local: AsyncStore, keys: KeyFile) -> None:
        self._config = config
        self._keys = keys
        self._local = HeldStore(local, LOCAL_TENANT)
        self._tenants: Tenants | None = None
        self._open: OrderedDict[str, HeldStore] = OrderedDict()
        self._opening = asyncio.Lock()

    def authenticate(self, token: str) -> Access | None:
        """Return what a key allows: one of the server's own store, or one of a tenant."""
        if token.startswith(KEY_PREFIX):
            return self._keys.authenticate(token)
        tenants = self._find_tenants()
        if tenants is None:
            return None
        try:
            return tenants.keys.authenticate(token)
        except InvalidApiKey:
            return None

    def has_tenants(self) -> bool:
        """Return whether there are tenants, whose keys are made elsewhere."""
        tenants = self._find_tenants()
        return tenants is not None and bool(tenants.list())

    def _find_tenants(self) -> Tenants | None:
        """Open the directory of tenants, if this server has any."""
        if self._tenants is None:
            target = self._config.store.url
            file = Path(target).parent / TENANTS_FOLDER / _DIRECTORY_FILE
            if is_url(target) or file.exists():
                self._tenants = open_tenants(
                    target,
                    durability=self._config.store.durability,
                    busy_seconds=self._config.store.busy_seconds,
                )
        return self._tenants

    @asynccontextmanager
    async def hold_store(self, access: Access) -> AsyncGenerator[HeldStore]:
        """Hold the store that a key reaches: nothing of another tenant is in it."""
        held = self._local
        if access.tenant != LOCAL_TENANT:
            held = self._open.get(access.tenant) or await self._open_tenant(access.tenant)
        held.users += 1
        try:
            yield held
        finally:
            held.users -= 1

    async def _open_tenant(self, name: str) -> HeldStore:
        async with self._opening:
            held = self._open.get(name)
            if held is None:
                held = self._open[name] = await asyncio.to_thread(self._open_store, name)
                await self._close_idle(keep=name)
            return held

    def _open_store(self, name: str) -> HeldStore:
        tenants = self._find_tenants()
        if tenants is None:
            raise InvalidApiKey("This API key is not valid.")
        tenant = tenants.get(name)
        has_quota = any(limit is not None for limit in tenant.quota)
        store = AsyncStore(tenants.open_store(name))
        return HeldStore(store, tenant.id, has_quota=has_quota)

    async def _close_idle(self, keep: str) -> None:
        """Close stores that nobody uses, if too many are open."""
        for name, held in [*self._open.items()]:
            if len(self._open) <= MAX_OPEN_STORES:
                return
            if not held.users and name != keep:
                del self._open[name]
                await held.store.close()

    async def close(self) -> None:
        """Close the stores of tenants, after what they are still writing."""
        for held in self._open.values():
            await held.store.close()
        self._open.clear()
        if self._tenants is not None:
            await asyncio.to_thread(self._tenants.close)
